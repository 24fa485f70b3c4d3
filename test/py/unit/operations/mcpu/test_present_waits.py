"""The node calls and pauses that jobs wait for."""

import pytest

from fakes import clusters
from fakes.clocks import FakeClock
from ganeti.operations.mcpu.present_waits import NotingRunner, PresentWaits
from ganeti.protocols.rpc import Runner


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
