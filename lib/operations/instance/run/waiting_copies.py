"""Guests that have come to the target of a migration, and wait there for the master.

The source of the migration decides. A copy goes on only if its source says that it has
given the guest up, or has not let it run since it was stopped: otherwise the guest may
have run there and changed its disks, which the memory of the copy does not fit. So if
the source is lost, the guest is booted from its disks, and the copy is removed.
"""

from typing import Any

from ganeti.base import errors
from ganeti.master.query import instance_live
from ganeti.operations.instance import common
from ganeti.operations.instance.move import relocation
from ganeti.operations.instance.run import elsewhere
from ganeti.protocols import rpc


def remove(unit: "relocation.RelocationUnit[Any]", node: str) -> None:
    """Remove what a migration has left on a node, so that the guest can boot there.

    Never a guest that runs; the node refuses that as well. An emulator that a guest
    has left looks as if it ran, until a migration from there is finished.
    """
    if unit.instance.hypervisor not in elsewhere.LEAVE_COPIES:
        return
    ctx, wire = unit.ctx, unit.encode()
    info = elsewhere.info(ctx, unit.instance, node)
    if info.failed:
        return
    if info.payload and not instance_live.is_shut_down(info.payload):
        asked = ctx.rpc.call_one("instance_get_migration_status", node, wire)
        if asked.failed or (asked.payload or {}).get("status") != "completed":
            return
    removed = ctx.rpc.call_one("instance_finalize_migration_dst", node, wire, "", False)
    what = f"instance {unit.instance.name}: cannot remove its waiting copy"
    common.warn_failed(ctx, removed, what)


def may_go_on(unit: "relocation.RelocationUnit[Any]", place: str) -> bool:
    """Return whether the only guest waits on its node, and may go on there.

    If the source has not given the guest up, the copy is removed.

    Raises:
        OpExecError: the guest may not go on; or a node does not answer.
    """
    instance, call = unit.instance, unit.ctx.rpc.call_one
    what = f"instance {instance.name}: clean-up"
    info = elsewhere.info(unit.ctx, instance, place).unwrap(what)
    if not instance_live.is_shut_down(info or {}):
        return False
    wire = unit.encode()
    answers = {
        uuid: call("instance_get_migration_status", uuid, wire)
        for uuid in _sources(unit, place)
    }
    if any(_has_given_up(each) for each in answers.values()):
        return True
    node = common.node_name(unit.ctx, place)
    if place == instance.primary_node:
        raise errors.OpExecError(
            f"instance {instance.name}: does not run on node {node}, and no other"
            " node says that it has given it up; stop and start it with"
            " gnt-instance shutdown and startup"
        )
    [(uuid, asked)] = answers.items()
    source = common.node_name(unit.ctx, uuid)
    if asked.failed:
        raise errors.OpExecError(
            f"{asked.describe(what)}, so the copy on node {node} waits; run"
            f" gnt-instance migrate --cleanup {instance.name} when node {source}"
            " answers, or, if it has died, mark it offline and use gnt-instance"
            " failover, which removes the copy and boots the instance"
        )
    call("instance_finalize_migration_dst", place, wire, "", False).unwrap(what)
    raise errors.OpExecError(
        f"instance {instance.name}: does not run on any node: node {source} has"
        f" not given it up, and does not run it any more, so its copy on node"
        f" {node} was removed; stop and start it with gnt-instance shutdown and"
        " startup"
    )


def _sources(unit: "relocation.RelocationUnit[Any]", place: str) -> list[str]:
    """Return the nodes from which a guest may have come to its place."""
    snapshot, primary = unit.ctx.snapshot, unit.instance.primary_node
    if place != primary:
        return [primary]
    # It failed over there, so the record does not have its source any more.
    nodes = snapshot.secondary_nodes(unit.instance) or snapshot.nodes
    return sorted(
        uuid for uuid in nodes if uuid != place and not snapshot.nodes[uuid].offline
    )


def _has_given_up(answer: rpc.Result) -> bool:
    """Return whether a node has given a guest up, or has not let it run since."""
    status = {} if answer.failed else answer.payload or {}
    return status.get("status") == "completed" or status.get("is_stopped") is True
