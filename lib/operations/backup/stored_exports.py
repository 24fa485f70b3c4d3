"""Exports that nodes store, as the master sees them; OP_BACKUP_REMOVE."""

from collections.abc import Sequence
from typing import Any

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols import export
from ganeti.base.net import netutils
from ganeti.base.text.units import exact_mib
from ganeti.master import locking
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup
from ganeti.operations import base
from ganeti.operations.instance import capacity
from ganeti.protocols.rpc import calls, encode


def disk_ends(
    snapshot: objects.Snapshot,
    instance: objects.Instance,
    disks: Sequence[objects.Disk],
) -> list[tuple[str, list[Any]]]:
    """Return how disks are read or written: by the script of the OS, or as they are."""
    wires = [encode.disk(snapshot, disk, instance) for disk in disks]
    if instance.os:
        return [(export.IEIO_SCRIPT, [wire, i]) for i, wire in enumerate(wires)]
    return [(export.IEIO_RAW_DISK, [wire]) for wire in wires]


def online_nodes(snapshot: objects.Snapshot) -> list[str]:
    """Return the uuids of the nodes that may hold exports and are not offline."""
    return sorted(uuid for uuid, node in snapshot.nodes.items() if not node.offline)


def holders(ctx: base.Context, name: str) -> list[str]:
    """Return the uuids of the nodes that hold an export; silent ones are warned of."""
    answers = ctx.rpc.call_nodes(online_nodes(ctx.snapshot), calls.export_list())
    return [
        uuid
        for uuid, result in answers.items()
        if not ctx.warn_failed(result, "cannot list the exports of a node")
        and name in result.payload
    ]


def drop_others(ctx: base.Context, name: str, kept: str) -> None:
    """Remove older exports of an instance on other nodes; failures are logged."""
    for uuid in holders(ctx, name):
        if uuid == kept:
            continue
        where = ctx.node_name(uuid)
        ctx.log.message(f"* removing the older export on node {where}")
        result = ctx.rpc.call_node(uuid, calls.export_remove(name))
        ctx.warn_failed(result, f"cannot remove the older export of {name}")


def drop_unfinished(ctx: base.Context, name: str, node: str) -> None:
    """Remove what an export that failed has left at its node.

    A directory of this name that the node lists is the export of another instance.
    """
    unfinished = f"{name}.new"
    listed = ctx.rpc.call_node(node, calls.export_list())
    what = f"cannot remove the unfinished export of {name}"
    if ctx.warn_failed(listed, what) or unfinished in listed.payload:
        return
    result = ctx.rpc.call_node(node, calls.export_remove(unfinished))
    ctx.warn_failed(result, what)


def check_space(
    ctx: base.Context, instance: objects.Instance, node: objects.Node
) -> None:
    """Refuse a node without space for the disks; an OS may write less than that.

    An older export stays until the new one is complete.
    """
    made = ctx.snapshot.instance_disks(instance)
    wanted = sum(disk.size for disk in made)
    free = capacity.free_file_space(ctx, node.uuid, _buildconf.EXPORT_DIR)
    if free is None or free >= wanted:
        return
    text = (
        f"instance {instance.name}: its disks have"
        f" {exact_mib(wanted)}, but"
        f" {_buildconf.EXPORT_DIR} on node {node.name} has"
        f" {exact_mib(free)} free"
    )
    if not instance.os:
        raise errors.OpPrereqError(text, ecodes.ECODE_NORES)
    ctx.log.warn(text, hint="the export fails unless its OS writes less")


def check_nodes(ctx: base.Context, instance: objects.Instance, target: str) -> None:
    """Refuse nodes of a release without exports, and a name that is taken.

    A primary node of such a release would read the disk in place of its snapshot. The
    target is empty for an export to another cluster.
    """
    name, primary = instance.name, instance.primary_node
    for uuid in filter(None, dict.fromkeys((primary, target))):
        names = ctx.rpc.call_node(uuid, calls.export_list()).require(
            f"instance {name}: cannot list the exports of a node",
            ecodes.ECODE_ENVIRON,
        )
        if uuid == target and f"{name}.new" in names:
            raise errors.OpPrereqError(
                f"instance {name}: wanted no export {name}.new on node"
                f" {ctx.node_name(uuid)}, found that of another"
                " instance; move it elsewhere",
                ecodes.ECODE_EXISTS,
            )


class BackupRemove(base.LogicalUnit[opcodes.BackupRemove]):
    """Unit that removes the exports of one name from all nodes."""

    name: str

    def expand_names(self) -> None:
        """Determine the name; an instance that exists is locked."""
        name = self.op.instance_name
        try:
            uuid = lookup.expand_instance(self.ctx.snapshot, name)
        except errors.OpPrereqError:
            self.name = netutils.normalize_host_name(name)
            return
        self.name = self.ctx.snapshot.instances[uuid].name
        self.locks.names[locking.Level.INSTANCE] = [self.name]

    def check_prereq(self) -> None:
        """Refuse a name without exports."""
        self.holders = holders(self.ctx, self.name)
        if not self.holders:
            raise self.prereq(
                f"export {self.name}: not found on any node that answers; gnt-backup"
                " list shows all exports, whose full names are wanted",
                ecodes.ECODE_NOENT,
            )

    def execute(self) -> None:
        """Remove the exports."""
        for uuid in self.holders:
            node = self.ctx.snapshot.nodes[uuid].name
            self.ctx.log.message(f"* removing the export on node {node}")
            self.ctx.rpc.call_node(uuid, calls.export_remove(self.name)).unwrap(
                f"export {self.name}: cannot be removed on node {node}"
            )
