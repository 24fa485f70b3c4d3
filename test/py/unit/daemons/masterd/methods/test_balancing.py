"""Checks of the arguments of balancing, before anything is planned."""

import json
import re
import types

import pytest

from fakes import clusters
from fakes.rpc import FakeRunner
from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.daemons.masterd.methods import balancing
from ganeti.decisions.htools.model import cluster as model
from ganeti.master.iallocator import builtin


def deps(submitted):
    """Return the part of a master that the method needs."""
    snapshot = clusters.snapshot()
    planning = types.SimpleNamespace(submit=lambda *args: submitted.append(args))
    config = types.SimpleNamespace(snapshot=lambda: snapshot)
    return types.SimpleNamespace(config=config, planning=planning)


def test_a_group_is_known_by_its_uuid_too() -> None:
    submitted = []
    wanted = balancing.BalanceRequest(group=clusters.GROUP, allocator="mine")
    balancing.plan_balance(deps(submitted), wanted)
    ((_make, _deps, request),) = submitted
    assert (request.group, request.allocator) == ("default", "mine")


def test_an_unknown_group_is_refused_at_once() -> None:
    submitted = []
    with pytest.raises(errors.OpPrereqError, match="'nowhere'") as caught:
        balancing.plan_balance(
            deps(submitted), balancing.BalanceRequest(group="nowhere")
        )
    assert caught.value.args[1] == ecodes.ECODE_NOENT
    assert submitted == []


@pytest.mark.parametrize(
    ("allocator", "moves", "answer"),
    [("", 1, "'' and 1"), ("mine", -1, "'mine' and -1")],
)
def test_a_request_that_no_allocator_takes_is_refused(allocator, moves, answer) -> None:
    submitted = []
    request = balancing.BalanceRequest(allocator=allocator, max_moves=moves)
    balancing.plan_balance(deps(submitted), request)
    ((make, *arguments),) = submitted
    with pytest.raises(errors.OpPrereqError, match=re.escape(f"found {answer}")):
        make(*arguments)


GUEST = model.Instance(name="web1", memory=1, disk=1, vcpus=2, primary=0)
NODE = model.Node("node1", 0, 10, 1, 9, 10, 9, 4)
LOADED = model.Cluster((model.Group("g", "u"),), (NODE,), (GUEST,))


def test_on_xen_each_guest_has_the_load_that_its_node_reports() -> None:
    cluster = balancing._loaded_by_guest(LOADED, {"node1": {"web1": 1.5, "Domain": 9}})
    assert cluster.instances[0].utilisation[0] == 1.5
    assert cluster.nodes == LOADED.nodes


@pytest.mark.parametrize(
    ("loads", "error"),
    [
        ({}, "node node1: wanted the load of its guests, found none"),
        ({"node1": {}}, "instance web1: wanted its load, found none"),
    ],
)
def test_a_load_of_guests_that_is_missing_is_refused(loads, error) -> None:
    with pytest.raises(model.DataError, match=error):
        balancing._loaded_by_guest(LOADED, loads)


def ask(result, max_moves, *, explain=True, seen=None, snapshot=None, **wanted):
    """Return the plan that an allocator's result becomes; ``seen`` gets its input."""
    answer = {"success": True, "info": "done", "result": result}
    snapshot = snapshot or clusters.snapshot(instances=1)

    def run(_node, args):
        if seen is not None:
            seen.append((args[0], json.loads(args[1])["request"]))
        return json.dumps(answer)

    script = {
        "iallocator_runner": run,
        "node_info": ["boot", [], [{"memory_free": 1}]],
        "all_instances_info": {},
    }
    plans = []
    master = types.SimpleNamespace(
        config=types.SimpleNamespace(snapshot=lambda: snapshot),
        rpc=FakeRunner(lambda: snapshot, script),
        planning=types.SimpleNamespace(
            submit=lambda make, *args: plans.append(make(*args))
        ),
    )
    request = balancing.BalanceRequest(
        allocator="mine", max_moves=max_moves, explain=explain, **wanted
    )
    balancing.plan_balance(master, request)
    ((group,),) = (plan["groups"] for plan in plans)
    return group


def test_the_plan_of_an_allocator_becomes_moves_one_after_the_other() -> None:
    moved = ["inst1.example.com", "default", ["node2.example.com"]]
    jobs = [
        [{"OP_ID": f"OP_INSTANCE_{word}", "instance_name": "inst1.example.com"}]
        for word in ("MIGRATE", "FAILOVER")
    ]
    group = ask([[moved], [], jobs], max_moves=2)
    first, second = group["moves"]
    assert (group["name"], group["stopped"]) == ("all", "done")
    assert group["score_before"] is group["score_after"] is group["score_ideal"] is None
    assert first["from"] == ["node1.example.com"]
    assert (first["to"], second["to"]) == (["node2.example.com"], [])
    assert (first["how"], first["depends"]) == ("OP_INSTANCE_MIGRATE", [])
    assert second["depends"] == [0]


def test_a_plan_may_have_no_moves() -> None:
    assert ask([[], [], []], max_moves=0)["moves"] == []


def test_an_allocator_is_asked_for_what_the_client_wants() -> None:
    seen = []
    group = ask([[], [], []], 7, seen=seen, group="default", evacuate=True, search=True)
    ((name, request),) = seen
    assert name == "mine"
    wanted = {
        "type": "balance",
        "max_moves": 7,
        "group_name": "default",
        "evacuate": True,
        "disk_moves": True,
        "search": True,
    }
    assert request.items() >= wanted.items()
    assert group["name"] == "default"
    ask([[], [], []], 7, seen=seen, disk_moves=False)
    assert (seen[1][1]["disk_moves"], seen[1][1]["evacuate"]) == (False, False)


def test_a_move_of_several_opcodes_names_the_instance_of_the_first() -> None:
    job = [
        {"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": "inst1.example.com"},
        {"OP_ID": "OP_INSTANCE_FAILOVER", "instance_name": "inst2.example.com"},
    ]
    both = clusters.snapshot(instances=2)
    group = ask([[], [], [job]], 1, explain=False, snapshot=both)
    (move,) = group["moves"]
    assert move["instance"] == "inst1.example.com"
    assert move["how"] == "OP_INSTANCE_MIGRATE OP_INSTANCE_FAILOVER"
    assert [op["OP_ID"] for op in move["opcodes"]] == move["how"].split()
    assert "stopped" not in group


def test_a_mirrored_instance_comes_from_both_of_its_nodes() -> None:
    disk = clusters.drbd_disk("d1", 1, 3)
    instance = clusters.instance(1, disks=[disk.uuid])
    snapshot = clusters.snapshot(extra=[disk, instance])
    job = [{"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": instance.name}]
    moved = [instance.name, "default", ["node3.example.com", "node1.example.com"]]
    (move,) = ask([[moved], [], [job]], 1, snapshot=snapshot)["moves"]
    assert move["from"] == ["node1.example.com", "node3.example.com"]
    assert move["to"] == ["node3.example.com", "node1.example.com"]


def test_a_request_without_options_plans_as_hbal_does() -> None:
    from ganeti.decisions.htools.balance.greedy import BalanceGoal
    from ganeti.decisions.htools.rules.move_constraints import MoveOptions

    request, options, goal = balancing.BalanceRequest(), MoveOptions(), BalanceGoal()
    for name in ("disk_moves", "instance_moves", "restricted", "evacuate"):
        assert getattr(request, name) is getattr(options, name), name
    assert request.ignore_soft_errors is options.force
    assert (request.min_gain, request.min_gain_limit) == (
        goal.min_gain,
        goal.min_gain_limit,
    )
    assert request.search is goal.pairs
    assert (request.group, request.allocator, request.explain) == (None, None, False)


SNAPSHOT = clusters.snapshot()
POLICY = SNAPSHOT.cluster.ipolicy


def asked(**wanted):
    return balancing.build_request(SNAPSHOT, balancing.CapacityRequest(**wanted))


def test_what_is_left_out_comes_from_the_policy() -> None:
    actual = asked()
    std = POLICY["std"]
    (size,) = actual.sizes
    assert size["memory"] == std["memory-size"]
    assert size["vcpus"] == std["cpu-count"]
    assert actual.disk_template == SNAPSHOT.cluster.enabled_disk_templates[0]
    assert (actual.tiered, actual.groups, actual.limit) == (False, None, None)


def test_spindles_are_those_of_the_standard_instance() -> None:
    policy = {**POLICY, "std": {**POLICY["std"], "spindle-use": 7}}
    snapshot = clusters.snapshot(ipolicy=policy)
    actual = balancing.build_request(snapshot, balancing.CapacityRequest())
    assert actual.spindle_use == 7


def test_disks_count_only_with_a_template_that_has_some() -> None:
    enabled = SNAPSHOT.cluster.enabled_disk_templates
    assert enabled[0] == "diskless"
    assert [size["disk"] for size in asked().sizes] == [0]
    assert [size["disk"] for size in asked(tiered=True).sizes] == [0]
    (size,) = asked(disk_template="file").sizes
    assert size["disk"] == POLICY["std"]["disk-size"]
    assert [size["disk"] for size in asked(disk_template="file", disk=7).sizes] == [7]
    with pytest.raises(errors.OpPrereqError) as caught:
        asked(disk=7)
    assert "disk: wanted none with disk template diskless, found 7;" in str(
        caught.value
    )
    assert "enabled are file, sharedfile" in str(caught.value)


def test_shrinking_starts_with_the_largest() -> None:
    actual = asked(disk_template="file", tiered=True, memory=640)
    highest = {part["max"]["disk-size"] for part in POLICY["minmax"]}
    assert {size["disk"] for size in actual.sizes} == highest
    assert {size["memory"] for size in actual.sizes} == {640}


def test_groups_are_named_once() -> None:
    (group,) = SNAPSHOT.nodegroups.values()
    assert asked(groups=[group.name, group.uuid]).groups == [group.name]


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({"disk_template": "ext"}, "disk template ext: wanted one of the enabled"),
        ({"memory": 0}, "memory: wanted 1 or more, found 0"),
        ({"limit": -1}, "limit: wanted 0 or more, found -1"),
        ({"groups": ["moon"]}, "Node group 'moon' not known"),
    ],
)
def test_invalid_requests_are_refused(wanted, text) -> None:
    with pytest.raises(errors.OpPrereqError) as caught:
        asked(**wanted)
    assert text in str(caught.value)


def test_one_group_brings_its_own_policy_and_several_that_of_the_cluster() -> None:
    (group,) = SNAPSHOT.nodegroups.values()
    own = {**POLICY["std"], "memory-size": POLICY["std"]["memory-size"] + 64}
    second = clusters.group(name="b", uuid=clusters.node_uuid(77))
    group = group.replace(ipolicy={"std": own})
    snapshot = clusters.changed(SNAPSHOT, group, second)

    def memory(*groups):
        request = balancing.CapacityRequest(groups=groups, limit=5)
        made = balancing.build_request(snapshot, request)
        assert made.limit == 5
        return [size["memory"] for size in made.sizes]

    assert memory(group.name) == [own["memory-size"]]
    assert memory(group.name, "b") == memory() == [POLICY["std"]["memory-size"]]


def test_zero_instances_and_disks_may_be_asked_for() -> None:
    actual = asked(disk_template="file", disk=0, limit=0)
    assert ([size["disk"] for size in actual.sizes], actual.limit) == ([0], 0)
    for name in ("memory", "vcpus"):
        assert asked(**{name: 1}).sizes[0][name] == 1


def test_a_request_without_options_counts_one_size_with_the_built_in_allocator() -> (
    None
):
    submitted = []
    deps = types.SimpleNamespace(
        config=types.SimpleNamespace(snapshot=lambda: SNAPSHOT),
        slow=types.SimpleNamespace(submit=lambda *args: submitted.append(args)),
    )
    balancing.query_capacity(deps, balancing.CapacityRequest())
    balancing.query_capacity(deps, balancing.CapacityRequest(allocator="mine"))
    assert [names for _ask, _deps, names, _question in submitted] == [
        [builtin.NAME],
        ["mine"],
    ]
    question = submitted[0][-1]
    assert not question.tiered
    assert question.spindle_use == POLICY["std"]["spindle-use"]


def test_the_answer_repeats_the_question() -> None:
    result = {"count": 0, "instances": []}
    answer = {"success": True, "info": "", "result": result}
    script = {
        "iallocator_runner": json.dumps(answer),
        "node_info": ["boot", [], [{"memory_free": 1}]],
        "all_instances_info": {},
    }
    deps = types.SimpleNamespace(
        config=types.SimpleNamespace(snapshot=lambda: SNAPSHOT),
        rpc=FakeRunner(lambda: SNAPSHOT, script),
    )
    actual = balancing._ask_capacity(
        deps, ["mine"], asked(disk_template="file", tiered=True)
    )
    assert actual.items() >= result.items()
    assert (actual["disk_template"], actual["tiered"]) == ("file", True)
    assert actual["groups"] is None
    assert all(
        set(size) == {"memory", "disk", "vcpus", "spindles"} for size in actual["sizes"]
    )
