"""Tables that capacity is counted with, against plain loops.

A failure names the table, the component, the nodes, and the expected and found values.
"""

import msgspec
import numpy as np
import pytest

from fakes.score_terms import NewInstance, Report, odd_cluster
from fakes.some_cluster import random_cluster
from ganeti.decisions.htools.capacity.filler import Filler, policy_fits
from ganeti.decisions.htools.capacity.node_tables import NodeTables
from ganeti.decisions.htools.capacity.search import CapacityOptions
from ganeti.decisions.htools.capacity.tiers import InstanceSize
from ganeti.decisions.htools.score import components as score
from ganeti.decisions.htools.state import node_state

SEEDS = range(12)
NAMES = list(NodeTables.METRICS)


#: A running instance without tags, as tables take it.
PLAIN = {
    "template": "drbd",
    "tags": (),
    "status": "running",
    "forthcoming": False,
    "disk": 1024,
    "disks": (1024,),
}


@pytest.mark.parametrize("seed", SEEDS)
def test_values_of_nodes_and_their_changes_are_those_worked_out_plainly(seed):
    this, report = NewInstance(seed, odd_cluster(seed), **PLAIN), Report()
    accepted = policy_fits(this.state, this.item)
    tables = NodeTables(this.state, this.item, accepted)
    size = this.state.size
    before = this.now()
    for node in range(size):
        partner = (node + 1) % size
        first = this.values(node, partner)[node]
        second = this.values(partner, node)[node]
        for row, name in enumerate(NAMES):
            where = f"component {name}, cluster {seed}, node {node}"
            value = before[node][name]
            actual = tables.base[row, node], tables.first[row, node]
            report.equal(f"table base, {where}", value, float(actual[0]))
            if name == "reserved_mem_cv":
                kept = tables.kept(partner, np.array([node]))
                part = tables.memory_part(kept, np.array([node]))[0]
                report.equal(f"memory kept, {where}", second[name], float(part))
                continue
            report.equal(f"table first, {where}", first[name] - value, float(actual[1]))
            change = second[name] - value
            report.equal(
                f"table second, {where}", change, float(tables.second[row, node])
            )
    report.check()


def test_the_policy_of_each_group_accepts_an_instance_or_not():
    """Its spindles count on nodes with exclusive storage alone."""
    base = random_cluster(1)
    low, high = base.policy.ranges[0]
    small = msgspec.structs.replace(high, memory=500)
    policies = [
        msgspec.structs.replace(base.policy, ranges=((low, most),))
        for most in (high, small)
    ]
    groups = tuple(
        msgspec.structs.replace(base.groups[0], name=name, uuid=name, policy=policy)
        for name, policy in zip("ab", policies, strict=True)
    )
    places = ((0, False), (0, True), (1, False), (1, True))
    nodes = tuple(
        msgspec.structs.replace(node, group=group, exclusive=exclusive)
        for node, (group, exclusive) in zip(base.nodes, places, strict=False)
    )
    made = msgspec.structs.replace(base, groups=groups, nodes=nodes, instances=())
    state = node_state.ClusterState(made)
    item = CapacityOptions("plain").instance(InstanceSize(512, 2048, 1))
    cases = (
        ({}, [True, False, False, False]),
        ({"memory": 500, "spindles": 1}, [True] * 4),
        ({"memory": 500}, [True, False, True, False]),
        ({"spindles": 1}, [True, True, False, False]),
        ({"spindles": 1, "vcpus": 10_000}, [False] * 4),
    )
    for changes, accepted in cases:
        one = msgspec.structs.replace(item, **{"spindles": None, **changes})
        assert policy_fits(state, one).tolist() == accepted, changes


@pytest.mark.parametrize("seed", SEEDS)
def test_estimates_of_pairs_are_within_their_error(seed):
    this, report = NewInstance(seed, random_cluster(seed), **PLAIN), Report()
    filler = Filler(this.state, this.item, this.nodes.tolist())
    scores = filler.quick
    assert scores
    scores.best()
    _sums, variance, away = scores._exact_scores.statistics()
    actual = scores._estimates(variance, away)
    at = np.argwhere(np.isfinite(actual)).tolist()
    exact = {}
    for row, column in at:
        pair = int(scores.usable[row]), int(scores.usable[column])
        values = this.components(*pair)
        exact[row, column] = sum(
            weight * values[name] for name, weight in score.WEIGHTS
        )
    for row, column in at[1:]:
        one, two = tuple(at[0]), (row, column)
        expected = exact[two] - exact[one]
        difference = float(actual[two] - actual[one])
        where = f"estimate, cluster {seed}, pair {two} instead of {one}"
        report.at_most(where, abs(expected - difference), scores._near)
    report.check()
