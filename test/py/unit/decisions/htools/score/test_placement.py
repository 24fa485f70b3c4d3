"""Scores of places for new instances are those of the cluster with them there."""

import itertools

import msgspec
import numpy as np
import pytest

from fakes.plain_score import WEIGHT
from fakes.score_terms import NewInstance, Report, odd_cluster
from fakes.some_cluster import random_cluster
from ganeti.decisions.htools.score import components, placement
from ganeti.decisions.htools.score import components as score
from ganeti.decisions.htools.state import node_state


@pytest.mark.parametrize("forthcoming", [False, True])
@pytest.mark.parametrize("template", ["drbd", "sharedfile"])
def test_nodes_that_are_offline_count_as_they_will(
    template: str, *, forthcoming: bool
) -> None:
    state = node_state.ClusterState(
        random_cluster(1, template=template, offline=2, tags=True)
    )
    nodes = np.arange(state.size)
    assert state.offline.sum() == 2
    item = msgspec.structs.replace(
        state.instances[0], name="new", forthcoming=forthcoming
    )
    alone = placement.as_primary(state, item, nodes)
    for node in range(state.size):
        after = state.copy()
        index = after.new(item)
        after.place(index, node)
        assert alone[node] == pytest.approx(components.value(after))
        others = np.array([other for other in nodes if other != node])
        paired = placement.as_secondary(after, index, others)
        for other, actual in zip(others.tolist(), paired, strict=True):
            both = state.copy()
            both.place(both.new(item), node, other)
            assert actual == pytest.approx(components.value(both))


# Each component of the score for each place of a new instance, against plain loops.
#
# A failure names the component, the nodes, and the expected and found values.

SEEDS = range(8)


def each_component(monkeypatch):
    """Let the score be one component after the other alone, without its weight."""
    table = score.WEIGHTS
    for name in WEIGHT:
        alone = tuple((each, float(each == name)) for each, _weight in table)
        monkeypatch.setattr(score, "WEIGHTS", alone)
        yield name
    monkeypatch.setattr(score, "WEIGHTS", table)


@pytest.mark.parametrize("seed", SEEDS)
def test_places_for_a_primary_have_the_components_worked_out_plainly(seed, monkeypatch):
    this, report = NewInstance(seed, odd_cluster(seed), template="sharedfile"), Report()
    after = {int(node): this.components(node) for node in this.nodes}
    for name in each_component(monkeypatch):
        actual = placement.as_primary(this.state, this.item, this.nodes)
        for node, value in zip(this.nodes.tolist(), actual, strict=True):
            report.near(this.text(name, node), after[node][name], float(value))
    report.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_places_for_a_secondary_have_the_components_worked_out_plainly(
    seed, monkeypatch
):
    this, report = NewInstance(seed, odd_cluster(seed), template="drbd"), Report()
    first, *others = this.nodes.tolist()
    after = {node: this.components(first, node) for node in others}
    state = this.state.copy()
    index = state.new(this.item)
    state.place(index, first)
    for name in each_component(monkeypatch):
        actual = placement.as_secondary(state, index, np.array(others))
        for node, value in zip(others, actual, strict=True):
            report.near(this.text(name, first, node), after[node][name], float(value))
    report.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_pairs_of_places_have_the_components_worked_out_plainly(seed, monkeypatch):
    this, report = NewInstance(seed, odd_cluster(seed), template="drbd"), Report()
    pairs = list(itertools.permutations(range(len(this.nodes)), 2))
    after = {pair: this.components(*this.nodes[[*pair]].tolist()) for pair in pairs}
    for name in each_component(monkeypatch):
        actual = placement.PairPlacements(this.state, this.item).scores(
            this.nodes, this.nodes
        )
        for pair in pairs:
            where = this.text(name, *this.nodes[[*pair]].tolist())
            report.near(where, after[pair][name], float(actual[pair]))
    report.check()
