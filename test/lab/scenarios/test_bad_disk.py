"""A disk of a node begins to return errors, and the node is in service again at the end.

Two instances have a volume on it: one runs on the node, the other one has its second
copy there. Both are written to all the time.
"""

import json

import pytest

from lab.guest_writer import Writer
from lab.mirroring import COMPLETE, GROUP, mirroring_cluster, shell
from lab.steps import timed

NODES = ["lab1", "lab2"]
HERE, THERE = "web1.lab.test", "web2.lab.test"
ADD = (
    *("gnt-instance", "add", "-t", "drbd", "--no-install", "--no-nics"),
    *("--ignore-ipolicy", "-B", "memory=64m", "--disk", "0:size=64m"),
)
MODIFY = ("gnt-node", "modify-storage", "--allocatable")
BAD = "/dev/vdc"


@pytest.fixture
def pair(machines):
    """A cluster of two machines with a volume group of two disks each."""
    with mirroring_cluster(machines, NODES, ("/dev/vdb", BAD)) as made:
        yield made


def units(machines):
    """Return name -> whether volumes may be placed there, of lab2's physical volumes."""
    text = machines.check("gnt-node", "list-storage", "-t", "lvm-pv", "--json", "lab2")
    return {row["name"]: row["allocatable"] for row in json.loads(text)}


def places(machines, node):
    """Return the physical volumes that volumes of instances are on."""
    argv = ("gnt-node", "volumes", "--no-headers", "-o", "phys", node)
    return set(machines.check(*argv).split())


def device(machines, instance, node):
    """Return the path of the mirror of an instance on a node."""
    rows = json.loads(machines.check("gnt-node", "list-drbd", "--json", node))
    (minor,) = [row["minor"] for row in rows if row["instance"] == instance]
    return f"/dev/drbd{minor}"


def start_writer(machines, writer, instance, node):
    writer.start(node, device(machines, instance, node))


# Takes many minutes.
@pytest.mark.long
def test_a_disk_returns_errors_and_its_node_is_emptied_repaired_and_used_again(pair):
    writers = {HERE: Writer(pair, "here"), THERE: Writer(pair, "there")}
    timed(_two_instances_use_the_disk, pair, writers)
    pair.lab.fail_disk("lab2", 1, ["read", "write"])
    timed(_it_is_detected, pair)
    timed(_nothing_new_is_placed_there, pair)
    timed(_instances_are_moved_away, pair, writers)
    timed(_the_group_is_reduced, pair)
    timed(_the_disk_is_exchanged, pair)
    timed(_the_node_is_in_service_again, pair)
    timed(_no_write_is_lost, pair, writers)


def _no_write_is_lost(machines, writers):
    for writer in writers.values():
        writer.stop()
    for instance, writer in writers.items():
        machines.check("gnt-instance", "failover", "-f", instance)
        writer.require_all("lab2", device(machines, instance, "lab2"))
        print(f"{instance}: {writer.last} acknowledged writes, all are there")


def _two_instances_use_the_disk(machines, writers):
    machines.check(*MODIFY, "no", "lab2", "lvm-pv", "/dev/vdb")
    machines.check(*ADD, "-n", "lab2:lab1", HERE)
    machines.check(*ADD, "-n", "lab1:lab2", THERE)
    machines.check(*MODIFY, "yes", "lab2", "lvm-pv", "/dev/vdb")
    assert places(machines, "lab2") == {BAD}
    for instance, node in ((HERE, "lab2"), (THERE, "lab1")):
        machines.check("gnt-instance", "start", instance)
        start_writer(machines, writers[instance], instance, node)


def _it_is_detected(machines):
    """The kernel goes on without the copies; verify names them, with commands."""
    wait = "until [ $(grep -c Diskless /proc/drbd) = 2 ]; do sleep 0.2; done"
    shell(machines, wait, "lab2")
    text = ""
    # A node that is slow to answer is named, too, and its mirrors are not judged.
    while text.count("diskless: node lab2.lab.test has lost its copy") < 2:
        text = machines.run("gnt-cluster", "verify").stdout
    for instance in (HERE, THERE):
        assert f"instance {instance}" in text
    assert f"gnt-instance replace-disks -p --disks=0 {HERE}" in text
    assert f"gnt-instance replace-disks -s --disks=0 {THERE}" in text
    checked = machines.run("gnt-cluster", "verify-disks")
    assert "Traceback" not in checked.stdout + checked.stderr


def _nothing_new_is_placed_there(machines):
    """LVM misses the disk; instances are kept off the node."""
    refused = machines.refuse(*MODIFY, "no", "lab2", "lvm-pv", BAD)
    assert "LVM misses a physical volume of xenvg" in refused
    assert not units(machines).get(BAD)
    machines.check("gnt-node", "modify", "--drained", "yes", "lab2")


def _instances_are_moved_away(machines, writers):
    writers[HERE].stop()
    machines.check("gnt-node", "migrate", "-f", "lab2")
    start_writer(machines, writers[HERE], HERE, "lab1")
    listed = machines.check("gnt-instance", "list", "--no-headers", "-o", "pnode")
    assert set(listed.split()) == {"lab1.lab.test"}


def _the_group_is_reduced(machines):
    machines.check("gnt-node", "repair-storage", "lab2", "lvm-vg", GROUP)
    assert units(machines) == {"/dev/vdb": True}
    assert shell(machines, f"lvs --noheadings {GROUP}", "lab2").strip() == ""


def _the_disk_is_exchanged(machines):
    machines.lab.fail_disk("lab2", 1, [])
    shell(machines, f"wipefs -qaf {BAD}; vgextend -q {GROUP} {BAD}", "lab2")
    machines.check(*MODIFY, "no", "lab2", "lvm-pv", "/dev/vdb")
    assert units(machines) == {"/dev/vdb": False, BAD: True}
    machines.check("gnt-node", "modify", "--drained", "no", "lab2")


def _the_node_is_in_service_again(machines):
    """Both instances get their second copies on the new disk."""
    for instance in (HERE, THERE):
        machines.check("gnt-instance", "replace-disks", "-a", instance)
    assert places(machines, "lab2") == {BAD}
    machines.check(*MODIFY, "yes", "lab2", "lvm-pv", "/dev/vdb")
    assert units(machines) == {"/dev/vdb": True, BAD: True}
    text = machines.run("gnt-cluster", "verify").stdout
    assert "mirror" not in text
    assert "lab2.lab.test has lost" not in text
    for node in ("lab1", "lab2"):
        assert machines.check("cat", "/proc/drbd", node=node).count(COMPLETE) == 2
