"""Disks of a running guest whose numbers change stay those of the guest."""

import contextlib
import os
import shutil

import pytest

from fakes import cut_devices
from ganeti.hypervisor.kvm.qmp import Qmp

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.skipif(
        not shutil.which("qemu-system-x86_64"), reason="needs an emulator"
    ),
]


def opened(cluster):
    """Return the files that the guest has open, by disk."""
    guest = cluster._guest
    with Qmp(guest.control("qmp"), guest.name) as qmp:
        rows = qmp.execute("query-named-block-nodes", {"flat": True})
    return {
        row["node-name"]: os.path.realpath(row["image"]["filename"])
        for row in rows
        if row["node-name"].startswith("disk-")
    }


@pytest.mark.sampled
@pytest.mark.timeout(300)
def test_a_soft_reboot_opens_the_disks_of_the_guest(directory):
    cluster = cut_devices.DeviceCluster(directory)
    with contextlib.closing(cluster):
        cluster.set_running(wanted=True)
        for change in (["add", -1, {"size": 1}], ["add", -1, {"size": 2}]):
            cluster.do(cut_devices._modify(disks=[change]))
        for change in (["remove", 1, {}], ["add", -1, {"size": 3}]):
            cluster.do(cut_devices._modify(disks=[change]))
        cluster.do(
            {
                "OP_ID": "OP_INSTANCE_REBOOT",
                "instance_name": cut_devices.GUEST,
                "reboot_type": "soft",
                "ignore_secondaries": False,
                "shutdown_timeout": 0,
            }
        )
        disks, _macs = cluster.record()
        assert sorted(opened(cluster).values()) == sorted(disks)
