"""Instances under the fake hypervisor, through the procedures."""

import json
import os

import pytest

from fakes import nodes
from ganeti.base import errors
from ganeti.node.hypervisor import Hypervisor


@pytest.fixture
def node(tmp_path):
    return nodes.make_node(tmp_path, time=nodes.CountedClock())


def start(node, record):
    nodes.call(node, "instance_start", record, False, [["gnt:user", "test", 1]])


def names(node):
    return nodes.call(node, "instance_list", ["fake"], {})


def test_start_lists_informs_and_stops(node):
    record = nodes.instance(disks=1)
    nodes.make_disks(node, record)
    start(node, record)
    assert names(node) == ["web1"]
    info = {"memory": 128, "vcpus": 1, "state": 0, "time": 0.0}
    assert nodes.call(node, "instance_info", "web1", "fake", {}) == info
    assert nodes.call(node, "all_instances_info", ["fake"], {}) == {"web1": info}
    nodes.call(node, "instance_shutdown", record, 120, [])
    assert names(node) == []
    assert nodes.call(node, "instance_info", "web1", "fake", {}) == {}


def test_starting_twice_and_stopping_twice_is_fine(node):
    record = nodes.instance()
    start(node, record)
    start(node, record)
    nodes.call(node, "instance_shutdown", record, 120, [])
    nodes.call(node, "instance_shutdown", record, 120, [])


def test_a_guest_that_cannot_be_asked_is_ended_when_its_time_is_over(node, monkeypatch):
    driver = node.hypervisor("fake")
    stop, asked = driver.stop, []

    def busy(name, *, hvparams, force, retry=False):
        asked.append(force)
        if not force:
            raise errors.HypervisorError("too busy")
        stop(name, hvparams=hvparams, force=force)

    monkeypatch.setattr(driver, "stop", busy)
    record = nodes.instance()
    start(node, record)
    nodes.call(node, "instance_shutdown", record, 30, [])
    assert names(node) == []
    assert len(asked) > 2
    assert asked[-2:] == [False, True]


def test_missing_disk_refuses_the_start_and_leaves_no_link(node):
    with pytest.raises(errors.BlockDeviceError, match=r"disk/0.*not found"):
        start(node, nodes.instance(disks=1))
    assert names(node) == []
    links = f"{node.paths.run_dir}/instance-disks"
    assert not os.path.exists(links) or os.listdir(links) == []


def test_links_live_as_long_as_the_instance(node):
    record = nodes.instance(disks=2)
    nodes.make_disks(node, record)
    start(node, record)
    links = f"{node.paths.run_dir}/instance-disks"
    assert sorted(os.listdir(links)) == ["web1:0", "web1:1"]
    assert os.path.getsize(f"{links}/web1:1") == 4 * 1024 * 1024
    nodes.call(node, "instance_shutdown", record, 120, [])
    assert os.listdir(links) == []


def test_reason_trail_ends_with_the_node(node):
    start(node, nodes.instance())
    with open(f"{node.paths.run_dir}/instance-reason/web1") as src:
        trail = json.load(src)
    assert trail == [
        ["gnt:user", "test", 1],
        ["gnt:daemon:noded:start", "", 1_000_000_000_000],
    ]


def test_reboot_needs_a_running_instance_and_a_known_type(node):
    record = nodes.instance()
    with pytest.raises(errors.HypervisorError, match="not running"):
        nodes.call(node, "instance_reboot", record, "soft", 120, [])
    start(node, record)
    for kind in ("soft", "hard"):
        nodes.call(node, "instance_reboot", record, kind, 120, [])
        assert names(node) == ["web1"]
    with pytest.raises(errors.HypervisorError, match="found full"):
        nodes.call(node, "instance_reboot", record, "full", 120, [])


def test_a_soft_reboot_opens_disks_by_links_of_their_present_numbers(node, monkeypatch):
    record = nodes.instance(disks=2)
    nodes.make_disks(node, record)
    start(node, record)
    driver, steps = node.hypervisor("fake"), []
    monkeypatch.setattr(driver, "set_disk_paths", lambda *args: steps.append(args))
    monkeypatch.setattr(driver, "reboot", lambda instance: steps.append(instance.name))
    # The first one was removed while the guest ran.
    rest = record["disks_info"][1:]
    nodes.call(node, "instance_reboot", record | {"disks_info": rest}, "soft", 120, [])
    ((_instance, [(disk, path, uri)]), name) = steps
    assert (disk.uuid, uri, name) == (rest[0]["uuid"], None, "web1")
    assert os.path.basename(path) == "web1:0"
    assert os.readlink(path) == node.paths.at(rest[0]["logical_id"][1])


def test_balloon_is_accounted_for(node):
    record = nodes.instance()
    free = node.hypervisor("fake").node_info()["memory_free"]
    start(node, record)
    nodes.call(node, "instance_balloon_memory", record, 96)
    assert nodes.call(node, "instance_info", "web1", "fake", {})["memory"] == 96
    used = free - node.hypervisor("fake").node_info()["memory_free"]
    assert 96 - 64 <= used <= 96 + 64  # the machine itself moves a little


def test_migration_moves_the_guest_with_its_memory(tmp_path, node):
    target = nodes.make_node(tmp_path, "node2.example")
    record = nodes.instance()
    start(node, record)
    nodes.call(node, "instance_balloon_memory", record, 80)
    nodes.call(node, "instance_migratable", record)
    info = nodes.call(node, "migration_info", record)
    nodes.call(target, "accept_instance", record, info, "127.0.0.1")
    nodes.call(node, "instance_migrate", "cluster", record, "127.0.0.1", True)
    status = nodes.call(node, "instance_get_migration_status", record)
    assert status["status"] == "completed"
    nodes.call(node, "instance_finalize_migration_src", record, True, True)
    nodes.call(target, "instance_finalize_migration_dst", record, info, True)
    assert (names(node), names(target)) == ([], ["web1"])
    assert nodes.call(target, "instance_info", "web1", "fake", {})["memory"] == 80


def test_failed_migration_leaves_the_guest_at_its_source(tmp_path, node):
    target = nodes.make_node(tmp_path, "node2.example")
    record = nodes.instance()
    start(node, record)
    nodes.call(target, "accept_instance", record, "128", "127.0.0.1")
    nodes.call(target, "instance_finalize_migration_dst", record, "128", False)
    nodes.call(node, "instance_finalize_migration_src", record, False, True)
    assert (names(node), names(target)) == (["web1"], [])


def test_names_that_are_no_file_names_are_refused(node):
    with pytest.raises(errors.HypervisorError, match="not a host name"):
        start(node, nodes.instance("../evil"))


def test_unknown_hypervisor_and_arguments_are_named(node):
    with pytest.raises(errors.HypervisorError, match=r"vmware.*not offered"):
        nodes.call(node, "instance_list", ["vmware"], {})
    with pytest.raises(errors.RpcError, match="wanted 2 arguments, found 1"):
        nodes.call(node, "instance_list", ["fake"])
    with pytest.raises(errors.RpcError, match="instance_list: Expected `array`"):
        nodes.call(node, "instance_list", "fake", {})


def test_hypervisor_parameters_are_checked(node):
    nodes.call(node, "hypervisor_validate_params", "fake", {"migration_mode": "live"})
    with pytest.raises(errors.HypervisorError, match="nonsense"):
        nodes.call(node, "hypervisor_validate_params", "fake", {"nonsense": 1})
    with pytest.raises(errors.HypervisorError, match=r"migration_mode.*missing"):
        nodes.call(node, "hypervisor_validate_params", "fake", {})


def test_fake_has_no_hotplug(node):
    record = nodes.instance()
    start(node, record)
    with pytest.raises(errors.HotplugError, match="fake"):
        nodes.call(node, "hotplug_supported", record)


def test_a_start_asks_for_the_departure_of_its_own_instance(node, monkeypatch):
    record, asked = nodes.instance(), []

    def refuse(_driver, name, *, uuid):
        asked.append((name, uuid))
        raise errors.HypervisorError("has left")

    monkeypatch.setattr(Hypervisor, "require_startable", refuse)
    with pytest.raises(errors.HypervisorError, match="has left"):
        start(node, record)
    assert asked == [(record["name"], record["uuid"])]
