"""What is counted really fits, and more room never means less."""

import dataclasses

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.some_cluster import random_cluster
from ganeti.htools import grid, model
from ganeti.htools import grid_checks as checks
from ganeti.htools.capacity.search import How, Search
from ganeti.htools.capacity.tiers import Size
from ganeti.htools.redundancy.global_n1 import GlobalN1

TEMPLATES = st.sampled_from(["drbd", "plain", "sharedfile"])
SEEDS = st.integers(0, 10**6)
SIZES = st.builds(
    Size,
    st.sampled_from([512, 1536, 4096]),
    st.sampled_from([1024, 30000]),
    st.integers(1, 3),
)


def cluster(seed: int, template: str) -> model.Cluster:
    return random_cluster(seed, template=template, offline=seed % 2)


@settings(max_examples=25, deadline=None)
@given(SEEDS, TEMPLATES, SIZES, st.booleans())
def test_each_place_is_allowed_when_its_turn_comes(
    seed: int, template: str, size: Size, tiered: bool
) -> None:
    state = grid.State(cluster(seed, template))
    how = How(template, accept_errors=True)
    search = Search(state, how)
    found = search.tiered([size]) if tiered else search.standard(size)
    now = state.copy()
    for placed in found.placed:
        item = how.instance(placed.size)
        first = placed.nodes[0]
        assert checks.verdict(checks.primary(now, item), now.size)[first] == 0
        if template == "drbd":
            peers = now.peers[:, first]
            rows = checks.secondary(now, item, peers)
            assert checks.verdict(rows, now.size)[placed.nodes[1]] == 0
        now.place(now.new(item), *placed.nodes)
    assert np.array_equal(now.rows, found.after.rows)
    assert not (now.fails_n1 & ~state.fails_n1).any()
    if template != "drbd" and GlobalN1(state, only_online=True).holds():
        assert GlobalN1(now, only_online=True).holds()


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.sampled_from(["plain", "sharedfile"]), SIZES)
def test_more_of_everything_never_means_less(
    seed: int, template: str, size: Size
) -> None:
    base = cluster(seed, template)
    at = seed % len(base.nodes)
    node = base.nodes[at]
    larger = dataclasses.replace(
        node,
        total_memory=node.total_memory + 4096,
        free_memory=node.free_memory + 4096,
        total_disk=node.total_disk + 100000,
        free_disk=node.free_disk + 100000,
        cpus=node.cpus + 4,
        spindles=node.spindles + 1,
    )
    nodes = (*base.nodes[:at], larger, *base.nodes[at + 1 :])
    how = How(template, accept_errors=True, capacity_checks=False)

    def count(one: model.Cluster) -> int:
        search = Search(grid.State(one), how)
        return len(search.standard(size).placed)

    assert count(dataclasses.replace(base, nodes=nodes)) >= count(base)


@settings(max_examples=20, deadline=None)
@given(SEEDS, TEMPLATES, SIZES)
def test_a_limit_gives_the_first_of_all_places(
    seed: int, template: str, size: Size
) -> None:
    state = grid.State(cluster(seed, template))
    how = How(template, accept_errors=True, capacity_checks=False)
    every = Search(state, how).standard(size).placed
    few = dataclasses.replace(how, limit=3)
    assert Search(state, few).standard(size).placed == every[:3]
