"""Procedures for mirrored disks: ``drbd_*``, their synchronisation and their parts."""

from typing import Any

from ganeti.base import errors
from ganeti.model.objects.filled import DiskX
from ganeti.node import storage
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.node.storage import drbd_tools
from ganeti.node.storage.mirrors import MirrorDisk


def _mirror(node: LocalNode, disk: DiskX) -> MirrorDisk:
    """Return the driver of a mirrored disk.

    Raises:
        BlockDeviceError: disks of its type have no mirror.
    """
    device = storage.device(node.paths, disk, node.process)
    if not isinstance(device, MirrorDisk):
        raise errors.BlockDeviceError(
            f"disk {disk.uuid}: type {disk.dev_type} has no mirror"
        )
    return device


@procedure("drbd_helper")
def drbd_helper(_node: LocalNode) -> str:
    """Return the program that DRBD's kernel module calls."""
    return drbd_tools.usermode_helper()


@procedure("drbd_needs_activation")
def drbd_needs_activation(node: LocalNode, disks: list[DiskX]) -> list[str]:
    """Return the uuids of the disks that assembly would change."""
    return [disk.uuid for disk in disks if _mirror(node, disk).needs_activation()]


@procedure("drbd_attach_net")
def drbd_attach_net(node: LocalNode, disks: list[DiskX], multimaster: bool) -> None:
    """Connect disks, or change whether both nodes may be primary."""
    for disk in disks:
        _mirror(node, disk).connect(two_primaries=multimaster)


@procedure("drbd_disconnect_net")
def drbd_disconnect_net(node: LocalNode, disks: list[DiskX]) -> None:
    """Stop the exchange of disks with their peers."""
    for disk in disks:
        _mirror(node, disk).disconnect()


@procedure("drbd_wait_sync")
def drbd_wait_sync(node: LocalNode, disks: list[DiskX]) -> list[Any]:
    """Return whether all disks are connected and complete, and the lowest percent."""
    is_done, lowest = True, 100.0
    for disk in disks:
        device = _mirror(node, disk)
        mirror = device.mirror()
        if mirror is None or mirror.is_standalone:
            state = "is not active" if mirror is None else mirror.text()
            raise device.error(f"cannot reach the other node ({state})")
        if mirror.is_degraded:
            is_done = False
            lowest = min(lowest, mirror.sync_percent or 0.0)
    return [is_done, lowest]


@procedure("blockdev_pause_resume_sync")
def blockdev_pause_resume_sync(
    node: LocalNode, disks: list[DiskX], pause: bool
) -> list[list[Any]]:
    """Return ``[True, None]`` or ``[False, text]`` for each disk."""
    done: list[list[Any]] = []
    for disk in disks:
        try:
            _mirror(node, disk).change_sync(pause=pause)
            done.append([True, None])
        except errors.GenericError as err:
            done.append([False, f"Can't change sync: {err}"])
    return done


@procedure("blockdev_addchildren")
def blockdev_addchildren(node: LocalNode, bdev: DiskX, ndevs: list[DiskX]) -> None:
    """Give a mirror without disk on this node its volumes; they hold no valid data."""
    device = _mirror(node, bdev)
    _check_parts(device, ndevs)
    device.replace_parts()


@procedure("blockdev_removechildren")
def blockdev_removechildren(node: LocalNode, bdev: DiskX, ndevs: list[DiskX]) -> None:
    """Take the volumes of a mirror away; the other node's data is used."""
    device = _mirror(node, bdev)
    _check_parts(device, ndevs)
    device.detach()


def _check_parts(device: MirrorDisk, parts: list[DiskX]) -> None:
    own = [list(child.logical_id) for child in device.disk.children]
    if [list(part.logical_id) for part in parts] != own:
        raise device.error(
            f"wanted its volumes {own}, found {[list(p.logical_id) for p in parts]}"
        )
