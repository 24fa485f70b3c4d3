"""Snapshots of disks for an export, beside the disks of the instance."""

from collections.abc import Sequence
from typing import Final

from ganeti import objects
from ganeti.cmdlib import base
from ganeti.cmdlib.instance import common
from ganeti.rpc import encode

_SUFFIX: Final = ".snap"

Names = tuple[tuple[str, str], ...]


def names(disks: Sequence[objects.Disk]) -> Names:
    """Return volume group, or provider, and name of the snapshot of each disk."""
    return tuple((_volume(d).logical_id[0], _name(d)) for d in disks)


def _volume(disk: objects.Disk) -> objects.Disk:
    """Return the volume with the data of a disk."""
    return disk.children[0] if disk.children else disk


def _name(disk: objects.Disk) -> str:
    return f"{_volume(disk).logical_id[1]}{_SUFFIX}"


def records(disks: Sequence[objects.Disk], made: Names) -> tuple[objects.Disk, ...]:
    """Return records of snapshots, disks like those they are of; never stored."""
    return tuple(
        objects.Disk(
            dev_type=_volume(disk).dev_type,
            logical_id=place,
            size=disk.size,
            uuid=disk.uuid,
            serial_no=1,
            iv_name=disk.iv_name,
            params=_volume(disk).params,
        )
        for disk, place in zip(disks, made, strict=True)
    )


def make(
    ctx: base.Context,
    instance: objects.Instance,
    disks: Sequence[objects.Disk],
    wanted: Names,
) -> None:
    """Make the snapshots on the primary node; left ones of these names are replaced.

    Raises:
        OpExecError: one could not be made.
    """
    for index, (disk, (_group, name)) in enumerate(zip(disks, wanted, strict=True)):
        ctx.rpc.call_one(
            "blockdev_snapshot",
            instance.primary_node,
            encode.disk(ctx.snapshot, disk, instance),
            name,
            None,
        ).unwrap(f"instance {instance.name}: cannot take a snapshot of disk/{index}")


def _remover(snapshot: objects.Disk) -> str:
    """Return what removes a snapshot by hand."""
    if snapshot.dev_type == "ext":
        return f"the tools of its storage, provider {snapshot.logical_id[0]}"
    return "lvremove"


def remove(
    ctx: base.Context, instance: objects.Instance, made: Sequence[objects.Disk]
) -> None:
    """Remove the snapshots; one that does not exist is no failure."""
    for index, disk in enumerate(made):
        result = ctx.rpc.call_one(
            "blockdev_remove",
            instance.primary_node,
            encode.disk(ctx.snapshot, disk, instance),
        )
        what = (
            f"cannot remove the snapshot {'/'.join(map(str, disk.logical_id))} of"
            f" disk/{index}; remove it with {_remover(disk)}"
        )
        common.warn_failed(ctx, result, what)
