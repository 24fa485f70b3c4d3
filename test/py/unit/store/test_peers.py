"""Copies on master candidates: majority, failures, catching up, terms."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fakes import cluster
from fakes.candidates import Candidates
from fakes.patience import start, until
from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.decisions.quorum import Term
from ganeti.master.config import HigherNumbers
from ganeti.model.objects import Update
from ganeti.protocols.rpc import calls
from ganeti.store import CommitSettings, Document, committer, database
from ganeti.store.copies import branches, flights, keeper, peers


@pytest.fixture
def db(opener):
    actual = opener()
    actual.commit(cluster.big(3, 2))
    actual.commit([Document("meta", "serial", b"1")])
    return actual


def contents(path):
    """Return the position and all that a candidate holds."""
    actual = database.Database(str(path), create=False)
    try:
        copy = store.wire.decode_copy(store.wire.encode_copy(actual.dump()))
        return (copy.revision, copy.digest, sorted(copy.rows))
    finally:
        actual.close()


def is_same(db, simulation, tmp_path, number):
    try:
        copy = contents(tmp_path / f"copy{number}.db")
    except errors.ConfigurationError:
        return False  # being made
    return copy == contents(tmp_path / "store.db")


def job(key, data=b"{}"):
    return Document("jobs", key, data)


def test_candidates_get_everything(db, simulation, tmp_path):
    db.commit([job("1")])
    for number in (1, 2):
        until("the copy", lambda n=number: is_same(db, simulation, tmp_path, n))
    assert simulation[1].status()["term"] == db.term.number
    assert simulation[1].status()["written"] == db.term.number


def test_a_commit_does_not_wait_for_a_minority(db, simulation, tmp_path):
    until("both", lambda: all(copy.is_current for copy in db.copies().values()))
    simulation.hang(2)
    for number in range(5):
        db.commit([job(str(number))])
    assert simulation[1].status()["revision"] == db.snapshot().revision
    simulation.release(2)
    until("the slow one", lambda: is_same(db, simulation, tmp_path, 2))


def test_without_a_majority_nothing_is_acknowledged(
    db, simulation, monkeypatch, caplog, tmp_path
):
    until("both", lambda: all(copy.is_current for copy in db.copies().values()))
    monkeypatch.setattr(peers, "ACK_TIMEOUT_S", 0.05)
    simulation.down |= set(simulation.copies)
    before = db.snapshot().revision
    waiting = start(lambda: db.commit([job("1")]))
    until("refusal", db.exposure)
    with pytest.raises(errors.StorageError, match="changes are refused: no majority"):
        db.commit([job("2")])
    assert not waiting.done()
    assert db.snapshot().revision == before
    until("the log", lambda: "NO MAJORITY" in caplog.text)
    # One candidate is enough, and nothing was lost in between.
    simulation.down.discard(simulation.node(2))
    assert waiting.result(60) == before + 1
    until("the end of the refusal", lambda: not db.exposure())
    assert db.commit([job("3")]) == before + 2
    assert db.read("jobs", "2") is None
    simulation.down.clear()
    until("the repair", lambda: is_same(db, simulation, tmp_path, 1))


def test_closing_does_not_wait_for_a_majority(db, simulation, monkeypatch):
    until("both", lambda: all(copy.is_current for copy in db.copies().values()))
    monkeypatch.setattr(peers, "ACK_TIMEOUT_S", 0.05)
    monkeypatch.setattr(peers, "RECHECK_S", 0.01)
    simulation.down |= set(simulation.copies)
    waiting = start(lambda: db.commit([job("1")]))
    until("refusal", db.exposure)
    db.close()
    with pytest.raises(errors.StorageError, match="no majority"):
        waiting.result(60)


def test_a_call_that_ends_with_the_store_is_no_fault_of_a_candidate(
    opener, simulation, caplog
):
    simulation.hang(2)
    db, node = opener(), simulation.node(2)
    db.commit(cluster.big(3, 2))
    until("a call", lambda: (node, "store_status") in simulation.calls)
    peer = db._copies._candidates.peers[node]
    db.close()
    simulation.down.add(node)
    simulation.release(2)
    assert peer.has_ended.wait(60)
    assert "cannot be used" not in caplog.text


@pytest.fixture
def lenient(opener):
    actual = opener(settings=CommitSettings(is_lenient=lambda: True))
    actual.commit(cluster.big(3, 2))
    return actual


def test_availability_is_a_choice_and_warns(lenient, simulation, caplog, tmp_path):
    db = lenient
    until("both", lambda: all(copy.is_current for copy in db.copies().values()))
    simulation.down |= set(simulation.copies)
    revision = db.commit([job("1")])
    assert f"NO MAJORITY: revision {revision}" in caplog.text
    assert "missing: node1.example.com, node2.example.com;" in db.exposure()
    db.commit([job("2")])
    simulation.down.clear()
    for number in (1, 2):
        until("the repair", lambda n=number: is_same(db, simulation, tmp_path, n))
    db.commit([job("3")])
    assert db.exposure() == ""
    assert caplog.text.count("NO MAJORITY") == 1


def test_two_candidates_go_on_and_say_so(opener, simulation, tmp_path):
    db = opener()
    db.commit(cluster.big(3, 1, candidates=2))
    until("the copy", lambda: is_same(db, simulation, tmp_path, 1))
    assert db.exposure() == ""
    simulation.down.add(simulation.node(1))
    db.commit([job("1")])
    assert "no majority of the 2 master candidates" in db.exposure()
    simulation.down.clear()
    until("the repair", lambda: is_same(db, simulation, tmp_path, 1))
    db.commit([job("2")])
    assert db.exposure() == ""


def test_silence_costs_one_time_limit_only(
    lenient, simulation, monkeypatch, caplog, tmp_path
):
    db = lenient
    until("both", lambda: all(copy.is_current for copy in db.copies().values()))
    monkeypatch.setattr(peers, "ACK_TIMEOUT_S", 0.05)
    simulation.hang(1)
    simulation.hang(2)
    before = len(simulation.calls)
    db.commit([job("1")])
    assert "is behind: no answer" in caplog.text
    # The time limit is short: it may be over before both are asked.
    nodes = {simulation.node(1), simulation.node(2)}
    until("both calls", lambda: {n for n, _ in simulation.calls[before:]} == nodes)
    calls = len(simulation.calls)
    for number in range(20):
        db.commit([job(str(number))])
    assert len(simulation.calls) == calls  # nobody is asked while the calls hang
    simulation.release(1)
    simulation.release(2)
    until("the repair", lambda: is_same(db, simulation, tmp_path, 1))


def test_a_candidate_that_missed_some_gets_just_these(db, simulation, tmp_path):
    until("the copy", lambda: is_same(db, simulation, tmp_path, 2))
    simulation.down.add(simulation.node(2))
    for number in range(5):
        db.commit([job(str(number))])
    until("it to be stale", lambda: not db.copies()[simulation.node(2)].is_current)
    simulation.calls.clear()
    simulation.down.clear()
    until("the repair", lambda: is_same(db, simulation, tmp_path, 2))
    assert (simulation.node(2), "store_install") not in simulation.calls


def test_a_lost_answer_is_no_lost_change(db, simulation, tmp_path):
    until("the copy", lambda: is_same(db, simulation, tmp_path, 2))
    simulation.losing.add(simulation.node(2))
    db.commit([job("1")])
    until("it to be stale", lambda: not db.copies()[simulation.node(2)].is_current)
    simulation.losing.clear()
    db.commit([job("2")])
    until("the repair", lambda: is_same(db, simulation, tmp_path, 2))


def test_a_candidate_with_another_history_gets_a_whole_copy(
    db, simulation, opener, tmp_path
):
    stranger = Candidates(tmp_path, ())
    stranger.copies = {simulation.node(2): store.Replica(str(tmp_path / "other.db"))}
    other = store.open_master(
        str(tmp_path / "m2.db"), replicate=stranger.replicate, clock=SystemClock()
    )
    other.commit(cluster.big(3, 1))
    other.commit([job("foreign")])
    until(
        "the other",
        lambda: stranger.copies[simulation.node(2)].status()["revision"] == 2,
    )
    other.close()
    until("the copy", lambda: is_same(db, simulation, tmp_path, 2))
    simulation.copies[simulation.node(2)].close()
    simulation.copies[simulation.node(2)] = stranger.copies[simulation.node(2)]
    db.commit([job("1")])
    until(
        "the repair",
        lambda: contents(tmp_path / "store.db") == contents(tmp_path / "other.db"),
    )
    assert (simulation.node(2), "store_install") in simulation.calls


def test_a_full_disk_refuses_changes_until_what_was_sent_is_written(
    db, simulation, monkeypatch, tmp_path
):
    until("the copy", lambda: is_same(db, simulation, tmp_path, 1))
    monkeypatch.setattr(committer, "RETRY_S", 0.01)
    connection = db._backend._writer.file.sql
    limit = connection.execute("PRAGMA page_count").fetchone()[0] + 2
    connection.execute(f"PRAGMA max_page_count = {limit}")
    waiting = start(lambda: db.commit([job("big", b"x" * 100_000)]))
    until("the failure", lambda: db._staging.disk_failure)
    with pytest.raises(errors.StorageError, match="refused until the disk"):
        db.commit([job("small")])
    assert db.read("jobs", "big") is None
    simulation.calls.clear()
    connection.execute("PRAGMA max_page_count = 1000000")
    waiting.result(60)
    db.commit([job("small")])
    until("the copy", lambda: is_same(db, simulation, tmp_path, 1))
    assert (simulation.node(1), "store_install") not in simulation.calls


def test_new_candidates_join_and_old_ones_leave(db, simulation, tmp_path):
    until("the copy", lambda: is_same(db, simulation, tmp_path, 2))
    node = db.snapshot().nodes[simulation.node(2)]
    db.commit([Update("nodes", node.uuid, node.replace(master_candidate=False))])
    db.commit([job("1")])
    assert set(db.copies()) == {simulation.node(1)}
    behind = simulation[2].status()["revision"]
    assert behind < db.snapshot().revision
    simulation[2].purge()
    assert simulation[2].status()["revision"] == 0
    db.commit([Update("nodes", node.uuid, node)])
    until("the new candidate", lambda: is_same(db, simulation, tmp_path, 2))


def test_a_released_node_gets_no_new_copy_from_a_call_under_way(
    db, simulation, tmp_path
):
    until("the copy", lambda: is_same(db, simulation, tmp_path, 2))
    simulation.hang(2)
    db.commit([job("1")])
    node = db.snapshot().nodes[simulation.node(2)]
    db.commit([Update("nodes", node.uuid, node.replace(master_candidate=False))])
    # Both majorities have it, and the node counts until another group follows.
    assert node.uuid in db.copies()
    assert not db.release_copy(node.uuid, 0.01)
    assert node.uuid not in db.copies()
    simulation[2].purge()
    simulation.release(2)
    assert db.release_copy(node.uuid, 60)
    revision = db.snapshot().revision
    assert db.release_copy(node.uuid, 0)
    assert db.snapshot().revision == revision
    assert not (tmp_path / "copy2.db").exists()


def test_a_new_candidate_gets_the_archive_bit_by_bit(db, simulation, monkeypatch):
    monkeypatch.setattr(keeper, "CATCH_UP_BYTES", 1000)
    simulation[2].purge()
    db.commit([Document("archive", f"{n:03}", b"x" * 90) for n in range(100)])
    db.commit([Document("joblogs", f"{n:03}/1", b"y" * 90) for n in range(100)])
    db.commit([job("500"), Document("joblogs", "500/1", b"z")])
    until("the copy", lambda: db.copies()[simulation.node(2)].is_current)
    node = db.snapshot().nodes[simulation.node(2)]
    db.commit([Update("nodes", node.uuid, node.replace(offline=True))])
    simulation[2].purge()
    # Without the change log only a whole copy helps.
    db._backend._writer.file.sql.execute("DELETE FROM changelog")
    db.commit([Update("nodes", node.uuid, node)])

    def copied(table):
        try:
            copy = database.Database(simulation[2].path, create=False)
        except errors.ConfigurationError:
            return []
        try:
            return copy.tables.scan_some(table, None, "")
        finally:
            copy.close()

    for table in ("archive", "joblogs"):
        until(table, lambda t=table: copied(t) == list(db.scan(t)))
    assert (simulation.node(2), "store_install") in simulation.calls


def test_a_whole_copy_has_the_logs_of_live_jobs_only(db):
    db.commit([Document("archive", "1", b""), Document("joblogs", "1/1", b"old")])
    db.commit([job("12"), Document("joblogs", "12/1", b"new")])
    text = store.wire.encode_copy(db._backend.dump())
    rows = store.wire.decode_copy(text).rows
    assert [row for row in rows if row[0] == "joblogs"] == [("joblogs", "12/1", b"new")]


def test_a_newer_master_deposes_the_old_one(db, simulation, opener, tmp_path):
    until("the copy", lambda: is_same(db, simulation, tmp_path, 1))
    db_term = db.term
    until("the copy", lambda: is_same(db, simulation, tmp_path, 2))
    old_status = simulation[1].status()
    simulation[1].close()
    # Node 1 becomes the master, with its copy.
    taker = store.open_master(
        str(tmp_path / "copy1.db"),
        replicate=simulation.replicate,
        clock=SystemClock(),
        node=simulation.node(1),
        seen_term=old_status["term"],
    )
    assert taker.term.number == db_term.number + 1
    assert taker.snapshot().nodes == db.snapshot().nodes
    taker.commit([job("new")])
    until(
        "node 2 to hear of it",
        lambda: simulation[2].status()["term"] == taker.term.number,
    )

    def write():
        for number in range(100):
            db.commit([job(str(number))])

    with pytest.raises(errors.TermError, match="is over"):
        write()
    with pytest.raises(errors.TermError):
        db.commit([job("late")])
    with pytest.raises(errors.TermError, match="is over"):
        simulation[2].apply(db_term, 0, store.wire.encode_batch([]))
    taker.close()


def test_an_idle_master_notices_that_it_was_replaced(
    simulation, opener, monkeypatch, tmp_path
):
    monkeypatch.setattr(keeper, "IDLE_CHECK_S", 0.01)
    reported = threading.Event()
    db = opener(settings=CommitSettings(on_deposed=reported.set))
    db.commit(cluster.big(3, 1))
    until("the copy", lambda: is_same(db, simulation, tmp_path, 2))
    term = Term(db.term.number + 1, "other")
    for number in (1, 2):
        assert simulation[number].promise(term)["term"] == term.number
    assert reported.wait(60)
    with pytest.raises(errors.TermError, match="is over"):
        db.commit([job("1")])


def test_a_restart_that_would_be_refused_too_is_not_wanted(
    simulation, opener, monkeypatch, tmp_path
):
    monkeypatch.setattr(keeper, "IDLE_CHECK_S", 0.01)
    asked = threading.Event()

    def on_refusal(_node):
        asked.set()
        return False

    db = opener(settings=CommitSettings(on_refusal=on_refusal))
    db.commit(cluster.big(3, 1))
    for number in (1, 2):
        until("the copy", lambda n=number: is_same(db, simulation, tmp_path, n))
    simulation[2].promise(Term(db.term.number + 7, "other"))
    assert asked.wait(60)
    until("refusal", lambda: "is over" in db.copies()[simulation.node(2)].trouble)
    assert not db.copies()[simulation.node(2)].wants_restart


def test_one_candidate_deposes_no_master(simulation, opener, monkeypatch, tmp_path):
    monkeypatch.setattr(keeper, "IDLE_CHECK_S", 0.01)
    reported = threading.Event()
    db = opener(settings=CommitSettings(on_deposed=reported.set))
    db.commit(cluster.big(3, 1))
    for number in (1, 2):
        until("the copy", lambda n=number: is_same(db, simulation, tmp_path, n))
    simulation[2].promise(Term(db.term.number + 7, "other"))
    until("refusal", lambda: db.copies()[simulation.node(2)].wants_restart)
    assert "is over" in db.copies()[simulation.node(2)].trouble
    assert not db.copies()[simulation.node(1)].wants_restart
    db.check_term()
    for number in range(5):
        db.commit([job(str(number))])
    assert not reported.is_set()
    assert db.exposure() == ""


def test_an_equal_number_of_another_owner_does_not_write(simulation, opener, tmp_path):
    db = opener(node=cluster.make_id("node", 0))
    db.commit(cluster.big(3, 1))
    until("the copy", lambda: is_same(db, simulation, tmp_path, 1))
    rival = Term(db.term.number, "rival")
    with pytest.raises(errors.TermError, match="is over"):
        simulation[1].install(rival, store.wire.encode_copy(db._backend.dump()))
    with pytest.raises(errors.TermError, match="is over"):
        simulation[1].promise(rival)


def test_adding_a_candidate_needs_the_new_majority(
    simulation, opener, monkeypatch, tmp_path
):
    monkeypatch.setattr(peers, "ACK_TIMEOUT_S", 0.05)
    db = opener()
    changes = cluster.big(4, 1, candidates=3)
    db.commit(changes)
    for number in (1, 2):
        until("the copy", lambda n=number: is_same(db, simulation, tmp_path, n))
    simulation.down |= {simulation.node(2), simulation.node(3)}
    node = db.snapshot().nodes[simulation.node(3)]
    adding = start(
        lambda: db.commit(
            [Update("nodes", node.uuid, node.replace(master_candidate=True))]
        )
    )
    # 2 of 3 have it, but 3 of 4 must.
    until("refusal", db.exposure)
    assert not adding.done()
    simulation.down.clear()
    adding.result(60)
    assert len(db.copies()) == 3


def test_a_lost_history_is_kept_listed_and_logged(
    db, simulation, opener, tmp_path, caplog
):
    until("the copy", lambda: is_same(db, simulation, tmp_path, 2))
    simulation[2].close()
    lost = store.open_master(
        simulation[2].path, replicate=None, clock=SystemClock(), node="lost"
    )
    old = b'{"id":7,"ops":[{"input":{"OP_ID":"OP_TEST_DELAY","duration":1}}]}'
    lost.commit([job("7", old)])
    lost.commit([job("8", old.replace(b"7", b"8"))])
    lost.close()
    before = db.term
    db.close()
    again = opener(seen_term=before.number + 5)
    until("the repair", lambda: is_same(again, simulation, tmp_path, 2))
    (kept,) = branches.files(simulation[2].path)
    branch = branches.read(kept)
    assert branch.is_complete
    assert [group.term for group in branch.groups] == [lost.term.number] * 2
    assert [actual.job_id for actual in branch.jobs] == [7, 8]
    assert branch.jobs[0].status == "queued"
    assert f"kept as {kept}" in caplog.text


def test_a_copy_that_disappears_is_noticed_while_nothing_is_written(
    simulation, opener, monkeypatch, tmp_path
):
    monkeypatch.setattr(keeper, "IDLE_CHECK_S", 0.01)
    db = opener()
    db.commit(cluster.big(3, 1))
    until("the copy", lambda: is_same(db, simulation, tmp_path, 2))
    simulation[2].purge()
    until("the new copy", lambda: is_same(db, simulation, tmp_path, 2))


def test_what_another_cluster_left_on_a_node_deposes_nobody(
    simulation, opener, tmp_path
):
    data = cluster.example_data()
    data["cluster"]["uuid"] = "another"
    left = store.open_master(
        simulation[2].path, replicate=None, clock=SystemClock(), seen_term=99
    )
    left.commit([*cluster.updates(data), Document("archive", "1", b"old")])
    left.close()
    db = opener()
    db.commit(cluster.big(3, 2))
    until("the copy", lambda: is_same(db, simulation, tmp_path, 2))
    assert simulation[2].status()["term"] == db.term.number == 1
    db.commit([job("1")])


def archive_of(replica):
    """Return the archive and the logs in a candidate's copy."""
    copy = database.Database(replica.path, create=False)
    try:
        return [
            copy.tables.scan_some(table, None, "") for table in ("archive", "joblogs")
        ]
    except errors.StorageError:
        return None
    finally:
        copy.close()


def has_archive(request):
    is_apply = request.procedure is calls.store_apply
    return is_apply and store.wire.decode_batch(request.args[2])[1]


def test_the_copy_of_the_archive_goes_on_after_a_restart_of_the_master(
    opener, simulation, monkeypatch, tmp_path
):
    monkeypatch.setattr(keeper, "CATCH_UP_BYTES", 1000)
    db = opener()
    db.commit([Document("archive", f"{n:03}", b"x" * 90) for n in range(100)])
    db.commit([Document("joblogs", f"{n:03}/1", b"y" * 90) for n in range(100)])
    db.commit([job("500"), Document("joblogs", "500/1", b"z")])
    # Left from a time when the master had it: removed since then.
    with simulation[2]._lock:
        old = Document("archive", "050a", b"old")
        simulation[2]._open().append(
            [], simulation[2]._open().position(), term=Term(), extra=[old]
        )
    db._backend._writer.file.sql.execute("DELETE FROM changelog")
    real, pages, breaks = simulation.replicate, [], [True]

    def replicate(nodes, request):
        if has_archive(request):
            pages.append(nodes)
            # Once: the other candidate may have less than four pages until then.
            if pages.count(nodes) == 4 and breaks:
                breaks.clear()
                simulation.down.add(nodes[0])
        return real(nodes, request)

    monkeypatch.setattr(simulation, "replicate", replicate)
    db.close()
    db = opener()
    db.commit(cluster.big(3, 2))
    node = simulation.node(2)
    until("the break", lambda: simulation.down)
    (broken,) = simulation.down
    copy = simulation.copies[broken]
    assert not db.copies()[broken].is_current
    db.close()
    some = archive_of(copy)
    assert 0 < len(some[0]) < 100
    simulation.calls.clear()
    simulation.down.clear()
    db = opener()
    until("the copy", lambda: db.copies()[node].is_current)
    until("the copy", lambda: db.copies()[broken].is_current)
    assert (broken, "store_install") not in simulation.calls
    wanted = [list(db.scan(table)) for table in ("archive", "joblogs")]
    assert archive_of(simulation[2]) == wanted
    assert archive_of(copy) == wanted
    assert copy.status()["archive"] == ""


def test_a_copy_without_the_whole_archive_is_not_current(db, simulation, monkeypatch):
    db.commit([Document("archive", "1", b"x")])
    simulation[1].purge()
    db._backend._writer.file.sql.execute("DELETE FROM changelog")
    gate, real = threading.Event(), simulation.replicate

    def replicate(nodes, request):
        if has_archive(request):
            gate.wait(60)
        return real(nodes, request)

    monkeypatch.setattr(db._copies._keeper, "_replicate", replicate)
    with contextlib.suppress(errors.StorageError):
        db.commit([job("1")])
    until("the copy", lambda: simulation[1].status()["revision"])
    until("the archive", lambda: "archive" in db.copies()[simulation.node(1)].trouble)
    assert not db.copies()[simulation.node(1)].is_current
    assert db.exposure() == ""
    gate.set()
    until("the copy", lambda: db.copies()[simulation.node(1)].is_current)


def test_numbers_of_a_copy_that_is_replaced_are_left_out(
    db, simulation, opener, tmp_path
):
    until("the copy", lambda: is_same(db, simulation, tmp_path, 2))
    simulation[2].close()
    # An operator accepted loss there, and nobody took that master's side.
    lost = store.open_master(
        simulation[2].path,
        replicate=None,
        clock=SystemClock(),
        node="lost",
        settings=CommitSettings(accept_loss=True),
    )
    serial = Document("meta", "config", b'{"serial_no": 1000019}')
    lost.commit([Document("meta", "serial", b"10040"), serial])
    shown = lost.snapshot().revision
    lost.close()
    before = db.term
    db.close()
    noted = []
    again = opener(
        seen_term=before.number + 5,
        settings=CommitSettings(on_higher=noted.append),
    )
    until("the repair", lambda: is_same(again, simulation, tmp_path, 2))
    assert noted == [(shown, 1000019, 10040)]
    again.leave_out(noted[0].revision)
    again.commit([job("9")])
    assert again.snapshot().revision == shown + 1
    until("the repair", lambda: is_same(again, simulation, tmp_path, 2))
    # A master that dies before it has left them out leaves the rest to the next one.
    before, own = again.term, again.snapshot().revision
    again.close()
    third = opener(
        seen_term=before.number + 5,
        settings=CommitSettings(on_higher=noted.append),
    )
    until("the copy", lambda: third.copies()[simulation.node(2)].is_current)
    assert noted[1:] == [(own, 1000019, 10040)]


def test_a_higher_copy_stays_where_nobody_leaves_out_its_numbers(
    db, simulation, opener, tmp_path
):
    until("the copy", lambda: is_same(db, simulation, tmp_path, 2))
    simulation[2].close()
    lost = store.open_master(
        simulation[2].path, replicate=None, clock=SystemClock(), node="lost"
    )
    lost.commit([Document("meta", "serial", b"77")])
    lost.close()
    before = db.term
    db.close()
    higher = HigherNumbers()
    higher.close()
    again = opener(
        seen_term=before.number + 5, settings=CommitSettings(on_higher=higher.note)
    )
    until("the reason", lambda: "higher numbers" in str(again.copies()))
    assert simulation[2].status()["last_job"] == 77


@pytest.fixture
def many(tmp_path, monkeypatch):
    """A master with eight other candidates; what is late stays so."""
    simulation = Candidates(tmp_path, range(1, 9))
    db = store.open_master(
        str(tmp_path / "store.db"),
        replicate=simulation.replicate,
        clock=SystemClock(),
    )
    db.commit(cluster.big(9, 2, candidates=9))
    until("all", lambda: sum(copy.is_current for copy in db.copies().values()) == 8)
    until("the end", lambda: same_revisions(db, simulation))
    monkeypatch.setattr(flights, "LATE_S", 1000.0)
    simulation.calls.clear()
    yield db, simulation
    db.close()
    simulation.close()


def same_revisions(db, simulation):
    wanted = db.snapshot().revision
    return all(c.status()["revision"] == wanted for c in simulation.copies.values())


def having(db, simulation):
    wanted = db.snapshot().revision
    return [n for n, c in simulation.copies.items() if c.status()["revision"] == wanted]


def test_a_large_set_gets_a_group_at_once_up_to_a_majority(many):
    db, simulation = many
    for number in range(10):
        db.commit([job(str(number))])
        assert len(having(db, simulation)) >= 4
    applied = [call for call in simulation.calls if call[1] == "store_apply"]
    assert len(applied) <= 10 * 4
    assert all(copy.is_current for copy in db.copies().values())


def test_a_failure_sends_what_is_late(many, tmp_path):
    db, simulation = many
    for number in range(10):
        db.commit([job(str(number))])
    simulation.losing |= set(simulation.copies)
    waiting = threading.Thread(target=db.commit, args=([job("10")],))
    waiting.start()
    until("a failure", lambda: not all(c.is_current for c in db.copies().values()))
    simulation.losing.clear()
    waiting.join()
    until("the others", lambda: same_revisions(db, simulation))
    for number in range(1, 9):
        until("the copy", lambda n=number: is_same(db, simulation, tmp_path, n))


def test_frozen_candidates_do_not_stop_a_large_set(many, monkeypatch):
    db, simulation = many
    monkeypatch.setattr(flights, "LATE_S", 0.01)
    for number in (1, 3, 5, 7):
        simulation.hang(number)
    for number in range(20):
        db.commit([job(str(number))])
    for number in (1, 3, 5, 7):
        simulation.release(number)
    until("the frozen ones", lambda: same_revisions(db, simulation))


class Beginner:
    """Begins calls on threads, and notes which nodes each has, and its overlaps."""

    def __init__(self, simulation):
        self.simulation = simulation
        self.lock = threading.Lock()
        self.begun = []
        self.running = set()
        self.overlaps = []
        self.failure = None

    def __call__(self, nodes, request):
        return {node: self._one(node, request) for node in nodes}

    def begin(self, nodes, request, done):
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        self.begun.append(nodes)
        for node in nodes:
            threading.Thread(
                target=lambda n=node: done(n, self._one(n, request))
            ).start()

    def _one(self, node, request):
        with self.lock:
            if node in self.running:
                self.overlaps.append((node, request))
            self.running.add(node)
        try:
            return self.simulation.replicate((node,), request)[node]
        finally:
            with self.lock:
                self.running.discard(node)


@pytest.fixture
def beginner(simulation):
    return Beginner(simulation)


@pytest.fixture
def begun(tmp_path, simulation, beginner):
    """A master whose calls begin; three of four candidates are elsewhere."""
    db = store.open_master(
        str(tmp_path / "store.db"), replicate=beginner, clock=SystemClock()
    )
    db.commit(cluster.big(4, 2, candidates=4))
    until("all", lambda: sum(copy.is_current for copy in db.copies().values()) == 3)
    yield db
    db.close()


def test_a_group_is_one_call_for_all_candidates_that_are_free(begun, beginner):
    until("the end", lambda: same_revisions(begun, beginner.simulation))
    beginner.begun.clear()
    begun.commit([job("1")])
    assert [len(nodes) for nodes in beginner.begun] == [3]


def test_a_candidate_never_has_two_calls(begun, beginner, simulation, monkeypatch):
    monkeypatch.setattr(keeper, "IDLE_CHECK_S", 0.001)

    def write(number):
        for step in range(25):
            begun.commit([job(f"{number}.{step}")])
            if step % 5 == number:
                begun._copies.check_now()
            # One at a time: the others are a majority.
            if number == 0 and step % 8 == 0:
                simulation.losing = {simulation.node(1 + step // 8 % 3)}

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(3)))
    simulation.losing = set()
    until("the copies", lambda: same_revisions(begun, simulation))
    assert beginner.overlaps == []


def test_what_comes_during_a_call_goes_with_the_next(begun, beginner, simulation):
    until("the end", lambda: same_revisions(begun, simulation))
    simulation.hang(2)
    for number in range(10):
        begun.commit([job(str(number))])
    simulation.calls.clear()
    simulation.release(2)
    until("the copies", lambda: same_revisions(begun, simulation))
    assert simulation.calls.count((simulation.node(2), "store_apply")) == 1


def test_a_group_that_cannot_be_sent_is_made_up_for(begun, beginner, caplog):
    until("the end", lambda: same_revisions(begun, beginner.simulation))
    beginner.failure = MemoryError("too many")
    begun.commit([job("1")])
    assert "cannot be sent to: MemoryError('too many')" in caplog.text
    until("the copies", lambda: same_revisions(begun, beginner.simulation))
    assert all(copy.is_current for copy in begun.copies().values())


def test_a_demoted_candidate_is_released_after_its_call(begun, simulation):
    until("the end", lambda: same_revisions(begun, simulation))
    simulation.hang(3)
    begun.commit([job("1")])
    node = simulation.node(3)
    record = begun.snapshot().nodes[node]
    begun.commit([Update("nodes", node, record.replace(master_candidate=False))])
    assert not begun.release_copy(node, 0.05)
    simulation.release(3)
    assert begun.release_copy(node, 60.0)
