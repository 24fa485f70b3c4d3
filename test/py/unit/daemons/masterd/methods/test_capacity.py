"""The master's request to an allocator about the instances that still fit."""

import json
import types

import pytest

from fakes import clusters
from fakes.rpc import FakeRunner
from ganeti.base import errors
from ganeti.daemons.masterd.methods import capacity
from ganeti.master.iallocator import builtin

SNAPSHOT = clusters.snapshot()
POLICY = SNAPSHOT.cluster.ipolicy


def asked(**wanted):
    return capacity.build_request(SNAPSHOT, capacity.CapacityRequest(**wanted))


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
    actual = capacity.build_request(snapshot, capacity.CapacityRequest())
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
        request = capacity.CapacityRequest(groups=groups, limit=5)
        made = capacity.build_request(snapshot, request)
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
    capacity.query_capacity(deps, capacity.CapacityRequest())
    capacity.query_capacity(deps, capacity.CapacityRequest(allocator="mine"))
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
    actual = capacity._ask(deps, ["mine"], asked(disk_template="file", tiered=True))
    assert actual.items() >= result.items()
    assert (actual["disk_template"], actual["tiered"]) == ("file", True)
    assert actual["groups"] is None
    assert all(
        set(size) == {"memory", "disk", "vcpus", "spindles"} for size in actual["sizes"]
    )
