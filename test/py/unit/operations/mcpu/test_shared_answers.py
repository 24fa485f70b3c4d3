"""Which answers of nodes jobs share, and which they do not."""

import pytest

from fakes import clusters
from fakes.clocks import FakeClock
from fakes.rpc import FakeRunner, failure
from ganeti.operations.mcpu import shared_answers
from ganeti.operations.mcpu.shared_answers import SharedAnswers, SharingRunner

ONE, TWO = clusters.node_uuid(1), clusters.node_uuid(2)
ASK = ("node_info", [ONE, TWO], [[], []])


def report(free):
    """Return the answer of a node with this free memory."""
    return ["boot", [], [{"memory_free": free}]]


class Jobs:
    """Jobs on two nodes; the clock moves with each of their steps."""

    def __init__(self):
        self.clock = FakeClock()
        self.free = 100
        snapshot = clusters.snapshot(nodes=2)
        self.nodes = FakeRunner(
            lambda: snapshot,
            {
                "node_info": lambda _node, _args: report(self.free),
                "instance_start": None,
                "hypervisor_validate_params": None,
            },
        )
        self._shared = SharedAnswers()

    def start(self, since=float("inf")):
        """Return the runner of a job that was submitted at a time, by default now."""
        self.clock.now += 0.1
        made = SharingRunner(self.nodes, self._shared, self.clock, since)
        self.clock.now += 0.1
        return made

    def asked(self):
        """Return the nodes that were asked since the last call."""
        asked = {node for node, _args in self.nodes.called("node_info")}
        self.nodes.calls.clear()
        return asked


@pytest.fixture
def jobs():
    return Jobs()


def test_a_job_that_was_waiting_takes_the_answer(jobs):
    first, second = jobs.start(), jobs.start()
    first.call(*ASK)
    assert jobs.asked() == {ONE, TWO}
    jobs.free = 50
    answers = second.call(*ASK)
    assert jobs.asked() == set()
    assert answers[ONE].payload == answers[TWO].payload == report(100)


def test_a_job_that_began_later_asks(jobs):
    jobs.start().call(*ASK)
    jobs.asked()
    jobs.start().call(*ASK)
    assert jobs.asked() == {ONE, TWO}


def test_an_attempt_takes_answers_since_its_job_was_submitted(jobs):
    submitted = jobs.clock.now
    jobs.start().call(*ASK)
    later = jobs.clock.now
    jobs.asked()
    jobs.start(submitted).call(*ASK)
    assert jobs.asked() == set()
    jobs.start(later).call(*ASK)
    assert jobs.asked() == {ONE, TWO}
    jobs.clock.now += shared_answers.MAX_AGE_S
    jobs.start(submitted).call(*ASK)
    assert jobs.asked() == {ONE, TWO}


def test_a_node_that_was_acted_on_is_asked_again(jobs):
    first, second = jobs.start(), jobs.start()
    first.call(*ASK)
    first.call_one("instance_start", TWO, {}, False, [])
    jobs.asked()
    jobs.free = 50
    answers = second.call(*ASK)
    assert jobs.asked() == {TWO}
    assert (answers[ONE].payload, answers[TWO].payload) == (
        report(100),
        report(50),
    )


def test_an_answer_during_an_act_is_not_kept(jobs):
    first, second, third = jobs.start(), jobs.start(), jobs.start()

    def ask(_node, _args):
        second.call(*ASK)

    jobs.nodes.script["instance_start"] = ask
    first.call_one("instance_start", TWO, {}, False, [])
    jobs.asked()
    third.call(*ASK)
    assert jobs.asked() == {TWO}


def test_an_act_while_a_node_answers_makes_its_answer_useless(jobs):
    first, second, third = jobs.start(), jobs.start(), jobs.start()
    left = [True]

    def answer(_node, _args):
        if left:
            left.pop()
            second.call_one("instance_start", ONE, {}, False, [])
        return report(1)

    jobs.nodes.script["node_info"] = answer
    first.call(*ASK)
    jobs.asked()
    third.call(*ASK)
    assert jobs.asked() == {ONE}


def test_old_answers_failures_and_other_questions_are_not_shared(jobs):
    first, second = jobs.start(), jobs.start()
    first.call(*ASK)
    jobs.asked()
    second.call("node_info", [ONE], [["other"], []])
    assert jobs.asked() == {ONE}
    jobs.clock.now += shared_answers.MAX_AGE_S
    second.call(*ASK)
    assert jobs.asked() == {ONE, TWO}
    third, fourth = jobs.start(), jobs.start()
    jobs.nodes.script["node_info"] = lambda _node, _args: failure()
    third.call(*ASK)
    jobs.asked()
    fourth.call(*ASK)
    assert jobs.asked() == {ONE, TWO}


def test_other_procedures_are_always_called(jobs):
    first, second = jobs.start(), jobs.start()
    for job in (first, second):
        job.call("hypervisor_validate_params", [ONE], ["fake", {}])
    assert len(jobs.nodes.calls) == 2
