"""Procedure about heartbeats of other nodes on shared storage."""

from ganeti.base import errors
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.node.storage import heartbeats


@procedure("node_heartbeats")
def node_heartbeats(node: LocalNode, nodes: list[str]) -> list[tuple[str, int] | None]:
    """Return heartbeats of other nodes that a process of this node has read.

    The storage is not touched here, so this call does not hang with it. A first call
    asks the process, later ones have its answers.

    Args:
        node: this node.
        nodes: names of the others.

    Returns:
        for each of them, the id of the process that writes and the number of its
        heartbeat, which grows while it lives; None if none was read that counts.

    Raises:
        OpExecError: too many nodes, or a text that is no name.
        OSError: the request cannot be written.
    """
    if len(nodes) > heartbeats.MAX_NODES:
        raise errors.OpExecError(
            f"node_heartbeats: wanted at most {heartbeats.MAX_NODES} nodes, found"
            f" {len(nodes)}"
        )
    for name in nodes:
        if not heartbeats.is_name(name):
            raise errors.OpExecError(
                f"node_heartbeats: wanted the name of a node, found {name!r}"
            )
    return heartbeats.ask(node.paths, nodes, node.clock.monotonic())
