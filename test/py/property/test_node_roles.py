"""Roles of nodes: whatever is asked, the rules hold afterwards."""

import hypothesis
from hypothesis import strategies as st

from fakes import clusters
from ganeti.base import errors
from ganeti.master.config import candidate_pool
from ganeti.operations.node import role

MAYBE = st.none() | st.booleans()
WANTED = st.builds(
    role.RoleRequest,
    offline=MAYBE,
    drained=MAYBE,
    master_candidate=MAYBE,
    master_capable=MAYBE,
    vm_capable=MAYBE,
    powered=MAYBE,
).filter(lambda w: sum(map(bool, (w.offline, w.drained, w.master_candidate))) <= 1)
STATE = st.sampled_from(["", "offline", "drained", "master_candidate"])


@st.composite
def clusters_with_a_node(draw):
    nodes = [
        clusters.node(
            number,
            offline=state == "offline",
            drained=state == "drained",
            master_candidate=state == "master_candidate",
            master_capable=state == "master_candidate" or draw(st.booleans()),
        )
        for number, state in enumerate(draw(st.lists(STATE, min_size=1)), start=2)
    ]
    return clusters.snapshot(
        nodes=1, extra=nodes, candidate_pool_size=draw(st.integers(1, 4))
    )


@hypothesis.settings(max_examples=300, deadline=None)
@hypothesis.given(
    snapshot=clusters_with_a_node(),
    number=st.integers(1, 12),
    wanted=WANTED,
    has_oob=st.booleans(),
    auto=st.booleans(),
)
def test_a_plan_keeps_the_rules(snapshot, number, wanted, has_oob, auto):
    node = snapshot.nodes.get(clusters.node_uuid(number))
    hypothesis.assume(node is not None)
    try:
        plan = role.plan(snapshot, node, wanted, has_oob=has_oob, auto_promote=auto)
    except errors.OpPrereqError:
        return
    new = plan.node
    assert sum((new.offline, new.drained, new.master_candidate)) <= 1
    assert new.master_capable or not new.master_candidate
    assert plan.is_promoted == (new.master_candidate and not node.master_candidate)
    assert plan.is_demoted == (node.master_candidate and not new.master_candidate)
    for name in ("offline", "drained", "master_candidate", "vm_capable", "powered"):
        asked = getattr(wanted, name)
        if asked is not None and not (name == "master_candidate" and not asked):
            assert getattr(new, name) == asked
    if wanted.master_candidate is False:
        assert not new.master_candidate
    if node.uuid == snapshot.cluster.master_node:
        assert new.master_candidate
        assert not new.offline
    if plan.is_demoted and not auto:
        # Without promotions the pool stays as full as it can be.
        left = candidate_pool.pool_state(snapshot, ignore=(node.uuid,))
        assert left.current >= left.wanted or not candidate_pool.promotable(
            snapshot, ignore=(node.uuid,)
        )
    if plan.is_promoted and wanted.master_candidate is None:
        assert (
            candidate_pool.pool_state(snapshot).current
            < snapshot.cluster.candidate_pool_size
        )
