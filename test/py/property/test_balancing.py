"""Plans keep the rules on any cluster, and say beforehand what comes out."""

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import made_clusters
from fakes.seeds import examples
from fakes.some_cluster import random_cluster
from ganeti.decisions.htools.balance import greedy, search
from ganeti.decisions.htools.balance.lower_bounds import MoveBounds
from ganeti.decisions.htools.model import text
from ganeti.decisions.htools.rules import moves
from ganeti.decisions.htools.rules.move_constraints import MoveOptions
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.score.move_estimates import MoveEstimator
from ganeti.decisions.htools.state import node_state

SEEDS = st.integers(0, 10**6)
CASES = st.sampled_from(
    [
        {},
        {"tags": True},
        {"offline": 1},
        {"template": "sharedfile"},
        {"template": "sharedfile", "tags": True, "offline": 1},
    ]
)


def tight(cluster):
    """Leave nodes little more memory than what failovers need."""
    nodes = []
    for number, node in enumerate(cluster.nodes):
        most = max((i.memory for i in cluster.instances), default=0)
        spare = node.free_memory - most * (1 + number % 3)
        nodes.append(
            msgspec.structs.replace(
                node,
                total_memory=node.total_memory - spare,
                free_memory=node.free_memory - spare,
            )
        )
    return msgspec.structs.replace(cluster, nodes=tuple(nodes))


def planned(cluster):
    return list(
        greedy.plan(node_state.derive(cluster), greedy.BalanceGoal(), MoveOptions())
    )


@settings(max_examples=examples(25), deadline=None)
@given(SEEDS, CASES)
def test_every_step_is_allowed_and_gives_the_score_it_says(seed, case):
    cluster = random_cluster(seed, **case)
    cluster = tight(cluster) if seed % 2 else cluster
    now = node_state.derive(cluster)
    last = components.value(now)
    for step in planned(cluster):
        assert moves.failure(now, step.inst, step.move) == 0
        assert step.before == (now.pri[step.inst], now.sec[step.inst])
        moves.apply(now, step.inst, step.move)
        assert step.after == (now.pri[step.inst], now.sec[step.inst])
        assert components.value(now) == step.score < last
        last = step.score


@settings(max_examples=examples(25), deadline=None)
@given(SEEDS, CASES)
def test_no_instance_is_lost_or_comes_to_a_node_offline(seed, case):
    cluster = random_cluster(seed, **case)
    now = node_state.derive(cluster)
    for _step in greedy.plan(now, greedy.BalanceGoal(), MoveOptions()):
        pass
    after = now.as_cluster()
    assert [i.name for i in after.instances] == [i.name for i in cluster.instances]
    for old, new in zip(cluster.instances, after.instances, strict=True):
        assert len(set(new.nodes)) == len(new.nodes) == len(old.nodes)
        for node in set(new.nodes) - set(old.nodes):
            assert not cluster.nodes[node].offline
        assert msgspec.structs.replace(old, primary=0, secondary=0) == (
            msgspec.structs.replace(new, primary=0, secondary=0)
        )
    for node, held in enumerate(now.primaries):
        assert sorted(held) == [i for i, at in enumerate(now.pri) if at == node]


@settings(max_examples=examples(25), deadline=None)
@given(SEEDS, st.booleans(), st.sampled_from(["drbd", "sharedfile"]))
def test_no_node_becomes_less_safe(seed, tags, template):
    cluster = tight(random_cluster(seed, tags=tags, template=template))
    now = node_state.derive(cluster)
    before = now.copy()
    for _step in greedy.plan(now, greedy.BalanceGoal(), MoveOptions()):
        assert not (now.fails_n1 & ~before.fails_n1).any()
        over = now.per_cpu(now.u_cpu) > now.cpu_ratio
        assert not (over & ~(before.per_cpu(before.u_cpu) > before.cpu_ratio)).any()
        assert not ((now.f_dsk <= 0) & (before.f_dsk > 0)).any()
        assert (now.pri_tags <= before.pri_tags.clip(min=1)).all()
        before = now.copy()


@settings(max_examples=examples(6), deadline=None)
@given(SEEDS, CASES, st.booleans())
def test_pairs_end_no_worse_and_keep_the_rules(seed, case, narrow):
    cluster = random_cluster(seed, **case)
    cluster = tight(cluster) if narrow else cluster
    now = node_state.derive(cluster)
    first, before = components.value(now), now.copy()
    single = planned(cluster)
    goal = greedy.BalanceGoal(pairs=True, max_length=len(single) + 4)
    steps = list(greedy.plan(node_state.derive(cluster), goal, MoveOptions()))
    assert steps[: len(single)] == single
    last = single[-1].score if single else first
    assert len(steps) == len(single) or steps[-1].score < last
    for step in steps:
        assert moves.failure(now, step.inst, step.move) == 0
        moves.apply(now, step.inst, step.move)
        assert components.value(now) == step.score
        if not now.offline.any():
            assert not (now.fails_n1 & ~before.fails_n1).any()
            assert (now.pri_tags <= before.pri_tags.clip(min=1)).all()
        was, will = components.components(before), components.components(now)
        faults = ("n1_cnt", "pri_tags_score", "offline_all_cnt", "offline_pri_cnt")
        if components.value(now) > components.value(before):
            assert all(will[name] <= was[name] for name in faults)
        before = now.copy()


@settings(max_examples=examples(20), deadline=None)
@given(SEEDS, CASES)
def test_names_change_nothing_but_names(seed, case):
    cluster = random_cluster(seed, **case)
    count = len(cluster.nodes)
    nodes = [
        msgspec.structs.replace(node, name=f"z{count - at}.other")
        for at, node in enumerate(cluster.nodes)
    ]
    renamed = msgspec.structs.replace(cluster, nodes=tuple(nodes))
    assert planned(renamed) == planned(cluster)


@settings(max_examples=examples(15), deadline=None)
@given(SEEDS, CASES)
def test_the_state_after_a_plan_is_that_of_its_cluster(seed, case):
    cluster = random_cluster(seed, **case)
    now = node_state.derive(cluster)
    for _step in greedy.plan(now, greedy.BalanceGoal(), MoveOptions()):
        pass
    fresh = node_state.ClusterState(cluster)
    for index in range(len(cluster.instances)):
        fresh.remove(index)
    for index, places in enumerate(zip(now.pri, now.sec, strict=True)):
        fresh.place(index, *places)
    assert (fresh.rows == now.rows).all()
    assert (fresh.peers == now.peers).all()
    assert (fresh.pri_tags == now.pri_tags).all()


@settings(max_examples=examples(12), deadline=None)
@given(
    st.integers(0, 10**4), st.sampled_from(["", "exclusion", "migration", "location"])
)
def test_no_move_is_better_than_its_bound(seed, tags):
    shape = made_clusters.Shape(8, per_node=4, tags=tags, mixed=True, odd=True)
    cluster = text.load(made_clusters.make(shape, seed).text(), "made")
    now = node_state.derive(cluster.only_group(0))
    estimator = MoveEstimator(now, MoveOptions())
    inst = np.nonzero(search.eligible(now, MoveOptions()))[0]
    target = np.nonzero(now.online)[0]
    bounds = MoveBounds(estimator, inst, target)
    for number, kind in enumerate(bounds.kinds):
        actual = estimator.estimate(kind, inst[:, None], bounds.target[None, :])
        least = bounds.pairs(kind, np.arange(len(inst)))
        assert (least <= actual + 1e-9).all()
        assert (bounds.rows[number] <= actual.min(axis=1) + 1e-9).all()
