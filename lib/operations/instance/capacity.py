"""Resources of nodes that reservations hold, and checks that keep them free.

Let free(n) be the memory that node n reports as free, and R(n) the sum of ``maxmem`` of
the reservations there. Every operation that takes memory of a node, or reserves some,
requires free(n) - R(n) >= what it takes, while it has the locks of the node's
resources. So free(n) >= R(n) holds after it if it did before, and an instance whose
memory is part of R(n) can be started. The same is true for the space of disk files.
``test/bench/run reservations`` attacks this with random operations.
"""

import dataclasses
from collections.abc import Collection
from typing import Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.instance import RESERVATION_LOW
from ganeti.base.text import messages
from ganeti.base.text.units import exact_mib
from ganeti.model import objects
from ganeti.model.objects import params
from ganeti.operations import base
from ganeti.protocols.rpc import calls

#: Templates whose disks take space below a directory of the cluster.
_FILES: Final = ("file", "sharedfile")


@dataclasses.dataclass(frozen=True)
class MemoryRule:
    """How the memory that reservations hold counts for an instance.

    Attributes:
        most_mib: memory that it may take; reservations are kept free of it.
        ignore_low: it may take memory that reservations of low priority hold.
        has_reservation: its memory is its own reservation; what other creations hold
            until they start may not be counted twice.
    """

    most_mib: int = 0
    ignore_low: bool = False
    has_reservation: bool = False


PLAIN_RULE: Final = MemoryRule()


@dataclasses.dataclass(frozen=True)
class Held:
    """A resource that reservations hold: MiB, and their names, sorted."""

    mib: int = 0
    names: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the words for errors, empty if nothing is held."""
        if not self.mib:
            return ""
        return (
            f", {self.mib} MiB of it reserved for forthcoming instances"
            f" {messages.some(self.names)}"
        )


def memory(
    snapshot: objects.Snapshot,
    node: str,
    *,
    besides: str,
    but_low: bool = False,
    only_forthcoming: bool = False,
) -> Held:
    """Return the memory of a node that reservations hold.

    Args:
        snapshot: the configuration.
        node: its uuid.
        besides: name of an instance whose own reservation does not count.
        but_low: leave out reservations of low priority.
        only_forthcoming: leave out instances that are being created. Their guests may
            have the memory already, so a creation inside a reservation would be
            refused although its own memory is free.
    """
    held = {}
    for uuid in snapshot.primary_instances(node):
        instance = snapshot.instances[uuid]
        if not instance.is_reserved or instance.name == besides:
            continue
        if only_forthcoming and not instance.forthcoming:
            continue
        if but_low and _is_low(instance):
            continue
        held[instance.name] = int(params.fill_beparams(snapshot, instance)["maxmem"])
    return Held(sum(held.values()), tuple(sorted(held)))


def _is_low(instance: objects.Instance) -> bool:
    terms = instance.reservation
    return terms is not None and terms.priority == RESERVATION_LOW


def space(
    snapshot: objects.Snapshot, node: str, template: str, *, besides: str
) -> Held:
    """Return the space for disk files that reservations hold.

    Args:
        snapshot: the configuration.
        node: whose space; all nodes share the space of template ``sharedfile``.
        template: of the disks.
        besides: name of an instance whose own reservation does not count.
    """
    if template not in _FILES:
        return Held()
    uuids = snapshot.forthcoming_instances()
    if template == "file":
        uuids &= snapshot.primary_instances(node)
    held = {}
    for uuid in uuids:
        instance = snapshot.instances[uuid]
        if instance.name == besides:
            continue
        disks = snapshot.instance_disks(instance)
        size = sum(disk.size for disk in disks if disk.dev_type == template)
        if size:
            held[instance.name] = size
    return Held(sum(held.values()), tuple(sorted(held)))


def volumes(
    snapshot: objects.Snapshot, node: str, group: str, *, besides: Collection[str]
) -> Held:
    """Return the space of a volume group of a node that reservations hold.

    Args:
        snapshot: the configuration.
        node: uuid of the node.
        group: name of the volume group.
        besides: uuids of disks that do not count.
    """
    held: dict[str, int] = {}
    for uuid in snapshot.forthcoming_instances():
        instance = snapshot.instances[uuid]
        for disk in snapshot.instance_disks(instance):
            if disk.uuid in besides or node not in (*disk.nodes, instance.primary_node):
                continue
            for part in disk.children or (disk,):
                if part.dev_type == "plain" and part.logical_id[0] == group:
                    held[instance.name] = held.get(instance.name, 0) + part.size
    return Held(sum(held.values()), tuple(sorted(held)))


def require_space(
    ctx: base.Context,
    node: str,
    instance: str,
    template: str,
    wanted_mib: int,
) -> None:
    """Refuse disk files for which a node has no space besides reservations.

    Files are sparse, so the space of others may be promised several times; a file alone
    that cannot ever fit is refused.

    Args:
        ctx: dependencies of the opcode.
        node: uuid of the node of the disks.
        instance: name of the instance.
        template: of the disks.
        wanted_mib: size of the new disks, or of the growth.

    Raises:
        OpPrereqError: the space does not suffice, or the node does not answer.
    """
    if wanted_mib <= 0 or template not in _FILES:
        return
    held = space(ctx.snapshot, node, template, besides=instance)
    name = ctx.snapshot.nodes[node].name
    free = free_file_space(ctx, node, _directory(ctx, template), template)
    if free is not None and wanted_mib > free - held.mib:
        raise errors.OpPrereqError(
            f"instance {instance}: needs {exact_mib(wanted_mib)} for disks of template"
            f" {template} in {_directory(ctx, template)} on node {name}, which has"
            f" {exact_mib(free)} free{held.text()}",
            ecodes.ECODE_NORES,
        )


def _directory(ctx: base.Context, template: str) -> str:
    cluster = ctx.snapshot.cluster
    if template == "file":
        return cluster.file_storage_dir
    return cluster.shared_file_storage_dir


def free_file_space(
    ctx: base.Context, node: str, directory: str, template: str = "file"
) -> int | None:
    """Return the free MiB below a directory, None if unknown.

    Args:
        ctx: dependencies of the opcode.
        node: uuid.
        directory: of disks, or the one of exports.
        template: of the disks.

    Raises:
        OpPrereqError: the node does not answer.
    """
    what = f"cannot get the free space of node {ctx.snapshot.nodes[node].name}"
    info = ctx.rpc.call_node(
        node, calls.node_info([(template, directory, [])], [])
    ).require(what, ecodes.ECODE_ENVIRON)
    free = info.space.storage_free
    return free if isinstance(free, int) else None
