"""Scores of places for new instances are those of the cluster with them there."""

import msgspec
import numpy as np
import pytest

from fakes.some_cluster import random_cluster
from ganeti.decisions.htools.score import components, placement
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
