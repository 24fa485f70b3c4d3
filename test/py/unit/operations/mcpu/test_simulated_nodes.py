"""Nodes during a dry run: later reads agree with the earlier acts of a plan."""

import pytest

from ganeti.operations.mcpu import simulated_nodes
from ganeti.operations.mcpu.simulated_nodes import SimulatedNodes
from ganeti.protocols.rpc import PROCEDURES, Result

GUEST = {
    "name": "web1",
    "hypervisor": "kvm",
    "beparams": {"maxmem": 512, "vcpus": 2},
}
INFO = {"memory": 512, "vcpus": 2, "state": 0, "time": 0.0}
OTHER = {"memory": 1, "vcpus": 1, "state": 1, "time": 9.0}
DISK = {"uuid": "d1", "dev_type": "plain", "logical_id": ["vg", "lv"], "size": 3}
SECOND = {"dev_type": "file", "logical_id": ["loop", "/srv/2"], "size": 4}
HEALTHY = {
    "dev_path": "/dev/vg/lv",
    "major": None,
    "minor": None,
    "sync_percent": None,
    "estimated_time": None,
    "is_degraded": False,
    "ldisk_status": 1,
}


@pytest.fixture
def nodes():
    return SimulatedNodes()


def read(nodes, procedure, *args, node="n1", payload=None, fail_msg=None):
    answer = Result(procedure, "node1", payload, fail_msg=fail_msg)
    adjusted = nodes.adjust(node, args, answer)
    if adjusted is answer:
        return "as it is"
    assert (adjusted.call, adjusted.node) == (procedure, "node1")
    assert not adjusted.failed
    return adjusted.payload


def test_without_acts_answers_stay_as_they_are(nodes):
    for procedure, args in (
        ("version", ()),
        ("instance_info", ("web1", "kvm", {})),
        ("instance_list", (["kvm"], {})),
        ("all_instances_info", (["kvm"], {})),
        ("instance_migratable", (GUEST,)),
        ("blockdev_find", (DISK,)),
        ("blockdev_getmirrorstatus_multi", ([DISK],)),
        ("blockdev_getdimensions", ([DISK],)),
    ):
        assert read(nodes, procedure, *args) == "as it is", procedure


@pytest.mark.parametrize(
    ("act", "args", "runs"),
    [
        ("instance_start", (GUEST, False, []), True),
        ("instance_reboot", (GUEST, "hard", 5, "x"), True),
        ("instance_shutdown", (GUEST, 5, "x"), False),
        ("instance_migrate", ("c", GUEST, "n2", True), False),
        ("instance_finalize_migration_dst", (GUEST, "info", True), True),
        ("instance_finalize_migration_dst", (GUEST, "info", False), False),
        ("instance_finalize_migration_src", (GUEST, True, True), False),
        ("instance_finalize_migration_src", (GUEST, False, True), True),
    ],
)
def test_acts_on_guests_decide_where_they_run(nodes, act, args, runs):
    nodes.record(act, "n1", args)
    expected = INFO if runs else {}
    assert read(nodes, "instance_info", "web1", "kvm", {}) == expected
    # Another node, and another guest, are as they were.
    assert read(nodes, "instance_info", "web1", "kvm", {}, node="n2") == "as it is"
    assert read(nodes, "instance_info", "web2", "kvm", {}) == "as it is"
    listed = read(nodes, "instance_list", ["kvm"], {}, payload=["web1", "a"])
    assert listed == (["a", "web1"] if runs else ["a"])
    everything = read(
        nodes, "all_instances_info", ["kvm"], {}, payload={"web1": OTHER, "a": OTHER}
    )
    assert everything == ({"a": OTHER, "web1": INFO} if runs else {"a": OTHER})
    allowed = None if runs else "as it is"
    for question in ("instance_migratable", "hotplug_supported", "migration_info"):
        assert read(nodes, question, GUEST, fail_msg="it is down") == allowed, question


def test_a_list_of_another_hypervisor_lacks_the_guest_that_would_run(nodes):
    nodes.record("instance_start", "n1", (GUEST, False, []))
    assert read(nodes, "instance_list", ["xen-pvm"], {}, payload=[]) == "as it is"
    assert read(nodes, "instance_list", ["kvm"], {}) == ["web1"]
    assert read(nodes, "all_instances_info", ["kvm"], {}) == {"web1": INFO}


def test_a_node_that_does_not_answer_has_no_list(nodes):
    nodes.record("instance_start", "n1", (GUEST, False, []))
    for question in ("instance_list", "all_instances_info"):
        assert read(nodes, question, ["kvm"], {}, fail_msg="no answer") == "as it is"


def test_a_guest_without_parameters_has_no_memory(nodes):
    nodes.record("instance_start", "n1", ({**GUEST, "beparams": {}}, False, []))
    info = read(nodes, "instance_info", "web1", "kvm", {})
    assert (info["memory"], info["vcpus"]) == (0, 0)


@pytest.mark.parametrize(
    ("act", "usable"),
    [
        ("blockdev_assemble", True),
        ("blockdev_create", True),
        ("blockdev_remove", False),
        ("blockdev_shutdown", False),
    ],
)
def test_acts_on_disks_decide_whether_they_are_usable(nodes, act, usable):
    nodes.record(act, "n1", (DISK, "more", "web1", True))
    assert read(nodes, "blockdev_find", DISK) == (HEALTHY if usable else None)
    assert read(nodes, "blockdev_find", DISK, node="n2") == "as it is"
    assert read(nodes, "blockdev_find", SECOND) == "as it is"
    row = [True, HEALTHY] if usable else [False, "not assembled"]
    states = read(
        nodes,
        "blockdev_getmirrorstatus_multi",
        [SECOND, DISK],
        payload=[[True, "real"], [True, "old"]],
    )
    assert states == [[True, "real"], row]
    failed = read(
        nodes, "blockdev_getmirrorstatus_multi", [SECOND, DISK], fail_msg="dead"
    )
    assert failed == [[False, "dead"], row]
    sizes = read(
        nodes, "blockdev_getdimensions", [SECOND, DISK], payload=[[9, 1], [8, 1]]
    )
    assert sizes == ([[9, 1], [3 << 20, None]] if usable else "as it is")
    unknown = read(nodes, "blockdev_getdimensions", [SECOND, DISK])
    assert unknown == ([None, [3 << 20, None]] if usable else "as it is")


def test_a_disk_without_uuid_is_known_by_its_address(nodes):
    nodes.record("blockdev_create", "n1", (SECOND, 4, "web1", True))
    assert read(nodes, "blockdev_find", dict(SECOND))["dev_path"] == "/srv/2"
    other = {**SECOND, "logical_id": ["loop", "/srv/3"]}
    assert read(nodes, "blockdev_find", other) == "as it is"
    assert read(nodes, "blockdev_find", {**SECOND, "dev_type": "x"}) == "as it is"


def test_transfers_of_a_plan_end_well(nodes):
    done = {"listen_port": 1, "exit_status": 0, "recent_output": []}
    assert read(nodes, "impexp_status", ["planned-export", None]) == [done, done]
    assert read(nodes, "impexp_status", ["planned-export", "real"]) == "as it is"


def policy(name, *args):
    return simulated_nodes.answer(PROCEDURES[name], args)


def test_answers_that_depend_on_the_arguments():
    instance = {"name": "web1"}
    link = "/var/run/ganeti/instance-disks/web1:2"
    assert policy("blockdev_assemble", DISK, instance, True, 2) == [
        "/dev/vg/lv",
        link,
        None,
    ]
    assert policy("blockdev_assemble", DISK, instance, False, 2) == [True, True]
    assert policy("blockdev_snapshot", DISK, "snap") == ["vg", "snap"]
    assert (
        policy("blockdev_pause_resume_sync", [DISK, SECOND], True) == [[True, None]] * 2
    )
    assert policy("run_oob_many", [1, 2, 3], "power-off") == [[True, None]] * 3
    assert policy("jobqueue_rename", [["a", "b"]]) == [None]
    assert policy("drbd_wait_sync", [DISK]) == [True, 100]
    request, token = policy(
        "node_crypto_tokens", [["ssl", "request", {}], ["ssl", "create", {}]]
    )
    assert request[0] == "ssl"
    assert request[1].startswith("-----BEGIN CERTIFICATE REQUEST-----")
    assert token == ["ssl", "planned-token"]


@pytest.mark.parametrize(
    ("disk", "path"),
    [
        (DISK, "/dev/vg/lv"),
        (SECOND, "/srv/2"),
        ({"dev_type": "drbd", "logical_id": ["a", "b", 1]}, "/dev/drbd"),
        ({"dev_type": "rbd"}, ""),
    ],
)
def test_likely_paths_of_disks(disk, path):
    assert simulated_nodes.device_path(disk) == path
