"""Allocator requests and answers; scripts that misbehave get one clear error."""

import dataclasses
import json

import pytest

from fakes import allocators, clusters
from fakes.rpc import FakeRunner, failure
from ganeti.base import errors
from ganeti.master import iallocator

REQUEST = allocators.allocate()
INFO = ["boot", [{"storage_size": 9000, "storage_free": 8000}], [{"memory_free": 4000}]]


def ask(answer, request=REQUEST, instances=1):
    snapshot = clusters.snapshot(instances=instances)
    text = answer if not isinstance(answer, dict) else json.dumps(answer)
    runner = FakeRunner(
        lambda: snapshot,
        {"node_info": INFO, "all_instances_info": {}, "iallocator_runner": text},
    )
    return iallocator.run(runner, snapshot, "mine", request), runner


def reported(result, success=True):
    return {"success": success, "info": "fine", "result": result}


def test_the_input_holds_cluster_nodes_instances_and_request():
    answer, runner = ask(reported(["node2.example.com"]))
    assert answer.result == ["node2.example.com"]
    ((_node, (name, text, _options)),) = runner.called("iallocator_runner")
    data = json.loads(text)
    assert name == "mine"
    assert data["version"] == 2
    node = data["nodes"]["node1.example.com"]
    # 4000 MiB free, less what the instance marked up could still take.
    assert (node["free_memory"], node["free_disk"]) == (4000 - 128, 8000)
    assert data["instances"]["inst1.example.com"]["nodes"] == ["node1.example.com"]
    assert data["request"]["required_nodes"] == 1
    assert data["request"]["disk_space_total"] == 1024


def test_a_refusal_is_an_answer():
    answer, _runner = ask(reported([], success=False))
    assert (answer.success, answer.info, answer.result) == (False, "fine", None)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("no json", "its answer is not JSON"),
        ("[]", "wanted an object"),
        ({"success": True, "info": ""}, "the key result"),
        ({"success": 1, "info": "", "result": []}, "success: wanted true or false"),
        (reported("node1.example.com"), "wanted a list of node names"),
        (reported(["nowhere"]), "names of known nodes, found 'nowhere'"),
        (reported(["node1.example.com", "node2.example.com"]), "wanted 1 node names"),
        (failure("exited with code 1: oops"), "oops"),
    ],
)
def test_a_script_that_misbehaves_gets_one_clear_error(answer, text):
    with pytest.raises(errors.GenericError, match=text):
        ask(answer)


def test_evacuation_jobs_are_opcodes_of_a_short_list():
    request = iallocator.NodeEvacuate(["inst1.example.com"], "primary-only")
    op = {"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": "inst1.example.com"}
    moved = ["inst1.example.com", "default", ["node2.example.com"]]
    answer, _runner = ask(reported([[moved], [], [[op]]]), request)
    assert answer.result.jobs[0][0].op_id() == "OP_INSTANCE_MIGRATE"
    for jobs in (
        [[{"OP_ID": "OP_CLUSTER_DESTROY"}]],
        [[op | {"bogus": 1}]],
        [[]],
        ["x"],
    ):
        with pytest.raises(errors.ResultValidationError, match="job: wanted"):
            ask(reported([[moved], [], jobs]), request)


def test_a_relocation_stays_within_the_groups():
    other = clusters.group(name="other", uuid="00000000-0000-4000-8000-0000000000b0")
    apart = clusters.node(9, group=other.uuid)
    request = iallocator.Relocate("inst1.example.com", ["node1.example.com"], 0)
    snapshot = clusters.snapshot(instances=1, extra=[other, apart])
    script = {"node_info": INFO, "all_instances_info": {}}
    for name, fine in (("node2.example.com", True), ("node9.example.com", False)):
        script["iallocator_runner"] = json.dumps(reported([name]))
        runner = FakeRunner(lambda: snapshot, script)
        if fine:
            assert iallocator.run(runner, snapshot, "m", request).result == [name]
        else:
            with pytest.raises(errors.ResultValidationError, match="present groups"):
                iallocator.run(runner, snapshot, "m", request)


def test_nodes_that_cannot_be_evacuated_are_found_with_their_group_alone():
    other = clusters.group(name="other", uuid="00000000-0000-4000-8000-0000000000b0")
    apart = [clusters.node(number, group=other.uuid) for number in (8, 9)]
    snapshot = clusters.snapshot(instances=1, extra=[other, *apart])
    runner = FakeRunner(lambda: snapshot, {"node_info": INFO, "all_instances_info": {}})
    cache = iallocator.ClusterCache()
    for group in snapshot.nodegroups:
        inside = {n.uuid for n in snapshot.nodes.values() if n.group == group}
        runner.calls.clear()
        iallocator.not_evacuable(runner, snapshot, group, ["inst1.example.com"], cache)
        for name in ("node_info", "all_instances_info"):
            assert {node for node, _args in runner.called(name)} == inside


def test_every_requested_instance_is_answered_for():
    request = iallocator.MultiAllocate([REQUEST])
    answer, _runner = ask(
        reported([[["new.example.com", ["node3.example.com"]]], []]), request
    )
    assert answer.result.placed == {"new.example.com": ["node3.example.com"]}
    with pytest.raises(errors.ResultValidationError, match="wanted"):
        ask(reported([[], []]), request)


def hail(request, *nodes):
    """Ask the built-in allocator about three nodes that report the same."""
    snapshot = clusters.changed(clusters.snapshot(instances=1), *nodes)
    report = {"memory_total": 16000, "memory_free": 9000, "cpu_total": 4}
    info = ["boot", [{"storage_size": 90000, "storage_free": 80000}], [report]]
    script = {"node_info": info, "all_instances_info": {}}
    return iallocator.run(
        FakeRunner(lambda: snapshot, script), snapshot, "hail", request
    )


def test_the_built_in_one_says_why_an_instance_has_no_place():
    request = iallocator.NodeEvacuate(["inst1.example.com"], "secondary-only")
    ((name, why),) = hail(request).result.failed
    assert name == "inst1.example.com"
    assert why == (
        "Instances with disk template 'diskless' can't execute change secondary"
        " [node1.example.com: disk template: wanted drbd, which has a secondary node,"
        " found diskless]"
    )


def test_the_built_in_one_says_why_some_of_several_have_no_place():
    small = dataclasses.replace(REQUEST, disk_template="plain")
    big = dataclasses.replace(small, name="big.example.com", memory=19000)
    answer = hail(iallocator.MultiAllocate([small, big]))
    assert answer.result.failed == ["big.example.com"]
    assert "; big.example.com: node" in answer.info
    assert "free memory: wanted more than 19000 MiB" in answer.info


def test_the_built_in_one_is_silent_about_nodes_without_spindles():
    lone = clusters.node(3, ndparams={"exclusive_storage": True})
    two = dataclasses.replace(REQUEST, disk_template="drbd")
    answer = hail(iallocator.MultiAllocate([two]), lone)
    assert sorted(answer.result.placed["new.example.com"]) == [
        "node1.example.com",
        "node2.example.com",
    ]


@pytest.mark.parametrize(
    ("templates", "unit"),
    [
        (["file"], "file"),
        (["sharedfile", "file"], "sharedfile"),
        (["file", "drbd"], "lvm-vg"),
        (["diskless"], None),
    ],
)
def test_the_room_is_that_of_the_disks_asked_for(templates, unit):
    wanted = [
        dataclasses.replace(REQUEST, name=f"{name}.example.com", disk_template=name)
        for name in templates
    ]
    snapshot = clusters.snapshot(volume_group_name="xenvg")
    runner = FakeRunner(lambda: snapshot, {"node_info": INFO, "all_instances_info": {}})
    iallocator.question(runner, snapshot, iallocator.MultiAllocate(wanted))
    ((_node, (units, _hv)), *_others) = runner.called("node_info")
    assert [kind for kind, _key, _parameters in units] == ([unit] if unit else [])


def test_the_built_in_one_shows_no_empty_reasons():
    other = clusters.group(name="other", uuid="00000000-0000-4000-8000-0000000000b0")
    request = iallocator.ChangeGroup(["inst1.example.com"], [other.uuid])
    ((_name, why),) = hail(request, other).result.failed
    assert why.endswith("Group other: error No online nodes")
