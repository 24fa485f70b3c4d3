"""Nodes that are silent when an opcode is continued are asked again."""

import pytest

from fakes import clusters
from fakes.clocks import FakeClock
from fakes.rpc import FakeRunner, failure
from ganeti.operations.mcpu import patient_runner

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
        self.runner = patient_runner.PatientRunner(fakes, self.clock)

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
