"""The master daemon ends while it adds disks and NICs: nothing is left, nothing is lost.

Each commit plays other points. ``CRASH_SEED`` sets the seed; ``CRASH_POINTS=all`` ends the
daemon at each durable act.
"""

import os
import random
import shutil

import pytest

from fakes import cut_devices, seeds

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.sampled,
    pytest.mark.skipif(
        not shutil.which("qemu-system-x86_64"), reason="needs an emulator"
    ),
]

#: Points of each of the four cases.
POINTS = 4


@pytest.mark.timeout(900)
def test_devices_are_added_wholly_or_not_at_all(directory, record_property):
    seed = seeds.given("CRASH_SEED")
    count = None if os.environ.get("CRASH_POINTS") == "all" else POINTS
    ended = cut_devices.run(directory, random.Random(seed), count, print)
    record_property("figures", f"seed {seed}: ended at {len(ended)} acts")
    assert len(ended) >= 2 * len(cut_devices.CASES)
