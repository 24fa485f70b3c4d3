"""Units that submit jobs moving instances: evacuation, migration of a node, groups."""

import json

import pytest

from fakes import clusters
from fakes.engine import Engine
from ganeti.base import errors
from ganeti.master.locking import Level

OTHER = "00000000-0000-4000-8000-0000000000b0"
SIZE = {"memory": 128, "disk": 1024, "vcpus": 1, "spindles": 1}
MIGRATE = {"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": "inst1.example.com"}


def moving(*numbers, node="node2.example.com", group="default"):
    """Return an answer that takes instances to a node, one job each."""
    names = [f"inst{number}.example.com" for number in numbers]
    moved = [[name, group, [node]] for name in names]
    jobs = [[MIGRATE | {"instance_name": name, "target_node": node}] for name in names]
    return [moved, [], jobs]


def engine(result, instances=2, **answer):
    output = json.dumps({"success": True, "info": "", "result": result} | answer)
    script = {
        "iallocator_runner": output,
        "node_info": ["boot", [], [{"memory_free": 1}]],
        "all_instances_info": {},
        "hooks_runner": [],
    }
    other = clusters.group(name="other", uuid=OTHER)
    apart = clusters.node(9, group=OTHER)
    return Engine(clusters.snapshot(instances=instances, extra=[other, apart]), script)


def submitted(eng):
    return [[op.op_id() for op in job] for job in eng.callbacks.submitted]


def test_evacuation_submits_what_the_allocator_wants():
    eng = engine(moving(1, 2))
    request = {
        "OP_ID": "OP_NODE_EVACUATE",
        "node_name": "node1",
        "mode": "primary-only",
    }
    result = eng.run(request | {"iallocator": "mine"})
    assert len(result["jobs"]) == 2
    assert submitted(eng) == [["OP_INSTANCE_MIGRATE"]] * 2
    ((_node, (_name, text, _options)),) = eng.rpc.called("iallocator_runner")
    asked = json.loads(text)["request"]
    assert asked["type"] == "node-evacuate"
    assert asked["instances"] == ["inst1.example.com", "inst2.example.com"]
    # Planning reads only: the jobs take what they need for themselves.
    modes = {level: shared for level, (_, shared) in eng.locks.modes().items()}
    assert modes == dict.fromkeys((Level.INSTANCE, Level.NODEGROUP, Level.NODE), True)


def test_instances_that_cannot_move_fail_the_evacuation_before_any_job():
    (moved, failed, jobs) = moving(2)
    failed.append(["inst1.example.com", "no room"])
    eng = engine([moved, failed, jobs])
    request = {
        "OP_ID": "OP_NODE_EVACUATE",
        "node_name": "node1",
        "mode": "primary-only",
    }
    with pytest.raises(errors.OpExecError, match=r"inst1\.example\.com: no room"):
        eng.run(request | {"iallocator": "mine"})
    assert submitted(eng) == []


def test_requests_to_allocators_ignore_soft_errors():
    request = {
        "OP_ID": "OP_NODE_EVACUATE",
        "node_name": "node1",
        "mode": "primary-only",
        "iallocator": "mine",
    }
    eng = engine(moving(1, 2))
    for more, flags in (
        ({}, {}),
        ({"ignore_soft_errors": True}, {"ignore-soft-errors": None}),
    ):
        eng.run(request | more)
        (_node, (_name, _text, options)) = eng.rpc.called("iallocator_runner")[-1]
        assert options == flags
    everyone = [[f"inst{number}.example.com", "no room"] for number in (1, 2)]
    eng = engine([[], everyone, []])
    with pytest.raises(errors.OpExecError, match="no room"):
        eng.run(request | {"ignore_soft_errors": True})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"mode": "all", "iallocator": "a"}, "separate requests"),
        ({"iallocator": "a", "remote_node": "node2"}, "either an allocator or"),
        ({"remote_node": "node2"}, "only be given for secondary"),
        ({"mode": "secondary-only", "remote_node": "node1"}, "to itself"),
    ],
)
def test_contradictory_evacuations_are_refused(changes, text):
    request = {
        "OP_ID": "OP_NODE_EVACUATE",
        "node_name": "node1",
        "mode": "primary-only",
    }
    with pytest.raises(errors.OpPrereqError, match=text):
        engine([]).run(request | changes)


def test_evacuating_an_empty_node_submits_nothing():
    request = {
        "OP_ID": "OP_NODE_EVACUATE",
        "node_name": "node2",
        "mode": "primary-only",
    }
    assert engine([]).run(request | {"iallocator": "a"})["jobs"] == []


def test_migrating_a_node_makes_one_job_per_instance():
    eng = engine([])
    eng.run({"OP_ID": "OP_NODE_MIGRATE", "node_name": "node1", "target_node": "node2"})
    assert submitted(eng) == [["OP_INSTANCE_MIGRATE"]] * 2


def test_a_group_is_evacuated_in_order_and_by_failover_if_asked():
    eng = engine(moving(1, 2, node="node9.example.com", group="other"))
    request = {"OP_ID": "OP_GROUP_EVACUATE", "group_name": "default", "iallocator": "a"}
    eng.run(request | {"sequential": True, "force_failover": True})
    jobs = eng.callbacks.submitted
    assert submitted(eng) == [["OP_INSTANCE_FAILOVER"]] * 2
    assert [job[0].depends for job in jobs] == [None, [(-1, [])]]
    with pytest.raises(errors.OpPrereqError, match="to itself"):
        eng.run(request | {"target_groups": ["default"]})


def test_an_instance_changes_group_with_all_others_as_targets():
    eng = engine(moving(1, node="node9.example.com", group="other"))
    request = {"OP_ID": "OP_INSTANCE_CHANGE_GROUP", "instance_name": "inst1"}
    eng.run(request | {"iallocator": "a"})
    ((_node, (_name, text, _options)),) = eng.rpc.called("iallocator_runner")
    assert json.loads(text)["request"]["target_groups"] == [OTHER]
    with pytest.raises(errors.OpPrereqError, match="is already in group default"):
        eng.run(request | {"target_groups": ["default"], "iallocator": "a"})


def test_several_instances_are_placed_with_one_run():
    create = {
        "OP_ID": "OP_INSTANCE_CREATE",
        "mode": "create",
        "disk_template": "diskless",
        "disks": [],
        "nics": [],
        "os_type": "tiny",
    }
    names = ["a.example.com", "b.example.com"]
    eng = engine([[["a.example.com", ["node2.example.com"]]], ["b.example.com"]])
    result = eng.run(
        {
            "OP_ID": "OP_INSTANCE_MULTI_ALLOC",
            "iallocator": "mine",
            "instances": [create | {"instance_name": name} for name in names],
        }
    )
    assert (result["allocatable"], result["failed"]) == (names[:1], names[1:])
    ((op,),) = eng.callbacks.submitted
    assert (op.instance_name, op.pnode) == ("a.example.com", "node2.example.com")


def test_an_allocator_can_be_shown_its_question_and_asked():
    request = {
        "OP_ID": "OP_TEST_ALLOCATOR",
        "mode": "allocate",
        "name": "new.example.com",
        "memory": 128,
        "vcpus": 1,
        "disks": [{"size": 1024, "mode": "rw"}],
        "disk_template": "file",
        "os": "tiny",
    }
    eng = engine(["node2.example.com"])
    shown = json.loads(eng.run(request | {"direction": "in"}))
    assert shown["request"]["name"] == "new.example.com"
    answer = json.loads(eng.run(request | {"direction": "out", "iallocator": "a"}))
    assert answer["result"] == ["node2.example.com"]
    for changes, text in [
        ({"direction": "out"}, "needs its name"),
        ({"direction": "in", "memory": None}, "needs memory"),
        ({"direction": "in", "name": "inst1.example.com"}, "already exists"),
    ]:
        with pytest.raises(errors.OpPrereqError, match=text):
            eng.run(request | changes)


@pytest.mark.parametrize(
    ("mode", "asked", "answer"),
    [
        (
            "balance",
            {"max_moves": 3, "group_name": "other", "search": False},
            [[["inst1.example.com", "other", ["node9.example.com"]]], [], [[MIGRATE]]],
        ),
        (
            "capacity",
            {"limit": 3, "groups": ["other"], "sizes": [SIZE]},
            {"count": 0, "instances": [], "stopped": None},
        ),
        ("allocate-secondary", {"name": "inst1.example.com"}, "node2.example.com"),
    ],
)
def test_our_own_modes_can_be_shown_and_asked_too(mode, asked, answer):
    request = {
        "OP_ID": "OP_TEST_ALLOCATOR",
        "mode": mode,
        "name": "inst1",
        "group_name": "other",
        "count": 3,
        "memory": 128,
        "vcpus": 1,
        "disks": [{"size": 512, "mode": "rw"}, {"size": 512, "mode": "rw"}],
    }
    eng = engine(answer)
    shown = json.loads(eng.run(request | {"direction": "in"}))["request"]
    assert shown["type"] == mode
    assert asked.items() <= shown.items()
    reported = json.loads(eng.run(request | {"direction": "out", "iallocator": "a"}))
    if mode == "balance":
        (((name, _group, _nodes),), _failed, ((op,),)) = reported["result"]
        assert (name, op["OP_ID"]) == ("inst1.example.com", "OP_INSTANCE_MIGRATE")
    else:
        assert reported["result"] == answer


def placements(eng):
    return [output for kind, output in eng.callbacks.entries if kind == "placement"]


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (
            {"OP_ID": "OP_NODE_EVACUATE", "node_name": "node1", "mode": "primary-only"},
            moving(1),
        ),
        (
            {"OP_ID": "OP_GROUP_EVACUATE", "group_name": "default"},
            moving(1, node="node9.example.com", group="other"),
        ),
        (
            {"OP_ID": "OP_INSTANCE_CHANGE_GROUP", "instance_name": "inst1"},
            moving(1, node="node9.example.com", group="other"),
        ),
    ],
)
def test_a_dry_run_reports_what_the_allocator_wants_and_submits_nothing(
    request_, answer
):
    eng = engine(answer, instances=1)
    result = eng.run(request_ | {"iallocator": "mine", "dry_run": True})
    assert result["jobs"] == []
    assert submitted(eng) == []
    (reported,) = placements(eng)
    assert reported["allocator"] == "mine"
    assert reported["instances"] == [
        {
            "instance": "inst1.example.com",
            "nodes": answer[0][0][2],
            "reasons": [],
            "choice": [],
        }
    ]


def test_the_built_in_allocator_reports_nodes_and_reasons_of_a_dry_run():
    eng = engine([])
    request = {"OP_ID": "OP_INSTANCE_CHANGE_GROUP", "instance_name": "inst1"}
    with pytest.raises(errors.OpExecError, match=r"node9\.example\.com: ") as caught:
        eng.run(request | {"iallocator": "hail", "dry_run": True})
    (reported,) = placements(eng)
    (one,) = reported["instances"]
    assert (one["instance"], one["nodes"]) == ("inst1.example.com", [])
    for reason in one["reasons"]:
        assert f"{reason['node']}: {reason['check']}" in str(caught.value)
