"""Daemons end at durable acts, and the power is cut: what was acknowledged is there.

Each commit plays other points. A failure names its seed, and ``CRASH_SEED`` sets it.
``test/bench/run crash_points 2000`` plays more.
"""

import os

import pytest

from fakes import crash_points, seeds

pytestmark = pytest.mark.daemon

POINTS = int(os.environ.get("CRASH_POINTS", "300"))
CLUSTERS = 4
#: No point begins after this.
MINUTES = min(6, float(os.environ.get("FIRE_MINUTES", "2")))


def is_enough(reached, count):
    """Return whether the daemons of most points ended there.

    A slow machine plays fewer points, and in some runs the workload is shorter.
    """
    ended = sum(reached[kind] for kind in ("write", "send", "fsync"))
    return reached.total() >= count / 10 and ended > reached.total() / 2


@pytest.mark.timeout(1200)
def test_nothing_acknowledged_is_lost_at_any_point(record_property):
    seed = seeds.given("CRASH_SEED")
    reached = crash_points.run(POINTS, seed, clusters=CLUSTERS, minutes=MINUTES)
    figures = f"seed {seed}: {reached.total()} points, {dict(reached)}"
    record_property("figures", figures)
    assert is_enough(reached, POINTS), figures
