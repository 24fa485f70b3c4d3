"""The nodes' SSH host keys: the file known_hosts on the master and on all other nodes.

While no node's keys are recorded, as in clusters of earlier releases, the file has the
shared keys and is only written when the cluster's name changes.
"""

import os
from collections.abc import Sequence

from ganeti.model import objects
from ganeti.operations.base import Context
from ganeti.protocols.rpc import calls, wire
from ganeti.protocols.ssh import host_keys

Failed = dict[str, str]


def write(ctx: Context, *more: objects.Node) -> None:
    """Write the master's file for the present configuration, if it has changed.

    Args:
        ctx: dependencies of the opcode.
        more: nodes that are not in the configuration yet, or changed there later.
    """
    snapshot = ctx.snapshot.apply(
        [objects.Update("nodes", node.uuid, node) for node in more]
    )
    path = ctx.paths.data("known_hosts")
    if not host_keys.are_recorded(snapshot) and not os.path.exists(path):
        return
    text = host_keys.known_hosts_text(snapshot)
    if host_keys.differs(path, text):
        ctx.write_known_hosts(path, text)


def send(ctx: Context) -> Failed:
    """Write the master's file, and send it to all other online nodes.

    Returns:
        Node name -> problem.
    """
    write(ctx)
    path = ctx.paths.data("known_hosts")
    snapshot = ctx.snapshot
    uuids = [
        uuid
        for uuid, node in sorted(snapshot.nodes.items())
        if uuid != snapshot.cluster.master_node and not node.offline
    ]
    if not uuids or not os.path.exists(path):
        return {}
    answers = ctx.rpc.call_nodes(uuids, calls.upload_file(wire.upload(path, ctx.paths)))
    return {
        snapshot.nodes[uuid].name: str(answer.fail_msg)
        for uuid, answer in answers.items()
        if answer.failed and not answer.offline
    }


def announce(ctx: Context) -> None:
    """Send the file as `send` does; failures are warnings."""
    for name, text in send(ctx).items():
        ctx.log.warn(
            f"node {name}: its SSH host keys of the nodes are out of date: {text}",
            hint="run gnt-cluster redist-conf when the node answers",
        )


def with_same_keys(
    nodes: Sequence[objects.Node], node: objects.Node
) -> list[objects.Node]:
    """Return which of some nodes have a key of a given node, other than itself."""
    own = set(node.ssh_host_keys)
    return [
        other
        for other in nodes
        if other.uuid != node.uuid and own.intersection(other.ssh_host_keys)
    ]
