"""Allocations keep the rules on any cluster."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import placement
from ganeti.decisions.htools.hail import answer, request
from ganeti.decisions.htools.model.cluster import NONE, Instance
from ganeti.decisions.htools.n1.check import GlobalN1
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.state import node_state

TEMPLATES = st.sampled_from(["drbd", "plain", "sharedfile"])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), TEMPLATES)
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


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), TEMPLATES)
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


@settings(max_examples=40, deadline=None)
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
