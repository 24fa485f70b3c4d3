"""Nodes emptied side by side, with counts of places, end as if moved one by one."""

import random
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fakes.seeds import examples
from fakes.some_cluster import random_cluster
from ganeti.decisions.htools.model.cluster import NONE, Cluster, Instance
from ganeti.decisions.htools.n1 import check, failure_tables, simulate
from ganeti.decisions.htools.n1.check import GlobalN1
from ganeti.decisions.htools.state import node_state

SEEDS = st.integers(0, 10**6)
_TAGS = ("htools:desiredlocation:place", "htools:nlocation:place")


def cluster(rng: random.Random, *, apart: bool, located: bool) -> Cluster:
    """A cluster of odd nodes; instances of several templates, most on one node."""
    base = random_cluster(rng.randrange(10**6), template="plain")
    nodes = tuple(
        replace(
            node,
            total_disk=rng.choice((60000.0, 409600.0)),
            free_disk=rng.choice((0, 20000, 50000)),
            cpus=rng.choice((4.0, 8.0)),
            cpu_speed=rng.choice((1.0, 1.5)),
            exclusive=apart and at % 2 == 0,
            spindles=rng.choice((8, 20)) if apart else 4,
            free_spindles=rng.randint(20, 200),
            tags=(f"place:{rng.choice('ab')}",) if located else (),
        )
        for at, node in enumerate(base.nodes)
    )
    templates = ("plain", "sharedfile", "drbd")
    instances = tuple(
        replace(
            item,
            disks=(item.disk,),
            template=(template := rng.choice(templates[: 2 + rng.randrange(2)])),
            secondary=(item.primary + 1) % len(nodes) if template == "drbd" else -1,
            spindles=rng.choice((0, 1, 6)),
            utilisation=rng.choice(((1.0, 1.0, 1.0, 1.0), (0.5, 2.0, 0.0, 1.0))),
            tags=(f"place:{rng.choice('abc')}",) if located else (),
        )
        for item in base.instances
    )
    tags = _TAGS if located else ()
    return replace(base, nodes=nodes, instances=instances, tags=tags)


def new_instance(rng: random.Random) -> Instance:
    disk = rng.choice((0, 1024, 9000))
    return Instance(
        name="new",
        memory=rng.choice((0, 700, 1500, 2600, 5000)),
        disk=disk,
        vcpus=1,
        primary=NONE,
        template=rng.choice(("plain", "sharedfile")),
        disks=(disk,),
        spindles=rng.choice((1, 5)),
        utilisation=(1.0, 1.0, 1.0, 1.0),
    )


def fill(rng: random.Random, state: node_state.ClusterState) -> None:
    """Leave about as much as the instances of one node take."""
    for _ in range(rng.randint(1, 3)):
        item = new_instance(rng)
        most = int(max(1, item.memory)) * rng.choice((1, 2, 4))
        for node in range(state.size):
            for _ in range(12):
                if state.unallocated[node] <= most + item.memory:
                    break
                state.place(state.new(item), node)


def where_by_states(state: node_state.ClusterState, node: int) -> list[int] | None:
    """Where the instances of a node go, one after the other; None if one cannot."""
    places: list[int] = []
    best = check.best_single

    def noted(*args: Any) -> int | None:
        actual = best(*args)
        places.extend([] if actual is None else [actual])
        return actual

    with mock.patch.object(check, "best_single", noted):
        return places if by_states(state, node) else None


def where_by_tables(
    state: node_state.ClusterState, nodes: list[int]
) -> dict[int, list[int]]:
    """Where the instances of nodes go, sorted, with nothing but moves."""
    actual: list[failure_tables.EvacuationProgress] = []

    def made(
        tables: failure_tables.FailureTables, lost: Any
    ) -> failure_tables.EvacuationProgress:
        actual.append(failure_tables.EvacuationProgress(tables, lost))
        return actual[0]

    def nothing_is_known(step: Any, _sizes: Any, rows: Any, *, above: bool) -> Any:
        return np.full(step.rest[rows].shape, np.inf if above else -1.0)

    def all_are_open(_progress: Any, left: Any, _turn: int) -> Any:
        return left

    with (
        mock.patch.object(simulate, "EvacuationProgress", made),
        mock.patch.object(simulate._EvacuationStep, "_places", nothing_is_known),
        mock.patch.object(failure_tables.EvacuationProgress, "open_at", all_are_open),
    ):
        test = GlobalN1(state)
        test.evacuees.know(state, nodes)
        assert test._find_bad_of(0, nodes) is None
    moved = actual[0].moved()
    out: dict[int, list[int]] = {node: [] for node in nodes}
    if moved is not None:
        rows = zip(moved.lost, moved.columns, moved.count, strict=True)
        for lost, column, count in rows:
            out[nodes[lost]] += [int(column)] * int(count)
    return {node: sorted(places) for node, places in out.items()}


def by_states(state: node_state.ClusterState, node: int) -> bool:
    with mock.patch.object(failure_tables, "is_usual", return_value=False):
        return check._simulate(state, node)


@pytest.mark.sampled
@settings(max_examples=examples(150), deadline=None)
@given(seed=SEEDS, apart=st.booleans(), located=st.booleans())
def test_nodes_emptied_side_by_side_end_as_one_by_one(
    seed: int, apart: bool, located: bool
) -> None:
    rng = random.Random(seed)
    state = node_state.ClusterState(cluster(rng, apart=apart, located=located))
    fill(rng, state)
    slow = [by_states(state, node) for node in range(state.size)]
    assert [check._simulate(state, node) for node in range(state.size)] == slow
    test = GlobalN1(state)
    nodes = list(range(state.size))
    for _ in range(4):
        some = sorted(rng.sample(nodes, rng.randint(2, state.size)))
        bad = test._find_bad(some)
        assert bad is None or (bad in some and not slow[bad])
        assert (bad is None) == all(slow[node] for node in some)
    certain = test._certain(nodes)
    assert not any(certain[node] and not slow[node] for node in nodes)


@settings(max_examples=examples(60), deadline=None)
@given(seed=SEEDS, apart=st.booleans(), located=st.booleans())
def test_each_instance_goes_to_the_same_place(
    seed: int, apart: bool, located: bool
) -> None:
    rng = random.Random(seed)
    base = cluster(rng, apart=apart, located=located)
    # Odd nodes, for which no two places cost the same, not even for an instance that
    # takes neither memory nor disk.
    nodes = tuple(
        replace(
            node,
            total_memory=node.total_memory + rng.randrange(4000),
            cpu_speed=rng.uniform(1.0, 1.5),
        )
        for node in base.nodes
    )
    state = node_state.ClusterState(replace(base, nodes=nodes))
    fill(rng, state)
    alone = GlobalN1(state)._simple(list(range(state.size)))
    slow = {node: where_by_states(state, node) for node in alone.get(0, [])}
    expected = {node: sorted(places) for node, places in slow.items() if places}
    if expected:
        assert where_by_tables(state, list(expected)) == expected


def test_of_places_that_cost_the_same_the_last_one_is_taken() -> None:
    base = random_cluster(1, template="plain")
    nodes = tuple(replace(base.nodes[1], name=f"n{at}") for at in range(5))
    state = node_state.ClusterState(replace(base, nodes=nodes, instances=()))
    item = replace(new_instance(random.Random(1)), template="sharedfile")
    state.place(state.new(item), 4)
    state.place(state.new(item), 1)
    assert where_by_tables(state, [1, 4]) == {1: [3], 4: [3]}
