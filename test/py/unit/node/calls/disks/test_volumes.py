"""Answers of a node about LVM."""

import dataclasses
import json

import pytest

from fakes import nodes
from fakes.processes import FakeRunner

ROWS = [
    ("vg0", "a", "20.00", "-wi-------", "/dev/sda(0),/dev/sdb(0)"),
    ("vg0", "b", "8.00", "-wi-ao----", "/dev/sda(9)"),
    ("vg0", "image", "8.00", "vwi-a-----", ""),
]
FIELDS = ("vg_name", "lv_name", "lv_size", "lv_attr", "devices")


@pytest.fixture
def node(tmp_path):
    rows = [dict(zip(FIELDS, row, strict=True)) for row in ROWS]
    groups = [{"vg_name": "vg0", "vg_size": "376.00", "vg_free": "8.00"}]
    runner = FakeRunner(
        lvs=(0, json.dumps({"report": [{"lv": rows}]}), ""),
        vgs=(0, json.dumps({"report": [{"vg": groups}]}), ""),
    )
    return dataclasses.replace(nodes.make_node(tmp_path), process=runner)


def test_a_volume_has_a_row_for_each_of_its_devices(node):
    assert nodes.call(node, "node_volumes") == [
        {"name": "a", "size": "20.00", "dev": "/dev/sda", "vg": "vg0"},
        {"name": "a", "size": "20.00", "dev": "/dev/sdb", "vg": "vg0"},
        {"name": "b", "size": "8.00", "dev": "/dev/sda", "vg": "vg0"},
        {"name": "image", "size": "8.00", "dev": "-", "vg": "vg0"},
    ]


def test_volumes_of_groups_come_without_virtual_ones(node):
    answer = {"vg0/a": ("20.00", True, False), "vg0/b": ("8.00", False, True)}
    assert nodes.call(node, "lv_list", "vg0") == answer
    assert nodes.call(node, "lv_list", ["vg0"]) == answer
    assert node.process.lines[0].endswith(" -- vg0")


def test_groups_come_with_their_size(node):
    assert nodes.call(node, "vg_list") == {"vg0": 376}


def test_physical_volumes_with_several_volumes_are_named(node):
    asked = {"exclusive-pvs": True}
    answer = nodes.call(node, "node_verify", asked, "cluster.test", {})
    assert answer["exclusive-pvs"] == [["/dev/sda", ["vg0/a", "vg0/b"]]]
