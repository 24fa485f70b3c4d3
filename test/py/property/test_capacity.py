"""Counted instances really fit, and more room never means fewer."""

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.seeds import examples
from fakes.some_cluster import random_cluster
from ganeti.decisions.htools.alloc import allocate
from ganeti.decisions.htools.capacity.filler import Filler
from ganeti.decisions.htools.capacity.rejections import Rejections
from ganeti.decisions.htools.capacity.search import CapacityOptions, CapacitySearch
from ganeti.decisions.htools.capacity.tiers import InstanceSize
from ganeti.decisions.htools.model.cluster import Cluster
from ganeti.decisions.htools.n1.check import GlobalN1
from ganeti.decisions.htools.rules import constraints
from ganeti.decisions.htools.state import node_state

TEMPLATES = st.sampled_from(["drbd", "plain", "sharedfile"])
SEEDS = st.integers(0, 10**6)
SIZES = st.builds(
    InstanceSize,
    st.sampled_from([512, 1536, 4096]),
    st.sampled_from([1024, 30000]),
    st.integers(1, 3),
)


def cluster(seed: int, template: str) -> Cluster:
    return random_cluster(seed, template=template, offline=seed % 2)


@settings(max_examples=examples(25), deadline=None)
@given(SEEDS, TEMPLATES, SIZES, st.booleans())
def test_each_place_is_allowed_when_its_turn_comes(
    seed: int, template: str, size: InstanceSize, tiered: bool
) -> None:
    state = node_state.ClusterState(cluster(seed, template))
    how = CapacityOptions(template, accept_errors=True)
    search = CapacitySearch(state, how)
    actual = search.tiered([size]) if tiered else search.standard(size)
    now = state.copy()
    for placed in actual.placed:
        item = how.instance(placed.size)
        first = placed.nodes[0]
        assert constraints.verdict(constraints.primary(now, item), now.size)[first] == 0
        if template == "drbd":
            peers = now.peers[:, first]
            rows = constraints.secondary(now, item, peers)
            assert constraints.verdict(rows, now.size)[placed.nodes[1]] == 0
        now.place(now.new(item), *placed.nodes)
    assert np.array_equal(now.rows, actual.after.rows)
    assert not (now.fails_n1 & ~state.fails_n1).any()
    if template != "drbd" and GlobalN1(state, only_online=True).holds():
        assert GlobalN1(now, only_online=True).holds()


@settings(max_examples=examples(25), deadline=None)
@given(SEEDS, st.sampled_from(["plain", "sharedfile"]), SIZES)
def test_more_of_everything_never_counts_less(
    seed: int, template: str, size: InstanceSize
) -> None:
    base = cluster(seed, template)
    at = seed % len(base.nodes)
    node = base.nodes[at]
    larger = msgspec.structs.replace(
        node,
        total_memory=node.total_memory + 4096,
        free_memory=node.free_memory + 4096,
        total_disk=node.total_disk + 100000,
        free_disk=node.free_disk + 100000,
        cpus=node.cpus + 4,
        spindles=node.spindles + 1,
    )
    nodes = (*base.nodes[:at], larger, *base.nodes[at + 1 :])
    how = CapacityOptions(template, accept_errors=True, capacity_checks=False)

    def count(one: Cluster) -> int:
        search = CapacitySearch(node_state.ClusterState(one), how)
        return len(search.standard(size).placed)

    assert count(msgspec.structs.replace(base, nodes=nodes)) >= count(base)


@settings(max_examples=examples(20), deadline=None)
@given(SEEDS, TEMPLATES, SIZES)
def test_a_limit_gives_the_first_of_all_places(
    seed: int, template: str, size: InstanceSize
) -> None:
    state = node_state.ClusterState(cluster(seed, template))
    how = CapacityOptions(template, accept_errors=True, capacity_checks=False)
    every = CapacitySearch(state, how).standard(size).placed
    few = msgspec.structs.replace(how, limit=3)
    assert CapacitySearch(state, few).standard(size).placed == every[:3]


@settings(max_examples=examples(60), deadline=None)
@given(SEEDS, st.integers(1, 3), st.booleans(), st.booleans(), st.integers(0, 2))
def test_tables_of_pairs_choose_as_scores_worked_out_in_full(
    seed: int, vcpus: int, is_level: bool, has_groups: bool, locations: int
) -> None:
    base = random_cluster(seed, offline=seed % 2)
    nodes, instances = base.nodes, base.instances
    if is_level:
        # Equal and empty nodes: many pairs cost the same.
        nodes = tuple(
            msgspec.structs.replace(nodes[1], name=node.name, offline=node.offline)
            for node in nodes
        )
        instances = ()
    if has_groups:
        nodes = tuple(
            msgspec.structs.replace(node, group=at % 2) for at, node in enumerate(nodes)
        )
        instances = ()
    if locations:
        nodes = tuple(
            msgspec.structs.replace(node, tags=(f"rack:{at % (1 + locations)}",))
            for at, node in enumerate(nodes)
        )
    groups = (*base.groups, msgspec.structs.replace(base.groups[0], name="b", uuid="b"))
    made = msgspec.structs.replace(
        base,
        nodes=nodes,
        instances=instances,
        groups=groups,
        tags=("htools:nlocation:rack",),
    )
    item = CapacityOptions("drbd").instance(InstanceSize(1536, 5000, vcpus))
    state = node_state.ClusterState(made)
    usable = [node for node in range(state.size) if state.online[node]]
    quick = Filler(state.copy(), item, usable)
    slow = Filler(state.copy(), item, usable)
    assert (quick.quick is None) == bool(state.fails_n1.any())
    slow.quick = None
    assert quick.fill() == slow.fill()
    assert np.array_equal(quick.state.rows, slow.state.rows)


@settings(max_examples=examples(40), deadline=None)
@given(SEEDS, TEMPLATES, st.booleans(), st.sampled_from([0.0, 0.3]))
def test_refusals_are_those_of_an_allocation(
    seed: int, template: str, exclusive: bool, min_disk: float
) -> None:
    base = random_cluster(seed, template=template)
    nodes = tuple(
        msgspec.structs.replace(
            node, exclusive=exclusive and at % 2 == 0, free_spindles=at
        )
        for at, node in enumerate(base.nodes)
    )
    state = node_state.ClusterState(
        msgspec.structs.replace(base, nodes=nodes), min_disk=min_disk
    )
    how = CapacityOptions(template)
    table = Rejections(state, how.instance(InstanceSize(0, 0, 0)), range(state.size))
    for memory in (512, 4096, 9000, 40000):
        for disk in (1024, 90000, 2000000):
            for vcpus, spindles in ((1, 1), (8, 3)):
                item = how.instance(InstanceSize(memory, disk, vcpus, spindles))
                actual = allocate.allocate(state, item, range(state.size), how.nodes)
                expected = list(actual.failures), actual.successes
                assert table.counts(item) == expected
