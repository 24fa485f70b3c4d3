"""Becoming master: fence first, then compare copies, then take the newest."""

import contextlib
import threading

import pytest

from fakes import cluster
from fakes.candidates import Candidates
from fakes.patience import until
from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.decisions.quorum import Copy, Term
from ganeti.store import Document, database
from ganeti.store.copies import branches, election, peers
from ganeti.store.copies.election import Elector

NODES = (0, 1, 2)


@pytest.fixture
def simulation(tmp_path):
    actual = Candidates(tmp_path, NODES)
    yield actual
    actual.close()


def open_master(simulation, number, **options):
    return store.open_master(
        simulation[number].path,
        replicate=simulation.replicate,
        clock=SystemClock(),
        node=simulation.node(number),
        **options,
    )


def elector(simulation, number, silent=()):
    def ask(_snapshot, nodes, request):
        return simulation.replicate(nodes, request)

    return Elector(simulation[number].path, simulation.node(number), ask, silent)


def is_current(simulation, db, numbers=NODES):
    revision = db.snapshot().revision
    return all(simulation[n].status()["revision"] == revision for n in numbers)


@pytest.fixture
def master(simulation):
    """Return a master on node 0 whose changes all candidates have."""
    db = open_master(simulation, 0)
    db.commit(cluster.big(3, 1))
    db.commit([Document("jobs", "1", b"{}")])
    until("copies", lambda: is_current(simulation, db))
    yield db
    db.close()


def test_a_dead_candidate_is_waited_for_once(simulation, master):
    master.close()
    dead = simulation.node(2)
    simulation.down.add(dead)
    simulation.calls.clear()
    _term, survey = elector(simulation, 1).elect(is_takeover=True)
    assert survey.is_enough
    asked = [call for call in simulation.calls if call[0] == dead]
    assert asked == [(dead, "store_status")]


def test_the_first_commit_does_not_wait_for_silent_candidates(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "ACK_TIMEOUT_S", 600)
    nodes = Candidates(tmp_path, (0, 1))
    db = open_master(nodes, 0)
    db.commit(cluster.big(2, 1))
    until("copies", lambda: is_current(nodes, db, (0, 1)))
    db.close()
    # It never answers, so a commit that waits for it does not end before the time
    # limit of commits.
    nodes.hang(1)
    settings = store.CommitSettings(silent=frozenset([nodes.node(1)]))
    db = open_master(nodes, 0, settings=settings)
    done = threading.Event()
    db.commit_soon([job("2")], lambda *_: done.set())
    assert done.wait(40)
    assert "missing: node1.example.com" in db.exposure()
    nodes.release(1)
    db.close()
    nodes.close()


def job(key):
    return Document("jobs", key, b"{}")


def test_the_newest_copy_of_a_majority_is_taken(simulation, master):
    # The review's case: node 2 misses what node 0 and node 1 acknowledged.
    simulation.down.add(simulation.node(2))
    master.commit([job("2")])
    master.close()  # or it may bring node2 up to date as soon as that answers
    simulation.down = {simulation.node(0)}
    term, survey = elector(simulation, 2).elect(is_takeover=True)
    assert term == Term(master.term.number + 1, simulation.node(2))
    assert survey.election.silent == [simulation.node(0)]
    taken = open_master(simulation, 2, term=term)
    assert taken.read("jobs", "2") == b"{}"
    taken.close()


def test_without_a_majority_nothing_is_changed(simulation, master):
    simulation.down.add(simulation.node(2))
    master.commit([job("2")])
    master.close()  # or it may bring node2 up to date as soon as that answers
    simulation.down = {simulation.node(0), simulation.node(1)}
    before = simulation[2].status()
    with pytest.raises(errors.StorageError, match=r"1 of 3 master .* not heard: node0"):
        elector(simulation, 2).elect(is_takeover=True)
    assert simulation[2].status() == before
    term, _survey = elector(simulation, 2).elect(is_takeover=True, accept_loss=True)
    assert term.owner == simulation.node(2)


def test_an_old_master_is_fenced_before_copies_are_compared(simulation, master):
    elector(simulation, 1).elect(is_takeover=True)
    with pytest.raises(errors.TermError, match="is over"):
        master.commit([job("2")])
    assert all(simulation[n].status()["owner"] == simulation.node(1) for n in NODES)


def test_an_election_can_be_repeated(simulation, master):
    first, _survey = elector(simulation, 1).elect(is_takeover=True)
    second, _survey = elector(simulation, 1).elect(is_takeover=True)
    other, _survey = elector(simulation, 2).elect(is_takeover=True)
    assert first < second < other


def test_an_empty_copy_does_not_count(simulation, master):
    simulation[1].purge()
    simulation.down.add(simulation.node(0))
    with pytest.raises(errors.StorageError, match="1 of 3"):
        elector(simulation, 2).elect(is_takeover=True)


def test_one_absurd_number_is_not_believed(simulation, master):
    simulation[2]._open().file.sql.execute("UPDATE state SET term = 2000000000")
    term, survey = elector(simulation, 0).elect(is_takeover=False)
    assert term.number == master.term.number + 1
    assert survey.election.silent == [simulation.node(2)]


def save(simulation, tmp_path):
    """Keep the file of node 0 as it is now."""
    db = database.Database(simulation[0].path, create=False)
    db.file.save_as(str(tmp_path / "saved.db"))
    db.close()


def set_back(simulation, tmp_path):
    """Put the kept file in the place of the present one."""
    simulation[0].close()
    for suffix in ("-wal", "-shm"):
        (tmp_path / f"copy0.db{suffix}").unlink(missing_ok=True)
    (tmp_path / "saved.db").rename(tmp_path / "copy0.db")


def test_a_master_that_was_set_back_does_not_start(simulation, master, tmp_path):
    save(simulation, tmp_path)
    for number in range(2, 5):
        master.commit([job(str(number))])
    until("copies", lambda: is_current(simulation, master))
    master.close()
    set_back(simulation, tmp_path)
    before = [simulation[n].status() for n in (1, 2)]
    with pytest.raises(errors.StorageError, match=r"3 change-sets ahead.*failover on"):
        elector(simulation, 0).elect(is_takeover=False)
    assert [simulation[n].status() for n in (1, 2)] == before


def forced(simulation, number):
    """Have a node write in a term that nobody else hears of."""
    simulation[number].close()
    rival = store.open_master(
        simulation[number].path,
        replicate=None,
        clock=SystemClock(),
        node=simulation.node(number),
    )
    for key in ("a", "b", "c"):
        rival.commit([job(key)])
    rival.close()
    return rival.term


def noting(simulation, made):
    def note(node):
        number = next(each for each in NODES if simulation.node(each) == node)
        status, term = simulation[number].status(), made[0].term.number
        if digest := branches.newer(status, status["cluster"], term):
            with contextlib.suppress(errors.GenericError):  # closed by now
                made[0].commit_soon([branches.document(node, digest)])
        return not digest

    return note


def test_a_copy_of_a_forced_master_that_was_noted_stops_no_restart(simulation):
    made = []
    settings = peers.CommitSettings(on_refusal=noting(simulation, made))
    made.append(open_master(simulation, 0, settings=settings))
    made[0].commit(cluster.big(3, 1))
    until("copies", lambda: is_current(simulation, made[0]))
    rival, node = forced(simulation, 2), simulation.node(2)
    made[0].check_term()
    digest = simulation[2].status()["digest"]
    until("note", lambda: branches.is_known(made[0].read, node, digest))
    until("copy", lambda: is_current(simulation, made[0], (0, 1)))
    made[0].close()
    # It makes no majority together with this node.
    simulation.down.add(simulation.node(1))
    with pytest.raises(errors.StorageError, match="1 of 3 master candidates"):
        elector(simulation, 0).elect(is_takeover=False)
    simulation.down.clear()
    term, survey = elector(simulation, 0).elect(is_takeover=False)
    assert term.number > rival.number
    assert survey.election.silent == [node]
    # It counts again once it has changed, for it may have got what a majority has.
    again = forced(simulation, 2)
    with pytest.raises(errors.StorageError, match="not a continuation of this node's"):
        elector(simulation, 0).elect(is_takeover=False)
    assert again.number > rival.number


def test_what_was_under_way_when_the_master_died_is_taken(simulation, master, tmp_path):
    save(simulation, tmp_path)
    master.commit([job("2")])
    until("copies", lambda: is_current(simulation, master))
    master.close()
    set_back(simulation, tmp_path)
    term, _survey = elector(simulation, 0).elect(is_takeover=False)
    again = open_master(simulation, 0, term=term)
    assert again.read("jobs", "2") == b"{}"
    again.close()


def test_another_history_is_taken_as_a_whole_and_ours_is_kept(simulation, master):
    simulation[2].close()
    lost = store.open_master(
        simulation[2].path, replicate=None, clock=SystemClock(), node=simulation.node(2)
    )
    lost.commit([job("lost")])
    lost.close()
    master.close()
    simulation.down.add(simulation.node(2))
    again = open_master(simulation, 0, seen_term=lost.term.number)
    again.commit([Document("archive", "9", b"old"), job("3")])
    again.close()
    simulation.down.clear()
    term, _survey = elector(simulation, 2).elect(is_takeover=True)
    taken = open_master(simulation, 2, term=term)
    assert taken.read("jobs", "lost") is None
    assert taken.read("jobs", "3") == b"{}"
    assert taken.read("archive", "9") == b"old"
    taken.close()
    (kept,) = branches.files(simulation[2].path)
    branch = branches.read(kept)
    assert [group.term for group in branch.groups] == [lost.term.number]


def test_numbers_of_the_own_history_are_left_out_where_another_one_is_taken(
    simulation, master
):
    simulation[2].close()
    lost = store.open_master(
        simulation[2].path, replicate=None, clock=SystemClock(), node=simulation.node(2)
    )
    lost.commit([Document("meta", "serial", b"777")])
    lost.close()
    master.close()
    simulation.down.add(simulation.node(2))
    again = open_master(simulation, 0, seen_term=lost.term.number)
    again.commit([Document("meta", "serial", b"5")])
    again.close()
    simulation.down.clear()
    # It is refused afterwards: as when its new configuration names another master.
    term, _survey = elector(simulation, 2).elect(is_takeover=True)
    noted = []
    settings = store.CommitSettings(on_higher=noted.append)
    taken = open_master(simulation, 2, term=term, settings=settings)
    revision = taken.snapshot().revision
    assert noted == [(revision, 0, 777)]
    taken.close()
    # Another master asks for them, too.
    other = open_master(simulation, 0, seen_term=term.number, settings=settings)
    until("the numbers", lambda: noted[1:])
    assert noted[1:] == [(revision, 0, 777)]
    other.close()


def test_the_last_of_two_masters_starts_alone_and_the_other_does_not(simulation):
    db = open_master(simulation, 0)
    db.commit(cluster.big(2, 1, candidates=2))
    db.commit([job("1")])
    until("copies", lambda: is_current(simulation, db, (0, 1)))
    db.close()
    simulation.down = {simulation.node(0)}
    for _attempt in range(2):  # a failed attempt is no claim
        with pytest.raises(errors.StorageError, match="1 of 2"):
            elector(simulation, 1).elect(is_takeover=True)
    simulation.down = {simulation.node(1)}
    term, _survey = elector(simulation, 0).elect(is_takeover=False)
    assert term.owner == simulation.node(0)


def test_a_store_of_an_earlier_release_is_read(simulation, master):
    master.close()
    simulation[1].close()
    connection = simulation[1]._open().file.sql
    for column in ("owner", "written", "master", "archive", "schema"):
        connection.execute(f"ALTER TABLE state DROP COLUMN {column}")
    connection.execute("DELETE FROM meta WHERE key = 'voters'")
    simulation[1].close()
    status = simulation[1].status()
    assert (status["owner"], status["written"]) == ("", master.term.number)
    old = database.Database(simulation[1].path, create=False)
    assert old.tables.voters().now == {simulation.node(n) for n in NODES}
    old.close()
    term, _survey = elector(simulation, 1).elect(is_takeover=True)
    assert term.number == master.term.number + 1


FULL = {"revision": 7, "term": 3, "written": 2, "digest": "0f", "cluster": "c"}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (FULL, (2, 7, "0f")),
        # Answers of earlier releases lack this field.
        ({key: FULL[key] for key in FULL if key != "written"}, (3, 7, "0f")),
        (FULL | {"cluster": "other"}, None),
        (FULL | {"revision": 0}, None),
        (FULL | {"revision": 1}, (2, 1, "0f")),
        (FULL | {"written": 0}, (0, 7, "0f")),
        (FULL | {"written": -1}, None),
        (FULL | {"revision": "x"}, None),
        (FULL | {"written": None}, None),
        ({key: FULL[key] for key in FULL if key != "digest"}, None),
        ({}, None),
    ],
)
def test_a_copy_is_read_from_an_answer_that_may_be_anything(answer, expected):
    copy = election._copy(answer, "c")
    if expected is None:
        assert copy == Copy(0, 0)
    else:
        assert (copy.written, copy.revision, copy.digest) == expected


@pytest.mark.parametrize(
    ("answer", "number"),
    [({"term": 3}, 3), ({}, 0), ({"term": "x"}, 0), ({"term": -1}, 0)],
)
def test_the_number_of_a_term_in_an_answer(answer, number):
    assert election._number(answer) == number
