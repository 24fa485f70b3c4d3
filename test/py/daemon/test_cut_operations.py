"""The master daemon ends during operations: they continue, and nothing is left.

Disks and NICs of a guest are added wholly or not at all. Each commit plays other points.
``CRASH_SEED`` sets the seed; ``CRASH_POINTS=all`` ends the daemon at each durable act.
"""

import contextlib
import os
import random
import re
import shutil

import pytest

from fakes import cut_devices, cut_operations, seeds

needs_emulator = pytest.mark.skipif(
    not shutil.which("qemu-system-x86_64"), reason="needs an emulator"
)
pytestmark = [pytest.mark.daemon, pytest.mark.sampled]

#: Points of each case.
POINTS = 4


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("make", "cases"),
    [
        pytest.param(
            cut_operations.OperationCluster, cut_operations.CASES, id="operations"
        ),
        pytest.param(
            *(cut_devices.DeviceCluster, cut_devices.CASES),
            marks=needs_emulator,
            id="devices",
        ),
    ],
)
def test_an_interrupted_operation_continues(directory, record_property, make, cases):
    seed = seeds.given("CRASH_SEED")
    count = None if os.environ.get("CRASH_POINTS") == "all" else POINTS
    cluster = make(directory)
    ended = cut_operations.run(cluster, cases, random.Random(seed), count, print)
    record_property("figures", f"seed {seed}: ended at {len(ended)} acts")
    assert len(ended) >= 2 * len(cases)


def opened(cluster):
    """Return the files of disks that the guest has open.

    The emulator knows them as descriptors.
    """
    fds = f"/proc/{cluster._guest.alive_pid()}/fd"
    files = (os.path.realpath(f"{fds}/{fd}") for fd in os.listdir(fds))
    return {path for path in files if re.search(r"\.disk\d+$", path)}


@needs_emulator
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
