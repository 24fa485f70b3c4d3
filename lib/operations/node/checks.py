"""Checks that several node units share; none of them changes anything."""

from collections.abc import Mapping
from typing import Any

from ganeti.base import errors
from ganeti.base.constants import daemons, ecodes
from ganeti.base.constants.parameters import params
from ganeti.base.net import ip
from ganeti.model import objects
from ganeti.model.objects import params as object_params
from ganeti.operations.base import Context
from ganeti.operations.parameters import typed_params


def noded_port() -> int:
    """Return the port that every node daemon listens on."""
    return daemons.DAEMONS["ganeti-noded"].port or 0


def node_parameters(
    given: Mapping[str, Any] | None, *, allow_default: bool
) -> dict[str, Any]:
    """Return typed parameters of a single node.

    Raises:
        OpPrereqError: unknown name, wrong value, or a parameter that only groups and
            the
            cluster may set.
    """
    what = "node parameter"
    out = typed_params.node(given or {}, allow_default=allow_default)
    for name in params.NODE_GLOBAL:
        if name in out:
            raise errors.OpPrereqError(
                f"{what} {name}: can only be set for groups and the cluster",
                ecodes.ECODE_INVAL,
            )
    return out


def ipv4(address: str, what: str) -> None:
    """Check an IPv4 address.

    Raises:
        OpPrereqError: it is not an IPv4 address.
    """
    try:
        ip.ipv4(address)
    except ValueError as err:
        raise errors.OpPrereqError(
            f"{what}: wanted an IPv4 address, found {address!r}", ecodes.ECODE_INVAL
        ) from err


def is_single_homed(node: objects.Node) -> bool:
    """Return whether a node has the same primary and secondary address."""
    return node.primary_ip == node.secondary_ip


def same_homing(snapshot: objects.Snapshot, node: objects.Node) -> None:
    """Check that a node has as many addresses as the master.

    Raises:
        OpPrereqError: only one of them has a secondary address.
    """
    master = snapshot.nodes[snapshot.cluster.master_node]
    if is_single_homed(master) == is_single_homed(node):
        return
    if is_single_homed(master):
        raise errors.OpPrereqError(
            f"node {node.name}: has a secondary address ({node.secondary_ip}), but the"
            f" master {master.name} has none",
            ecodes.ECODE_INVAL,
        )
    raise errors.OpPrereqError(
        f"node {node.name}: has no secondary address, but the master {master.name} has"
        f" {master.secondary_ip}",
        ecodes.ECODE_INVAL,
    )


def reachable_secondary(ctx: Context, node: objects.Node) -> None:
    """Check that the master reaches a secondary address from its own.

    Raises:
        OpPrereqError: the node daemon does not answer there.
    """
    master = ctx.snapshot.nodes[ctx.snapshot.cluster.master_node]
    if is_single_homed(node) or node.uuid == master.uuid:
        return
    if not ctx.tcp_ping(node.secondary_ip, noded_port(), master.secondary_ip):
        raise errors.OpPrereqError(
            f"node {node.name}: secondary address {node.secondary_ip} not reachable by"
            f" TCP from the master's {master.secondary_ip}",
            ecodes.ECODE_ENVIRON,
        )


def supports_oob(snapshot: objects.Snapshot, node: objects.Node) -> bool:
    """Return whether a node has an out-of-band helper; ``!`` disables it."""
    return bool(object_params.oob_program(snapshot, node))
