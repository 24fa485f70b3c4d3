"""Disk drivers, node side: one class each, no policy.

`device` returns the driver of a disk record. Offered are ``file``, ``sharedfile``,
``plain`` (logical volumes), ``drbd`` (mirrored volumes), ``blockdev`` (devices that an
administrator made), ``ext`` (volumes of external storage), ``gluster`` (files of a
Gluster volume) and ``rbd`` (images of Ceph); a diskless instance has no disks.

A mirrored disk is a driver above others. Its record has the two volumes of this node as
``children``, data first, which are ``plain`` records of their own; the driver passes on
to them what concerns the storage below: `Device.create`, `Device.remove`, and
`Device.grow` with ``backingstore``. It answers itself for the layer above:
`Device.assemble` activates the children, then the mirror, `Device.open` and
`Device.close` change the role, `Device.status` has the worse of both states; the
procedures ``blockdev_addchildren`` and ``blockdev_removechildren`` exchange the volumes
below it. ``DiskX.dynamic_params`` has the values of this node alone, such as minors and
addresses.
"""

from typing import Final

from ganeti.base import errors, pathutils
from ganeti.base.process import Runner
from ganeti.model.objects.filled import DiskX
from ganeti.node.storage.adopted import AdoptedDisk
from ganeti.node.storage.base import Device, DeviceStatus, LocalStatus
from ganeti.node.storage.external import ExternalDisk
from ganeti.node.storage.files import FileDisk
from ganeti.node.storage.gluster import GlusterDisk
from ganeti.node.storage.mirrors import MirrorDisk
from ganeti.node.storage.rados import RadosDisk
from ganeti.node.storage.volumes import VolumeDisk

#: Driver by disk type.
DRIVERS: Final[dict[str, type[Device]]] = {
    "blockdev": AdoptedDisk,
    "drbd": MirrorDisk,
    "ext": ExternalDisk,
    "file": FileDisk,
    "gluster": GlusterDisk,
    "plain": VolumeDisk,
    "rbd": RadosDisk,
    "sharedfile": FileDisk,
}


def device(paths: pathutils.Paths, disk: DiskX, process: Runner) -> Device:
    """Return a disk's driver on this node.

    Raises:
        BlockDeviceError: disks of its type are not offered, or its record is malformed.
    """
    driver = DRIVERS.get(disk.dev_type)
    if driver is None:
        raise errors.BlockDeviceError(
            f"disk {disk.uuid}: type {disk.dev_type} is not offered by this node"
        )
    return driver(paths, disk, process)


__all__ = ["DRIVERS", "Device", "DeviceStatus", "LocalStatus", "device"]
