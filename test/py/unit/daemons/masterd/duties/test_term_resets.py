"""Which nodes are led back to the master's term, and who is asked for its word."""

import pytest

from fakes import clusters
from fakes.clocks import FakeClock
from fakes.rpc import FakeRunner, failure
from ganeti.base import errors
from ganeti.daemons.masterd.duties.term_resets import PAUSE_S, TermResets
from ganeti.decisions.quorum import Term
from ganeti.model.objects import Update
from ganeti.protocols.rpc import Result

MASTER, SECOND, THIRD, FOURTH = map(clusters.node_uuid, (1, 2, 3, 4))
REVIEW = "1f" * 16


class Store:
    """A store whose term a majority confirms, or not."""

    term = Term(5, MASTER)

    def __init__(self, snapshot):
        self._snapshot = snapshot
        self.error = None

    def snapshot(self):
        return self._snapshot

    def require_confirmed(self, _give_up=None):
        if self.error is not None:
            raise self.error


class Made:
    """The thread's work, done at once; what was asked and of whom."""

    def __init__(self):
        snapshot = clusters.snapshot(nodes=4)
        changes = [
            Update("nodes", uuid, node.replace(master_candidate=uuid != FOURTH))
            for uuid, node in snapshot.nodes.items()
        ]
        changed = snapshot.apply(changes, revision=snapshot.revision + 1)
        self.store = Store(changed)
        self.answers = {MASTER: False, SECOND: True, THIRD: failure("away")}
        self.review = REVIEW
        self.clock = FakeClock()
        self.reviews, self.words = [], []
        runner = FakeRunner(lambda: changed, {"term_confirm": self._confirm})
        self.resets = TermResets(self.store, runner, self._ask, self.clock)

    def _ask(self, target, procedure, args):
        self.reviews.append((target.uuid, procedure, *args))
        if isinstance(self.review, Result):
            return self.review
        return Result(procedure, target.name, payload=self.review)

    def _confirm(self, node, args):
        self.words.append((node, args))
        return self.answers[node]

    def note(self, *nodes):
        self.resets.note(nodes)
        self.resets.stop()
        self.resets._run()


@pytest.fixture
def made():
    return Made()


def test_all_candidates_are_asked_for_their_word(made, caplog):
    made.note(FOURTH)
    assert made.reviews == [(FOURTH, "term_review", (5, MASTER))]
    target = made.store.snapshot().nodes[FOURTH]
    place = [FOURTH, target.name, target.primary_ip]
    assert dict(made.words) == {
        uuid: ([5, MASTER], uuid, REVIEW, place) for uuid in (MASTER, SECOND, THIRD)
    }
    assert "refuses" not in caplog.text


def test_too_few_words_are_reported_with_the_way_out(made, caplog):
    made.answers[SECOND] = False
    made.note(FOURTH)
    assert "'Reset of a term'" in caplog.text
    assert "away" in caplog.text


@pytest.mark.parametrize("review", ["x", f"{REVIEW}\n", 7, None, failure("busy")])
def test_without_a_review_nobody_is_asked(made, review):
    made.review = review
    made.note(FOURTH)
    assert made.words == []


def test_candidates_and_strangers_are_left_alone(made):
    made.note(SECOND, "unknown")
    assert made.reviews == []


def test_a_node_that_is_marked_offline_but_answers_is_led_back(made):
    """It is being re-added: nothing else calls it."""
    snapshot = made.store.snapshot()
    changed = snapshot.nodes[FOURTH].replace(offline=True)
    made.store._snapshot = snapshot.apply(
        [Update("nodes", FOURTH, changed)], revision=snapshot.revision + 1
    )
    made.note(FOURTH)
    assert {node for node, _args in made.words} == {MASTER, SECOND, THIRD}


def test_a_node_is_led_back_once_per_pause(made):
    made.note(FOURTH)
    made.note(FOURTH)
    assert len(made.reviews) == 1
    made.clock.now += PAUSE_S
    made.note(FOURTH)
    assert len(made.reviews) == 2


def test_a_deposed_master_leads_nobody_back(made):
    made.store.error = errors.TermError("term 5 is over")
    made.note(FOURTH)
    assert made.reviews == []


def test_a_failure_with_one_node_leaves_the_others(made, caplog):
    made.store.error = errors.StorageError("closed")
    made.note(FOURTH, THIRD)
    assert caplog.text.count("is not led back: closed") == 2
