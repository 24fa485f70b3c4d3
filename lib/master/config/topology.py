"""Changes of nodes, node groups and networks, and the size of the candidate pool.

Each function of an `Edit` states which changes also add 1 to the cluster's serial.
"""

import random
from collections.abc import Collection, Mapping
from typing import NamedTuple

from ganeti.base import errors
from ganeti.base.constants.protocols import ssh
from ganeti.master.config import rules
from ganeti.master.config.edit import Edit
from ganeti.model.objects import Network, Node, NodeGroup, Snapshot


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


def add_node(edit: Edit, node: Node) -> Node:
    """Add a node; adds 1 to the cluster's serial."""
    rules.get(edit.snapshot, "nodegroups", node.group)
    added = edit.add(node)
    edit.update_cluster()
    return added


def remove_node(edit: Edit, uuid: str) -> None:
    """Remove a node and its certificate; adds 1 to the cluster's serial.

    Raises:
        ConfigurationError: it does not exist, is the master, or is still used.
    """
    node = rules.get(edit.snapshot, "nodes", uuid)
    if uuid == edit.snapshot.cluster.master_node:
        raise errors.ConfigurationError(f"node {node.name} is the master")
    users = len(edit.snapshot.primary_instances(uuid)) + len(
        edit.snapshot.secondary_instances(uuid)
    )
    if users:
        raise errors.ConfigurationError(f"node {node.name} still has {users} instances")
    edit.remove("nodes", uuid)
    certs = edit.snapshot.cluster.candidate_certs
    edit.update_cluster(
        candidate_certs={
            key: digest
            for key, digest in certs.items()
            if key.removesuffix(ssh.CRYPTO_NEXT) != uuid
        }
    )


def add_group(edit: Edit, group: NodeGroup) -> NodeGroup:
    """Add a node group; adds 1 to the cluster's serial."""
    added = edit.add(group.replace(members=()))
    edit.update_cluster()
    return added


def remove_group(edit: Edit, uuid: str) -> None:
    """Remove an empty node group; adds 1 to the cluster's serial.

    Raises:
        ConfigurationError: it does not exist, is not empty, or is the last one.
    """
    group = rules.get(edit.snapshot, "nodegroups", uuid)
    if members := edit.snapshot.nodes_in_group(uuid):
        raise errors.ConfigurationError(
            f"group {group.name} still has {len(members)} nodes"
        )
    if len(edit.snapshot.nodegroups) == 1:
        raise errors.ConfigurationError(f"group {group.name} is the last one")
    edit.remove("nodegroups", uuid)
    edit.update_cluster()


def assign_nodes(edit: Edit, groups: Mapping[str, str]) -> None:
    """Move nodes to groups; adds 1 to all of them and to the cluster.

    Args:
        edit: of the configuration.
        groups: node uuid -> group uuid.
    """
    touched: set[str] = set()
    for uuid, group in groups.items():
        node = rules.get(edit.snapshot, "nodes", uuid)
        rules.get(edit.snapshot, "nodegroups", group)
        if node.group == group:
            continue
        touched |= {node.group, group}
        edit.touch(node, group=group)
    for uuid in sorted(touched):
        edit.touch(rules.get(edit.snapshot, "nodegroups", uuid))
    if touched:
        edit.update_cluster()


def fill_candidate_pool(edit: Edit, ignore: Collection[str] = ()) -> list[Node]:
    """Promote random eligible nodes until the pool is full.

    Each promotion adds 1 to the node and to the cluster.

    Args:
        edit: of the configuration.
        ignore: uuids of nodes that neither count nor may be promoted.

    Returns:
        The promoted nodes, as stored.
    """
    count = missing(edit.snapshot, ignore)
    eligible = promotable(edit.snapshot, ignore)
    promoted = []
    for uuid in random.sample(eligible, min(count, len(eligible))):
        promoted.append(edit.touch(edit.snapshot.nodes[uuid], master_candidate=True))
        edit.update_cluster()
    return promoted


def promote_if_missing(edit: Edit, uuid: str) -> Node | None:
    """Promote a node if the pool lacks candidates and the node may be one.

    Returns:
        the node as stored; None if nothing was changed.
    """
    if not missing(edit.snapshot):
        return None
    if uuid not in promotable(edit.snapshot):
        return None
    promoted = edit.touch(edit.snapshot.nodes[uuid], master_candidate=True)
    edit.update_cluster()
    return promoted


def add_network(edit: Edit, network: Network) -> Network:
    """Add a network; adds 1 to the cluster's serial."""
    added = edit.add(network)
    edit.update_cluster()
    return added


def remove_network(edit: Edit, uuid: str) -> None:
    """Remove a network; adds 1 to the cluster's serial.

    Raises:
        ConfigurationError: it does not exist, or is connected to a group.
    """
    network = rules.get(edit.snapshot, "networks", uuid)
    for group in edit.snapshot.nodegroups.values():
        if uuid in group.networks:
            raise errors.ConfigurationError(
                f"network {network.name} is connected to group {group.name}"
            )
    edit.remove("networks", uuid)
    edit.update_cluster()
