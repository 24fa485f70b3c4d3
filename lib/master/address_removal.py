"""The address of the cluster on a node that is not the master any more."""

from collections.abc import Mapping
from typing import Any, Final

from ganeti.base.pathutils import Paths
from ganeti.protocols import rpc
from ganeti.protocols.rpc import calls

#: Longest wait for the node daemon and the set-up script, in seconds.
DROP_S: Final = 20.0


def drop(
    paths: Paths,
    own: str,
    parameters: Mapping[str, Any],
    *,
    is_external: bool,
    timeout_s: float = DROP_S,
) -> rpc.Result:
    """Have this node's daemon remove the address of the cluster from this machine.

    The call has no term, because that of a deposed master is refused.

    Args:
        paths: of this node.
        own: address of this node.
        parameters: see `ganeti.operations.master_ip.parameters`.
        is_external: the cluster uses a set-up script of its own.
        timeout_s: time to wait; the node daemon finishes a call that it has received.
    """
    name = paths.hostname
    target = rpc.Target(name, name, own, rpc.node_port())
    runner = rpc.StaticRunner([target], paths)
    try:
        return runner.call_node(
            name,
            calls.node_deactivate_master_ip(dict(parameters), is_external),
            timeout_s=timeout_s,
        )
    finally:
        runner.close()
