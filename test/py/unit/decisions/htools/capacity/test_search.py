"""How many more instances fit: the same places as one allocation after another."""

import itertools

import msgspec
import numpy as np
import pytest

from fakes.some_cluster import KITE, random_cluster
from ganeti.decisions.htools.alloc import allocate
from ganeti.decisions.htools.capacity import filler as capacity_filler
from ganeti.decisions.htools.capacity import rejections, tiers
from ganeti.decisions.htools.capacity.search import (
    CapacityOptions,
    CapacitySearch,
    NoRoomError,
    _CapacityRun,
    size_of,
)
from ganeti.decisions.htools.capacity.tiers import InstanceSize
from ganeti.decisions.htools.model import text
from ganeti.decisions.htools.model.cluster import Cluster, Group, Instance
from ganeti.decisions.htools.model.policy import AllocPolicy
from ganeti.decisions.htools.n1 import check, failure_tables
from ganeti.decisions.htools.n1.check import GlobalN1
from ganeti.decisions.htools.rules import constraints
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.state import node_state

SIZE = InstanceSize(memory=512, disk=2048, vcpus=1)
SEEDS = range(6)


def start(seed: int, template: str) -> node_state.ClusterState:
    return node_state.ClusterState(random_cluster(seed, template=template))


def one_by_one(
    state: node_state.ClusterState, item: Instance, count: int
) -> list[tuple[int, ...]]:
    """Allocate again and again, without the test for redundancy."""
    now, out = state.copy(), []
    while True:
        actual = allocate.allocate(now, item, range(now.size), count)
        if actual.nodes is None:
            return out
        now.place(now.new(item), *actual.nodes)
        out.append(actual.nodes)


@pytest.mark.parametrize("template", ["drbd", "plain", "sharedfile"])
@pytest.mark.parametrize("seed", SEEDS)
def test_filling_places_as_single_allocations_do(seed: int, template: str) -> None:
    state = start(seed, template)
    how = CapacityOptions(template)
    item = how.instance(SIZE)
    filler = capacity_filler.Filler(state.copy(), item, range(state.size))
    assert filler.fill() == one_by_one(state, item, how.nodes)


@pytest.mark.parametrize("template", ["drbd", "plain"])
def test_a_filled_state_is_as_if_placed_one_by_one(template: str) -> None:
    state = start(3, template)
    item = CapacityOptions(template).instance(SIZE)
    after = state.copy()
    places = capacity_filler.Filler(after, item, range(state.size)).fill(7)
    expected = state.copy()
    for nodes in places:
        expected.place(expected.new(item), *nodes)
    assert len(places) == 7
    assert np.array_equal(after.rows, expected.rows)
    assert np.array_equal(after.peers, expected.peers)
    assert after.primaries == expected.primaries
    assert after.secondaries == expected.secondaries
    assert (after.pri, after.sec) == (expected.pri, expected.sec)


@pytest.mark.parametrize("template", ["drbd", "plain"])
@pytest.mark.parametrize("seed", SEEDS)
def test_many_nodes_are_filled_as_far_as_few(seed: int, template: str) -> None:
    state = start(seed, template)
    item = CapacityOptions(template).instance(SIZE)
    exact = capacity_filler.Filler(state.copy(), item, range(state.size)).fill()
    after = state.copy()
    quick = capacity_filler.Filler(after, item, range(state.size), exact_nodes=0).fill()
    assert len(quick) >= len(exact) * 0.98
    assert (
        allocate.allocate(after, item, range(state.size), len(quick[0])).nodes is None
    )


@pytest.mark.parametrize("template", ["drbd", "plain"])
@pytest.mark.parametrize("seed", SEEDS)
def test_refusals_are_counted_as_allocation_counts_them(
    seed: int, template: str
) -> None:
    state = start(seed, template)
    how = CapacityOptions(template)
    for memory in (512, 2048, 6144, 12288):
        for disk in (1024, 200000, 390000):
            item = how.instance(InstanceSize(memory, disk, 2))
            actual = allocate.allocate(state, item, range(state.size), how.nodes)
            counts, possible = rejections.counts(state, item, range(state.size))
            assert counts == list(actual.failures)
            assert possible == actual.successes


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("several", [1, 3, 4])
def test_a_filling_goes_on_where_another_one_was_the_same(
    seed: int, several: int
) -> None:
    state = start(seed, "drbd")
    item = CapacityOptions("drbd").instance(SIZE)

    def filled(most: int, known=()) -> capacity_filler.Filler:
        filler = capacity_filler.Filler(
            state.copy(), item, range(state.size), exact_nodes=0
        )
        filler.several = several
        filler.fill(most, known)
        return filler

    for first in (2, 7, 12):
        known = filled(first).steps
        for most in range(1, 16):
            quick, slow = filled(most, known), filled(most)
            assert quick.state.pri == slow.state.pri
            assert quick.state.sec == slow.state.sec
            assert np.array_equal(quick.state.rows, slow.state.rows)
            assert np.array_equal(quick.state.peers, slow.state.peers)
            assert quick.steps == slow.steps


def test_an_answer_names_every_place_and_why_there_is_no_more() -> None:
    state = node_state.ClusterState(text.load(KITE.read_text(), "kite"))
    search = CapacitySearch(state, CapacityOptions("drbd"))
    actual = search.standard(InstanceSize(2048, 40960, 1))
    assert len(actual.placed) == 15
    assert dict(zip(constraints.KINDS, actual.failures, strict=True))["FailDisk"] == 9
    names = [item.name for item in actual.cluster().instances[-15:]]
    assert names == [f"new-{number}" for number in range(15)]
    assert GlobalN1(actual.after).holds()
    assert len(state.instances) == 6


def test_a_limit_ends_a_run() -> None:
    state = start(1, "drbd")
    search = CapacitySearch(state, CapacityOptions("drbd", limit=3))
    assert len(search.standard(SIZE).placed) == 3
    none = CapacitySearch(state, CapacityOptions("drbd", limit=0)).standard(SIZE)
    assert none.placed == ()


def failing_cluster(template: str = "drbd") -> Cluster:
    """A second group, and a node of the first one that lacks memory for failovers."""
    base = random_cluster(2, template=template)
    bad = msgspec.structs.replace(base.nodes[0], free_memory=0)
    groups = (*base.groups, Group("other", "v"))
    nodes = (bad, *base.nodes[1:])
    more = [
        msgspec.structs.replace(base.nodes[1], name=f"more{n}", group=1)
        for n in range(3)
    ]
    more = [msgspec.structs.replace(node, free_memory=15872) for node in more]
    return msgspec.structs.replace(base, groups=groups, nodes=(*nodes, *more))


def test_nodes_that_fail_already_stop_all_but_what_is_asked_for() -> None:
    state = node_state.ClusterState(failing_cluster())
    none = CapacitySearch(state, CapacityOptions("drbd")).standard(SIZE)
    assert (none.placed, none.is_redundant) == ((), False)
    apart = CapacityOptions("drbd", independent=True)
    actual = CapacitySearch(state, apart).standard(SIZE)
    assert {int(state.group[n]) for one in actual.placed for n in one.nodes} == {1}
    anyway = CapacityOptions("drbd", accept_errors=True)
    actual = CapacitySearch(state, anyway).standard(SIZE)
    assert {int(state.group[n]) for one in actual.placed for n in one.nodes} == {0, 1}


def test_a_group_without_room_for_its_own_stops_others_unless_they_are_apart() -> None:
    cluster = failing_cluster("plain")
    nodes = tuple(
        node if node.group else msgspec.structs.replace(node, free_memory=0)
        for node in cluster.nodes
    )
    state = node_state.ClusterState(msgspec.structs.replace(cluster, nodes=nodes))
    for independent, groups in ((False, set()), (True, {1})):
        how = CapacityOptions("plain", independent=independent)
        placed = CapacitySearch(state, how).standard(SIZE).placed
        assert {int(state.group[n]) for one in placed for n in one.nodes} == groups


def test_without_nodes_there_is_an_error() -> None:
    base = random_cluster(1)
    group = msgspec.structs.replace(
        base.groups[0], alloc_policy=AllocPolicy.UNALLOCABLE
    )
    state = node_state.ClusterState(msgspec.structs.replace(base, groups=(group,)))
    with pytest.raises(NoRoomError):
        CapacitySearch(state, CapacityOptions("drbd"))


@pytest.mark.parametrize("template", ["plain", "sharedfile", "drbd"])
@pytest.mark.parametrize("seed", SEEDS)
def test_emptying_a_node_by_tables_goes_as_by_states(
    seed: int, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However full the nodes are: with each step the slow way says the same."""
    state = start(seed, template)
    item = CapacityOptions("plain").instance(InstanceSize(3000, 9000, 1))
    verdicts = set()
    for nodes in capacity_filler.Filler(state.copy(), item, range(state.size)).fill():
        state.place(state.new(item), *nodes)
        for node in range(state.size):
            quick = check._simulate(state, node)
            with monkeypatch.context() as patch:
                patch.setattr(failure_tables, "is_usual", lambda *_args: False)
                assert quick == check._simulate(state, node)
            verdicts.add(quick)
            bounds = (
                GlobalN1(state)._bounds(
                    state,
                    node,
                    [
                        state.instances[i]
                        for i in state.primaries[node]
                        if state.sec[i] < 0
                    ],
                )
                if any(state.sec[i] < 0 for i in state.primaries[node])
                else 0
            )
            assert bounds == 0 or (bounds > 0) == quick
    assert verdicts


# Sizes that shrink


def slow_next(search, state, size, failures, rounds=None):
    """The rule as it is described, step by step."""

    def attempt(one, *, alone):
        tested = search.how.capacity_checks and (alone or search.how.nodes == 1)
        return search.attempt(state, one, tested=tested)

    def shrunk(one, kind):
        possible = tiers._possible_steps(one, kind)
        return tiers._smaller(one, kind, 1) if possible else None

    def rising(counts):
        return sorted(range(1, 10), key=lambda kind: counts[kind - 1])

    levels = [(size, failures)]
    while (smaller := shrunk(levels[-1][0], rising(levels[-1][1])[-1])) is not None:
        counts, fits = attempt(smaller, alone=False)
        if fits:
            return smaller, len(levels) - 1
        if len(levels) - 1 == rounds:
            break
        levels.append((smaller, counts))
    for number, (level, counts) in reversed(list(enumerate(levels))):
        for kind in reversed(rising(counts)):
            now = level
            while (smaller := shrunk(now, kind)) is not None:
                actual, fits = attempt(now, alone=True)
                if fits:
                    return now, number
                if not actual[kind - 1]:
                    break
                now = smaller
    return None


LARGE_STEPS = {
    constraints.MEM: ("memory", 1500, "memory"),
    constraints.DISK: ("disk", 24000, "disk"),
    constraints.CPU: ("vcpus", 1, "cpus"),
    constraints.SPINDLES: ("spindles", 1, "spindles"),
}


@pytest.mark.parametrize("template", ["drbd", "plain"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_next_size_is_that_of_the_slow_rule(
    seed: int, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "_SHRINK", LARGE_STEPS)
    base = random_cluster(seed, template=template)
    low = msgspec.structs.replace(base.policy.std, memory=3000, disk=50000)
    high = msgspec.structs.replace(base.policy.ranges[0][1], memory=15000, disk=240000)
    policy = msgspec.structs.replace(base.policy, ranges=((low, high),))
    groups = tuple(msgspec.structs.replace(g, policy=policy) for g in base.groups)
    state = node_state.ClusterState(
        msgspec.structs.replace(base, groups=groups, policy=policy)
    )
    search = CapacitySearch(state, CapacityOptions(template))
    size = size_of(high)
    for _ in range(4):
        run = _CapacityRun(search, state, size, None)
        run.steps()
        state = run.state
        for rounds in (0, 1, 3, 8, None):
            bounds = tiers.SizeBounds(search.policies, rounds)
            actual = tiers.next_size(run._attempt, size, run.failures, bounds)
            expected = slow_next(search, state, size, run.failures, rounds)
            if rounds is None and actual is not None:
                # A resource lowered without a limit does not count.
                expected = expected[0], actual[1]
            assert actual == expected
        if actual is None:
            return
        size = actual[0]


def test_tiers_only_get_smaller_and_fill_more() -> None:
    state = start(4, "drbd")
    search = CapacitySearch(state, CapacityOptions("drbd"))
    actual = search.tiered([InstanceSize(8192, 102400, 4)])
    sizes = [placed.size for placed in actual.placed]
    assert sizes[0].memory <= 8192
    for one, two in itertools.pairwise(sizes):
        assert two.memory <= one.memory
        assert two.disk <= one.disk
    assert components.value(actual.after) >= 0


@pytest.mark.parametrize(
    ("template", "options", "most_nodes", "is_used"),
    [
        ("sharedfile", {}, 100, True),
        ("diskless", {}, 100, True),
        ("sharedfile", {"capacity_checks": False}, 100, False),
        ("sharedfile", {}, 1, False),
        ("plain", {}, 100, False),
        ("drbd", {}, 100, False),
    ],
)
def test_sizes_are_looked_through_where_a_loss_counts_and_it_is_quick(
    monkeypatch: pytest.MonkeyPatch,
    template: str,
    options: dict[str, bool],
    most_nodes: int,
    is_used: bool,
) -> None:
    monkeypatch.setattr(capacity_filler, "EXACT_NODES", most_nodes)
    search = CapacitySearch(start(1, template), CapacityOptions(template, **options))
    run = _CapacityRun(search, search.state, SIZE, None)
    assert (run._bounds().is_hopeless is not None) == is_used


def test_instances_without_disks_are_not_measured_by_disk_sizes() -> None:
    how = CapacityOptions("diskless")
    assert how.instance(InstanceSize(512, 0, 1)).disks == ()
    assert how.instance(SIZE).disks == (SIZE.disk,)
    assert CapacityOptions("plain").instance(InstanceSize(512, 0, 1)).disks == (0,)
