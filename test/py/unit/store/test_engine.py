"""The engine when the disk fails."""

import pytest

from fakes import cluster
from fakes.patience import until
from fakes.store import MemoryBackend, open_memory
from ganeti.base import errors
from ganeti.decisions.quorum import Voters
from ganeti.model.objects import Update
from ganeti.store import Document, committer, wire
from ganeti.store.backend import Limits, OutcomeUnknownError
from ganeti.store.copies import voters


@pytest.fixture
def backend():
    return MemoryBackend()


@pytest.fixture
def db(backend, monkeypatch):
    monkeypatch.setattr(committer, "RETRY_S", 0.01)
    actual = open_memory(backend)
    yield actual
    actual.close()


def test_a_failed_commit_changes_nothing_and_the_store_goes_on(db, backend):
    db.commit(cluster.updates(cluster.example_data()))
    backend.failure = errors.StorageError("disk full")
    with pytest.raises(errors.StorageError, match="disk full"), db.writing() as batch:
        old = batch.snapshot.cluster
        batch.put(Update("cluster", "", old.replace(serial_no=99)))
    with pytest.raises(errors.StorageError, match="disk full"):
        db.commit([Document("jobs", "1", b"{}")])
    assert db.snapshot().cluster.serial_no == 4
    backend.failure = None
    until("the probe", lambda: not db.exposure())
    assert db.commit([Document("jobs", "1", b"{}")]) == 2
    with db.writing() as batch:
        assert batch.snapshot.cluster.serial_no == 4


def test_a_callback_is_informed_of_the_failure(db, backend):
    backend.failure = errors.StorageError("disk full")
    reported = []
    db.commit_soon([Document("jobs", "1", b"")], lambda *args: reported.append(args))
    with pytest.raises(errors.StorageError):
        db.commit([Document("jobs", "2", b"")])
    assert [str(error) for _revision, error in reported] == ["disk full"]


def test_a_deposed_master_writes_nothing_more(backend):
    old = open_memory(backend)
    new = open_memory(backend)
    with pytest.raises(errors.TermError, match="term 1 is over"):
        old.commit([Document("jobs", "1", b"")])
    with pytest.raises(errors.TermError), old.writing():
        pass
    assert new.commit([Document("jobs", "1", b"")]) == 1
    old.close()
    new.close()


class Vague(MemoryBackend):
    """A backend that does not know what became of a write, and for a while not after it.

    ``happens``: whether the write takes place; ``silent``: failures of `end` until it
    answers.
    """

    def __init__(self):
        super().__init__()
        self.happens = None
        self.silent = 0

    def write(self, group):
        happens, self.happens = self.happens, None
        if happens is None or happens:
            super().write(group)
        if happens is not None:
            raise OutcomeUnknownError("no answer")

    def end(self):
        if self.silent:
            self.silent -= 1
            raise errors.StorageError("still no answer")
        return super().end()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(committer, "RETRY_S", 0.001)


@pytest.mark.parametrize("silent", [0, 3])
@pytest.mark.usefixtures("quick")
def test_a_write_of_an_unknown_outcome_that_happened_is_acknowledged(silent):
    backend = Vague()
    db = open_memory(backend)
    backend.happens, backend.silent = True, silent
    assert db.commit([Document("jobs", "1", b"one")]) == 1
    assert db.commit([Document("jobs", "2", b"two")]) == 2
    assert db.read("jobs", "1") == b"one"
    assert db.exposure() == ""
    db.close()


@pytest.mark.parametrize("silent", [0, 3])
@pytest.mark.usefixtures("quick")
def test_a_write_of_an_unknown_outcome_that_did_not_happen_fails(silent):
    backend = Vague()
    db = open_memory(backend)
    backend.happens, backend.silent = False, silent
    with pytest.raises(errors.StorageError, match="not written"):
        db.commit([Document("jobs", "1", b"one")])
    assert db.read("jobs", "1") is None
    until("the disk works again", lambda: db.exposure() == "")
    assert db.commit([Document("jobs", "2", b"two")]) == 1
    db.close()


@pytest.mark.usefixtures("quick")
def test_another_master_that_wrote_instead_deposes_this_one():
    backend = Vague()
    db = open_memory(backend)
    other = MemoryBackend()
    second = open_memory(other)
    second.commit([Document("jobs", "9", b"theirs")])
    backend.happens = False
    backend.end = other.end
    with pytest.raises(errors.TermError, match="is over"):
        db.commit([Document("jobs", "1", b"one")])
    for item in (db, second):
        item.close()


def test_closing_ends_the_wait_for_an_unknown_outcome():
    backend = Vague()
    db = open_memory(backend)
    backend.happens, backend.silent = False, 10**9
    ended = []
    db.commit_soon([Document("jobs", "1", b"")], lambda *what: ended.append(what))
    until("changes are refused", lambda: "no answer" in db.exposure())
    with pytest.raises(errors.StorageError, match="changes are refused"):
        db.commit([Document("jobs", "2", b"")])
    db.close()
    assert "may be durable or not" in str(ended[0][1])
    assert errors.is_outcome_unknown(ended[0][1])


def test_what_a_backend_cannot_hold_is_refused_at_once(db, backend, monkeypatch):
    monkeypatch.setattr(backend, "limits", Limits(group=10, commit=100, value=50))
    with pytest.raises(errors.StorageError, match="jobs 1 has 51 bytes, at most 50"):
        db.commit([Document("jobs", "1", b"x" * 51)])
    with pytest.raises(errors.StorageError, match="120 bytes, at most 100"):
        db.commit([Document("jobs", str(n), b"x" * 40) for n in range(3)])
    assert db.commit([Document("jobs", "1", b"x" * 50)]) == 1


def with_open_change(backend, nodes, before):
    """Leave a change of the candidate set that an earlier master did not settle."""
    earlier = open_memory(backend)
    earlier.commit(cluster.big(nodes, 1))
    ids = [cluster.make_id("node", number) for number in range(nodes)]
    wanted = Voters(frozenset(ids), frozenset(ids[:before]))
    earlier.commit([voters.encode(wanted)])
    earlier.close()
    return ids, wanted


def groups_of(backend, term):
    return [group for group in backend.changes_since(0, None) if group.term == term]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_first_group_settles_the_candidate_set(backend, count):
    _ids, wanted = with_open_change(backend, 3, 2)
    opened = open_memory(backend)
    assert groups_of(backend, opened.term.number) == []
    stored = []
    for number in range(count):
        change = Document("jobs", str(number), b"{}")
        opened.commit_soon([change], lambda *what: stored.append(what))
    opened.commit([Document("meta", "serial", b"9")])
    opened.close()
    first, *others = groups_of(backend, opened.term.number)
    assert [row[:2] for row in wire.rows_of(first)] == [("jobs", "0")]
    # The next one records the new set alone.
    after = dict(row[1:] for row in wire.rows_of(others[0]) if row[1] == voters.KEY)
    assert voters.decode(after[voters.KEY]) == wanted.settled()
    assert len(stored) == count


def test_a_first_group_that_changes_the_set_again_comes_after_a_settled_one(backend):
    ids, wanted = with_open_change(backend, 3, 2)
    opened = open_memory(backend)
    node = opened.snapshot().nodes[ids[2]]
    demoted = Update("nodes", ids[2], node.replace(master_candidate=False))
    revision = opened.commit([demoted])
    opened.close()
    settling, change = groups_of(backend, opened.term.number)
    assert settling.revision < change.revision == revision
    assert [row[:2] for row in wire.rows_of(settling)] == [("meta", "term")]
    stored = {row[1]: row[2] for row in wire.rows_of(change)}
    assert voters.decode(stored[voters.KEY]) == Voters(
        wanted.now - {ids[2]}, wanted.now
    )


@pytest.mark.usefixtures("quick")
def test_a_deposed_master_answers_whoever_waits_for_an_unknown_outcome():
    backend = Vague()
    db = open_memory(backend)
    backend.happens, backend.silent = False, 1_000_000
    ended = []
    db.commit_soon([Document("jobs", "1", b"one")], lambda *args: ended.append(args))
    until("the outcome is unknown", lambda: "no answer" in db.exposure())
    db.require_leading()
    db.depose(errors.TermError("the lease is over"))
    until("the caller has an answer", lambda: ended)
    assert isinstance(ended[0][1], errors.CommitUnknownError)
    assert "the lease is over; revision 1 may be durable or not" in str(ended[0][1])
    with pytest.raises(errors.TermError, match="the lease is over"):
        db.require_leading()
    db.close()


def waiting_start(db):
    """Request a commit that can wait, here without limit; return its results."""
    answers = []
    db.commit_soon(
        [Document("jobs", "1", b"one")],
        lambda *args: answers.append(args),
        wait_s=1000.0,
    )
    return answers


def test_a_commit_that_can_wait_goes_with_the_next_one(db, backend):
    answers = waiting_start(db)
    db.commit_soon([Document("jobs", "2", b"two")], wait_s=2000.0)
    assert backend.changes_since(0, None) == []
    assert db.commit([Document("jobs", "1", b"newer")]) == 3
    (group,) = backend.changes_since(0, None)
    assert answers == [(1, None)]
    assert (db.read("jobs", "1"), db.read("jobs", "2")) == (b"newer", b"two")
    assert wire.rows_of(group) == [("jobs", "1", b"newer"), ("jobs", "2", b"two")]


def test_an_empty_commit_takes_one_along_that_can_wait(db, backend):
    answers = waiting_start(db)
    db.commit([])
    assert answers == [(1, None)]
    assert db.read("jobs", "1") == b"one"


def test_a_commit_that_can_wait_less_long_shortens_the_wait(db):
    answers = waiting_start(db)
    db.commit_soon([Document("jobs", "2", b"two")], wait_s=0.01)
    until("the commit", lambda: db.read("jobs", "2") == b"two")
    assert answers == [(1, None)]


def test_closing_does_not_leave_out_what_can_wait(backend):
    db = open_memory(backend)
    answers = waiting_start(db)
    db.close()
    assert answers == [(1, None)]
    assert backend.read("jobs", "1") == b"one"


def test_a_commit_that_can_wait_does_so_for_a_limited_time(db):
    db.commit_soon([Document("jobs", "1", b"one")], wait_s=0.01)
    until("the commit", lambda: db.read("jobs", "1") == b"one")
    assert db.commit([Document("jobs", "2", b"two")]) == 2


def test_what_can_wait_fails_with_the_commit_that_takes_it_along(db, backend):
    answers = waiting_start(db)
    backend.failure = errors.StorageError("disk full")
    with pytest.raises(errors.StorageError, match="disk full"):
        db.commit([Document("jobs", "2", b"two")])
    assert [str(error) for _revision, error in answers] == ["disk full"]
