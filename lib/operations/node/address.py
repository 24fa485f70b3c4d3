"""Checks for a new secondary address of a node."""

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.model import objects
from ganeti.operations.base import Context
from ganeti.operations.node import checks


def check_secondary(
    ctx: Context, node: objects.Node, address: str, *, force: bool
) -> None:
    """Check a new secondary address of a node.

    Raises:
        OpPrereqError: homing, mirrored instances, or the node do not allow it.
    """
    snapshot = ctx.snapshot
    new = node.replace(secondary_ip=address)
    _check_unused(snapshot, new)
    _check_homing(ctx, node, new, force=force)
    _check_instances(snapshot, node)
    answer = ctx.rpc.call_one("node_has_ip_address", node.uuid, address)
    if node.offline:
        ctx.log.warn(
            f"node {node.name} is offline, so it is not checked that it has {address}"
        )
        return
    if not answer.require("cannot check the secondary address", ecodes.ECODE_ENVIRON):
        raise errors.OpPrereqError(
            f"node {node.name}: does not have the address {address}",
            ecodes.ECODE_ENVIRON,
        )
    checks.reachable_secondary(ctx, new)


def _check_unused(snapshot: objects.Snapshot, new: objects.Node) -> None:
    for other in snapshot.nodes.values():
        if other.uuid != new.uuid and new.secondary_ip in (
            other.primary_ip,
            other.secondary_ip,
        ):
            raise errors.OpPrereqError(
                f"node {new.name}: address {new.secondary_ip} is used by node"
                f" {other.name}",
                ecodes.ECODE_NOTUNIQUE,
            )


def _check_homing(
    ctx: Context, node: objects.Node, new: objects.Node, *, force: bool
) -> None:
    snapshot = ctx.snapshot
    if checks.is_single_homed(node) == checks.is_single_homed(new):
        return
    if node.uuid != snapshot.cluster.master_node:
        checks.same_homing(snapshot, new)
        return
    if not force:
        raise errors.OpPrereqError(
            f"node {node.name}: is the master; changing the homing of the whole"
            " cluster needs force",
            ecodes.ECODE_INVAL,
        )
    ctx.log.warn(
        "the master changes between one and two addresses",
        hint="change the secondary addresses of all other nodes too",
    )


def _check_instances(snapshot: objects.Snapshot, node: objects.Node) -> None:
    held = snapshot.primary_instances(node.uuid) | snapshot.secondary_instances(
        node.uuid
    )
    mirrored = [
        instance
        for uuid in held
        if snapshot.secondary_nodes(instance := snapshot.instances[uuid])
    ]
    if node.offline and mirrored:
        raise errors.OpPrereqError(
            f"node {node.name}: is offline and mirrors {len(mirrored)} instance(s),"
            " so its secondary address cannot change",
            ecodes.ECODE_STATE,
        )
    running = sorted(item.name for item in mirrored if item.admin_state == "up")
    if running:
        raise errors.OpPrereqError(
            f"node {node.name}: instances {', '.join(running)} must be down to change"
            " its secondary address",
            ecodes.ECODE_STATE,
        )
