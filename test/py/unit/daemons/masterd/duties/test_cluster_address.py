"""The duty of the master to have the cluster's address: added, watched, added again."""

import pytest

from fakes import clusters
from fakes.clocks import FakeClock
from fakes.rpc import FakeRunner, failure
from ganeti.base import errors
from ganeti.daemons.masterd.duties.cluster_address import (
    LOOK_S,
    RETRY_S,
    ClusterAddress,
)
from ganeti.operations import master_ip

N1, N2, N3 = (clusters.node_uuid(number) for number in (1, 2, 3))
UP, DOWN, HAS = (
    "node_activate_master_ip",
    "node_deactivate_master_ip",
    "node_has_ip_address",
)
IN_USE = "192.0.2.100: another machine has this address"


class Machines:
    """Three candidates, of which the first is the master, and who has the address."""

    def __init__(self, holder=None, **cluster):
        self.snapshot = clusters.snapshot(nodes=3, **cluster)
        self.holder = holder
        #: A node that keeps the address, since it answers nothing.
        self.frozen = None
        self.rpc = FakeRunner(
            lambda: self.snapshot, {UP: self._up, DOWN: self._down, HAS: self._has}
        )
        self.clock = FakeClock()
        self.duty = ClusterAddress(
            lambda: self.snapshot, self.rpc, self.clock, lambda _ip: self.holder == N1
        )

    def _up(self, node, _args):
        if self.holder not in (None, node):
            return failure(IN_USE)
        self.holder = node
        return None

    def _down(self, node, _args):
        self.holder = None if self.holder == node else self.holder

    def _has(self, node, _args):
        return failure("no answer") if node == self.frozen else self.holder == node

    def looks(self, count):
        return [self.duty.look() for _ in range(count)]

    def names(self):
        return [call[0] for call in self.rpc.calls]


@pytest.fixture
def machines():
    return Machines()


def test_the_address_is_added_once_and_then_only_watched(machines):
    assert machines.looks(3) == [LOOK_S] * 3
    cluster = machines.snapshot.cluster
    arguments = (master_ip.parameters(cluster), cluster.use_external_mip_script)
    assert machines.rpc.calls == [(UP, N1, arguments)]


def test_a_frozen_node_that_had_the_address_delays_it_until_it_goes(caplog):
    """It was asked for once, while the frozen kernel still answered."""
    machines = Machines(holder=N2)
    machines.frozen = N2
    assert machines.looks(6) == [*RETRY_S, RETRY_S[-1], RETRY_S[-1]]
    assert DOWN not in machines.names()
    # The same failure is logged once.
    assert caplog.text.count("could not be added to this node") == 1
    # The node thaws; its daemons do not remove the address themselves.
    machines.frozen = None
    assert machines.looks(2) == [RETRY_S[0], LOOK_S]
    assert [node for node, _args in machines.rpc.called(DOWN)] == [N2]
    assert machines.holder == N1


def test_an_address_that_goes_is_added_again(machines):
    machines.looks(2)
    machines.holder = None
    assert machines.looks(2) == [RETRY_S[0], LOOK_S]
    assert machines.holder == N1


def test_a_job_that_removes_the_address_ends_the_duty_until_one_adds_it(machines):
    machines.looks(1)
    machines.duty.note(DOWN, 0)
    machines.holder = None
    machines.looks(3)
    assert machines.holder is None
    # Its attempt failed: the master goes on.
    machines.duty.note("version", 0)
    machines.duty.note(UP, 1)
    machines.looks(1)
    assert machines.holder == N1
    # A job moves it to another place: nothing is added twice.
    count = len(machines.rpc.calls)
    machines.duty.note(DOWN, 0)
    machines.duty.note(UP, 0)
    machines.looks(3)
    assert len(machines.rpc.calls) == count


def test_a_removal_whose_hooks_are_slow_is_not_undone(machines):
    machines.looks(1)
    machines.duty.begin(DOWN)
    machines.holder = None
    machines.looks(2)
    machines.duty.note(DOWN, 0)
    machines.looks(3)
    assert machines.holder is None


def test_a_removal_that_failed_does_not_end_the_duty(machines):
    machines.looks(1)
    machines.duty.begin("version")
    machines.duty.begin(DOWN)
    machines.duty.note(DOWN, 1)
    machines.holder = None
    machines.looks(5)
    assert machines.holder == N1


def test_a_removal_that_failed_does_not_undo_one_before(machines):
    """The second one finds nothing to remove, or its hook fails."""
    machines.looks(1)
    for failed in (0, 1):
        machines.duty.begin(DOWN)
        machines.holder = None
        machines.duty.note(DOWN, failed)
        machines.looks(2)
        assert machines.holder is None


def test_a_job_that_removes_the_address_during_an_attempt_wins(machines):
    def up(_node, _args):
        machines.duty.note(DOWN, 0)
        machines.holder = N1

    machines.rpc.script[UP] = up
    machines.looks(2)
    assert machines.holder is None


@pytest.mark.parametrize(
    "cluster", [{"use_external_mip_script": True}, {"master_ip": "127.0.0.1"}]
)
def test_a_place_that_is_not_known_is_only_asked_for_until_it_is_there(cluster):
    machines = Machines(holder=N2, **cluster)
    machines.looks(2)
    assert machines.names() == [UP, UP]
    machines.holder = None
    machines.looks(1)
    machines.holder = None if cluster.get("use_external_mip_script") else N1
    machines.looks(3)
    assert machines.names() == [UP, UP, UP]


def test_a_deposed_master_ends_and_other_errors_do_not(machines, monkeypatch):
    steps = [errors.RpcError("busy"), ValueError("odd"), errors.TermError("deposed")]

    def look():
        raise steps.pop(0)

    monkeypatch.setattr(machines.duty, "look", look)
    machines.duty._run()
    assert steps == []
    assert machines.clock.now - FakeClock().now == 2 * LOOK_S


def test_it_ends_with_the_daemon(machines):
    machines.duty.stop()
    machines.duty.start()
    machines.duty._thread.join(10)
    assert machines.names() == []
