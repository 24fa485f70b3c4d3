"""Scores of places for newcomers are those of the cluster with them there."""

import msgspec
import numpy as np
import pytest

from fakes.some_cluster import random_cluster
from ganeti.htools import grid, newcomers
from ganeti.htools import grid_score as score


@pytest.mark.parametrize("forthcoming", [False, True])
@pytest.mark.parametrize("template", ["drbd", "sharedfile"])
def test_nodes_that_are_offline_count_as_they_will(
    template: str, *, forthcoming: bool
) -> None:
    state = grid.State(random_cluster(1, template=template, offline=2, tags=True))
    nodes = np.arange(state.size)
    assert state.offline.sum() == 2
    item = msgspec.structs.replace(
        state.instances[0], name="new", forthcoming=forthcoming
    )
    alone = newcomers.as_primary(state, item, nodes)
    for node in range(state.size):
        after = state.copy()
        index = after.new(item)
        after.place(index, node)
        assert alone[node] == pytest.approx(score.value(after))
        others = np.array([other for other in nodes if other != node])
        paired = newcomers.as_secondary(after, index, others)
        for other, found in zip(others.tolist(), paired, strict=True):
            both = state.copy()
            both.place(both.new(item), node, other)
            assert found == pytest.approx(score.value(both))
