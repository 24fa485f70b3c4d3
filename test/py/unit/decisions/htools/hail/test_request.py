"""Reading allocator requests: what is wrong is named with its path."""

import copy
from typing import Any

import pytest

from fakes import placement
from ganeti.decisions.htools.hail import request
from ganeti.decisions.htools.model.cluster import DataError
from ganeti.decisions.htools.model.policy import DEFAULT_POLICY

NODES = {"n1": placement.node(), "n2": placement.node()}


def read(data: Any) -> request.AllocatorRequest:
    return request.read_request(data, request.read_cluster(data))


def changed(path: str, value: Any) -> dict[str, Any]:
    data = copy.deepcopy(placement.request(NODES, placement.allocation()))
    *parts, last = path.split("/")
    place: Any = data
    for part in parts:
        place = place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return data


def test_a_request_becomes_records() -> None:
    ask = read(placement.request(NODES, placement.allocation()))
    assert isinstance(ask, request.AllocateRequest)
    assert (ask.item.name, ask.item.memory, ask.count) == ("new", 1024, 2)
    assert ask.item.disks == (4096,)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("nodes/n1/total_memory", "much", ["nodes.n1.total_memory", "a number"]),
        ("nodes/n1/total_disk", -5, ["nodes.n1.total_disk", "from 0", "-5"]),
        ("nodes/n1/group", "gone", ["nodes.n1.group", "gone"]),
        ("nodes/n1", [], ["nodes.n1", "an object"]),
        ("request/memory", -1, ["request.memory", "-1"]),
        ("request/memory", True, ["request.memory", "a number", "True"]),
        ("request/disks", ..., ["request.disks", "nothing"]),
        ("request/disks", [{"size": -1}], ["request.disks[0].size", "-1"]),
        ("request/required_nodes", 3, ["required_nodes", "1 or 2"]),
        ("request/required_nodes", 1, ["required_nodes", "2 for drbd"]),
        ("request/group_name", "nowhere", ["group_name", "nowhere"]),
        ("request/restrict-to-nodes", ["n9"], ["restrict-to-nodes", "n9"]),
        ("request/type", "dance", ["Invalid request type 'dance'"]),
        ("nodegroups/g-0/alloc_policy", "never", ["alloc_policy", "never"]),
        ("nodegroups/g-0/ipolicy", ..., []),
        ("cluster_tags", ..., ["cluster_tags", "nothing"]),
    ],
)
def test_errors_name_key_wanted_and_found(
    path: str, value: Any, words: list[str]
) -> None:
    data = changed(path, value)
    if not words:
        read(data)
        return
    with pytest.raises(DataError) as caught:
        read(data)
    for word in words:
        assert word in str(caught.value)


def test_an_instance_whose_disks_are_created_again_may_be_placed() -> None:
    data = changed("request/name", "old")
    data["instances"] = {"old": placement.instance(nodes=["n1", "n2"])}
    assert read(data).item.name == "old"


def test_the_policy_of_the_cluster_may_lack_ranges() -> None:
    data = changed("cluster_name", "c")
    group = data["nodegroups"]["g-0"]
    data["ipolicy"] = {k: v for k, v in group["ipolicy"].items() if k != "minmax"}
    ranges = request.read_cluster(data).policy.ranges
    assert ranges[0][0].memory < ranges[0][1].memory
    del group["ipolicy"]["minmax"]
    with pytest.raises(DataError, match="minmax"):
        read(data)


@pytest.mark.parametrize(
    "lacking", ["minmax", "std", "disk-templates", "vcpu-ratio", "spindle-ratio", ""]
)
def test_the_policy_of_the_cluster_may_lack_each_part_or_all(lacking: str) -> None:
    data = changed("cluster_name", "c")
    whole = data["nodegroups"]["g-0"]["ipolicy"]
    data["ipolicy"] = {k: v for k, v in whole.items() if lacking and k != lacking}
    policy = request.read_cluster(data).policy
    if not lacking:
        assert policy == DEFAULT_POLICY
    read(data)


@pytest.mark.parametrize("data", [None, [], 5, {}, {"nodegroups": {}}])
def test_what_is_no_request_is_refused(data: Any) -> None:
    with pytest.raises(DataError):
        read(data)


def test_unknown_nodes_of_instances_are_refused() -> None:
    data = placement.request(NODES, placement.allocation())
    data["instances"] = {"i": placement.instance(nodes=["n1", "n7"])}
    with pytest.raises(DataError, match=r"instances\.i\.nodes.*n7"):
        read(data)


def test_nodes_without_a_report_take_nothing() -> None:
    silent = {
        key: value for key, value in NODES["n1"].items() if not key.startswith("total")
    }
    silent = {k: v for k, v in silent.items() if not k.startswith(("free", "reserved"))}
    data = placement.request({"n1": silent, "n2": NODES["n2"]}, placement.allocation())
    assert request.read_cluster(data).nodes[0].offline


def test_kvm_nodes_use_the_static_memory() -> None:
    data = placement.request(NODES, placement.allocation())
    data["enabled_hypervisors"] = ["kvm"]
    assert request.read_cluster(data).nodes[0].node_memory == 4096
    assert request.read_cluster(data, static_memory=0).nodes[0].node_memory == 1024
