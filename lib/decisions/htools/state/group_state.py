"""The state of one group, for decisions that ignore the other groups."""

from collections.abc import Sequence

from ganeti.decisions.htools.model.cluster import NONE, Instance
from ganeti.decisions.htools.state.node_state import ClusterState


def of_group(
    now: ClusterState, group: int, new_instances: Sequence[Instance]
) -> tuple[ClusterState, Sequence[int]]:
    """Return one group's part of a state, and the positions of its nodes.

    Args:
        now: the state; instances placed since its cluster was loaded are included.
        group: position.
        new_instances: instances that may be added.
    """
    cluster = now.cluster
    members = cluster.members(group)
    positions = {node: at for at, node in enumerate(members)}
    state = ClusterState(cluster.only_group(group), new_instances=new_instances)
    for index in range(len(cluster.instances), len(now.instances)):
        if now.pri[index] in positions:
            secondary = positions.get(now.sec[index], NONE)
            new = state.new(now.instances[index])
            state.place(new, positions[now.pri[index]], secondary)
    return state, members
