"""The choice of the points at which daemons end."""

import random

import pytest

from fakes import crash_points
from fakes.crash_points_etcd import EtcdCrashCluster

ACTS = dict.fromkeys(crash_points.VICTIMS, 50)


def chosen(power_cuts):
    return crash_points.points(random.Random(5), ACTS, 400, power_cuts)


def test_points_lie_within_the_workload():
    collected = chosen(crash_points.POWER_CUTS)
    assert len(collected) == 400
    assert all(1 <= point.acts <= ACTS[point.name, point.node] for point in collected)
    assert {(point.name, point.node) for point in collected} == set(ACTS)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 1.0])
def test_the_share_of_power_cuts_is_chosen(share):
    cuts = sum(point.is_power_cut for point in chosen(share))
    assert abs(cuts - 400 * share) < 40


def test_the_share_does_not_change_what_ends():
    def victims(share):
        return [(p.name, p.node, p.acts, p.start_acts) for p in chosen(share)]

    assert victims(0.0) == victims(1.0)


def test_a_share_of_the_master_daemons_is_replaced_by_a_takeover():
    victims, share = EtcdCrashCluster.VICTIMS, EtcdCrashCluster.TAKEOVERS
    acts = dict.fromkeys(victims, 50)
    made = crash_points.points(
        random.Random(5), acts, 400, victims=victims, takeovers=share
    )
    assert {(point.name, point.node) for point in made} == set(victims)
    masters = [p for p in made if p.name == crash_points.MASTERD and not p.is_power_cut]
    replaced = [point for point in made if point.is_takeover]
    assert set(replaced) <= set(masters)
    assert abs(len(replaced) - len(masters) * share) < 20
    assert not any(point.is_takeover for point in chosen(0.2))
