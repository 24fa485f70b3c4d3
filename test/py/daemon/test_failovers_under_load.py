"""The master role moves while clients submit jobs: nothing is lost, somebody serves.

``test/bench/run failovers 200`` does the same for longer.
"""

import pytest

from fakes import failovers

pytestmark = [pytest.mark.daemon, pytest.mark.sampled]


def test_failovers_of_a_live_busy_master(cluster_of):
    cluster = cluster_of(3)
    cluster.wait_until_clean()
    figures = failovers.run(cluster, ("node1", "node2", "node3"), 3)
    assert figures.is_good, f"{figures}\n{figures.refused}"
