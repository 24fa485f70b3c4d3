"""Checks that several node units share, and the creation of virtual switches."""

from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import daemons, ecodes
from ganeti.base.constants.parameters import params
from ganeti.base.errors import refusal
from ganeti.base.net import ip
from ganeti.model import objects
from ganeti.model.objects import params as object_params
from ganeti.model.objects.params import fill_ndparams
from ganeti.operations.base import Context
from ganeti.operations.parameters import typed_params
from ganeti.protocols.rpc import calls


def noded_port() -> int:
    """Return the port that every node daemon listens on."""
    return daemons.DAEMONS["ganeti-noded"].port or 0


def node_parameters(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return typed parameters of a single node; "default" removes one.

    Raises:
        OpPrereqError: unknown name, wrong value, or a parameter that only groups and
            the cluster may set.
    """
    what = "node parameter"
    out = typed_params.node(given or {}, allow_default=True)
    for name in params.NODE_GLOBAL:
        if name in out:
            raise refusal(f"{what} {name}: can only be set for groups and the cluster")
    return out


def ipv4(address: str, what: str) -> None:
    """Check an IPv4 address.

    Raises:
        OpPrereqError: it is not an IPv4 address.
    """
    try:
        ip.ipv4(address)
    except ValueError as err:
        raise refusal(f"{what}: wanted an IPv4 address, found {address!r}") from err


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
        raise refusal(
            f"node {node.name}: has a secondary address ({node.secondary_ip}), but the"
            f" master {master.name} has none"
        )
    raise refusal(
        f"node {node.name}: has no secondary address, but the master {master.name} has"
        f" {master.secondary_ip}"
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


#: Node parameters whose change takes effect by `configure`.
OVS_PARAMETERS: Final = frozenset(("ovs", "ovs_name", "ovs_link"))


def configure_ovs(ctx: Context, node: objects.Node) -> None:
    """Create the switch on the node if it should have one.

    Raises:
        OpExecError: the node failed to create it.
    """
    ndparams = fill_ndparams(ctx.snapshot, node)
    if ndparams["ovs"]:
        ctx.rpc.call_node(
            node.uuid,
            calls.node_configure_ovs(ndparams["ovs_name"], ndparams["ovs_link"]),
        ).unwrap(f"cannot configure Open vSwitch on {node.name}")
