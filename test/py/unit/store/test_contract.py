"""Behaviour of every store, whatever is below it."""

import threading

import pytest

from fakes import cluster, store
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.model.objects import Update
from ganeti.store import Document, open_master
from ganeti.store.etcd import open_etcd


@pytest.fixture(params=["memory", "sqlite", "etcd"])
def opener(request, tmp_path):
    """Return a function that opens the same store again."""
    backend = store.MemoryBackend()
    opened = []
    if request.param == "etcd":
        servers = request.getfixturevalue("etcd").servers()

    def open_store(**options):
        if request.param == "memory":
            actual = store.open_memory(backend, **options)
        elif request.param == "etcd":
            actual = open_etcd(servers, clock=SystemClock(), node="node", **options)
        else:
            path = str(tmp_path / "store.db")
            actual = open_master(path, replicate=None, clock=SystemClock(), **options)
        opened.append(actual)
        return actual

    yield open_store
    for item in opened:
        item.close()


@pytest.fixture
def db(opener):
    return opener()


def document(key="1", data=b"{}", table="jobs"):
    return Document(table, key, data)


def test_a_commit_is_durable_when_it_returns(db, opener):
    revision = db.commit([document(data=b"one")])
    assert db.read("jobs", "1") == b"one"
    assert db.snapshot().revision == revision == 1
    db.close()
    assert opener().read("jobs", "1") == b"one"


def test_revisions_and_records_survive_reopening_and_the_term_grows(db, opener):
    db.commit(cluster.updates(cluster.example_data()))
    before = db.snapshot()
    assert before.term == db.term.number == 1
    db.close()
    again = opener()
    assert again.term.number == 2
    assert again.snapshot().revision == before.revision
    assert again.snapshot().nodes == before.nodes
    assert again.snapshot().disks == before.disks
    assert again.snapshot().cluster == before.cluster


def test_a_term_is_higher_than_any_seen(opener):
    assert opener(seen_term=7).term.number == 8


def test_a_batch_sees_its_own_changes_and_readers_do_not(db):
    db.commit(cluster.updates(cluster.example_data()))
    old = db.snapshot()
    key, node = next(iter(old.nodes.items()))
    with db.writing() as batch:
        batch.put(Update("nodes", key, node.replace(offline=True)))
        assert batch.snapshot.nodes[key].offline
        assert not db.snapshot().nodes[key].offline
    assert db.snapshot().nodes[key].offline
    assert not old.nodes[key].offline


def test_a_batch_sees_what_is_staged_but_not_durable_yet(db):
    example = cluster.updates(cluster.example_data())
    db.commit_soon(example)
    with db.writing() as batch:
        assert batch.snapshot.cluster.cluster_name == "cluster1.example.com"


def test_an_exception_drops_the_batch(db):
    with pytest.raises(ZeroDivisionError), db.writing() as batch:
        batch.put(document())
        raise ZeroDivisionError
    assert db.read("jobs", "1") is None
    assert db.commit([document()]) == 1


def test_an_empty_batch_changes_nothing(db):
    with db.writing():
        pass
    assert db.commit([]) == 0


def test_callbacks_come_in_the_order_of_commits(db):
    reported = []
    for number in range(50):
        db.commit_soon(
            [document(data=b"%d" % number)],
            lambda revision, error: reported.append((revision, error)),
        )
    db.commit([])
    assert reported == [(number + 1, None) for number in range(50)]
    assert db.read("jobs", "1") == b"49"


def test_a_broken_callback_does_not_stop_the_store(db, caplog):
    db.commit_soon([document()], lambda _revision, _error: 1 / 0)
    assert db.commit([document("2")]) == 2
    assert "ZeroDivisionError" in caplog.text


def test_scan_goes_by_key_and_prefix(db):
    keys = ["2/0000000002", "1/0000000001", "1/0000000010", "10/0000000001"]
    db.commit([document(key, key.encode(), "joblogs") for key in keys])
    assert [key for key, _data in db.scan("joblogs")] == sorted(keys)
    assert list(db.scan("joblogs", "1/")) == [
        ("1/0000000001", b"1/0000000001"),
        ("1/0000000010", b"1/0000000010"),
    ]
    db.commit([document("1/0000000001", None, "joblogs")])
    assert [key for key, _data in db.scan("joblogs", "1/")] == ["1/0000000010"]


def test_followers_get_what_was_and_what_comes(db):
    db.commit([document("1")])
    db.commit([document("2")])
    news = db.follow(1)
    assert next(news).changes == [document("2")]
    seen = []
    thread = threading.Thread(target=lambda: seen.append(next(news)))
    thread.start()
    db.commit([document("3", None)])
    thread.join()
    assert seen[0].revision == 3
    assert seen[0].changes == [document("3", None)]
    assert seen[0].term == db.term.number
    db.close()
    assert list(news) == []


def test_followers_get_changes_from_before_the_restart(db, opener):
    db.commit(cluster.updates(cluster.example_data()))
    db.commit([document()])
    nodes = db.snapshot().nodes
    db.close()
    news = opener().follow(0)
    changed = {change.key for change in next(news).changes if change[0] == "nodes"}
    assert changed == set(nodes)
    assert next(news).changes == [document()]


def test_the_same_document_twice_in_a_group_is_stored_once_and_last_wins(db):
    revision = db.commit([document(data=b"a"), document(data=b"b")])
    assert (revision, db.read("jobs", "1")) == (1, b"b")


def test_nothing_is_written_after_closing(db):
    db.close()
    with pytest.raises(errors.StorageError, match="closed"):
        db.commit([document()])
    with pytest.raises(errors.StorageError, match="closed"), db.writing():
        pass


def test_writers_in_many_threads_lose_nothing(db):
    db.commit(cluster.updates(cluster.example_data()))

    def work(name):
        for number in range(10):
            db.commit([document(f"{name}.{number}")])
            with db.writing() as batch:
                old = batch.snapshot.cluster
                batch.put(
                    Update("cluster", "", old.replace(serial_no=old.serial_no + 1))
                )

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(db.scan("jobs"))) == 80
    assert db.snapshot().cluster.serial_no == 4 + 80
    assert db.snapshot().revision == 161


def test_a_flood_is_cut_into_groups(db, monkeypatch):
    small = db._backend.limits._replace(group=1000)
    monkeypatch.setattr(db._backend, "limits", small)
    for number in range(30):
        db.commit_soon([document(str(number), b"x" * 300)])
    assert db.commit([document("big", b"x" * 5000)]) == 31
    news = db.follow(0)
    seen = [next(news)]
    while seen[-1].revision < 31:
        seen.append(next(news))
    assert sum(len(item.changes) for item in seen) == 31
    assert all(len(item.changes) <= 3 for item in seen)
    assert len(seen[-1].changes) == 1


def test_followers_that_fall_behind_read_the_log(db, monkeypatch):
    monkeypatch.setattr("ganeti.store.published.RECENT_BYTES", 100)
    for number in range(10):
        db.commit([document(str(number), b"x" * 50)])
    news = db.follow(0)
    assert [next(news).revision for _ in range(10)] == list(range(1, 11))
    db.commit([document("big", b"x" * 500)])
    assert next(news).changes == [document("big", b"x" * 500)]
