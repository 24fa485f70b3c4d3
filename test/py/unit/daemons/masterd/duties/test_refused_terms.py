"""Nodes that refuse the term: which are led back, and that a deposed master is quiet."""

import threading
import types

import pytest

from fakes import clusters
from fakes.clocks import FakeClock
from fakes.master import Master
from fakes.patience import until
from fakes.rpc import FakeRunner, failure
from ganeti.base import errors
from ganeti.daemons.masterd import service
from ganeti.daemons.masterd.duties.refused_terms import (
    PAUSE_S,
    TermResets,
    WatchedRunner,
)
from ganeti.decisions.quorum import Term
from ganeti.model.objects import Update
from ganeti.protocols.rpc import Result, calls
from ganeti.store import memory

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

    def _ask(self, target, request):
        procedure = request.procedure.name
        self.reviews.append((target.uuid, procedure, *request.args))
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


# Who is asked to pass on the list of permitted callers, in which order.


@pytest.fixture
def snapshot():
    made = clusters.snapshot(nodes=4)
    candidates = {MASTER, SECOND}
    changes = [
        Update("nodes", uuid, node.replace(master_candidate=uuid in candidates))
        for uuid, node in made.nodes.items()
    ]
    cluster = made.cluster.replace(
        master_node=MASTER, candidate_certs={MASTER: "AA", SECOND: "BB"}
    )
    changes.append(Update("cluster", "", cluster))
    return made.apply(changes, revision=made.revision + 1)


def asked(snapshot, answers, refused=(FOURTH,)):
    seen = []

    def relay(node, args):
        seen.append((node, args))
        return answers[node]

    runner = FakeRunner(lambda: snapshot, {"callers_relay": relay})
    service.restore_access(runner, snapshot, Term(5, MASTER), list(refused))
    return seen


def test_a_candidate_relays_the_list(snapshot):
    ((node, args),) = asked(snapshot, {SECOND: None})
    assert node == SECOND
    target = snapshot.nodes[FOURTH]
    assert list(args) == [
        [5, MASTER],
        [FOURTH, target.name, target.primary_ip],
        {MASTER: "AA", SECOND: "BB"},
    ]


def test_other_nodes_follow_and_a_failure_names_the_command(snapshot, caplog):
    answers = {SECOND: failure("refused too"), THIRD: failure("away")}
    assert [node for node, _args in asked(snapshot, answers)] == [SECOND, THIRD]
    assert "gnt-node add --readd" in caplog.text
    assert "refused too" in caplog.text


def test_nodes_that_refuse_the_master_are_not_asked(snapshot):
    answers = {THIRD: None}
    seen = asked(snapshot, answers, refused=(SECOND, FOURTH))
    assert [node for node, _args in seen] == [THIRD, THIRD]


def test_offline_nodes_are_not_asked_and_the_command_is_named(snapshot, caplog):
    changes = [
        Update("nodes", uuid, snapshot.nodes[uuid].replace(offline=True))
        for uuid in (SECOND, THIRD)
    ]
    assert asked(snapshot.apply(changes), {}) == []
    assert "node4.example.com refuses the certificate" in caplog.text
    assert "no other node is online" in caplog.text


def test_one_node_that_passes_the_list_on_is_enough(snapshot, caplog):
    answers = {SECOND: None, THIRD: None}
    assert [node for node, _args in asked(snapshot, answers)] == [SECOND]
    assert "readd" not in caplog.text


def test_nodes_are_called_until_the_master_is_deposed():
    snapshot = clusters.snapshot(nodes=1)
    (uuid,) = snapshot.nodes
    inner = FakeRunner(lambda: snapshot, {"version": 1})
    db = memory.open_memory()
    runner = WatchedRunner(inner, list, db.require_leading)
    assert runner.call_node(uuid, calls.version()).payload == 1
    db.depose(errors.TermError("the lease is over"))
    with pytest.raises(errors.TermError, match="the lease is over"):
        runner.call_node(uuid, calls.version())
    assert len(inner.calls) == 1
    db.close()


def test_a_node_that_refuses_the_term_is_reported_whoever_asked_it():
    snapshot = clusters.snapshot(nodes=3)
    second = clusters.node_uuid(2)
    refused = failure("term 1 is over", deposed=True)
    inner = FakeRunner(
        lambda: snapshot,
        {"version": lambda node, _args: refused if node == second else 1},
    )
    reports = []
    runner = WatchedRunner(inner, reports.append)
    assert runner.call("version", list(snapshot.nodes), timeout_s=7.0)[second].deposed
    assert reports == [[second]]
    assert inner.limits["version"] == {7.0}
    runner.call_node(clusters.node_uuid(1), calls.version())
    inner.script["version"] = failure("busy")
    runner.call_node(second, calls.version())
    assert reports == [[second]]


def test_only_acts_wait_for_the_candidates_after_a_refusal():
    snapshot = clusters.snapshot(nodes=1)
    (uuid,) = snapshot.nodes
    inner = FakeRunner(lambda: snapshot, {"version": 1, "test_delay": None})
    asked = []

    def require_confirmed(procedure, _give_up):
        assert procedure == "test_delay"
        asked.append(len(inner.calls))
        if len(asked) > 1:
            raise errors.TermError("term 1 is over")

    runner = WatchedRunner(inner, list, require_confirmed=require_confirmed)
    runner.call_node(uuid, calls.version())
    assert asked == []
    runner.call_node(uuid, calls.test_delay(1.0))
    assert asked == [1]
    with pytest.raises(errors.TermError, match="term 1 is over"):
        runner.call_node(uuid, calls.test_delay(1.0))
    assert len(inner.calls) == 2


def test_a_kill_ends_the_wait_of_its_job_alone(tmp_path, monkeypatch):
    master = Master(tmp_path / "node1.example.com").start()
    try:
        given_up = {}

        def settle(_leader, give_up):
            given_up[threading.current_thread().name] = give_up
            assert give_up.wait(60)
            raise errors.StorageError("nothing was called")

        doubts = types.SimpleNamespace(settle=settle)
        monkeypatch.setattr(master.store, "_doubts", doubts)

        def jobs():
            return [each for name, each in given_up.items() if name.startswith("Jq")]

        delay = {"OP_ID": "OP_TEST_DELAY", "duration": 1.0, "on_nodes": ["node2"]}
        with master.client() as client:
            killed, other = (client.call("SubmitJob", [[delay]]) for _ in range(2))
            until("both wait", lambda: len(jobs()) == 2)
            assert client.call("CancelJob", [killed, True])[0] is True
            status = client.call(
                "WaitForJobChange", [killed, ["status"], ["running"], None, 60]
            )
            assert status[0] == ["error"]
            assert [each.is_set() for each in jobs()].count(True) == 1
            client.call("CancelJob", [other, True])
    finally:
        master.stop()


def test_calls_to_joining_nodes_wait_as_well(tmp_path):
    master = Master(tmp_path / "node1.example.com").start()
    try:
        deps = master.service.deps
        master.store.depose(errors.TermError("the lease is over"))
        with pytest.raises(errors.TermError, match="the lease is over"):
            deps.rpc_at([]).call_node(clusters.node_uuid(2), calls.test_delay(1.0))
    finally:
        master.stop()


def test_a_deposed_master_daemon_calls_no_node(tmp_path):
    master = Master(tmp_path / "node1.example.com").start()
    try:
        deps = master.service.deps
        master.script["version"] = master.rpc.script["version"] = 1
        assert deps.rpc.call_node(clusters.node_uuid(2), calls.version()).payload == 1
        master.store.depose(errors.TermError("the lease is over"))
        for runner in (deps.rpc, deps.query_sources().rpc):
            with pytest.raises(errors.TermError, match="the lease is over"):
                runner.call_node(clusters.node_uuid(2), calls.version())
    finally:
        master.stop()
