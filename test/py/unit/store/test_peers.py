"""Copies on master candidates: majority, failures, catching up, terms."""

import threading

import pytest

from fakes import cluster
from fakes.candidates import Candidates
from fakes.patience import until
from ganeti import errors, store
from ganeti.clock import SystemClock
from ganeti.objects import Update
from ganeti.store import Document, database, peers


@pytest.fixture
def world(tmp_path):
    found = Candidates(tmp_path, (1, 2))
    yield found
    found.close()


@pytest.fixture
def opener(tmp_path, world):
    opened = []

    def open_master(name="store.db", **options):
        opened.append(
            store.open_master(
                str(tmp_path / name),
                replicate=world.replicate,
                clock=SystemClock(),
                **options,
            )
        )
        return opened[-1]

    yield open_master
    for item in opened:
        item.close()


@pytest.fixture
def db(opener):
    found = opener()
    found.commit(cluster.big(3, 2))
    found.commit([Document("meta", "serial", b"1")])
    return found


def contents(path):
    """Return the position and all that a candidate holds."""
    found = database.Database(str(path), create=False)
    try:
        copy = store.wire.decode_copy(store.wire.encode_copy(found.dump()))
        return (copy.revision, copy.digest, sorted(copy.rows))
    finally:
        found.close()


def is_same(db, world, tmp_path, number):
    try:
        copy = contents(tmp_path / f"copy{number}.db")
    except errors.ConfigurationError:
        return False  # being made
    return copy == contents(tmp_path / "store.db")


def job(key, data=b"{}"):
    return Document("jobs", key, data)


def test_candidates_get_everything(db, world, tmp_path):
    db.commit([job("1")])
    for number in (1, 2):
        until("the copy", lambda n=number: is_same(db, world, tmp_path, n))
    assert world[1].status()["term"] == db.term


def test_a_commit_does_not_wait_for_a_minority(db, world, tmp_path):
    until("both", lambda: all(ok for ok, _ in db.copies().values()))
    world.hang(2)
    for number in range(5):
        db.commit([job(str(number))])
    assert world[1].status()["revision"] == db.snapshot().revision
    world.release(2)
    until("the slow one", lambda: is_same(db, world, tmp_path, 2))


def test_without_a_majority_a_commit_warns_and_goes_on(db, world, caplog, tmp_path):
    until("both", lambda: all(ok for ok, _ in db.copies().values()))
    world.down |= set(world.copies)
    revision = db.commit([job("1")])
    assert f"NO MAJORITY: revision {revision} is on 1 master candidates" in caplog.text
    assert "wanted 2" in caplog.text
    db.commit([job("2")])
    world.down.clear()
    for number in (1, 2):
        until("the repair", lambda n=number: is_same(db, world, tmp_path, n))
    assert caplog.text.count("NO MAJORITY") == 1


def test_silence_costs_one_time_limit_only(db, world, monkeypatch, caplog, tmp_path):
    until("both", lambda: all(ok for ok, _ in db.copies().values()))
    monkeypatch.setattr(peers, "ACK_TIMEOUT_S", 0.05)
    world.hang(1)
    world.hang(2)
    db.commit([job("1")])
    assert "is behind: no answer" in caplog.text
    calls = len(world.calls)
    for number in range(20):
        db.commit([job(str(number))])
    assert len(world.calls) == calls  # nobody is asked while the calls hang
    world.release(1)
    world.release(2)
    until("the repair", lambda: is_same(db, world, tmp_path, 1))


def test_a_candidate_that_missed_some_gets_just_these(db, world, tmp_path):
    until("the copy", lambda: is_same(db, world, tmp_path, 2))
    world.down.add(world.node(2))
    for number in range(5):
        db.commit([job(str(number))])
    until("it to be stale", lambda: not db.copies()[world.node(2)][0])
    world.calls.clear()
    world.down.clear()
    until("the repair", lambda: is_same(db, world, tmp_path, 2))
    assert (world.node(2), "store_install") not in world.calls


def test_a_lost_answer_is_no_lost_change(db, world, tmp_path):
    until("the copy", lambda: is_same(db, world, tmp_path, 2))
    world.losing.add(world.node(2))
    db.commit([job("1")])
    until("it to be stale", lambda: not db.copies()[world.node(2)][0])
    world.losing.clear()
    db.commit([job("2")])
    until("the repair", lambda: is_same(db, world, tmp_path, 2))


def test_a_candidate_with_another_history_gets_a_whole_copy(
    db, world, opener, tmp_path
):
    stranger = Candidates(tmp_path, ())
    stranger.copies = {world.node(2): store.Replica(str(tmp_path / "other.db"))}
    other = store.open_master(
        str(tmp_path / "m2.db"), replicate=stranger.replicate, clock=SystemClock()
    )
    other.commit(cluster.big(3, 1))
    other.commit([job("foreign")])
    until("the other", lambda: stranger.copies[world.node(2)].status()["revision"] == 2)
    other.close()
    until("the copy", lambda: is_same(db, world, tmp_path, 2))
    world.copies[world.node(2)].close()
    world.copies[world.node(2)] = stranger.copies[world.node(2)]
    db.commit([job("1")])
    until(
        "the repair",
        lambda: contents(tmp_path / "store.db") == contents(tmp_path / "other.db"),
    )
    assert (world.node(2), "store_install") in world.calls


def test_what_the_master_lost_disappears_from_candidates(db, world, tmp_path):
    until("the copy", lambda: is_same(db, world, tmp_path, 1))
    limit = db._backend._writer._db.execute("PRAGMA page_count").fetchone()[0] + 2
    db._backend._writer._db.execute(f"PRAGMA max_page_count = {limit}")
    with pytest.raises(errors.StorageError, match="full"):
        db.commit([job("big", b"x" * 100_000)])
    assert db.read("jobs", "big") is None
    db._backend._writer._db.execute("PRAGMA max_page_count = 1000000")
    db.commit([job("small")])
    until("the repair", lambda: is_same(db, world, tmp_path, 1))
    assert db.read("jobs", "small") == b"{}"


def test_new_candidates_join_and_old_ones_leave(db, world, tmp_path):
    until("the copy", lambda: is_same(db, world, tmp_path, 2))
    node = db.snapshot().nodes[world.node(2)]
    db.commit([Update("nodes", node.uuid, node.replace(master_candidate=False))])
    db.commit([job("1")])
    assert set(db.copies()) == {world.node(1)}
    behind = world[2].status()["revision"]
    assert behind < db.snapshot().revision
    world[2].purge()
    assert world[2].status()["revision"] == 0
    db.commit([Update("nodes", node.uuid, node)])
    until("the new candidate", lambda: is_same(db, world, tmp_path, 2))


def test_a_new_candidate_gets_the_archive_bit_by_bit(db, world, monkeypatch):
    monkeypatch.setattr(peers, "CATCH_UP_BYTES", 1000)
    world[2].purge()
    db.commit([Document("archive", f"{n:03}", b"x" * 90) for n in range(100)])
    db.commit([Document("joblogs", f"{n:03}/1", b"y" * 90) for n in range(100)])
    db.commit([job("500"), Document("joblogs", "500/1", b"z")])
    until("the copy", lambda: db.copies()[world.node(2)][0])
    node = db.snapshot().nodes[world.node(2)]
    db.commit([Update("nodes", node.uuid, node.replace(offline=True))])
    world[2].purge()
    # Without the change log only a whole copy helps.
    db._backend._writer._db.execute("DELETE FROM changelog")
    db.commit([Update("nodes", node.uuid, node)])

    def copied(table):
        try:
            copy = database.Database(world[2].path, create=False)
        except errors.ConfigurationError:
            return []
        try:
            return copy.scan_some(table, None, "")
        finally:
            copy.close()

    for table in ("archive", "joblogs"):
        until(table, lambda t=table: copied(t) == list(db.scan(t)))
    assert (world.node(2), "store_install") in world.calls


def test_a_whole_copy_has_the_logs_of_live_jobs_only(db):
    db.commit([Document("archive", "1", b""), Document("joblogs", "1/1", b"old")])
    db.commit([job("12"), Document("joblogs", "12/1", b"new")])
    text = store.wire.encode_copy(db._backend.dump())
    rows = store.wire.decode_copy(text).rows
    assert [row for row in rows if row[0] == "joblogs"] == [("joblogs", "12/1", b"new")]


def test_a_newer_master_deposes_the_old_one(db, world, opener, tmp_path):
    until("the copy", lambda: is_same(db, world, tmp_path, 1))
    db_term = db.term
    until("the copy", lambda: is_same(db, world, tmp_path, 2))
    old_status = world[1].status()
    world[1].close()
    # Node 1 becomes the master, with its copy.
    taker = store.open_master(
        str(tmp_path / "copy1.db"),
        replicate=world.replicate,
        clock=SystemClock(),
        node=world.node(1),
        seen_term=old_status["term"],
    )
    assert taker.term == db_term + 1
    assert taker.snapshot().nodes == db.snapshot().nodes
    taker.commit([job("new")])
    until("node 2 to hear of it", lambda: world[2].status()["term"] == taker.term)

    def write():
        for number in range(100):
            db.commit([job(str(number))])

    with pytest.raises(errors.TermError, match="is over"):
        write()
    with pytest.raises(errors.TermError):
        db.commit([job("late")])
    with pytest.raises(errors.TermError, match="is over"):
        world[2].apply(db_term, 0, store.wire.encode_batch([]))
    taker.close()


def test_an_idle_master_learns_that_it_is_deposed(world, opener, monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "IDLE_CHECK_S", 0.01)
    told = threading.Event()
    db = opener(on_deposed=told.set)
    db.commit(cluster.big(3, 1))
    until("the copy", lambda: is_same(db, world, tmp_path, 2))
    term = db.term + 1
    batch = store.wire.encode_batch([])
    assert world[2].apply(term, db.snapshot().revision, batch)["term"] == term
    assert told.wait(60)
    with pytest.raises(errors.TermError, match="is over"):
        db.commit([job("1")])


def test_a_copy_that_disappears_is_noticed_while_nothing_is_written(
    world, opener, monkeypatch, tmp_path
):
    monkeypatch.setattr(peers, "IDLE_CHECK_S", 0.01)
    db = opener()
    db.commit(cluster.big(3, 1))
    until("the copy", lambda: is_same(db, world, tmp_path, 2))
    world[2].purge()
    until("the new copy", lambda: is_same(db, world, tmp_path, 2))


def test_what_another_cluster_left_on_a_node_deposes_nobody(world, opener, tmp_path):
    data = cluster.example_data()
    data["cluster"]["uuid"] = "another"
    left = store.open_master(
        world[2].path, replicate=None, clock=SystemClock(), seen_term=99
    )
    left.commit([*cluster.updates(data), Document("archive", "1", b"old")])
    left.close()
    db = opener()
    db.commit(cluster.big(3, 2))
    until("the copy", lambda: is_same(db, world, tmp_path, 2))
    assert world[2].status()["term"] == db.term == 1
    db.commit([job("1")])
