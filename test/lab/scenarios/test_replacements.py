"""Mirrored disks replaced on real DRBD: by side, to a third machine, after a fault.

A program writes numbers to the disk all the time; the last one is there at the end.
"""

import json
import re

import pytest

from lab.mirroring import (
    COMPLETE,
    GROUP,
    active,
    kernel,
    mapped,
    mirroring_cluster,
    ports,
    volumes,
)
from lab.steps import timed

NODES = ["lab1", "lab2", "lab3"]
WEB1 = "web1.lab.test"
ADD = (
    *("gnt-instance", "add", "-t", "drbd", "--no-install", "--no-nics"),
    *("--ignore-ipolicy", "-B", "memory=64m", "-n", "lab1:lab2"),
)
REPLACE = ("gnt-instance", "replace-disks")
DEVICE = "/dev/drbd0"
#: Victims -> the steps, of six, at which they are killed.
INTERRUPTED = {
    "masterd": range(1, 7),
    "noded": range(1, 7),
    "node": (3, 4, 5),
    "new node": (3, 4, 5),
}
#: Writes 1, 2, 3... to the beginning of the disk until a file appears.
WRITER = f"""
import os
import time
disk = os.open("{DEVICE}", os.O_WRONLY | os.O_SYNC)
number = 0
while not os.path.exists("/run/stop-writing"):
    number += 1
    os.pwrite(disk, b"%-512d" % number, 0)
    with open("/run/written", "w") as out:
        out.write(str(number))
    # Without a pause the kernel leaves almost nothing of the disk to the mirroring.
    time.sleep(0.05)
"""


@pytest.fixture
def trio(machines):
    """A cluster of three machines with a volume group of two disks each."""
    with mirroring_cluster(machines, NODES, ("/dev/vdb", "/dev/vdc")) as made:
        yield made


class Writer:
    """The program that writes on the first machine."""

    def __init__(self, machines):
        self.machines = machines
        start = (
            "rm -f /run/stop-writing; python3 /run/writer.py > /run/writer.log 2>&1 &"
            " echo $! > /run/writer.pid"
        )
        machines.check("sh", "-c", f"cat > /run/writer.py <<'E'\n{WRITER}\nE")
        machines.check("sh", "-c", start)

    def stop(self):
        """End it; return the last number that is written for certain."""
        wait = "touch /run/stop-writing; tail --pid=$(cat /run/writer.pid) -f /dev/null"
        self.machines.check("sh", "-c", wait)
        assert self.machines.check("cat", "/run/writer.log") == ""
        return int(self.machines.check("cat", "/run/written"))


def require_whole(machines, *, primary, secondary, away):
    """The mirror is complete on two machines, and nothing is left anywhere."""
    for node in (primary, secondary):
        assert COMPLETE in kernel(machines, node)
        names = volumes(machines, node)
        assert [name[-5:] for name in names] == ["_data", "_meta"]
    assert volumes(machines, primary) == volumes(machines, secondary)
    assert volumes(machines, away) == []
    assert "cs:" not in kernel(machines, away).replace("cs:Unconfigured", "")
    verified = machines.run("gnt-cluster", "verify", "--error-codes").stdout
    assert not re.search(
        r"ERROR:E(NODEORPHANLV|NODEDRBD|INSTANCEMISSINGDISK)", verified
    )


def require_nothing_taken(machines, before, *, primary, secondary, away):
    """No minor, device or port is in use but those of the one mirror."""
    assert ports(machines) == before
    for node, count in ((primary, 1), (secondary, 1), (away, 0)):
        assert active(machines, node) == count
        # Data and metadata.
        assert mapped(machines, node) == 2 * count
        listed = machines.check("gnt-node", "list-drbd", "--no-headers", node)
        assert len(listed.splitlines()) == count, listed


def identities(machines, node):
    """Return the UUIDs of the volumes of a machine, which outlive their names."""
    argv = ("lvs", "--noheadings", "-o", "lv_uuid", GROUP)
    return set(machines.check(*argv, node=node).split())


def require_second_copy(machines, node, copy):
    """Unless the mirror is complete, a node still has the volumes of a copy."""
    lost = copy - identities(machines, node)
    # In this order: a mirror that is complete, and loses the old volumes, stays so.
    assert not lost or COMPLETE in kernel(machines, "lab1"), (node, lost)


def number_on(machines, node):
    """Return the number on the disk of a machine that is primary."""
    return int(machines.check("head", "-c", "512", DEVICE, node=node).split()[0])


@pytest.mark.sampled
def test_a_secondary_is_replaced_while_a_program_writes(trio):
    trio.check(*ADD, "--disk", "0:size=64m", WEB1)
    trio.check("gnt-instance", "start", WEB1)
    writer = Writer(trio)
    trio.check(*REPLACE, "-s", WEB1)
    require_whole(trio, primary="lab1", secondary="lab2", away="lab3")
    trio.check(*REPLACE, "-n", "lab3", WEB1)
    require_whole(trio, primary="lab1", secondary="lab3", away="lab2")
    last = writer.stop()
    trio.check("gnt-instance", "failover", "-f", WEB1)
    assert number_on(trio, "lab3") == last > 0


# Takes many minutes.
@pytest.mark.long
def test_disks_are_replaced_while_a_program_writes_and_after_a_fault(trio):
    timed(_while_a_program_writes, trio)
    timed(_a_disk_fails, trio)


# Takes many minutes.
@pytest.mark.long
@pytest.mark.parametrize("victim", list(INTERRUPTED))
def test_a_replacement_is_interrupted_at_each_step(trio, victim):
    trio.check(*ADD, "--disk", "0:size=64m", WEB1)
    trio.check("gnt-instance", "start", WEB1)
    # Each step takes long enough to be interrupted.
    slow = "drbd:dynamic-resync=false,resync-rate=8192"
    trio.check("gnt-cluster", "modify", "-D", slow)
    writer = Writer(trio)
    before = ports(trio)
    secondary, away = "lab2", "lab3"
    for number in INTERRUPTED[victim]:
        if victim == "masterd":
            # The volumes of the old node are removed as well.
            secondary, away = away, secondary
            timed(_a_killed_master_goes_on, trio, number, secondary, away)
        elif victim == "new node":
            secondary, away = away, secondary
            timed(_a_lost_new_node_is_used_again, trio, number, secondary, away)
        else:
            timed(_a_killed_node_is_left, trio, number, secondary, victim == "node")
        places = {"primary": "lab1", "secondary": secondary, "away": away}
        require_whole(trio, **places)
        require_nothing_taken(trio, before, **places)
    last = writer.stop()
    trio.check("gnt-instance", "failover", "-f", WEB1)
    assert number_on(trio, secondary) == last > 0


def _replace_until(machines, number, *options):
    """Begin a replacement; return its job when it has begun a step."""
    done = machines.check(*REPLACE, "--submit", "--print-jobid", *options, WEB1)
    job = done.split()[-1]
    machines.check("sh", "-c", f"gnt-job watch {job} | grep -q 'STEP {number}/6'")
    return job


def _secondary(machines):
    """Return the secondary node that is recorded."""
    argv = ("gnt-instance", "list", "--no-headers", "-o", "snodes", WEB1)
    return machines.check(*argv).split(".")[0]


def _a_killed_master_goes_on(machines, number, secondary, away):
    """It ends what it has begun, or has changed nothing; then it can be repeated."""
    copy = identities(machines, away)
    job = _replace_until(machines, number, "-n", secondary)
    machines.check("sh", "-c", "kill -9 $(cat /run/ganeti/ganeti-masterd.pid)")
    require_second_copy(machines, away, copy)
    machines.check("/usr/lib/ganeti/daemon-util", "start", "ganeti-masterd")
    ended = machines.run("gnt-job", "wait", job)
    require_second_copy(machines, away, copy)
    if ended.returncode == 0:
        assert _secondary(machines) == secondary
    else:
        _repeat_on(machines, secondary, away)
    _wait_until_removed(machines, away, 0)


def _repeat_on(machines, secondary, away):
    """Repeat a move that was undone; complete one that was not."""
    machines.check("gnt-instance", "activate-disks", "--wait-for-sync", WEB1)
    if _secondary(machines) == away:
        machines.check(*REPLACE, "-n", secondary, WEB1)


def _a_lost_new_node_is_used_again(machines, number, secondary, away):
    """The machine that gets the copy ends; when it is back, the command is repeated."""
    copy = identities(machines, away)
    job = _replace_until(machines, number, "-n", secondary)
    _fail(machines, secondary, job, is_whole_machine=True)
    require_second_copy(machines, away, copy)
    _repeat_on(machines, secondary, away)
    _wait_until_removed(machines, away, 0)


def _a_killed_node_is_left(machines, number, secondary, is_whole_machine):
    """Its daemon or its machine ends; when it is back, the replacement is repeated."""
    copy = identities(machines, secondary)
    job = _replace_until(machines, number, "-s")
    _fail(machines, secondary, job, is_whole_machine=is_whole_machine)
    require_second_copy(machines, secondary, copy)
    machines.check("gnt-instance", "activate-disks", "--wait-for-sync", WEB1)
    machines.check(*REPLACE, "-s", WEB1)
    _wait_until_removed(machines, secondary, 2)


def _fail(machines, node, job, *, is_whole_machine):
    """End a node, or its node daemon, wait for a job, and start it again."""
    if is_whole_machine:
        machines.lab.power(node, "off")
    else:
        kill = "kill -9 $(cat /run/ganeti/ganeti-noded.pid)"
        machines.check("sh", "-c", kill, node=node)
    machines.run("gnt-job", "wait", job)
    if is_whole_machine:
        machines.lab.start([machines.lab.machine(node)])
        row = f"gnt-node list --no-headers -o mtotal {node}"
        machines.check("sh", "-c", f"until {row} | grep -q M; do sleep 0.5; done")
    else:
        start = ("/usr/lib/ganeti/daemon-util", "start", "ganeti-noded")
        machines.check(*start, node=node)


def _wait_until_removed(machines, node, count):
    """Wait until a node has so many volumes: the master removes remains by itself."""
    gone = (
        f"until [ $(lvs --noheadings {GROUP} | wc -l) = {count} ]; do sleep 0.5; done"
    )
    machines.check("sh", "-c", gone, node=node)


def _while_a_program_writes(machines):
    machines.check(*ADD, "--disk", "0:size=64m", WEB1)
    machines.check("gnt-instance", "start", WEB1)
    writer = Writer(machines)
    timed(_on_both_sides, machines)
    timed(_to_the_third_machine, machines)
    timed(_with_a_master_that_is_killed, machines)
    _with_a_secondary_that_fails(machines, secondary="lab3", away="lab2")
    last = writer.stop()
    machines.check("gnt-instance", "failover", "-f", WEB1)
    assert number_on(machines, "lab3") == last > 0
    machines.check("gnt-instance", "remove", "-f", "--shutdown-timeout=1", WEB1)
    assert [volumes(machines, node) for node in NODES] == [[], [], []]


def _on_both_sides(machines):
    before = volumes(machines, "lab2")
    for side in ("-s", "-p"):
        text = machines.check(*REPLACE, side, WEB1)
        steps = re.findall(r"STEP (\d)/6", text)
        assert steps == list("123456")
        require_whole(machines, primary="lab1", secondary="lab2", away="lab3")
    # The records name the same volumes as before.
    assert volumes(machines, "lab2") == before


def _to_the_third_machine(machines):
    machines.check(*REPLACE, "-n", "lab3", WEB1)
    require_whole(machines, primary="lab1", secondary="lab3", away="lab2")
    # With an allocator it can only go back.
    machines.check(*REPLACE, "-I", ".", "--early-release", WEB1)
    require_whole(machines, primary="lab1", secondary="lab2", away="lab3")


def _with_a_master_that_is_killed(machines):
    """Ended while the data is copied, the master goes on after its next start."""
    slow = "drbd:dynamic-resync=false,resync-rate=2048"
    machines.check("gnt-cluster", "modify", "-D", slow)
    done = machines.check(*REPLACE, "--submit", "--print-jobid", "-n", "lab3", WEB1)
    job = done.split()[-1]
    watch = f"gnt-job watch {job} | grep -q 'STEP 5/6'"
    machines.check("sh", "-c", watch)
    machines.check("sh", "-c", "kill -9 $(cat /run/ganeti/ganeti-masterd.pid)")
    assert volumes(machines, "lab2") != []
    machines.check("/usr/lib/ganeti/daemon-util", "start", "ganeti-masterd")
    machines.check("gnt-job", "wait", job)
    rows = json.loads(machines.check("gnt-job", "list", "--json", job))
    assert "success" in str(rows)
    require_whole(machines, primary="lab1", secondary="lab3", away="lab2")


def _with_a_secondary_that_fails(machines, *, secondary, away):
    """Its daemon, then its machine, ends while volumes are exchanged; then again."""
    for is_whole_machine in (False, True):
        done = machines.check(*REPLACE, "--submit", "--print-jobid", "-s", WEB1)
        job = done.split()[-1]
        watch = f"gnt-job watch {job} | grep -q 'exchanging the volumes'"
        machines.check("sh", "-c", watch)
        _fail(machines, secondary, job, is_whole_machine=is_whole_machine)
        machines.check("gnt-instance", "activate-disks", "--wait-for-sync", WEB1)
        machines.check(*REPLACE, "-s", WEB1)
        _wait_until_removed(machines, secondary, 2)
        require_whole(machines, primary="lab1", secondary=secondary, away=away)


def _a_disk_fails(machines):
    """Disk vdc of the secondary returns errors; the mirror goes on without it."""
    modify = ("gnt-node", "modify-storage", "--allocatable")
    machines.check(*modify, "no", "lab2", "lvm-pv", "/dev/vdb")
    machines.check(*ADD, "--disk", "0:size=64m", WEB1)
    machines.check(*modify, "yes", "lab2", "lvm-pv", "/dev/vdb")
    assert "none" in machines.check(*REPLACE, "-a", "--dry-run", WEB1)
    machines.lab.fail_disk("lab2", 1, ["read", "write"])
    machines.check("sh", "-c", f"echo kept > {DEVICE}; sync {DEVICE}")
    assert "ds:UpToDate/Diskless" in kernel(machines, "lab1")
    machines.check("gnt-node", "repair-storage", "lab2", "lvm-vg", GROUP)
    machines.check(*REPLACE, "-a", WEB1)
    require_whole(machines, primary="lab1", secondary="lab2", away="lab3")
    machines.check("gnt-instance", "failover", "-f", WEB1)
    machines.check("gnt-instance", "activate-disks", WEB1)
    assert machines.check("head", "-n", "1", DEVICE, node="lab2") == "kept\n"
