"""Files that follow a store in etcd, against a real server."""

import threading

import pytest

from fakes import cluster, patience
from fakes.etcd_servers import EtcdServers
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.model.objects import TABLES as RECORD_TABLES
from ganeti.store import DOCUMENT_TABLES, Document, Follower, wire
from ganeti.store.backend import NO_HISTORY, Group, chain
from ganeti.store.database import Database
from ganeti.store.etcd import Gateway, Mirror, messages, open_etcd
from ganeti.store.etcd.gateway import CompactedError

TABLES = (*RECORD_TABLES, *DOCUMENT_TABLES)


@pytest.fixture
def servers(etcd):
    return etcd.servers()


@pytest.fixture
def db(servers):
    actual = open_etcd(servers, clock=SystemClock(), node="node1")
    yield actual
    actual.close()


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store.db")


@pytest.fixture
def mirror(servers, path):
    actual = Mirror(servers, path, SystemClock())
    yield actual
    actual.close()


def document(key="1", data=b"{}", table="jobs"):
    return Document(table, key, data)


def contents(path):
    """Return what the file has, with its end, its term, and where its archive ends."""
    file = Database(path, create=False)
    try:
        rows = {
            (table, key): data
            for table in TABLES
            for key, data in file.tables.scan_some(table, None, "")
        }
        return file.position(), rows, file.archive_cursor()
    finally:
        file.close()


def assert_equal(path, db):
    position, rows, cursor = contents(path)
    assert (position.revision, position.digest) == db._backend.end()
    assert position.term == db.term
    assert not cursor
    assert rows == {
        (table, key): data for table in TABLES for key, data in db.scan(table)
    }


def test_a_file_gets_a_whole_copy_with_the_archive_then_groups(db, mirror, path):
    db.commit(cluster.updates(cluster.example_data()))
    db.commit([document(str(i), b"x" * 30_000, "archive") for i in range(50)])
    mirror.catch_up()
    assert_equal(path, db)
    db.commit([document("5"), document("5/1", b"log", "joblogs")])
    db.commit([document("5", None), document("7", None, "archive")])
    mirror.catch_up()
    assert_equal(path, db)
    # By groups, so that followers of the file get them as well.
    file = Database(path, create=False)
    assert [len(group.payload) > 0 for group in file.log.groups()] == [True, True]
    file.close()


def test_a_large_group_is_followed_before_its_rows_are_in_place(
    db, mirror, path, monkeypatch
):
    db.commit([document("old")])
    mirror.catch_up()
    monkeypatch.setattr(db._backend._writer, "settle", lambda: None)
    db.commit([document(str(i)) for i in range(200)])
    mirror.catch_up()
    assert len(contents(path)[1]) == 201
    fresh = Mirror(db._backend._gateway.servers, f"{path}.fresh", SystemClock())
    fresh.catch_up()
    fresh.close()
    assert len(contents(f"{path}.fresh")[1]) == 201
    monkeypatch.undo()
    db.commit([document("later")])
    mirror.catch_up()
    assert_equal(path, db)


def test_a_copy_that_ended_half_way_goes_on(db, mirror, path, monkeypatch):
    db.commit([document(str(i), bytes([i]) * 600_000, "archive") for i in range(6)])
    append, count = Database.append, []

    def fail(self, *args, **options):
        count.append(1)
        if len(count) == 2:
            raise errors.StorageError("disk full")
        return append(self, *args, **options)

    monkeypatch.setattr(Database, "append", fail)
    with pytest.raises(errors.StorageError, match="disk full"):
        mirror.catch_up()
    assert contents(path)[2] == "archive/1"
    db.commit([document("0", None, "archive"), document("6", b"new", "archive")])
    mirror.catch_up()
    assert_equal(path, db)


def test_a_file_that_is_far_behind_gets_a_whole_copy(db, servers, mirror, path):
    db.commit([document()])
    mirror.catch_up()
    db.commit([document("2")])
    db.commit([document("3"), document("1", None)])
    at = db._backend._writer.guards.end_at
    gateway = Gateway(servers)
    gateway.call("kv/compaction", {"revision": at}, messages.TxnAnswer)
    mirror.catch_up()
    assert_equal(path, db)


def test_a_file_with_another_history_gets_a_whole_copy(db, mirror, path):
    db.commit([document("theirs")])
    file = Database(path, create=False)
    payload = wire.encode_rows([("jobs", "ours", b"{}")])
    group = Group(0, 1, 0, NO_HISTORY, chain(NO_HISTORY, payload), payload)
    assert file.append([group], file.position(), term=file.position().term)
    file.close()
    mirror.catch_up()
    assert_equal(path, db)


def test_another_cluster_is_refused_and_the_file_stays(db, mirror, path, etcd):
    db.commit(cluster.updates(cluster.example_data()))
    mirror.catch_up()
    example = cluster.example_data()
    example["cluster"]["uuid"] = "f" * 8 + "-0000-4000-8000-" + "0" * 12
    other = etcd.servers()
    strange = open_etcd(other, clock=SystemClock(), node="node1")
    strange.commit(cluster.updates(example))
    strange.commit([document()])
    strange.close()
    wrong = Mirror(other, path, SystemClock())
    with pytest.raises(errors.ConfigurationError, match="wanted cluster"):
        wrong.catch_up()
    wrong.close()
    assert_equal(path, db)


def test_followers_of_the_file_see_commits_while_the_mirror_runs(
    db, servers, mirror, path
):
    db.commit(cluster.updates(cluster.example_data()))
    mirror.catch_up()
    stop = threading.Event()
    thread = threading.Thread(target=mirror.run, args=(stop,))
    thread.start()
    follower = Follower(path)
    try:
        for number in range(20):
            revision = db.commit([document(str(number))])
            patience.until(
                "the commit is seen",
                lambda revision=revision: (
                    follower.poll() is not None
                    and follower.snapshot().revision >= revision
                ),
            )
        last = db.commit([document(f"large{i}", b"x" * 9) for i in range(150)])
        patience.until("all is seen", lambda: contents(path)[0].revision == last)
        # Another master begins: the file promises its term before it writes.
        later = open_etcd(servers, clock=SystemClock(), node="node1")
        patience.until("the term is seen", lambda: contents(path)[0].term == later.term)
        assert_equal(path, later)
        later.close()
    finally:
        stop.set()
        thread.join(patience.PATIENCE_S)
        follower.close()
    assert not thread.is_alive()


def test_a_mirror_without_servers_tries_again(tmp_path, path, caplog):
    servers = EtcdServers(tmp_path)
    mirror = Mirror(servers.servers("later"), path, SystemClock())
    stop = threading.Event()
    thread = threading.Thread(target=mirror.run, args=(stop,))
    thread.start()
    try:
        patience.until("a warning", lambda: "is not current" in caplog.text)
        servers.start()
        db = open_etcd(servers.servers("later"), clock=SystemClock(), node="node1")
        db.commit([document()])
        patience.until("the copy is there", lambda: contents(path)[1])
        db.close()
    finally:
        stop.set()
        thread.join(patience.PATIENCE_S)
        mirror.close()
        servers.close()


def test_a_mirror_goes_on_after_an_error_that_nobody_expects(
    db, mirror, path, monkeypatch, caplog
):
    failures = [KeyError("lost"), CompactedError("forgotten")]
    look = mirror._reader.look

    def fail_first():
        if failures:
            raise failures.pop()
        return look()

    monkeypatch.setattr(mirror._reader, "look", fail_first)
    db.commit([document()])
    stop = threading.Event()
    thread = threading.Thread(target=mirror.run, args=(stop,))
    thread.start()
    try:
        patience.until("the copy is there", lambda: contents(path)[1])
    finally:
        stop.set()
        thread.join(patience.PATIENCE_S)
    assert "is not current: 'lost'" in caplog.text


def test_a_new_term_is_promised_by_the_file(db, servers, mirror, path):
    db.commit([document()])
    mirror.catch_up()
    db.close()
    later = open_etcd(servers, clock=SystemClock(), node="node2")
    mirror.catch_up()
    assert contents(path)[0].term == later.term
    later.close()
