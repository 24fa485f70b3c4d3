"""Instances read at once are those read one by one; what differs is left alone."""

import copy
from typing import Any

import pytest

from fakes import placement
from ganeti.decisions.htools.hail import instance_records, request
from ganeti.decisions.htools.model.cluster import DataError

NODES = {"n1": placement.node(), "n2": placement.node()}
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


def read(asked: dict[str, Any]) -> Any:
    try:
        return request.read_cluster(copy.deepcopy(asked)).instances
    except DataError as err:
        return str(err)


@pytest.mark.parametrize("key", KEYS)
def test_reading_at_once_and_one_by_one_agree(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = [read(data(key, value)) for value in VALUES]
    monkeypatch.setattr(instance_records, "read", lambda _data, _places: None)
    assert at_once == [read(data(key, value)) for value in VALUES]
    assert any(isinstance(actual, tuple) for actual in at_once)


def test_what_is_as_wanted_is_read_at_once() -> None:
    places = {"n1": 0, "n2": 1}
    asked = data("disks", [{"size": 5, "spindles": 2}, {"size": 1, "spindles": 3}])
    first, second = instance_records.read(asked["instances"], places) or []
    assert (first.networks, first.nodes, first.status) == (("net",), (1,), "running")
    assert (second.disks, second.spindles) == ((5, 1), 5)
    assert (second.nodes, second.status, second.tags) == ((0, 1), "ADMIN_down", ("t",))
    assert (first.movable, second.movable) == (False, True)


@pytest.mark.parametrize("value", [2.0, True, -1, None, "2"])
def test_anything_else_needs_a_closer_look(value: Any) -> None:
    asked = data("memory", value)
    assert instance_records.read(asked["instances"], {"n1": 0, "n2": 1}) is None
