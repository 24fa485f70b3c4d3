"""Data that a node reports about itself."""

import os
import types

import pytest

from fakes import nodes
from ganeti.base import errors, pathutils
from ganeti.node.calls import node_info


@pytest.fixture
def node(tmp_path):
    made = nodes.make_node(tmp_path, time=nodes.CountedClock())
    os.makedirs(made.paths.data_dir)
    return made


def test_node_info_answers_what_is_asked(node):
    units = [["file", nodes.STORAGE_DIR, []], ["lvm-vg", "xenvg", []]]
    boot_id, storage, hosts = nodes.call(node, "node_info", units, [["fake", {}]])
    assert len(boot_id) == 36
    assert storage[0]["storage_size"] >= storage[0]["storage_free"] > 0
    assert storage[1] is None
    assert hosts[0]["memory_total"] > 0
    assert nodes.call(node, "node_info", None, None)[1:] == (None, None)
    with pytest.raises(errors.HypervisorError, match="vax"):
        nodes.call(node, "node_info", None, [["vax", {}]])


def test_a_virtual_node_has_its_own_boot_id(node):
    shared, *_rest = nodes.call(node, "node_info", None, None)
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
        assert shared == stream.read().strip()
    with open(f"{node.paths.root}/boot-id", "w", encoding="ascii") as stream:
        stream.write("mine\n")
    assert nodes.call(node, "node_info", None, None)[0] == "mine"


def test_the_watchers_pause_ends_by_itself(node):
    assert nodes.call(node, "get_watcher_pause") is None
    nodes.call(node, "set_watcher_pause", 1500.5)
    assert nodes.call(node, "get_watcher_pause") == 1500.5
    node.clock.now = 1501.0
    assert nodes.call(node, "get_watcher_pause") is None
    nodes.call(node, "set_watcher_pause", 9000)
    nodes.call(node, "set_watcher_pause", None)
    nodes.call(node, "set_watcher_pause", None)
    assert nodes.call(node, "get_watcher_pause") is None


def test_missing_bridges_are_named(node):
    nodes.call(node, "bridges_exist", [])
    with pytest.raises(errors.GenericError, match="no-such-bridge"):
        nodes.call(node, "bridges_exist", ["no-such-bridge"])
    # The emulator's own network needs no bridge; real nodes do not have it.
    nodes.call(node, "bridges_exist", ["user-network"])
    real = types.SimpleNamespace(paths=pathutils.Paths(hostname="node1"))
    assert node_info.missing_bridges(real, ["user-network"]) == ["user-network"]


def test_files_have_sizes(node):
    with open(node.paths.data("f"), "w") as stream:
        stream.write("12345")
    path = pathutils.VIRTUAL_PREFIX + "/var/lib/ganeti/f"
    assert nodes.call(node, "get_file_info", path) == (True, {"size": 5})
    assert nodes.call(node, "get_file_info", path + "x") == (False, {})


def test_addresses(node):
    assert nodes.call(node, "node_has_ip_address", "127.0.0.3")
    assert not nodes.call(node, "node_has_ip_address", "192.0.2.99")
