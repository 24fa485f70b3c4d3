"""Procedures for disks and their mirrors: ``blockdev_*``, ``bdev_sizes``, ``drbd_*``.

The procedures convert arguments, look up the driver and convert its result; the disk
types are implemented in `ganeti.node.storage`.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

from ganeti.base import errors
from ganeti.base.constants import disks as disk_constants
from ganeti.model.objects.filled import DiskX, InstanceX
from ganeti.node import storage
from ganeti.node.calls import guest_files
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.node.storage import drbd_commands
from ganeti.node.storage.base import MIB
from ganeti.node.storage.drbd_state import Mirror
from ganeti.node.storage.mirrors import MirrorDisk


def _device(node: LocalNode, disk: DiskX) -> storage.Device:
    return storage.device(node.paths, disk, node.process)


@procedure("blockdev_create")
def blockdev_create(
    node: LocalNode,
    bdev: DiskX,
    size: int,
    owner: str,
    on_primary: bool,
    info: str,
    exclusive_storage: bool,
) -> list[Any]:
    """Create a disk of ``size`` MiB and return its logical id."""
    del owner
    _device(node, bdev).create_labelled(
        size, info, exclusive=exclusive_storage, is_primary=on_primary
    )
    return list(bdev.logical_id)


@procedure("blockdev_remove")
def blockdev_remove(node: LocalNode, bdev: DiskX) -> None:
    """Destroy a disk and the links to it; a missing disk is not an error."""
    device = _device(node, bdev)
    path = device.path
    device.remove()
    # The number of a mirror may be in use by another disk by now.
    if bdev.dev_type not in disk_constants.DTS_DRBD or not os.path.exists(path):
        guest_files.remove_links_to(node.paths, path)


@procedure("blockdev_assemble")
def blockdev_assemble(
    node: LocalNode, disk: DiskX, instance: InstanceX, on_primary: bool | str, idx: int
) -> list[Any]:
    """Activate a disk and, on the primary node, link it for the hypervisor.

    Returns:
        ``[device path, link path, uri]`` on the primary node; elsewhere ``[device path,
        None, None]`` for mirrors and ``[True, True]`` for types that have nothing to
        activate there.
    """
    is_mirror = disk.dev_type in disk_constants.DTS_DRBD
    if not on_primary and not is_mirror:
        return [True, True]
    device = _device(node, disk)
    device.assemble()
    if not on_primary:
        return [device.path, None, None]
    if is_mirror:
        device.open(exclusive=True)
    path, uri = device.path, device.uri(instance.hypervisor)
    link = guest_files.make_link(node.paths, instance.name, idx, path)
    return [path, link, uri]


@procedure("blockdev_shutdown")
def blockdev_shutdown(node: LocalNode, disk: DiskX) -> None:
    """Undo the assembly of a disk."""
    _device(node, disk).shutdown()


@procedure("blockdev_open")
def blockdev_open(
    node: LocalNode, instance_name: str, disks: list[DiskX], exclusive: bool
) -> None:
    """Allow writing to disks and link them for the hypervisor, in disk order.

    Without a name of an instance, no links are made.
    """
    for index, disk in enumerate(disks):
        device = _device(node, disk)
        device.open(exclusive=exclusive)
        if instance_name:
            guest_files.make_link(node.paths, instance_name, index, device.path)


@procedure("blockdev_close")
def blockdev_close(node: LocalNode, instance_name: str, disks: list[DiskX]) -> None:
    """Disallow writing to disks and remove their links."""
    for disk in disks:
        _device(node, disk).close()
    if instance_name:
        guest_files.remove_links(node.paths, instance_name, len(disks))


@procedure("blockdev_find")
def blockdev_find(node: LocalNode, disk: DiskX) -> storage.DeviceStatus | None:
    """Return the status of a disk, None if the disk does not exist."""
    return _device(node, disk).find()


@procedure("blockdev_getmirrorstatus")
def blockdev_getmirrorstatus(
    node: LocalNode, disks: list[DiskX]
) -> list[storage.DeviceStatus]:
    """Return the status of each disk; a missing disk fails the call."""
    return [_device(node, disk).status() for disk in disks]


@procedure("blockdev_getmirrorstatus_multi")
def blockdev_getmirrorstatus_multi(
    node: LocalNode, disks: list[DiskX]
) -> list[list[Any]]:
    """Return ``[True, status]`` or ``[False, text]`` for each disk.

    The status of an inactive mirror whose volumes are missing is None.
    """
    # The kernel has one text for all mirrors of the node: it is read once.
    mirrors = functools.cache(lambda: drbd_commands.mirrors(node.process))
    statuses: list[list[Any]] = []
    for disk in disks:
        try:
            statuses.append([True, _status(_device(node, disk), mirrors)])
        except errors.GenericError as err:
            statuses.append([False, str(err)])
    return statuses


def _status(
    device: storage.Device, mirrors: Callable[[], Mapping[int, Mirror]]
) -> storage.DeviceStatus | None:
    if not isinstance(device, MirrorDisk):
        return device.status()
    status = device.status_among(mirrors())
    return status if status.dev_path or device.exists() else None


@procedure("blockdev_getdimensions")
def blockdev_getdimensions(
    node: LocalNode, disks: list[DiskX]
) -> list[list[Any] | None]:
    """Return ``[bytes, None]`` for each disk, None for a disk that does not exist."""
    dimensions: list[list[Any] | None] = []
    for disk in disks:
        try:
            dimensions.append([_device(node, disk).size_bytes(), None])
        except errors.BlockDeviceError:
            dimensions.append(None)
    return dimensions


@procedure("blockdev_grow")
def blockdev_grow(
    node: LocalNode,
    cf_bdev: DiskX,
    amount: int,
    dryrun: bool,
    backingstore: bool,
    es_flag: bool,
) -> None:
    """Grow a disk by ``amount`` MiB."""
    _device(node, cf_bdev).grow(
        amount, dryrun=dryrun, backingstore=backingstore, exclusive=es_flag
    )


@procedure("blockdev_rename")
def blockdev_rename(node: LocalNode, devlist: list[tuple[DiskX, list[Any]]]) -> None:
    """Give each disk its new logical id; try all disks before the call fails."""
    failed = []
    for disk, new_id in devlist:
        try:
            _device(node, disk).rename(tuple(new_id))
        except errors.GenericError as err:
            failed.append(str(err))
    if failed:
        raise errors.BlockDeviceError("; ".join(failed))


@procedure("blockdev_snapshot")
def blockdev_snapshot(
    node: LocalNode, cf_bdev: DiskX, snap_name: str | None, snap_size: int | None
) -> list[Any]:
    """Create a snapshot of a disk and return its logical id."""
    return list(_device(node, cf_bdev).snapshot(snap_name, snap_size))


@procedure("blockdev_setinfo")
def blockdev_setinfo(node: LocalNode, disk: DiskX, info: str) -> None:
    """Store an information text with a disk, where its type supports one."""
    device = _device(node, disk)
    device.require()
    device.set_info(info)


@procedure("blockdev_wipe")
def blockdev_wipe(node: LocalNode, bdev: DiskX, offset: int, size: int) -> None:
    """Overwrite a part of a disk with zeros; offset and size in MiB."""
    _device(node, bdev).wipe(offset, size)


@procedure("blockdev_image")
def blockdev_image(node: LocalNode, bdev: DiskX, image: str, size: int) -> None:
    """Copy at most ``size`` MiB of an image file to the beginning of a disk."""
    if not image.startswith("/"):
        raise errors.BlockDeviceError(
            f"disk {bdev.uuid}: image {image}: wanted an absolute path"
        )
    _device(node, bdev).fill_from(image, size * MIB)


@procedure("blockdev_convert")
def blockdev_convert(node: LocalNode, bdev_src: DiskX, bdev_dest: DiskX) -> None:
    """Copy the content of one disk to another."""
    source = _device(node, bdev_src)
    _device(node, bdev_dest).fill_from(source, source.size_bytes())


@procedure("blockdev_convert_part")
def blockdev_convert_part(
    node: LocalNode, bdev_src: DiskX, bdev_dest: DiskX, offset: int, size: int
) -> None:
    """Copy a part of one disk to the same offset of another; offset and size in MiB."""
    source = _device(node, bdev_src)
    _device(node, bdev_dest).copy_part(source, offset, size)


@procedure("bdev_sizes")
def bdev_sizes(node: LocalNode, devices: list[str]) -> dict[str, int]:
    """Return path -> MiB of those block devices that exist and may be adopted."""
    del node
    sizes = {}
    for path in devices:
        if not os.path.normpath(path).startswith(
            disk_constants.ADOPTABLE_BLOCKDEV_ROOT
        ):
            continue
        with contextlib.suppress(OSError), open(path, "rb") as src:
            sizes[path] = src.seek(0, os.SEEK_END) // MIB
    return sizes


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
    return drbd_commands.usermode_helper()


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
        mirror = device.drbd.mirror()
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
