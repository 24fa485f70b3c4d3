"""Mirrored disks that both nodes have lost are created again on real DRBD.

Volumes are removed by hand under a device that was ended. The state before is named by
`gnt-instance info` and `gnt-cluster verify`, and afterwards both have nothing to say.
"""

import json
import re

import pytest

from lab.holding import Held
from lab.mirroring import (
    COMPLETE,
    GROUP,
    errors_of_verify,
    kill_master,
    mirroring_cluster,
    ports_in_use,
    shell,
    start_master,
    taken,
    wait_until,
)

# All take many minutes together.
pytestmark = pytest.mark.long
NODES = ["lab1", "lab2", "lab3"]
WEB1 = "web1.lab.test"
ADD = (
    *("gnt-instance", "add", "-t", "drbd", "--no-install", "--no-nics"),
    *("--ignore-ipolicy", "-B", "memory=64m", "-n", "lab2:lab3"),
    *("--disk", "0:size=64m", "--disk", "1:size=64m", WEB1),
)
RECREATE = ("gnt-instance", "recreate-disks")
NONE, BOTH = (0, 0, 0, 0), (4, 4, 2, 2)


@pytest.fixture(scope="module")
def cluster(kept_machines):
    with mirroring_cluster(kept_machines, NODES) as machines:
        machines.check(*ADD)
        machines.check("gnt-instance", "start", WEB1)
        yield machines
        machines.check("gnt-instance", "remove", "-f", "--shutdown-timeout=1", WEB1)
        assert {taken(machines, node) for node in NODES} == {NONE}
        assert ports_in_use(machines) == 0


def nodes(machines):
    """Return the primary and the secondary node of the instance."""
    row = ("gnt-instance", "list", "--no-headers", "-o", "pnode,snodes", WEB1)
    return [name.split(".")[0] for name in machines.check(*row).split()]


def device(machines, index):
    """Return the path of an active disk on the primary node."""
    lines = machines.check("gnt-instance", "activate-disks", WEB1)
    return re.search(rf"disk/{index}:(\S+)", lines)[1]


def write(machines, index, word):
    path = device(machines, index)
    shell(machines, f"echo {word} > {path}; sync {path}", nodes(machines)[0])


def read(machines, index):
    path = device(machines, index)
    return machines.check("head", "-n", "1", path, node=nodes(machines)[0])


def lose(machines, index, where):
    """Remove the volumes of a disk on nodes, below devices that end."""
    for node in where:
        listed = "lvs --noheadings -o lv_full_name -S"
        names = shell(machines, f"{listed} 'lv_name=~disk{index}_' {GROUP}", node)
        minor = _minor(machines, index, node)
        down = f"drbdsetup secondary {minor}; drbdsetup down resource{minor}"
        # A device is open as long as a guest uses it.
        shell(machines, f"{down}; lvremove -q -f -y {' '.join(names.split())}", node)


def _minor(machines, index, node):
    rows = json.loads(machines.check("gnt-node", "list-drbd", "--json", node))
    return next(row["minor"] for row in rows if row["disk"] == f"disk/{index}")


def named(machines):
    """Return text and command for each disk in the details of the instance."""
    text = machines.check("gnt-instance", "info", WEB1)
    return re.findall(r"mirror: (.*)\n *to mend it: (.*)", text)


def stop(machines):
    machines.check("gnt-instance", "stop", "--timeout=1", WEB1)


def require_whole(machines, primary, secondary):
    """Both disks are complete, nothing is reported, and no place is taken twice."""
    machines.check("gnt-instance", "start", WEB1)
    machines.check("gnt-instance", "activate-disks", "--wait-for-sync", WEB1)
    assert nodes(machines) == [primary, secondary]
    assert "mirror:" not in machines.check("gnt-instance", "info", WEB1)
    assert errors_of_verify(machines) == []
    for node in NODES:
        wanted = BOTH if node in (primary, secondary) else NONE
        assert taken(machines, node) == wanted
        if wanted is BOTH:
            wait_until(machines, COMPLETE, node)
    assert ports_in_use(machines) == 2


def require_named(machines, words, count=1):
    """Info names the state of some disks with a command, and verify has the words."""
    commands = [command for text, command in named(machines) if words in text]
    assert len(commands) == count, named(machines)
    verified = errors_of_verify(machines)
    assert any(words in line for line in verified), verified
    return commands


def test_one_disk_is_created_again_and_the_other_one_stays(cluster):
    write(cluster, 0, "kept")
    lose(cluster, 1, ("lab2", "lab3"))
    (command,) = require_named(cluster, "its volumes are missing on both nodes")
    assert command == f"gnt-instance recreate-disks --disk=1 {WEB1}"
    stop(cluster)
    assert any(WEB1 in line for line in errors_of_verify(cluster))
    refused = cluster.refuse(*RECREATE, WEB1)
    assert "only lost disks are recreated" in refused
    assert "(--disk 1)" in refused
    cluster.check(*command.split())
    require_whole(cluster, "lab2", "lab3")
    assert read(cluster, 0) == "kept\n"


def test_a_disk_gets_another_size(cluster):
    lose(cluster, 0, ("lab2", "lab3"))
    stop(cluster)
    cluster.check(*RECREATE, "--disk", "0:size=96m", WEB1)
    require_whole(cluster, "lab2", "lab3")
    size = cluster.check("blockdev", "--getsize64", device(cluster, 0), node="lab2")
    assert int(size) == 96 << 20


def test_both_disks_move_to_new_nodes(cluster):
    stop(cluster)
    # Its volumes exist, so nothing happens, whatever nodes are given.
    before = [taken(cluster, node) for node in NODES]
    for pair in ("lab1:lab2", "lab3:lab1"):
        assert "only lost disks" in cluster.refuse(*RECREATE, "-n", pair, WEB1)
    assert [taken(cluster, node) for node in NODES] == before
    cluster.check("gnt-instance", "activate-disks", WEB1)
    for index in (0, 1):
        lose(cluster, index, ("lab2", "lab3"))
    require_named(cluster, "its volumes are missing on both nodes", count=2)
    cluster.check("gnt-instance", "deactivate-disks", WEB1)
    cluster.check(*RECREATE, "-n", "lab1:lab2", WEB1)
    require_whole(cluster, "lab1", "lab2")


def test_a_killed_master_creates_the_disks_again(cluster):
    for index in (0, 1):
        lose(cluster, index, ("lab1", "lab2"))
    stop(cluster)
    held = Held(cluster, "lab3", "drbdmeta", "drbdmeta*create-md*")
    argv = (*RECREATE, "--submit", "--print-jobid", "-n", "lab2:lab3", WEB1)
    job = cluster.check(*argv).split()[-1]
    held.wait_until_reached()
    kill_master(cluster)
    held.release()
    start_master(cluster)
    cluster.check("gnt-job", "wait", job)
    require_whole(cluster, "lab2", "lab3")


def test_a_secondary_whose_group_is_lost_is_replaced(cluster):
    write(cluster, 0, "kept")
    for index in (0, 1):
        lose(cluster, index, ("lab3",))
    shell(cluster, f"vgremove -q -f -y {GROUP}; wipefs -qaf /dev/vdb", "lab3")
    commands = require_named(cluster, "missing on node lab3.lab.test", count=2)
    assert commands == [
        f"gnt-instance replace-disks -s --disks={index} {WEB1}" for index in (0, 1)
    ]
    # There is no place for a new copy on that node.
    cluster.check("gnt-instance", "replace-disks", "-n", "lab1", WEB1)
    cluster.check("vgcreate", "-q", "-f", "-y", GROUP, "/dev/vdb", node="lab3")
    require_whole(cluster, "lab2", "lab1")
    assert read(cluster, 0) == "kept\n"


def test_a_primary_is_lost_for_good_and_the_other_copy_as_well(cluster):
    """The disks are on the second and the first machine; the second one is lost."""
    for index in (0, 1):
        lose(cluster, index, ("lab2", "lab1"))
    stop(cluster)
    shell(cluster, f"vgremove -q -f -y {GROUP}; wipefs -qaf /dev/vdb", "lab2")
    cluster.check("gnt-node", "modify", "--force", "--offline=yes", "lab2")
    refused = cluster.refuse(*RECREATE, WEB1)
    assert "lab2.lab.test" in refused
    cluster.check(*RECREATE, "-n", "lab1:lab3", WEB1)
    cluster.check("vgcreate", "-q", "-f", "-y", GROUP, "/dev/vdb", node="lab2")
    # A node that is back is given its files again, as the question for it advises.
    cluster.check("gnt-node", "add", "--readd", "--no-ssh-key-check", "lab2")
    require_whole(cluster, "lab1", "lab3")
