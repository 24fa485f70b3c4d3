"""Snapshots of disks for an export, beside the disks of the instance."""

from collections.abc import Mapping, Sequence
from typing import Final

from ganeti.model import objects
from ganeti.operations import base
from ganeti.operations.instance import common
from ganeti.protocols import rpc
from ganeti.protocols.rpc import encode

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


def take(
    ctx: base.Context, instance: objects.Instance, disk: objects.Disk, name: str
) -> rpc.Result:
    """Take a snapshot of a disk on the primary node; return the node's answer."""
    return ctx.rpc.call_one(
        "blockdev_snapshot",
        instance.primary_node,
        encode.disk(ctx.snapshot, disk, instance),
        name,
        None,
    )


def _remover(snapshot: objects.Disk) -> str:
    """Return what removes a snapshot by hand."""
    if snapshot.dev_type == "ext":
        return f"the tools of its storage, provider {snapshot.logical_id[0]}"
    return "lvremove"


def remove(
    ctx: base.Context, instance: objects.Instance, made: Mapping[int, objects.Disk]
) -> None:
    """Remove snapshots, by index of their disk; a missing one is no failure."""
    for index, disk in made.items():
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
