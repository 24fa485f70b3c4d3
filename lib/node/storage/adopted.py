"""Disks that are block devices of the administrator: template ``blockdev``.

The logical id is ``("manual", path)``, below ``/dev/disk``. The device exists before
its record and stays when the record goes: it is never created, removed, renamed or
resized here.
"""

import os
import stat
from typing import Any

from ganeti.base import errors, pathutils
from ganeti.base.constants import disks
from ganeti.base.process import Runner
from ganeti.model.objects.filled import DiskX
from ganeti.node.storage.base import Device, DeviceStatus


class AdoptedDisk(Device):
    """A block device that somebody else manages."""

    def __init__(self, paths: pathutils.Paths, disk: DiskX, process: Runner) -> None:
        super().__init__(paths, disk, process)
        kind, path = (*disk.logical_id, None, None)[:2]
        root = disks.ADOPTABLE_BLOCKDEV_ROOT
        if (
            kind != "manual"
            or not isinstance(path, str)
            # A path with ``..`` leads out of the root although it begins with it.
            or os.path.normpath(path) != path
            or not path.startswith(root)
        ):
            raise errors.BlockDeviceError(
                f"disk {disk.uuid}: wanted manual and a path below {root}, found"
                f" {list(disk.logical_id)!r}"
            )
        self._path = path

    @property
    def path(self) -> str:
        """Path of the device."""
        return self._path

    def exists(self) -> bool:
        """Return whether the device exists.

        Raises:
            BlockDeviceError: the path exists and is not a block device.
        """
        try:
            mode = os.stat(self._path).st_mode
        except FileNotFoundError:
            return False
        if not stat.S_ISBLK(mode):
            raise self.error("wanted a block device, found something else")
        return True

    def create(
        self, size_mib: int, *, exclusive: bool = False, is_primary: bool = True
    ) -> None:
        """Refuse: only present devices are adopted."""
        del size_mib, exclusive, is_primary
        raise self.error("is adopted, not created")

    def remove(self) -> None:
        """Leave the device and its content alone."""

    def grow(
        self,
        amount_mib: int,
        *,
        dryrun: bool,
        backingstore: bool,
        exclusive: bool = False,
    ) -> None:
        """Refuse: another one manages the size."""
        del amount_mib, dryrun, backingstore, exclusive
        raise self.error("is adopted and cannot grow")

    def rename(self, new_id: tuple[Any, ...]) -> None:
        """Accept the present name only."""
        if tuple(new_id) != tuple(self.disk.logical_id):
            raise self.error("is adopted and cannot be renamed")

    def size_bytes(self) -> int:
        """Return the device's size."""
        self.require()
        with self._translated("reading"), open(self._path, "rb") as src:
            return src.seek(0, os.SEEK_END)

    def close(self) -> None:
        """Accept it: whoever may use a device may write to it."""

    def shutdown(self) -> None:
        """Accept it: the device is not activated here."""

    def set_info(self, text: str) -> None:
        """Accept it: a device has no place for a text."""

    def status(self) -> DeviceStatus:
        """Return the status, with the kernel's numbers of the device."""
        self.require()
        device = os.stat(self._path).st_rdev
        return DeviceStatus(self._path, os.major(device), os.minor(device))
