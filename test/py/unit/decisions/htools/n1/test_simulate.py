"""Emptying a node ends early only with what it would have found out anyway."""

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from fakes.some_cluster import random_cluster
from ganeti.decisions.htools.model.cluster import NONE, Instance
from ganeti.decisions.htools.n1 import check, failure_tables, simulate
from ganeti.decisions.htools.n1.check import GlobalN1
from ganeti.decisions.htools.state import node_state

Floats = npt.NDArray[np.float64]


def fresh(template: str, memory: int, spindles: int | None = None) -> Instance:
    """An instance that policy lets go anywhere."""
    return Instance(
        name="new",
        memory=memory,
        disk=4096,
        vcpus=1,
        primary=NONE,
        template=template,
        disks=(4096,),
        spindles=spindles,
    )


def full(seed: int, template: str, memory: int) -> node_state.ClusterState:
    """A cluster with many equal instances beside the few of its own."""
    base = random_cluster(seed, template=template)
    instances = tuple(
        msgspec.structs.replace(item, disks=(item.disk,)) for item in base.instances
    )
    state = node_state.ClusterState(msgspec.structs.replace(base, instances=instances))
    item = fresh(template, memory)
    for node in range(state.size):
        while state.unallocated[node] > memory * (2 + node % 2):
            state.place(state.new(item), node)
    return state


def leave_all_open(patch: pytest.MonkeyPatch) -> None:
    """Let nothing follow from how many places there are."""

    def count(
        step: simulate._EvacuationStep, _sizes: Floats, rows: slice, *, above: bool
    ) -> Floats:
        return np.full(step.rest[rows].shape, np.inf if above else -1.0)

    patch.setattr(simulate._EvacuationStep, "_places", count)
    patch.setattr(
        failure_tables.EvacuationProgress, "open_at", lambda _self, left, _turn: left
    )


@pytest.mark.parametrize("template", ["plain", "sharedfile"])
@pytest.mark.parametrize("seed", range(8))
def test_the_end_is_the_same_with_and_without_counting(
    seed: int, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for memory in (700, 1500, 2600):
        state = full(seed, template, memory)
        quick = [check._simulate(state, node) for node in range(state.size)]
        with monkeypatch.context() as patch:
            leave_all_open(patch)
            slow = [check._simulate(state, node) for node in range(state.size)]
        assert quick == slow


def exclusive(seed: int, every: int) -> node_state.ClusterState:
    """A cluster in which some nodes have exclusive storage."""
    base = random_cluster(seed, template="plain")
    nodes = tuple(
        msgspec.structs.replace(
            node, exclusive=at % every == 0, spindles=40, free_spindles=seed * 7 + 3
        )
        for at, node in enumerate(base.nodes)
    )
    instances = tuple(
        msgspec.structs.replace(item, spindles=1, disks=(item.disk,))
        for item in base.instances
    )
    return node_state.ClusterState(
        msgspec.structs.replace(base, nodes=nodes, instances=instances)
    )


@pytest.mark.parametrize("every", [1, 2])
def test_exclusive_storage_by_tables_goes_as_by_states(
    every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spindles run out before disks and memory do, or after them."""
    for seed, memory in ((0, 200), (1, 200), (2, 200), (3, 3000)):
        state, item = exclusive(seed, every), fresh("plain", memory, spindles=2)
        for step in range(14):
            state.place(state.new(item), step % state.size)
            node = (step * 3 + 1) % state.size
            quick = check._simulate(state, node)
            with monkeypatch.context() as patch:
                patch.setattr(failure_tables, "is_usual", lambda *_args: False)
                assert quick == check._simulate(state, node)


@pytest.mark.parametrize("counted", [True, False])
def test_the_last_spindle_may_be_taken_and_no_more(
    counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not counted:
        leave_all_open(monkeypatch)
    base = exclusive(1, 1).cluster
    nodes = tuple(msgspec.structs.replace(node, free_spindles=2) for node in base.nodes)
    state = node_state.ClusterState(
        msgspec.structs.replace(base, nodes=nodes, instances=())
    )
    item = fresh("plain", 200, spindles=2)
    for node in range(state.size - 1):
        state.place(state.new(item), node)
        assert check._simulate(state, 0)
    state.place(state.new(item), state.size - 1)
    assert not check._simulate(state, 0)


def test_counting_ends_most_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = []
    move = simulate._EvacuationStep._move
    monkeypatch.setattr(
        simulate._EvacuationStep,
        "_move",
        lambda self, *args: moved.append(args) or move(self, *args),
    )
    state = full(1, "plain", 700)
    assert not check._simulate(state, 0)
    assert len(moved) < len(state.primaries[0]) / 2


@pytest.mark.parametrize("template", ["plain", "sharedfile"])
def test_a_trial_leaves_the_state_as_it_was(template: str) -> None:
    state = node_state.ClusterState(random_cluster(2, template=template))
    before, item = state.copy(), state.instances[0]
    test = GlobalN1(state)
    answers = [test.others_hold(item, node, -1) for node in range(state.size)]
    assert (state.rows == before.rows).all()
    assert state.primaries == before.primaries
    assert (state.pri, state.instances) == (before.pri, before.instances)
    # Each answer is that of a test of a state with the instance.
    for node, answer in enumerate(answers):
        after = state.copy()
        after.place(after.new(item), node)
        assert answer == GlobalN1(after).holds()


def test_what_a_test_learns_from_another_changes_no_answer() -> None:
    state = node_state.ClusterState(random_cluster(4, template="sharedfile"))
    item, known, seen = state.instances[0], GlobalN1(state), set()
    for step in range(60):
        state = state.copy()
        state.place(state.new(item), step % state.size)
        known = GlobalN1(state, known=known)
        assert known.failing() == GlobalN1(state).failing()
        seen.add(known.holds())
        assert known.holds() == GlobalN1(state).holds()
    assert seen == {True, False}


def test_equal_numbers_of_other_instances_are_not_taken_for_the_same() -> None:
    base = node_state.ClusterState(random_cluster(4, template="sharedfile"))
    small = base.instances[0]
    large = msgspec.structs.replace(small, memory=30000)
    known, states = GlobalN1(base), []
    for item in (small, large, small):
        state = base.copy()
        for node in range(3):
            state.place(state.new(item), node)
        states.append(state)
        known = GlobalN1(state, known=known)
        assert known.failing() == GlobalN1(state).failing()
        assert known.holds() == GlobalN1(state).holds()
        mine = [known.evacuees.loads[node] for node in range(3)]
        assert all(load is None or load.memory.max() >= item.memory for load in mine)
        if item is small:
            assert all(load is None or load.memory.max() < 30000 for load in mine)
