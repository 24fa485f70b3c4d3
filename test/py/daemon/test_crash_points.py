"""Daemons end at durable acts, and the power is cut: what was acknowledged is there.

``test/bench/run crash_points 2000`` plays more points, with a new seed each time. A
failure names its seed, and ``CRASH_SEED`` sets it.
"""

import collections
import concurrent.futures

import pytest

from fakes import crash_points, seeds

pytestmark = pytest.mark.daemon

POINTS, CLUSTERS = 100, 2


@pytest.mark.timeout(900)
def test_nothing_acknowledged_is_lost_at_any_point(new_directory):
    seed = seeds.given("CRASH_SEED", 20780000)
    directories = [new_directory() for _ in range(CLUSTERS)]

    def play(number):
        share = POINTS // CLUSTERS
        return crash_points.run(directories[number], share, seed + number)

    with concurrent.futures.ThreadPoolExecutor(CLUSTERS) as pool:
        reached = sum(pool.map(play, range(CLUSTERS)), start=collections.Counter())
    # Most daemons end at the point; in some runs the workload is shorter.
    assert sum(reached[kind] for kind in ("write", "send", "fsync")) > POINTS / 2
