"""Disk drivers, node side: one class each, no policy.

`device` returns the driver of a disk record. Offered are ``file`` and ``sharedfile``;
a diskless instance has no disks.
"""

from typing import Final

from ganeti import errors, pathutils
from ganeti.objects.filled import DiskX
from ganeti.storage.base import Device, DeviceStatus, LocalStatus
from ganeti.storage.files import FileDisk

#: Driver by disk type.
DRIVERS: Final[dict[str, type[Device]]] = {"file": FileDisk, "sharedfile": FileDisk}


def device(paths: pathutils.Paths, disk: DiskX) -> Device:
    """Return a disk's driver on this node.

    Raises:
        BlockDeviceError: disks of its type are not offered.
    """
    driver = DRIVERS.get(disk.dev_type)
    if driver is None:
        raise errors.BlockDeviceError(
            f"disk {disk.uuid}: type {disk.dev_type} is not offered by this node"
        )
    return driver(paths, disk)


__all__ = ["DRIVERS", "Device", "DeviceStatus", "LocalStatus", "device"]
