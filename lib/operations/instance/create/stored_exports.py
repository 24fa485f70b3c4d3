"""Exports that nodes store, as the master sees them."""

from collections.abc import Mapping
from typing import Any

from ganeti.base.constants.protocols import export as constants
from ganeti.model import objects
from ganeti.operations import base
from ganeti.operations.instance import common


def end_of(os: str, disk: Mapping[str, Any], index: int) -> tuple[str, list[Any]]:
    """Return how a disk is read or written: by its OS's script, or as it is."""
    if os:
        return constants.IEIO_SCRIPT, [disk, index]
    return constants.IEIO_RAW_DISK, [disk]


def online_nodes(snapshot: objects.Snapshot) -> list[str]:
    """Return the uuids of the nodes that may hold exports and are not offline."""
    return sorted(uuid for uuid, node in snapshot.nodes.items() if not node.offline)


def holders(ctx: base.Context, name: str) -> list[str]:
    """Return the uuids of the nodes that hold an export; silent ones are warned of."""
    answers = ctx.rpc.call("export_list", online_nodes(ctx.snapshot))
    return [
        uuid
        for uuid, result in answers.items()
        if not common.warn_failed(ctx, result, "cannot list the exports of a node")
        and name in result.payload
    ]


def drop_others(ctx: base.Context, name: str, kept: str) -> None:
    """Remove older exports of an instance on other nodes; failures are logged."""
    for uuid in holders(ctx, name):
        if uuid == kept:
            continue
        where = common.node_name(ctx, uuid)
        ctx.log.message(f"* removing the older export on node {where}")
        result = ctx.rpc.call_one("export_remove", uuid, name)
        common.warn_failed(ctx, result, f"cannot remove the older export of {name}")


def drop_unfinished(ctx: base.Context, name: str, node: str) -> None:
    """Remove what an export that failed has left at its node.

    A directory of this name that the node lists is the export of another instance.
    """
    unfinished = f"{name}.new"
    listed = ctx.rpc.call_one("export_list", node)
    what = f"cannot remove the unfinished export of {name}"
    if common.warn_failed(ctx, listed, what) or unfinished in listed.payload:
        return
    result = ctx.rpc.call_one("export_remove", node, unfinished)
    common.warn_failed(ctx, result, what)
