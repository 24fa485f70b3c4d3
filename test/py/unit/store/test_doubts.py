"""After a node's refusal, calls that act wait for a majority of the candidates."""

import threading

import pytest

from fakes import cluster
from fakes.patience import start, until
from ganeti.base import errors
from ganeti.decisions.quorum import Term
from ganeti.store import CommitSettings
from ganeti.store.copies import doubts


@pytest.fixture(autouse=True)
def short_limits(monkeypatch):
    monkeypatch.setattr(doubts, "ACK_TIMEOUT_S", 0.05)
    monkeypatch.setattr(doubts, "RECHECK_S", 0.01)


def ready(opener, candidates=3, **options):
    db = opener(node=cluster.make_id("node", 0), **options)
    db.commit(cluster.big(3, 1, candidates=candidates))
    until("all copies", lambda: all(c.is_current for c in db.copies().values()))
    return db


def asked(simulation):
    return [node for node, procedure in simulation.calls if procedure == "store_status"]


def is_quiet():
    """Return whether no question is under way; one is counted when it is asked."""
    return not any(thread.name == "store-confirm" for thread in threading.enumerate())


def test_without_a_refusal_nobody_is_asked(opener, simulation):
    db = ready(opener)
    del simulation.calls[:]
    db.require_confirmed()
    assert asked(simulation) == []


def test_a_majority_confirms_the_term_once(opener, simulation):
    db = ready(opener)
    db.note_refusal()
    db.note_refusal()
    simulation.down.add(simulation.node(2))
    db.require_confirmed()
    # One answer was enough: the other question may not be asked yet.
    until("the questions are asked", is_quiet)
    count = len(asked(simulation))
    assert count
    db.require_confirmed()
    assert len(asked(simulation)) == count
    db.note_refusal()
    db.require_confirmed()
    assert len(asked(simulation)) > count


def test_calls_wait_while_no_majority_answers(opener, simulation, caplog):
    db = ready(opener)
    simulation.down |= set(simulation.copies)
    db.note_refusal()
    waiting = start(db.require_confirmed)
    until("the warning", lambda: "calls that act on nodes wait" in caplog.text)
    assert "no majority of the 3 master candidates" in caplog.text
    assert not waiting.done()
    simulation.down.discard(simulation.node(1))
    waiting.result(60)
    db.require_confirmed()


def test_a_wait_can_be_given_up(opener, simulation):
    db = ready(opener)
    simulation.down |= set(simulation.copies)
    db.note_refusal()
    give_up = threading.Event()
    waiting = start(lambda: db.require_confirmed(give_up))
    until("a question", lambda: asked(simulation))
    assert not waiting.done()
    give_up.set()
    with pytest.raises(
        errors.StorageError, match="before the kill; nothing was called"
    ):
        waiting.result(60)
    # Others wait on.
    simulation.down.clear()
    db.require_confirmed()


def test_a_later_master_of_a_majority_deposes_this_one(opener, simulation):
    reported = []
    db = ready(opener, settings=CommitSettings(on_deposed=lambda: reported.append(1)))
    for number in (1, 2):
        simulation[number].promise(Term(db.term.number + 1, "other"))
    db.note_refusal()
    with pytest.raises(errors.TermError, match="is over"):
        db.require_confirmed()
    with pytest.raises(errors.TermError, match="is over"):
        db.require_leading()
    assert reported == [1]


def test_the_promise_of_the_own_copy_counts(opener, simulation):
    db = ready(opener)
    simulation.down |= set(simulation.copies)
    db.note_refusal()
    waiting = start(db.require_confirmed)
    db._backend._reader.promise(Term(db.term.number + 1, "other"))
    with pytest.raises(errors.TermError, match="is over"):
        waiting.result(60)


def test_one_refusing_candidate_deposes_nobody(opener, simulation):
    db = ready(opener)
    simulation[1].promise(Term(db.term.number + 1, "other"))
    db.note_refusal()
    db.require_confirmed()
    db.require_leading()


@pytest.mark.parametrize(
    "change",
    [
        lambda _real: None,
        lambda _real: 7,
        lambda real: {"cluster": real["cluster"]},
        lambda real: {"cluster": real["cluster"], "term": "x"},
        lambda real: {"cluster": real["cluster"], "term": 10**30},
        lambda real: {**real, "revision": 0},
        lambda real: {**real, "cluster": cluster.make_id("cluster", 9)},
    ],
    ids=["null", "number", "bare", "text", "huge", "empty copy", "other cluster"],
)
def test_odd_answers_and_odd_copies_confirm_nothing(opener, simulation, change):
    db = ready(opener)
    simulation.down.add(simulation.node(2))
    real = simulation[1].status
    simulation[1].status = lambda: change(real())
    db.note_refusal()
    waiting = start(db.require_confirmed)
    until("rounds", lambda: asked(simulation).count(simulation.node(1)) > 2)
    assert not waiting.done()
    simulation[1].status = real
    waiting.result(60)


def test_a_small_cluster_goes_on_while_the_other_copy_is_silent(opener, simulation):
    db = ready(opener, candidates=2)
    simulation.down |= set(simulation.copies)
    db.note_refusal()
    db.require_confirmed()


def test_one_candidate_is_its_own_majority(opener, simulation):
    db = ready(opener, candidates=1)
    db.note_refusal()
    db.require_confirmed()
    assert asked(simulation) == []


def test_closing_ends_the_wait(opener, simulation, caplog):
    db = ready(opener)
    simulation.down |= set(simulation.copies)
    db.note_refusal()
    waiting = start(db.require_confirmed)
    until("the warning", lambda: "calls that act on nodes wait" in caplog.text)
    db.close()
    with pytest.raises(errors.StorageError, match="nothing was called"):
        waiting.result(60)


def test_refusals_of_the_question_itself_depose(opener, simulation):
    db = ready(opener)

    def refuse():
        raise errors.TermError("term 1 is over")

    for number in (1, 2):
        simulation[number].status = refuse
    db.note_refusal()
    with pytest.raises(errors.TermError, match="is over"):
        db.require_confirmed()
    with pytest.raises(errors.TermError, match="is over"):
        db.require_leading()


@pytest.mark.parametrize(
    "consent", [{"is_lenient": lambda: True}, {"accept_loss": True}]
)
def test_with_consent_calls_go_on_without_a_majority(opener, simulation, consent):
    settings = CommitSettings()
    db = ready(opener, settings=settings)
    for name, value in consent.items():
        setattr(settings, name, value)
    simulation.down |= set(simulation.copies)
    db.note_refusal()
    db.require_confirmed()
