"""Drills: the guest that proves its runs, and whole drills on isolated machines."""

import contextlib
import json
import os
import shutil
import subprocess

import pytest

from fakes import guests
from fakes.patience import until
from ganeti.devel.drill import proof
from ganeti.devel.drill.scenarios import DRILLS

QEMU = shutil.which("qemu-system-x86_64")
pytestmark = [
    pytest.mark.daemon,
    pytest.mark.skipif(QEMU is None, reason="needs an emulator"),
]


@contextlib.contextmanager
def emulator(boot, disk):
    """Run a guest that records its boots on a disk, without the emulator's lock."""
    blockdev = {"driver": "raw", "node-name": "disk", "cache": {"direct": True}}
    blockdev["file"] = {"driver": "file", "filename": str(disk), "locking": "off"}
    words = [QEMU, "-nodefaults", "-no-user-config", "-display", "none"]
    words += ["-m", "96", "-accel", "tcg", "-kernel", boot / "vmlinuz"]
    words += ["-initrd", boot / "initrd"]
    words += ["-append", "quiet no_timer_check tiny.record=/dev/vda"]
    words += ["-blockdev", json.dumps(blockdev), "-device", "virtio-blk-pci,drive=disk"]
    with subprocess.Popen(words, stderr=subprocess.PIPE) as child:
        try:
            yield
        finally:
            child.kill()


def counts(disk, boot):
    """Wait until a boot, from 0, has counted."""

    def has_counted():
        boots = proof.read(disk)
        return len(boots) > boot and boots[boot].counter > 0

    until(f"boot {boot}", has_counted)


@pytest.mark.sampled
def test_a_guest_proves_that_it_ran_twice_at_once(tmp_path):
    boot, disk = tmp_path / "boot", tmp_path / "disk"
    guests.make_boot(boot)
    disk.write_bytes(bytes(1 << 20))
    with emulator(boot, disk):
        counts(disk, 0)
        assert proof.overlap(proof.read(disk)) == ""
        with emulator(boot, disk):
            counts(disk, 1)
            until("both ran", lambda: proof.overlap(proof.read(disk)))
    boots = proof.read(disk)
    assert len({each.boot_id for each in boots}) == 2
    assert "boot 1 counted to" in proof.overlap(boots)


@pytest.fixture(scope="module")
def cluster(cluster_of):
    return cluster_of(4, "kvm", "--isolated", "--monitoring")


#: Drills of ordinary runs; the others are long.
SAMPLE = ("freeze-early",)


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=pytest.mark.sampled if name in SAMPLE else pytest.mark.long
        )
        for name in DRILLS
    ],
)
def test_each_drill_passes_and_leaves_the_cluster_as_before(cluster, name):
    cluster.command("drill", name)
    info = json.loads(cluster.check("gnt-cluster", "info", "--json"))
    assert not info["node_death"]
    assert info["automation_limits"] == {}
    assert cluster.check("gnt-instance", "list", "--no-headers") == ""
    cluster.wait_until_clean()
