"""States of placement stay true: after moves they are as if loaded, for any cluster.

Allocations keep the rules.
"""

import random

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fakes import placement
from fakes.seeds import examples
from fakes.some_cluster import every_move, legal_moves, random_cluster
from ganeti.decisions.htools.balance import search as exact_deltas
from ganeti.decisions.htools.balance.lower_bounds import MoveBounds
from ganeti.decisions.htools.balance.search import MoveSearch
from ganeti.decisions.htools.hail import answer, request
from ganeti.decisions.htools.model.cluster import NONE, Cluster, Instance
from ganeti.decisions.htools.n1.check import GlobalN1
from ganeti.decisions.htools.rules import moves
from ganeti.decisions.htools.rules.move_constraints import MoveOptions
from ganeti.decisions.htools.rules.moves import Move, MoveKind
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.score.move_estimates import MoveEstimator
from ganeti.decisions.htools.state import node_state
from ganeti.decisions.htools.state.amounts import ROWS

SEEDS = st.integers(0, 10**6)
TEMPLATES = st.sampled_from(["drbd", "sharedfile"])
#: Numbers that follow from where instances are; the others from what nodes report.
OF_PLACES = set(ROWS) - {"unallocated", "f_mem_later", "f_dsk_later", "f_spin_later"}


def _varied(item: Instance, dice: random.Random, is_plain: bool) -> Instance:
    to_come = not is_plain and dice.random() < 0.15
    return msgspec.structs.replace(
        item,
        spindles=None if dice.random() < 0.1 else 1,
        spindle_use=dice.choice([1, 2]),
        auto_balance=dice.random() < 0.9,
        forthcoming=to_come,
        utilisation=tuple(dice.choice([0.3, 1.0, 1.7]) for _ in range(4)),
        status=dice.choice(["running", "running", "ADMIN_down", "ADMIN_offline"]),
    )


def varied(seed: int, template: str = "drbd", *, is_plain: bool = False) -> Cluster:
    """Return a cluster of odd sizes, tags, offline nodes, instances to come."""
    dice = random.Random(seed)
    offline = 0 if is_plain else dice.choice([0, 0, 1, 2])
    cluster = random_cluster(seed, template=template, offline=offline, tags=True)
    used = [0] * len(cluster.nodes)
    for item in cluster.instances:
        used[item.primary] += item.memory
    nodes = tuple(
        msgspec.structs.replace(
            node,
            # Often just as much is left as an instance or two would take.
            total_memory=float(node.node_memory + taken + left),
            free_memory=left + dice.choice([0, 0, 4096]),
            tags=(dice.choice(["rack:1", "rack:2"]), dice.choice(["hv:1", "hv:2"])),
            exclusive=not is_plain and dice.random() < 0.2,
            spindles=12,
            free_spindles=9,
            free_disk=dice.choice([1024, 10240, 11264, 20480, 200000]),
        )
        for node, taken in zip(cluster.nodes, used, strict=True)
        for left in [512 * dice.choice([0, 1, 1, 2, 2, 3, 4, 4, 8])]
    )
    instances = tuple(_varied(item, dice, is_plain) for item in cluster.instances)
    words = ["iextags:svc", "nlocation:rack", "migration:hv", "desiredlocation:rack"]
    tags = tuple(f"htools:{word}" for word in words if dice.random() < 0.3)
    if "htools:migration:hv" in tags:
        tags = (*tags, "htools:allowmigration:hv:1::hv:2")
    return msgspec.structs.replace(cluster, nodes=nodes, instances=instances, tags=tags)


def wander(state: node_state.ClusterState, seed: int, count: int) -> None:
    """Move instances by chance, without asking whether they may."""
    dice = random.Random(seed)
    for _ in range(count):
        inst, move = dice.choice(list(every_move(state)))
        moves.apply(state, inst, move)


def whole(state: node_state.ClusterState) -> list[node_state.Floats]:
    """Return of each node what is free together with what its instances take."""
    now, later = state.unallocated.copy(), state.f_mem_later.copy()
    disk, disk_later = state.f_dsk.copy(), state.f_dsk_later.copy()
    spindles = state.f_spin_later.copy()
    for item, *nodes in zip(state.instances, state.pri, state.sec, strict=True):
        now[nodes[0]] += item.memory if item.uses_memory else 0
        later[nodes[0]] += item.memory
        for node in nodes:
            if node < 0 or not item.local:
                continue
            disk_later[node] += item.disk
            disk[node] += 0 if item.forthcoming else item.disk
            spindles[node] += (item.spindles or 0) if state.exclusive[node] else 0
    known = all(item.spindles is not None for item in state.instances)
    return [now, later, disk, disk_later, *([spindles] if known else [])]


@settings(max_examples=examples(80), deadline=None)
@given(SEEDS, TEMPLATES)
def test_moves_leave_what_loading_their_result_gives(seed: int, template: str) -> None:
    state = node_state.derive(varied(seed, template))
    before = whole(state)
    assert len(state.repeated_tags()) == state.size
    wander(state, seed, 6)
    loaded = node_state.derive(state.as_cluster())
    for name in sorted(OF_PLACES - {"f_dsk", "f_spin"}):
        now, wanted = getattr(state, name), getattr(loaded, name)
        assert now == pytest.approx(wanted, abs=1e-9), name
    assert (state.peers == loaded.peers).all()
    assert (state.pri_tags == loaded.pri_tags).all()
    repeated = np.maximum(state.pri_tags - 1, 0).sum(axis=1)
    assert state.repeated_tags().tolist() == repeated.tolist()
    assert (state.pri, state.sec) == (loaded.pri, loaded.sec)
    for mine, theirs in zip(
        (*state.primaries, *state.secondaries),
        (*loaded.primaries, *loaded.secondaries),
        strict=True,
    ):
        assert sorted(mine) == sorted(theirs)
    for now, wanted in zip(whole(state), before, strict=True):
        assert now.tolist() == wanted.tolist()


@settings(max_examples=examples(60), deadline=None)
@given(SEEDS, TEMPLATES)
def test_going_back_restores_all_numbers(seed: int, template: str) -> None:
    state = node_state.derive(varied(seed, template, is_plain=True))
    rows, peers, tags = state.rows.copy(), state.peers.copy(), state.pri_tags.copy()
    home = list(zip(state.pri, state.sec, strict=True))
    wander(state, seed, 5)
    for inst, pair in enumerate(home):
        moves.place(state, inst, *pair)
    assert state.rows == pytest.approx(rows, abs=1e-9)
    assert (state.peers == peers).all()
    assert (state.pri_tags == tags).all()


@settings(max_examples=examples(40), deadline=None)
@given(SEEDS, TEMPLATES)
def test_many_scores_at_once_are_those_of_one_at_a_time(
    seed: int, template: str
) -> None:
    state = node_state.derive(varied(seed, template))
    wander(state, seed, 2)
    rows = state.rows.tobytes()
    listed = list(every_move(state))
    actual = exact_deltas.exact_after(state, listed)
    for (inst, move), value in zip(listed, actual, strict=True):
        with moves.trial(state, inst, move.target):
            moves.apply(state, inst, move)
            # Digit by digit: ties are decided by them.
            assert components.value(state) == value
    assert state.rows.tobytes() == rows


def eligible_moves(
    state: node_state.ClusterState, options: MoveOptions
) -> list[tuple[int, Move]]:
    """List the legal moves of instances that may be balanced."""
    actual = legal_moves(state, options)
    return [(n, move) for n, move in actual if state.instances[n].auto_balance]


OPTIONS = st.builds(MoveOptions, disk_moves=st.booleans(), force=st.booleans())


@pytest.mark.sampled
@settings(max_examples=examples(120), deadline=None)
@given(SEEDS, TEMPLATES, OPTIONS)
@np.errstate(divide="ignore", invalid="ignore")
def test_an_estimate_says_which_moves_are_allowed_and_what_they_bring(
    seed: int, template: str, options: MoveOptions
) -> None:
    state = node_state.derive(varied(seed, template))
    actual = MoveEstimator(state, options)
    dice = random.Random(seed)
    for _ in range(3):
        inst, move = dice.choice(list(every_move(state)))
        touched = {state.pri[inst], state.sec[inst], move.target} - {-1}
        moves.apply(state, inst, move)
        actual.deltas.moved(inst)
        actual.refresh(np.array(sorted(touched)))
    listed = list(every_move(state))
    legal = set(legal_moves(state, options))
    now = components.value(state)
    for (inst, move), value in zip(
        listed, exact_deltas.exact_after(state, listed), strict=True
    ):
        at = np.array([inst]), np.array([move.target])
        (change,) = actual.estimate(move.kind, *at)
        wanted = value - now if (inst, move) in legal else np.inf
        assert change == pytest.approx(wanted, abs=1e-6), (inst, move)
    check_bounds(actual)


def check_bounds(actual: MoveEstimator, bounds: MoveBounds | None = None) -> None:
    """Nothing gains more than bounds say, of all targets and of each."""
    state = actual.state
    # There are none for what is no sum.
    every = np.nonzero(~actual.deltas.not_additive)[0]
    online = np.nonzero(state.online)[0]
    bounds = bounds or MoveBounds(actual, every, online)
    if not len(online):
        return
    assert sorted(bounds.target) == online.tolist()
    for kind, least in zip(bounds.kinds, bounds.rows, strict=True):
        change = actual.estimate(kind, every[:, None], bounds.target[None, :])
        pairs = bounds.pairs(kind, np.arange(len(every)))
        assert (pairs <= change + 1e-9).all(), kind
        assert (least <= pairs.min(axis=1) + 1e-9).all(), kind
    nowhere = np.full(len(every), -1)
    swaps = actual.estimate(MoveKind.FAILOVER, every, nowhere)
    assert (bounds.swaps <= swaps + 1e-9).all()


def mixed(seed: int) -> Cluster:
    """Return a cluster of instances with disks of several kinds."""
    cluster = varied(seed)
    dice = random.Random(seed)
    kinds = [dice.choice(["drbd", "drbd", "sharedfile"]) for _ in cluster.instances]
    return msgspec.structs.replace(
        cluster,
        instances=tuple(
            item
            if kind == "drbd"
            else msgspec.structs.replace(item, template=kind, secondary=-1)
            for item, kind in zip(cluster.instances, kinds, strict=True)
        ),
    )


@settings(max_examples=examples(100), deadline=None)
@given(SEEDS, OPTIONS, st.booleans())
# DRBD disks alone that must stay where they are: only failovers, which have no target.
@example(45, MoveOptions(disk_moves=False), True)
@np.errstate(divide="ignore", invalid="ignore")
def test_bounds_hold_from_move_to_move(
    seed: int, options: MoveOptions, busy: bool
) -> None:
    state = node_state.derive(mixed(seed))
    actual = MoveEstimator(state, options)
    # There are none for what is no sum.
    every = np.nonzero(~actual.deltas.not_additive)[0]
    online = np.nonzero(state.online)[0]
    bounds = MoveBounds(actual, every, online)
    dice = random.Random(seed)
    for _ in range(6):
        inst, move = dice.choice(list(every_move(state)))
        touched = {state.pri[inst], state.sec[inst], move.target} - {-1}
        moves.apply(state, inst, move)
        actual.deltas.moved(inst)
        actual.refresh(np.array(sorted(touched)))
        for kind in bounds.kinds[:1] * (dice.choice([0, 1, 3]) if busy else 0):
            bounds.below(kind, np.arange(len(every)), 1e9)
        bounds.refresh(np.array(sorted(touched)))
        check_bounds(actual, bounds)


@settings(max_examples=examples(40), deadline=None)
@given(SEEDS, TEMPLATES, OPTIONS, st.integers(0, 3))
@np.errstate(divide="ignore", invalid="ignore")
def test_a_search_updated_after_moves_finds_the_best_of_all(
    seed: int, template: str, options: MoveOptions, count: int
) -> None:
    state = node_state.derive(varied(seed, template))
    search = MoveSearch(state, options)
    dice = random.Random(seed)
    for _ in range(count):
        legal = eligible_moves(state, options)
        if not legal:
            break
        inst, move = dice.choice(legal)
        before = {state.pri[inst], state.sec[inst], move.target} - {-1}
        moves.apply(state, inst, move)
        search.moved(inst, before)
        search.best()
    legal = eligible_moves(state, options)
    best = search.best()
    if not legal:
        assert best is None
        return
    scores = exact_deltas.exact_after(state, legal)
    lowest = min(scores)
    inst, move = legal[scores.index(lowest)]
    assert best == (inst, move, lowest)


# Allocations keep the rules on any cluster.

ALL_TEMPLATES = st.sampled_from(["drbd", "plain", "sharedfile"])


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 10**6), ALL_TEMPLATES)
def test_an_allocation_keeps_policies_and_safety(seed: int, template: str) -> None:
    data = placement.some_cluster(seed, template)
    before = node_state.ClusterState(request.read_cluster(data))
    actual = answer.solve(data, answer.SolverOptions())
    if not actual.answer["success"]:
        return
    after = actual.after
    names = actual.answer["result"]
    places = [node.name for node in after.cluster.nodes]
    assert len(set(names)) == (2 if template == "drbd" else 1)
    assert GlobalN1(after).holds()
    worse = after.fails_n1 & ~before.fails_n1
    assert not worse.any()
    for name in names:
        node = places.index(name)
        assert after.unallocated[node] > 0
        assert after.per_cpu(after.u_cpu)[node] <= after.cpu_ratio[node]
        assert after.f_dsk[node] > 0


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 10**6), ALL_TEMPLATES)
def test_no_other_place_has_a_better_score(seed: int, template: str) -> None:
    data = placement.some_cluster(seed, template)
    actual = answer.solve(data, answer.SolverOptions(capacity_checks=False))
    if not actual.answer["success"]:
        return
    cluster = request.read_cluster(data)
    ask = request.read_request(data, cluster)
    assert isinstance(ask, request.AllocateRequest)
    chosen = components.value(actual.after)
    size = len(cluster.nodes)
    pairs = [(p, s) for p in range(size) for s in range(size) if p != s]
    if ask.count == 1:
        pairs = [(p, NONE) for p in range(size)]
    for primary, secondary in pairs:
        state = node_state.ClusterState(cluster)
        state.place(state.new(ask.item), primary, secondary)
        strained = state.fails_n1.any() or (state.unallocated <= 0).any()
        assert strained or components.value(state) > chosen - 1e-9


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 10**6))
def test_taking_an_instance_off_restores_all_numbers(seed: int) -> None:
    cluster = request.read_cluster(placement.some_cluster(seed))
    state = node_state.ClusterState(cluster)
    rows, peers = state.rows.copy(), state.peers.copy()
    item = msgspec.structs.replace(Instance("x", 512, 2000, 1, NONE), disks=(1872,))
    index = state.new(item)
    state.place(index, 0, 1)
    assert (state.rows != rows).any()
    state.remove(index)
    state.forget(index)
    assert (state.rows == rows).all()
    assert (state.peers == peers).all()
