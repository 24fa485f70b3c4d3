"""Valid answers of an allocator in each mode: every other answer is refused."""

import dataclasses
import json

import pytest

from fakes import allocators, clusters
from fakes.rpc import FakeRunner
from ganeti.base import errors
from ganeti.master import iallocator

OTHER = clusters.group(name="other", uuid="00000000-0000-4000-8000-0000000000b0")
INFO = ["boot", [{"storage_size": 9000, "storage_free": 8000}], [{"memory_free": 4000}]]
ONE, TWO, PAIR = (f"inst{number}.example.com" for number in (1, 2, 3))
FAILOVER = {"OP_ID": "OP_INSTANCE_FAILOVER"}
REPLACE = {
    "OP_ID": "OP_INSTANCE_REPLACE_DISKS",
    "mode": "replace_new_secondary",
    "disks": [],
}


def node(number):
    return f"node{number}.example.com"


def cluster():
    """Two instances on node 1 and one mirrored to node 2; 4 to 6 take no instances."""
    states = ({"offline": True}, {"drained": True}, {"vm_capable": False})
    others = [clusters.node(4 + n, **state) for n, state in enumerate(states)]
    return clusters.snapshot(
        instances=2,
        extra=[
            OTHER,
            *others,
            clusters.node(9, group=OTHER.uuid),
            clusters.drbd_disk("d3", 1, 2),
            clusters.instance(3, disks=["d3"]),
        ],
    )


def ask(request, result):
    snapshot = cluster()
    reported = json.dumps({"success": True, "info": "", "result": result})
    script = {
        "node_info": INFO,
        "all_instances_info": {},
        "iallocator_runner": reported,
    }
    runner = FakeRunner(lambda: snapshot, script)
    return iallocator.run(runner, snapshot, "mine", request).result


def refused(request, result):
    with pytest.raises(errors.ResultValidationError) as caught:
        ask(request, result)
    text = caught.value.args[0]
    assert text.startswith("allocator mine: ")
    return text


NEW = allocators.allocate()
WITHIN = dataclasses.replace(NEW, group_name="other")
FEW = dataclasses.replace(NEW, restrict_to=[node(3)])
SIZES = {"memory": 128, "disk": 1024, "vcpus": 1}
COUNT = iallocator.Capacity(
    disk_template="file", sizes=[SIZES], groups=["default"], limit=1
)
LEAVE_ONE = iallocator.Relocate(ONE, [node(1)], 0)
LEAVE_PAIR = iallocator.Relocate(PAIR, [node(2)], 0)
SECOND = iallocator.AllocateSecondary(ONE)


@pytest.mark.parametrize(
    ("request_", "fine"),
    [
        (NEW, [node(2)]),
        (WITHIN, [node(9)]),
        (FEW, [node(3)]),
        (LEAVE_ONE, [node(3)]),
        (LEAVE_PAIR, [node(3)]),
        (SECOND, node(3)),
    ],
)
def test_places_that_take_instances_are_taken(request_, fine):
    assert ask(request_, fine) == fine


@pytest.mark.parametrize(
    ("request_", "wrong", "words"),
    [
        (NEW, None, "result: wanted a list of node names, found None"),
        (NEW, [[node(2)]], "names of known nodes, found ['node2"),
        (NEW, [node(4)], f"may take instances, found '{node(4)}, which is offline'"),
        (NEW, [node(5)], "which is drained"),
        (NEW, [node(6)], "which is not vm_capable"),
        (WITHIN, [node(2)], "nodes of group other, found 'node2.example.com, which is"),
        (FEW, [node(2)], f"nodes that the request allows, found '{node(2)}'"),
        (LEAVE_ONE, [node(1)], f"a node other than {node(1)}, found"),
        (LEAVE_ONE, [node(4)], "which is offline"),
        (
            LEAVE_PAIR,
            [node(1)],
            f"a node other than {node(1)}, the primary node of {PAIR}",
        ),
        (SECOND, [node(2)], "wanted a node name, found ["),
        (SECOND, node(1), f"a node other than {node(1)}, the primary node of {ONE}"),
        (SECOND, node(5), "which is drained"),
    ],
)
def test_other_places_are_refused(request_, wrong, words):
    assert words in refused(request_, wrong)


def test_each_of_several_new_instances_is_checked():
    request = iallocator.MultiAllocate([WITHIN])
    assert ask(request, [[[NEW.name, [node(9)]]], []]).placed
    text = refused(request, [[[NEW.name, [node(2)]]], []])
    assert f"nodes of {NEW.name}: wanted nodes of group other" in text
    twice = [[NEW.name, [node(9)]]] * 2
    assert "found ['new.example.com', 'new.example.com']" in refused(
        request, [twice, []]
    )


def counted(count=1, **changes):
    row = SIZES | {"nodes": [node(2)]} | changes
    return {"count": count, "instances": [row] * int(count)}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (counted(True), "count: wanted 1, found True"),
        (counted(2), "count: wanted 1 or fewer, found 2"),
        (counted(memory=-1), "instances: wanted objects with memory"),
        (counted(disk=True), "instances: wanted objects with memory"),
        (counted(vcpus=1.5), "instances: wanted objects with memory"),
        (counted(nodes=[node(9)]), "nodes: wanted nodes of group default"),
        (counted(nodes=[node(4)]), "which is offline"),
        (counted(nodes=[]), "nodes: wanted 1 node names, found []"),
    ],
)
def test_a_capacity_is_whole_and_of_nodes_that_take_instances(wrong, words):
    assert ask(COUNT, counted())["count"] == 1
    assert words in refused(COUNT, wrong)


def evacuation(name, nodes, *ops, group="default", failed=()):
    jobs = [[dict(op, instance_name=name)] for op in ops]
    return [[[name, group, nodes]], [list(row) for row in failed], jobs]


OFF_ONE = iallocator.NodeEvacuate([ONE], "primary-only")
OFF_PAIR = iallocator.NodeEvacuate([PAIR], "primary-only")
OTHER_SECOND = iallocator.NodeEvacuate([PAIR], "secondary-only")
BOTH = iallocator.NodeEvacuate([PAIR], "all")
AWAY = iallocator.ChangeGroup([ONE], [OTHER.uuid])
ANYWHERE = iallocator.ChangeGroup([ONE], [])


@pytest.mark.parametrize(
    ("request_", "fine"),
    [
        (OFF_ONE, evacuation(ONE, [node(2)], FAILOVER | {"target_node": node(2)})),
        (OFF_PAIR, evacuation(PAIR, [node(2), node(1)], FAILOVER)),
        (
            OTHER_SECOND,
            evacuation(PAIR, [node(1), node(3)], REPLACE | {"remote_node": node(3)}),
        ),
        (AWAY, evacuation(ONE, [node(9)], FAILOVER, group="other")),
        (ANYWHERE, evacuation(ONE, [node(9)], FAILOVER, group=OTHER.uuid)),
        (OFF_ONE, [[], [[ONE, "no room"]], []]),
    ],
)
def test_jobs_that_do_what_was_asked_are_taken(request_, fine):
    actual = ask(request_, fine)
    assert [[name, list(nodes)] for name, _group, nodes in actual.moved] == [
        [name, nodes] for name, _group, nodes in fine[0]
    ]
    assert len(actual.jobs) == len(fine[2])


@pytest.mark.parametrize(
    ("request_", "wrong", "words"),
    [
        (OFF_ONE, evacuation(ONE, [node(1)], FAILOVER), f"nodes other than {node(1)}"),
        (OFF_ONE, evacuation(ONE, [node(2), node(3)], FAILOVER), "wanted 1 node names"),
        (OFF_ONE, evacuation(ONE, [node(4)], FAILOVER), "which is offline"),
        (
            OFF_ONE,
            evacuation(ONE, [node(9)], FAILOVER),
            "nodes of group default, found",
        ),
        (OFF_ONE, evacuation(ONE, [node(2)]), f"instance that moves, found '{ONE} 0"),
        (OFF_ONE, evacuation(ONE, [node(2)], FAILOVER, FAILOVER), f"'{ONE} 2 times'"),
        (OFF_ONE, [[], [], []], f"once, as moved or failed, found '{ONE} 0 times'"),
        (
            OFF_ONE,
            evacuation(ONE, [node(2)], FAILOVER, failed=[[ONE, "no room"]]),
            f"found '{ONE} 2 times'",
        ),
        (
            OFF_ONE,
            evacuation(ONE, [node(2)], FAILOVER | {"target_node": "nowhere"}),
            "job: OP_INSTANCE_FAILOVER: target_node: wanted names of known nodes",
        ),
        (
            OFF_ONE,
            evacuation(ONE, [node(2)], FAILOVER | {"target_node": node(4)}),
            "target_node: wanted nodes that may take instances",
        ),
        (OFF_PAIR, evacuation(PAIR, [node(2)], FAILOVER), "wanted 2 node names"),
        (
            OTHER_SECOND,
            evacuation(PAIR, [node(1), node(2)], REPLACE),
            f"nodes other than {node(2)}, found '{node(2)}'",
        ),
        (BOTH, evacuation(PAIR, [node(3), node(1)], FAILOVER), "nodes other than"),
        (AWAY, evacuation(ONE, [node(2)], FAILOVER), "wanted group other, found 'def"),
        (ANYWHERE, evacuation(ONE, [node(2)], FAILOVER), "wanted group other, found"),
    ],
)
def test_other_jobs_are_refused(request_, wrong, words):
    assert words in refused(request_, wrong)


def test_what_is_left_may_be_offline():
    """A primary node that died becomes the secondary one."""
    snapshot = clusters.changed(
        cluster(),
        clusters.node(2, offline=True),
        clusters.drbd_disk("d4", 2, 3),
        clusters.instance(4, primary=2, disks=["d4"]),
    )
    name = "inst4.example.com"
    result = evacuation(name, [node(3), node(2)], FAILOVER)
    reported = json.dumps({"success": True, "info": "", "result": result})
    script = {
        "node_info": INFO,
        "all_instances_info": {},
        "iallocator_runner": reported,
    }
    runner = FakeRunner(lambda: snapshot, script)
    request = iallocator.NodeEvacuate([name], "primary-only")
    assert iallocator.run(runner, snapshot, "mine", request).result.moved


def test_a_flood_of_words_is_cut():
    snapshot = cluster()
    reported = json.dumps({"success": False, "info": "x" * 100_000, "result": []})
    script = {
        "node_info": INFO,
        "all_instances_info": {},
        "iallocator_runner": reported,
    }
    runner = FakeRunner(lambda: snapshot, script)
    info = iallocator.run(runner, snapshot, "mine", NEW).info
    assert len(info) < 66_000
    assert info.endswith("[34464 more characters]")


def test_words_do_nothing_to_a_terminal():
    snapshot = cluster()
    script = {"node_info": INFO, "all_instances_info": {}}
    for success, result in ((False, []), (True, [[], [[ONE, "\x1b[2Jno\nroom"]], []])):
        reported = {"success": success, "info": "\x1b]0;x\x07 full", "result": result}
        script["iallocator_runner"] = json.dumps(reported)
        runner = FakeRunner(lambda: snapshot, script)
        answer = iallocator.run(runner, snapshot, "mine", OFF_ONE)
        assert answer.info == "?]0;x? full"
    assert answer.result.failed == [(ONE, "?[2Jno\nroom")]
