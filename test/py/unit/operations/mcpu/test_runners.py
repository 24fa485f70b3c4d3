"""Runners of node calls: shared answers, a log stored before acts, silent nodes."""

import pytest

from fakes import clusters
from fakes.clocks import FakeClock
from fakes.rpc import FakeRunner, failure
from ganeti.operations.mcpu import processor, runners
from ganeti.operations.mcpu.runners import (
    NotingRunner,
    PresentWaits,
    SharedAnswers,
    SharingRunner,
)
from ganeti.protocols.rpc import Runner, calls

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
    jobs.clock.now += runners.MAX_AGE_S
    jobs.start(submitted).call(*ASK)
    assert jobs.asked() == {ONE, TWO}


def test_a_node_that_was_acted_on_is_asked_again(jobs):
    first, second = jobs.start(), jobs.start()
    first.call(*ASK)
    first.call_node(TWO, calls.instance_start({}, False, []))
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
    first.call_node(TWO, calls.instance_start({}, False, []))
    jobs.asked()
    third.call(*ASK)
    assert jobs.asked() == {TWO}


def test_an_act_while_a_node_answers_makes_its_answer_useless(jobs):
    first, second, third = jobs.start(), jobs.start(), jobs.start()
    left = [True]

    def answer(_node, _args):
        if left:
            left.pop()
            second.call_node(ONE, calls.instance_start({}, False, []))
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
    jobs.clock.now += runners.MAX_AGE_S
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


class Looking(Runner):
    """Nodes that look at the present waits while they are called."""

    def __init__(self, waits):
        self.waits = waits
        self.seen = []
        self.fails = False

    def call(self, procedure, nodes, args=(), *, timeout_s=None):
        self.seen += self.waits.of_job(81)
        if self.fails:
            raise OSError
        return {}


@pytest.mark.parametrize(
    ("procedure", "args", "text", "limit_s"),
    [
        ("instance_shutdown", [{}, 120, []], "the shutdown of the guest on ", 120),
        ("test_delay", [7.5], "the end of a delay on ", 7.5),
        ("instance_shutdown", lambda _node: [{}, 120, []], "the shutdown", None),
        ("instance_info", ["a", "kvm", {}], "the call instance_info on ", None),
    ],
)
def test_a_call_is_kept_while_it_lasts(procedure, args, text, limit_s):
    waits = PresentWaits()
    inner = Looking(waits)
    runner = NotingRunner(inner, waits, "81/0", FakeClock())
    snapshot = clusters.snapshot()
    uuid = snapshot.cluster.master_node
    runner.call(procedure, [uuid], args)
    (seen,) = inner.seen
    assert seen.describe(snapshot).startswith(text)
    assert seen.describe(snapshot).endswith(snapshot.nodes[uuid].name)
    assert seen.limit_s == limit_s
    assert seen.left_s(seen.began) == limit_s
    # A reboot goes on after the limit of its shutdown.
    assert seen.left_s(seen.began + 120) is None
    both = seen._replace(nodes=list(snapshot.nodes)[:2])
    assert both.describe(snapshot).endswith("2 nodes")
    assert waits.of_job(81) == waits.of_job(8) == []
    inner.fails = True
    with pytest.raises(OSError):
        runner.call(procedure, [uuid], args)
    assert waits.of_job(81) == []


# The log is stored before calls that act, and before no others.


class Calls:
    """A runner and a log that note the order of events."""

    def __init__(self):
        self.events = []

    def save_log(self):
        self.events.append("save")

    def call(self, procedure, nodes, _args=(), *, timeout_s=None):
        self.events.append(procedure)
        return dict.fromkeys(nodes)


def test_acts_wait_for_the_log_and_questions_do_not():
    asked = Calls()
    runner = processor.LogSavingRunner(asked, asked.save_log)
    runner.call("instance_list", ["n1"], (["fake"], {}))
    runner.call("instance_start", ["n1"], lambda _node: ())
    runner.call("instance_info", ["n1"], ("web1", "fake", {}))
    runner.call("blockdev_remove", ["n1"], ({},))
    processor.at(lambda _targets: asked, asked.save_log)([]).call("version", ["n2"])
    processor.at(lambda _targets: asked, asked.save_log)([]).call("unknown", ["n2"])
    assert asked.events == [
        "instance_list",
        *("save", "instance_start"),
        "instance_info",
        *("save", "blockdev_remove"),
        "version",
        *("save", "unknown"),
    ]


# Nodes that are silent when an opcode is continued are asked again.

N1, N2 = clusters.node_uuid(1), clusters.node_uuid(2)
SILENT = failure("connection refused", is_silent=True)


class Site:
    """Two nodes; the second one answers after some time, or says something else."""

    def __init__(self, *, ready_s=0.0, before=SILENT):
        self.clock = FakeClock()
        self.began = self.clock.monotonic()
        self.ready_s, self.before = ready_s, before
        fakes = FakeRunner(clusters.snapshot, {"blockdev_shutdown": self.answer})
        self.asked = fakes.calls
        self.runner = processor.PatientRunner(fakes, self.clock)

    @property
    def spent_s(self):
        return self.clock.monotonic() - self.began

    def answer(self, node, _args):
        is_ready = node == N1 or self.spent_s >= self.ready_s
        return None if is_ready else self.before

    def call(self):
        results = self.runner.call("blockdev_shutdown", [N1, N2], ({},))
        return {node: result.failed for node, result in results.items()}


def test_a_node_whose_daemon_starts_is_asked_until_it_answers():
    site = Site(ready_s=5.0)
    assert site.call() == {N1: False, N2: False}
    assert 5.0 <= site.spent_s < 7.0
    # The other one has carried the call out.
    assert [node for _name, node, _args in site.asked].count(N1) == 1


def test_a_node_that_stays_silent_delays_all_calls_together_once():
    site = Site(ready_s=float("inf"))
    for _number in range(3):
        assert site.call() == {N1: False, N2: True}
    assert 30.0 <= site.spent_s < 32.0


@pytest.mark.parametrize(
    "answer", [failure("no"), failure("gone", is_lost=True, is_silent=True)]
)
def test_a_call_that_may_have_had_an_effect_is_not_repeated(answer):
    site = Site(ready_s=1.0, before=answer)
    assert site.call() == {N1: False, N2: True}
    assert site.spent_s == 0.0
