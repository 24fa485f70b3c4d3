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


# Instances read at once are those read one by one; what differs is left alone.

#: Left out, or of a kind, size or name that is not wanted, or just allowed.
VALUES: tuple[Any, ...] = (
    *(..., None, True, False, -1, 0, 7, 2.0, 2.5, float("nan"), 1 << 62, (1 << 62) - 1),
    *("", "up", "drbd", "plain", [], {}, (), ["a"], ("a", "b"), [1], [None]),
    *(["n1"], ["n2", "n1"], ["n1", "n1"], ["n1", "n2", "n9"], ["n1", "n2", "n1"]),
    *([{}], [{"size": 5}], [{"size": 5, "spindles": 2}, {"size": 1}], [{"size": "5"}]),
    *(
        [{"size": 3.0, "spindles": 1}],
        [{"size": 3, "spindles": None}],
        [{"size": None}],
    ),
    *([{"network": "x"}, {}], [{"network": None}], [{"network": 3}], [[]]),
)
KEYS = (
    *("nodes", "disk_template", "memory", "disk_space_total", "vcpus", "disks", "nics"),
    *("tags", "admin_state", "spindle_use", "forthcoming", "migrates", "unknown"),
)


def data(key: str, value: Any) -> dict[str, Any]:
    item = placement.instance(nodes=["n1", "n2"], tags=["t"], admin_state="down")
    item[key] = value
    if value is ...:
        del item[key]
    whole = placement.request(NODES, placement.allocation())
    good = placement.instance("plain", nodes=["n2"], nics=[{"network": "net"}])
    whole["instances"] = {"first": good, "changed": item}
    return whole


def read_instances(asked: dict[str, Any]) -> Any:
    try:
        return request.read_cluster(copy.deepcopy(asked)).instances
    except DataError as err:
        return str(err)


@pytest.mark.parametrize("key", KEYS)
def test_reading_at_once_and_one_by_one_agree(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = [read_instances(data(key, value)) for value in VALUES]
    monkeypatch.setattr(request, "read_instances", lambda _data, _places: None)
    assert at_once == [read_instances(data(key, value)) for value in VALUES]
    assert any(isinstance(actual, tuple) for actual in at_once)


def test_what_is_as_wanted_is_read_at_once() -> None:
    places = {"n1": 0, "n2": 1}
    asked = data("disks", [{"size": 5, "spindles": 2}, {"size": 1, "spindles": 3}])
    first, second = request.read_instances(asked["instances"], places) or []
    assert (first.networks, first.nodes, first.status) == (("net",), (1,), "running")
    assert (second.disks, second.spindles) == ((5, 1), 5)
    assert (second.nodes, second.status, second.tags) == ((0, 1), "ADMIN_down", ("t",))
    assert (first.movable, second.movable) == (False, True)


@pytest.mark.parametrize("value", [2.0, True, -1, None, "2"])
def test_anything_else_needs_a_closer_look(value: Any) -> None:
    asked = data("memory", value)
    assert request.read_instances(asked["instances"], {"n1": 0, "n2": 1}) is None
