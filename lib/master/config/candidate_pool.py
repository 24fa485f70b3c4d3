"""Arithmetic of the master candidate pool; pure."""

from collections.abc import Collection
from typing import NamedTuple

from ganeti.model.objects import Node, Snapshot


class PoolState(NamedTuple):
    """Current, wanted and possible number of master candidates."""

    current: int
    wanted: int
    possible: int


def is_eligible(node: Node) -> bool:
    """Return whether a node may be a master candidate."""
    return node.master_capable and not node.offline and not node.drained


def pool_state(snapshot: Snapshot, ignore: Collection[str] = ()) -> PoolState:
    """Return the state of the pool.

    Args:
        snapshot: the configuration.
        ignore: uuids of nodes to leave out, such as one about to be demoted.
    """
    nodes = [node for uuid, node in snapshot.nodes.items() if uuid not in ignore]
    current = sum(1 for node in nodes if node.master_candidate)
    possible = sum(1 for node in nodes if is_eligible(node))
    wanted = min(snapshot.cluster.candidate_pool_size, possible)
    return PoolState(current, wanted, possible)


def missing(snapshot: Snapshot, ignore: Collection[str] = ()) -> int:
    """Return the number of nodes to promote; never negative."""
    state = pool_state(snapshot, ignore)
    return max(0, state.wanted - state.current)


def promotable(snapshot: Snapshot, ignore: Collection[str] = ()) -> list[str]:
    """Return the uuids of eligible nodes that are not candidates, sorted."""
    return sorted(
        uuid
        for uuid, node in snapshot.nodes.items()
        if uuid not in ignore and not node.master_candidate and is_eligible(node)
    )
