"""Daemons end at durable acts, and the power is cut: what was acknowledged is there.

Each commit plays other points. A failure names its seed, and ``CRASH_SEED`` sets it.
``test/bench/run crash_points 2000`` plays more.
"""

import collections
import concurrent.futures

import pytest

from fakes import crash_points, seeds

pytestmark = pytest.mark.daemon

POINTS, CLUSTERS = 300, 3
#: No point begins after this.
MINUTES = 2


@pytest.mark.timeout(900)
def test_nothing_acknowledged_is_lost_at_any_point(new_directory, record_property):
    seed = seeds.given("CRASH_SEED")
    directories = [new_directory() for _ in range(CLUSTERS)]

    def play(number):
        share = POINTS // CLUSTERS
        place = directories[number]
        return crash_points.run(place, share, seed + number, minutes=MINUTES)

    with concurrent.futures.ThreadPoolExecutor(CLUSTERS) as pool:
        reached = sum(pool.map(play, range(CLUSTERS)), start=collections.Counter())
    record_property(
        "figures", f"seed {seed}: {reached.total()} points, {dict(reached)}"
    )
    # A slow machine plays fewer.
    played = reached.total()
    assert played >= POINTS / 10
    # Most daemons end at the point; in some runs the workload is shorter.
    assert sum(reached[kind] for kind in ("write", "send", "fsync")) > played / 2
