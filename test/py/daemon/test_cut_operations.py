"""The master daemon ends during operations: they continue, and nothing is left.

Each commit plays other points. ``CRASH_SEED`` sets the seed; ``CRASH_POINTS=all`` ends the
daemon at each durable act.
"""

import os
import random

import pytest

from fakes import cut_operations, seeds

pytestmark = [pytest.mark.daemon, pytest.mark.sampled]

#: Points of each case.
POINTS = 4


@pytest.mark.timeout(900)
def test_an_interrupted_operation_continues(directory, record_property):
    seed = seeds.given("CRASH_SEED")
    count = None if os.environ.get("CRASH_POINTS") == "all" else POINTS
    ended = cut_operations.run(directory, random.Random(seed), count, print)
    record_property("figures", f"seed {seed}: ended at {len(ended)} acts")
    assert len(ended) >= 2 * len(cut_operations.CASES)
