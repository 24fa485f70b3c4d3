"""Power cycles reach the right switch, a little later, and never the machine here."""

import dataclasses
import threading

import pytest

from fakes import nodes
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.node.calls import power
from ganeti.node.calls.membership import roles


class Switch:
    def __init__(self):
        self.done = threading.Event()

    def cycle(self):
        self.done.set()


def test_the_answer_comes_before_the_reset(tmp_path):
    clock = nodes.CountedClock()
    switch = Switch()
    node = dataclasses.replace(nodes.make_node(tmp_path, time=clock), power=switch)
    answer = nodes.call(node, "node_powercycle", "kvm", {})
    assert answer == "Reboot scheduled in 5 seconds"
    assert switch.done.wait(60)
    assert clock.now == 1000.0 + roles.POWERCYCLE_DELAY_S


def test_the_kernels_files_are_open_before_they_are_needed(tmp_path):
    enable, trigger = tmp_path / "sysrq", tmp_path / "trigger"
    enable.write_text("")
    trigger.write_text("")
    switch = power.SysrqSwitch.open(str(enable), str(trigger))
    enable.rename(tmp_path / "gone1")
    trigger.rename(tmp_path / "gone2")
    switch.cycle()
    assert (tmp_path / "gone1").read_text() == "1"
    assert (tmp_path / "gone2").read_text() == "b"


def test_a_virtual_node_only_leaves_a_request(tmp_path):
    paths = Paths(root=str(tmp_path), hostname="n1")
    switch = power.for_node(paths)
    assert isinstance(switch, power.VirtualSwitch)
    switch.cycle()
    switch.cycle()
    assert (tmp_path / "power-cycle").exists()
    with pytest.raises(errors.ProgrammerError):
        power.VirtualSwitch(Paths(hostname="real"))


def test_without_a_switch_it_says_so():
    with pytest.raises(errors.HypervisorError, match="not permitted"):
        power.NoSwitch("not permitted").cycle()
