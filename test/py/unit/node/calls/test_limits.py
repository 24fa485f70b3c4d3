"""Calls that hang take neither all threads nor their programs with them."""

import threading

import pytest

from fakes import nodes
from ganeti.base.process import SystemRunner
from ganeti.node import calls as backend
from ganeti.node.calls.running_calls import (
    DiskTurns,
    RunningCalls,
    StorageBusy,
    kinds_of,
)


def test_the_kinds_of_a_call_are_those_of_its_disks_and_their_children():
    child = {"dev_type": "plain"}
    mirror = {"dev_type": "drbd", "children": [child, child]}
    assert kinds_of("blockdev_find", [mirror]) == {"drbd", "plain"}
    assert kinds_of("blockdev_getmirrorstatus_multi", [[mirror]]) == {"drbd", "plain"}
    assert kinds_of("instance_start", [{"disks_info": [{"dev_type": "rbd"}]}, 5]) == {
        "rbd"
    }
    assert kinds_of("version", []) == frozenset()
    assert kinds_of("blockdev_find", [{"dev_type": 5}]) == frozenset()


def test_children_of_the_disks_of_instances_are_not_overlooked():
    mirror = {"dev_type": "drbd", "children": [{"dev_type": "plain"}]}
    assert "plain" in kinds_of("call", [[{"disks_info": [mirror]}]])


def test_the_depth_of_the_search_is_bounded():
    value = {"dev_type": "plain"}
    for _level in range(5000):
        value = [value]
    assert kinds_of("call", [value]) == frozenset()


def test_calls_of_storage_name_the_kind_first():
    for name in ("storage_list", "storage_execute", "storage_modify"):
        assert kinds_of(name, ["lvm-vg", {"dev_type": "rbd"}]) == {"lvm-vg"}
        assert kinds_of(name, [["lvm-vg"]]) == frozenset()


def test_a_quarter_of_the_threads_stays_free_of_each_kind():
    turns = DiskTurns({"normal": 8, "urgent": 1})
    kinds = frozenset({"plain", "drbd"})
    held = [turns.taken("normal", frozenset({"plain"})) for _number in range(6)]
    for turn in held:
        turn.__enter__()
    with pytest.raises(StorageBusy, match="6 calls for disks of type plain"):
        turns.taken("normal", kinds).__enter__()
    # The refused call holds no turn of its other kind; other lanes have their own turns.
    for _number in range(6):
        turns.taken("normal", frozenset({"drbd"})).__enter__()
    with turns.taken("urgent", kinds), pytest.raises(StorageBusy, match="1 calls"):
        turns.taken("urgent", kinds).__enter__()
    held[0].__exit__(None, None, None)
    with turns.taken("normal", frozenset({"plain"})):
        pass


def test_a_call_that_fails_gives_its_turn_back():
    turns = DiskTurns({"normal": 1})
    for _attempt in range(3):
        with pytest.raises(OSError), turns.taken("normal", frozenset({"plain"})):
            raise OSError


ID = "0123456789abcdef"


class Runner:
    """Records for which thread children end or may start again."""

    def __init__(self):
        self.calls = []

    def end_children(self, thread, end):
        self.calls.append((thread, end))


def test_the_programs_of_the_named_call_end_and_later_ones_may_start():
    runner = Runner()
    calls = RunningCalls(runner.end_children)
    me = threading.current_thread()
    assert not calls.abort(ID)
    with calls.running(ID):
        assert not calls.abort("f" * 16)
        assert runner.calls == []
        assert calls.abort(ID)
        assert runner.calls == [(me, True)]
    assert runner.calls == [(me, True), (me, False)]
    assert not calls.abort(ID)


def test_a_call_without_a_valid_id_cannot_be_ended():
    calls = RunningCalls(Runner().end_children)
    for name in ("", "x" * 16, ID + "\n", ID[:15]):
        with calls.running(name):
            assert not calls.abort(name)


def test_a_program_that_waits_for_ever_ends(tmp_path):
    runner = SystemRunner()
    node = nodes.make_node(tmp_path)
    calls = RunningCalls(runner.end_children)
    node = backend.LocalNode(
        node.paths, runner, node.clock, node.hypervisors, running_calls=calls
    )
    results = []

    def work():
        with calls.running(ID):
            results.extend(runner.run(["sleep", "600"]).reason for _i in range(2))

    thread = threading.Thread(target=work)
    thread.start()
    while not nodes.call(node, "call_abort", ID):
        assert thread.is_alive()
    thread.join(60)
    assert results == ["was ended by signal 9"] * 2
    assert nodes.call(node, "call_abort", ID) is False


def test_a_node_that_keeps_no_list_of_calls_ends_none(tmp_path):
    assert nodes.call(nodes.make_node(tmp_path), "call_abort", ID) is False
