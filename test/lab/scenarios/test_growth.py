"""A mirrored disk grows on real DRBD: in use, degraded, refused, and interrupted.

The disk is on the second and the third machine, so that a cut between its two nodes cuts
none of them off the master. Each test takes the size that the test before has left.
"""

import re

import pytest

from lab.holding import Held
from lab.mirroring import (
    COMPLETE,
    GROUP,
    empty,
    fill,
    kill_master,
    mirroring_cluster,
    power_on,
    shell,
    start_master,
    taken,
    wait_until,
)

# All take many minutes together.
pytestmark = pytest.mark.long
NODES = ["lab1", "lab2", "lab3"]
PRIMARY, SECONDARY = HOLDERS = ("lab2", "lab3")
WEB1 = "web1.lab.test"
ADD = (
    *("gnt-instance", "add", "-t", "drbd", "--no-install", "--no-nics"),
    *("--ignore-ipolicy", "-B", "memory=64m", "-n", f"{PRIMARY}:{SECONDARY}"),
    *("--disk", "0:size=64m", WEB1),
)
GROW = ("gnt-instance", "grow-disk", "--ignore-ipolicy")
DEVICE = "/dev/drbd0"
DIGEST = f"head -c 64M {DEVICE} | md5sum"
STEP_MIB = 32
#: Where a growth is held while the master daemon is killed: node, program, call, and
#: whether it has been carried out.
HELD = {
    "no volume has grown": ("lab3", "lvm", "lvextend --size*", False),
    "one volume has grown": ("lab2", "lvm", "lvextend --size*", False),
    "both volumes have grown": ("lab2", "drbdsetup", "drbdsetup resize*", False),
    "the device has grown": ("lab2", "drbdsetup", "drbdsetup resize*", True),
}


class Mirror:
    """The disk of an instance that runs."""

    def __init__(self, machines):
        self.machines = machines
        machines.check(*ADD)
        machines.check("gnt-instance", "start", WEB1)
        fill_disk = f"head -c 64M /dev/urandom > {DEVICE}; sync {DEVICE}; {DIGEST}"
        self.digest = shell(machines, fill_disk, PRIMARY)

    def sizes(self):
        """Return the recorded and the measured sizes, in MiB."""
        fields = ("--units=m", "-o", "disk.size/0", WEB1)
        row = self.machines.check("gnt-instance", "list", "--no-headers", *fields)
        sizes = {"recorded": int(re.match(r"\d+", row).group())}
        for node in HOLDERS:
            sectors = shell(self.machines, "cat /sys/block/drbd0/size", node)
            sizes[f"device of {node}"] = int(sectors) / 2048
            argv = (
                "lvs",
                "--noheadings",
                "--nosuffix",
                "--units",
                "m",
                "-o",
                "lv_size",
            )
            size = self.machines.check(*argv, "-S", "lv_name=~_data$", GROUP, node=node)
            sizes[f"volume of {node}"] = float(size)
        return sizes

    def size(self):
        """Return the one size that all have."""
        sizes = self.sizes()
        assert len(set(sizes.values())) == 1, sizes
        return sizes["recorded"]

    def require_whole(self, size_mib):
        """The disk has a size on both nodes, its data, and nothing takes a place more."""
        for node in HOLDERS:
            wait_until(self.machines, COMPLETE, node)
        assert self.size() == size_mib
        measured = shell(self.machines, f"blockdev --getsize64 {DEVICE}", PRIMARY)
        assert int(measured) == size_mib << 20
        assert shell(self.machines, DIGEST, PRIMARY) == self.digest
        counts = [taken(self.machines, node) for node in NODES]
        assert counts == [(0, 0, 0, 0), (2, 2, 1, 1), (2, 2, 1, 1)]

    def grow(self):
        """Grow by a step; return the size that is wanted, and what was printed."""
        wanted = self.size() + STEP_MIB
        done = self.machines.run(*GROW, WEB1, "0", f"{STEP_MIB}m")
        text = done.stdout + done.stderr
        assert done.returncode == 0, text
        return wanted, text

    def refuse(self):
        """Require that a growth is refused; return the text."""
        return self.machines.refuse(*GROW, WEB1, "0", f"{STEP_MIB}m")


@pytest.fixture(scope="module")
def mirror(kept_machines):
    with mirroring_cluster(kept_machines, NODES) as machines:
        made = Mirror(machines)
        yield made
        machines.check("gnt-instance", "remove", "-f", "--shutdown-timeout=1", WEB1)
        assert {taken(machines, node) for node in NODES} == {(0, 0, 0, 0)}


def write_last(machines, word):
    """Write a word to the last MiB of the disk."""
    seek = f"$(($(blockdev --getsize64 {DEVICE}) / 1048576 - 1))"
    write = f"dd of={DEVICE} bs=1M seek={seek} conv=fsync,notrunc status=none"
    shell(machines, f"echo {word} | {write}", PRIMARY)


def read_last(machines, node):
    skip = f"$(($(blockdev --getsize64 {DEVICE}) / 1048576 - 1))"
    return shell(
        machines, f"dd if={DEVICE} bs=1M skip={skip} status=none | head -1", node
    )


def test_a_running_instance_gets_more_space(mirror):
    wanted, _text = mirror.grow()
    mirror.require_whole(wanted)
    wanted += STEP_MIB
    mirror.machines.check(*GROW, "--absolute", WEB1, "0", f"{wanted}m")
    mirror.require_whole(wanted)
    refused = mirror.machines.refuse(*GROW, "--absolute", WEB1, "0", "64m")
    assert f"is {wanted} MiB, shrinking to 64 MiB is not supported" in refused
    mirror.require_whole(wanted)
    write_last(mirror.machines, "end")
    mirror.machines.check("gnt-instance", "migrate", "-f", WEB1)
    assert read_last(mirror.machines, SECONDARY) == "end\n"
    mirror.machines.check("gnt-instance", "migrate", "-f", WEB1)
    mirror.require_whole(wanted)


def test_a_disk_whose_nodes_are_apart_grows_and_is_copied_later(mirror):
    machines = mirror.machines
    machines.lab.cut(PRIMARY, SECONDARY, "both")
    try:
        wait_until(machines, "cs:WFConnection", PRIMARY)
        wanted, text = mirror.grow()
        sizes = mirror.sizes()
        write_last(machines, "apart")
    finally:
        machines.lab.join()
    # The other node's device learns its size when it is connected again.
    del sizes[f"device of {SECONDARY}"]
    assert set(sizes.values()) == {wanted}, sizes
    mirror.require_whole(wanted)
    assert "is degraded: the other node lacks data" in text
    machines.check("gnt-instance", "migrate", "-f", WEB1)
    assert read_last(machines, SECONDARY) == "apart\n"
    machines.check("gnt-instance", "migrate", "-f", WEB1)


def test_a_growth_is_refused_while_the_secondary_is_off(mirror):
    machines = mirror.machines
    before = mirror.size()
    machines.lab.power(SECONDARY, "off")
    try:
        text = mirror.refuse()
        size = shell(machines, f"blockdev --getsize64 {DEVICE}", PRIMARY)
    finally:
        power_on(machines, SECONDARY)
    assert f"node {SECONDARY}.lab.test" in text
    assert int(size) == before << 20
    machines.check("gnt-instance", "activate-disks", "--wait-for-sync", WEB1)
    mirror.require_whole(before)


@pytest.mark.parametrize("node", HOLDERS)
def test_a_growth_is_refused_if_a_group_is_full(mirror, node):
    before = mirror.size()
    fill(mirror.machines, node)
    try:
        text = mirror.refuse()
    finally:
        empty(mirror.machines, node)
    assert f"node {node}.lab.test" in text
    mirror.require_whole(before)


def test_a_growth_is_refused_while_the_disk_is_copied(mirror):
    machines, before = mirror.machines, mirror.size()
    change_rate(machines, "200")
    machines.check("drbdsetup", "invalidate", "0", node=SECONDARY)
    wait_until(machines, "cs:SyncSource", PRIMARY)
    text = mirror.refuse()
    assert "cannot grow during a synchronisation" in text
    assert mirror.size() == before
    change_rate(machines, "102400")
    mirror.require_whole(before)


def change_rate(machines, kib_per_s):
    """Change the speed of the copy to the secondary."""
    options = ("--c-plan-ahead=0", f"--resync-rate={kib_per_s}")
    for node in HOLDERS:
        machines.check("drbdsetup", "disk-options", "0", *options, node=node)


@pytest.mark.parametrize("moment", list(HELD))
def test_a_growth_goes_on_after_the_master_was_killed(mirror, moment):
    machines, wanted = mirror.machines, mirror.size() + STEP_MIB
    node, program, pattern, is_done = HELD[moment]
    held = Held(machines, node, program, pattern, after=is_done)
    options = ("--submit", "--print-jobid", WEB1, "0", f"{STEP_MIB}m")
    job = machines.check(*GROW, *options).split()[-1]
    held.wait_until_reached()
    kill_master(machines)
    held.release()
    start_master(machines)
    machines.check("gnt-job", "wait", job)
    mirror.require_whole(wanted)
