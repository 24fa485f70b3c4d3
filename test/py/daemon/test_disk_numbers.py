"""Disks of a running guest whose numbers change stay those of the guest."""

import contextlib
import os
import re
import shutil

import pytest

from fakes import cut_devices

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.skipif(
        not shutil.which("qemu-system-x86_64"), reason="needs an emulator"
    ),
]


def opened(cluster):
    """Return the files of disks that the guest has open.

    The emulator knows them as descriptors.
    """
    fds = f"/proc/{cluster._guest.alive_pid()}/fd"
    files = (os.path.realpath(f"{fds}/{fd}") for fd in os.listdir(fds))
    return {path for path in files if re.search(r"\.disk\d+$", path)}


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
        assert sorted(opened(cluster)) == sorted(disks)
