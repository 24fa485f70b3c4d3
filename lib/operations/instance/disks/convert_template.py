"""Conversion of a stopped instance to another disk template, by copying its disks.

`convert_mirror` converts without a copy.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import disks
from ganeti.model import objects
from ganeti.operations import allocation, base, progress
from ganeti.operations.instance.disks import (
    convert_mirror,
    disk_specs,
    node_disks,
    shared_storage,
    volumes,
)
from ganeti.protocols.rpc import calls, encode

#: Disks can be read and written while they are attached only; not in Ganeti.
_DTS_ATTACHED: Final = ("ext", "rbd")
_DTS_NOT_CONVERTIBLE_FROM: Final = ("diskless",)
_DTS_NOT_CONVERTIBLE_TO: Final = ("blockdev", "diskless")

#: Templates between which disks can be copied.
_COPYABLE: Final = ("ext", "file", "gluster", "plain", "rbd", "sharedfile")
#: MiB copied by one call: some seconds of work even for slow disks.
PIECE_MIB: Final = 256


def check(
    ctx: base.Context,
    instance: objects.Instance,
    target: str,
    *,
    external: Mapping[str, Any],
    secondary: str | None = None,
) -> None:
    """Refuse a conversion that is not possible.

    Args:
        ctx: dependencies of the opcode.
        instance: the instance.
        target: its template afterwards.
        external: parameters of an external storage provider, its name included.
        secondary: uuid of the node that is to get second copies.

    Raises:
        OpPrereqError: the instance or the templates do not allow it.
    """
    source = ctx.snapshot.disk_template(instance)
    disk_specs.check_template(ctx.snapshot, target, instance.name)
    if source == target:
        raise errors.refusal(
            f"instance {instance.name}: already has disk template {target}"
        )
    if not steps(source, target):
        raise errors.refusal(
            f"instance {instance.name}: disk template {source} cannot be converted to"
            f" {target}"
        )
    for step in steps(source, target):
        if source != "drbd" and step == "drbd":
            if secondary is not None:
                convert_mirror.check_to_mirror(
                    ctx, instance, secondary, _as_plain(ctx, instance)
                )
        elif not convert_mirror.is_possible(source, step):
            _check_copy(ctx, instance, step, external=external)


def steps(source: str, target: str) -> tuple[str, ...]:
    """Return the templates that a conversion leads to, one after the other.

    Mirrors are made around the volumes of plain disks, and leave such volumes behind;
    so other disks become plain ones in between. None: the templates do not allow it.
    """
    if (
        source in _DTS_NOT_CONVERTIBLE_FROM
        or target in _DTS_NOT_CONVERTIBLE_TO
        or not {source, target} <= {*_COPYABLE, "drbd"}
    ):
        return ()
    if "drbd" in (source, target) and not convert_mirror.is_possible(source, target):
        return ("plain", target)
    return (target,)


def _as_plain(
    ctx: base.Context, instance: objects.Instance
) -> tuple[objects.Disk, ...]:
    """Return the disks as plain ones, whose names are not the later ones."""
    old = ctx.snapshot.instance_disks(instance)
    if all(disk.dev_type == "plain" for disk in old):
        return old
    group = disk_specs.volume_group(ctx.snapshot.cluster, disk_specs.DiskRequest(0))
    return tuple(
        disk.replace(dev_type="plain", logical_id=(group, disk.uuid)) for disk in old
    )


def _check_copy(
    ctx: base.Context,
    instance: objects.Instance,
    target: str,
    *,
    external: Mapping[str, Any],
) -> None:
    """Refuse a copy to disks of another template that is not possible."""
    node = instance.primary_node
    volumes.check_exclusive(ctx.snapshot, node, target, instance.name)
    fields = disk_specs.external_fields(
        external, f"instance {instance.name}", template=target
    )
    if target in disks.DTS_HAVE_ACCESS:
        future = [
            disk_specs.preview(disk, target, fields)
            for disk in ctx.snapshot.instance_disks(instance)
        ]
        shared_storage.check(ctx, instance, future, node)
    if target == "plain":
        volumes.require_space(ctx, [node], _as_plain(ctx, instance), instance.name)


def execute(
    ctx: base.Context,
    instance: objects.Instance,
    target: str,
    *,
    external: Mapping[str, Any],
    file_driver: str | None,
    file_storage_dir: str | None,
) -> None:
    """Copy the disks, switch the record, remove the old disks.

    Raises:
        OpExecError: copying failed; the new disks were removed again.
    """
    old = ctx.snapshot.instance_disks(instance)
    where = disk_specs.directory(ctx.snapshot, target, instance.name, file_storage_dir)
    fields = disk_specs.external_fields(
        external, f"instance {instance.name}", template=target
    )
    specs = [disk_specs.DiskRequest.like(disk, fields) for disk in old]
    new = disk_specs.records(
        ctx,
        target,
        specs,
        nodes=[instance.primary_node],
        owner=instance.uuid,
        files=disk_specs.FilePlace(where, file_driver),
    )
    node_disks.create_all(ctx, instance, new)
    allocation.share_nodes(ctx)
    with node_disks.removed_on_failure(ctx, instance, new):
        with _attached(ctx, instance, (*old, *new)):
            for index, (source, copy) in enumerate(zip(old, new, strict=True)):
                ctx.log.message(f" - copying disk/{index} ({source.size} MiB)")
                _copy(ctx, instance, index, source, copy)
        # Before the commit: after it, no record names these disks.
        node_disks.announce_removal(ctx, old)
        node_disks.note_removal(ctx, instance, old)
        with ctx.config.edit(ctx.owner) as edit:
            for disk in new:
                edit.add_disk(disk)
            record = edit.snapshot.instances[instance.uuid]
            edit.update(record.replace(disks=tuple(disk.uuid for disk in new)))
            for disk in old:
                edit.remove_disk(disk.uuid)
    if not node_disks.remove_all(ctx, instance, old):
        ctx.log.warn("some of the old disks could not be removed")


@contextlib.contextmanager
def _attached(
    ctx: base.Context, instance: objects.Instance, both: Sequence[objects.Disk]
) -> Iterator[None]:
    """Attach those disks that can only be read and written while they are attached."""
    chosen = [disk for disk in both if disk.dev_type in _DTS_ATTACHED]
    if not chosen:
        yield
        return
    node_disks.assemble(ctx, instance, disks=chosen)
    try:
        yield
    finally:
        node_disks.shutdown(ctx, instance, disks=chosen, mark=False)


def _copy(
    ctx: base.Context,
    instance: objects.Instance,
    index: int,
    source: objects.Disk,
    copy: objects.Disk,
) -> None:
    """Copy a disk in pieces and report the progress."""
    old = encode.disk(ctx.snapshot, source, instance)
    new = encode.disk(ctx.snapshot, copy, instance)
    shown = progress.Progress(ctx, f"copying disk/{index}", source.size)
    for offset in range(0, source.size, PIECE_MIB):
        piece = min(PIECE_MIB, source.size - offset)
        ctx.rpc.call_node(
            instance.primary_node, calls.blockdev_convert_part(old, new, offset, piece)
        ).unwrap(f"instance {instance.name}: cannot copy disk/{index}")
        shown.at(offset + piece)
