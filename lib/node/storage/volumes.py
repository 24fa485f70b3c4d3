"""Disks that are logical volumes: template ``plain``, and the parts of mirrored disks.

The logical id is ``(volume group, name)``. LVM rounds sizes up to whole extents. A
volume stays active between uses: activating it again, as after a start of the node, is
all that assembly does. LVM's tools change the volumes; a name that they could read as
an option, or that LVM reserves, never gets to them. Each of them reads all devices of
the node, so that they are not run for what the kernel says.
"""

import os
import re
import stat
from collections.abc import Callable, Sequence
from typing import Any, Final

from ganeti.base import errors, pathutils
from ganeti.base.filesystem import files
from ganeti.base.process import Runner
from ganeti.base.text.units import exact_mib
from ganeti.model.objects.filled import DiskX
from ganeti.node.storage import lvm
from ganeti.node.storage.base import MIB, Device, DeviceStatus, LocalStatus

# Logical volumes that the kernel knows, without LVM's tools, which read all devices.
#
# A volume that the kernel does not know may exist nevertheless: it is inactive.

#: Directory of the kernel with one entry per block device.
BLOCK: Final = "/sys/dev/block"
_SECTOR: Final = 512
_MAX_TEXT: Final = 4096


def size_bytes(path: str, group: str, name: str) -> int | None:
    """Return the size of an active volume; None if the device is not this volume.

    Args:
        path: of its device file.
        group: its volume group.
        name: its name in the group.
    """
    try:
        status = os.stat(path)
        if not stat.S_ISBLK(status.st_mode):
            return None
        device = f"{BLOCK}/{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
        if _read(f"{device}/dm/name") != mapped_name(group, name):
            return None
        # Other users of the device mapper can choose the same name.
        if not _read(f"{device}/dm/uuid").startswith("LVM-"):
            return None
        return int(_read(f"{device}/size")) * _SECTOR
    except (OSError, ValueError):
        return None


def mapped_name(group: str, name: str) -> str:
    """Return the kernel's name of a volume, see lvm(8)."""
    return "-".join(part.replace("-", "--") for part in (group, name))


def _read(path: str) -> str:
    return files.text_of(path, _MAX_TEXT).strip()


#: Characters that LVM allows in a tag, see lvm(8); others become underscores.
_NO_TAG: Final = re.compile(r"[^A-Za-z0-9_+.\-/=!:&#]")
_MAX_TAG: Final = 128
#: Directory of the device files.
DEVICES: Final = "/dev"
#: Suffix of a snapshot whose name is not given.
_SNAPSHOT: Final = ".snap"
#: LVM's words for a volume whose name is taken.
_TAKEN: Final = "already exists"


class _Placement:
    """Chooses the physical volumes for a disk.

    Args:
        process: runs LVM's tools.
        group: the volume group.
        disk: the record.
        error: returns an error that names the disk.
    """

    def __init__(
        self,
        process: Runner,
        group: str,
        disk: DiskX,
        error: Callable[[str], errors.BlockDeviceError],
    ) -> None:
        self._process, self._group = process, group
        self._spindles = disk.spindles
        self._error = error
        params = disk.params or {}
        self.stripes = int(params.get("stripes") or 1)
        self.stripe_kib = int(params.get("stripe_size") or 0)

    def placed(
        self, size_mib: int, stripes: int, *, exclusive: bool
    ) -> tuple[Sequence[lvm.PhysicalVolume], int]:
        """Return the physical volumes to use, and the number of stripes."""
        units = lvm.physical_volumes(self._process, self._group)
        if not units:
            raise self._error(f"this node has no volume group {self._group}")
        if exclusive:
            chosen = self._empty_units(units, size_mib)
            # Each of them gets a part of the disk, so that none counts as empty.
            stripes = len(chosen)
        else:
            chosen = [unit for unit in units if unit.is_usable]
            self.check_space(chosen, size_mib)
            chosen.sort(key=lambda unit: unit.free_mib, reverse=True)
            stripes = min(stripes, len(chosen))
        extent_kib = int(units[0].extent_mib * 1024)
        if stripes > 1 and self.stripe_kib > extent_kib:
            raise self._error(
                f"stripe_size is {self.stripe_kib} KiB; volume group {self._group}"
                f" has extents of {extent_kib} KiB, which a stripe cannot exceed"
            )
        return chosen, stripes

    def check_space(self, units: Sequence[lvm.PhysicalVolume], size_mib: int) -> None:
        """Raise BlockDeviceError unless the physical volumes have so much space."""
        free = int(sum(unit.free_mib for unit in units))
        if free < size_mib:
            raise self._error(
                f"needs {exact_mib(size_mib)} in volume group {self._group}, which"
                f" has {exact_mib(free)} free on allocatable physical volumes"
            )

    def _empty_units(
        self, units: Sequence[lvm.PhysicalVolume], size_mib: int
    ) -> list[lvm.PhysicalVolume]:
        """Return the physical volumes that become this disk's alone.

        As many as the disk has spindles; without a number, the fewest that suffice.
        """
        empty = [unit for unit in units if unit.is_usable and unit.is_empty]
        empty.sort(key=lambda unit: unit.free_mib, reverse=True)
        wanted = self._spindles
        if wanted is None:
            wanted, space = 0, 0.0
            while wanted < len(empty) and space < size_mib:
                space += empty[wanted].free_mib
                wanted += 1
            wanted = max(wanted, 1)
        chosen = empty[:wanted]
        space = sum(unit.free_mib for unit in chosen)
        if len(chosen) < wanted or space < size_mib:
            raise self._error(
                f"needs {wanted} empty physical volumes of volume group {self._group}"
                f" with {size_mib} MiB in all, found {len(chosen)} with {int(space)}"
                " MiB"
            )
        return chosen


class VolumeDisk(Device):
    """A disk that is a logical volume."""

    def __init__(self, paths: pathutils.Paths, disk: DiskX, process: Runner) -> None:
        super().__init__(paths, disk, process)
        self._group, self._name = _checked(disk, disk.logical_id)
        #: The volume for LVM's tools.
        self._key = f"{self._group}/{self._name}"
        self._placement = _Placement(process, self._group, disk, self.error)

    @property
    def path(self) -> str:
        """Path of the device, which exists while the volume is active."""
        return f"{DEVICES}/{self._group}/{self._name}"

    def _find(self) -> lvm.Volume | None:
        return lvm.volume(self._process, self._group, self._name)

    def _require(self) -> lvm.Volume:
        present = self._find()
        if present is None:
            raise self.error(f"volume group {self._group} has no such volume")
        return present

    def require(self) -> None:
        """Raise BlockDeviceError unless the volume exists."""
        if self._active_bytes() is None:
            self._require()

    def _active_bytes(self) -> int | None:
        """Return the size of the active volume, None unless the kernel has it."""
        return size_bytes(self.path, self._group, self._name)

    def exists(self) -> bool:
        """Return whether the volume exists.

        Raises:
            StorageError: LVM failed.
        """
        return self._active_bytes() is not None or self._find() is not None

    def find(self) -> DeviceStatus | None:
        """Return the status, None if the volume does not exist."""
        present = self._find()
        return None if present is None else _status(self, present)

    def create(
        self, size_mib: int, *, exclusive: bool = False, is_primary: bool = True
    ) -> None:
        """Create and activate the volume, without old signatures at its beginning.

        Raises:
            BlockDeviceError: it exists, or there is too little space; names both.
            StorageError: LVM failed.
        """
        del is_primary
        self.create_labelled(size_mib, "", exclusive=exclusive)

    def create_labelled(
        self,
        size_mib: int,
        info: str,
        *,
        exclusive: bool = False,
        is_primary: bool = True,
    ) -> None:
        """Create the volume with a text as its only tag; see `create`."""
        del is_primary
        if not self.ensure(size_mib, info, exclusive=exclusive):
            raise self.error("exists already")

    def ensure(self, size_mib: int, info: str, *, exclusive: bool = False) -> bool:
        """Create the volume unless it exists; return whether it was created.

        Raises:
            BlockDeviceError: there is too little space.
            StorageError: LVM failed.
        """
        if self._active_bytes() is not None:
            return False
        stripes = self._placement.stripes
        units: Sequence[lvm.PhysicalVolume] = ()
        is_plain = not exclusive and stripes == 1
        problem: str | None = None
        try:
            if not is_plain:
                units, stripes = self._placement.placed(
                    size_mib, stripes, exclusive=exclusive
                )
            problem = self._lvcreate(size_mib, info, stripes, units)
            if problem is None:
                return True
            if is_plain and _TAKEN not in problem:
                # Why LVM could not place it.
                self._placement.placed(size_mib, stripes, exclusive=False)
        except errors.BlockDeviceError:
            # One of a conversion needs no space.
            if problem is not None or self._find() is None:
                raise
            return False
        # It is there but inactive, or another call has just made it.
        if _TAKEN in problem and self._find() is not None:
            return False
        raise self.error(f"cannot be created: {problem}")

    def _lvcreate(
        self,
        size_mib: int,
        info: str,
        stripes: int,
        units: Sequence[lvm.PhysicalVolume],
    ) -> str | None:
        """Return why the volume could not be created, None if it was."""
        common = [
            *("lvcreate", "--yes", "--wipesignatures", "y", "--zero", "y"),
            *("--size", f"{size_mib}m", "--name", self._name),
        ]
        if info:
            common += ["--addtag", _tag(info)]
        where = ("--", self._group, *(unit.name for unit in units))
        striped: tuple[str, ...] = ()
        if stripes > 1:
            striped = ("--stripes", str(stripes))
            if self._placement.stripe_kib:
                striped += ("--stripesize", f"{self._placement.stripe_kib}k")
        problem = lvm.change(self._process, (*common, *striped, *where))
        if problem is not None and striped and _TAKEN not in problem:
            # Striped space needs as much on each physical volume.
            problem = lvm.change(self._process, (*common, *where))
        return problem

    def remove(self) -> None:
        """Remove the volume, and with it its snapshots."""
        remove_all([self])

    def remove_with(self, others: "Sequence[VolumeDisk]") -> None:
        """Remove the volume and other ones, which all exist, at once."""
        # One command for all, because each one reads all devices of the node.
        keys = [volume._key for volume in (self, *others)]  # noqa: SLF001
        self._change("cannot be removed", "lvremove", "--yes", "--", *keys)

    def grow(
        self,
        amount_mib: int,
        *,
        dryrun: bool,
        backingstore: bool,
        exclusive: bool = False,
    ) -> None:
        """Enlarge the volume; no logical layer exists above the storage.

        The new size is the recorded size plus the amount: space that an interrupted
        operation has added is not added again, nor removed.
        """
        if amount_mib < 0:
            raise self.error(f"cannot grow by {amount_mib} MiB")
        present = self._require()
        wanted = self.disk.size + amount_mib
        if not backingstore or wanted <= present.size_mib:
            return
        usable = [
            unit
            for unit in lvm.physical_volumes(self._process, self._group)
            if unit.is_usable and (not exclusive or unit.name in present.devices)
        ]
        self._placement.check_space(usable, int(wanted - present.size_mib))
        test = ("--test",) if dryrun else ()
        size = ("--size", f"{wanted}m", "--", self._key)
        where = (*size, *(unit.name for unit in usable))
        # LVM takes the stripes of the segments, and refuses if these differ.
        problem = lvm.change(self._process, ("lvextend", *test, *where))
        if problem is not None and len(present.devices) > 1:
            # Striped space needs as much on each physical volume.
            one = ("lvextend", *test, "--stripes", "1")
            problem = lvm.change(self._process, (*one, *where))
        if problem is not None:
            raise self.error(f"cannot grow to {wanted} MiB: {problem}")

    def rename(self, new_id: tuple[Any, ...]) -> None:
        """Give the volume another name in its group; never that of another volume."""
        group, name = _checked(self.disk, new_id)
        if group != self._group:
            raise self.error(f"cannot be renamed to another volume group, {group}")
        if name == self._name:
            return
        self.require()
        self._change(
            f"cannot be renamed to {name}",
            *("lvrename", "--yes", "--", self._group, self._name, name),
        )

    def size_bytes(self) -> int:
        """Return the volume's size, which is a multiple of the group's extents."""
        active = self._active_bytes()
        return round(self._require().size_mib * MIB) if active is None else active

    def assemble(self) -> None:
        """Activate the volume.

        Raises:
            BlockDeviceError: it does not exist, or parts of it are missing.
        """
        if self._active_bytes() is not None:
            return
        present = self._require()
        if present.is_inactive:
            self._change(
                "cannot be activated",
                *("lvchange", "--yes", "--activate", "y", "--", self._key),
            )
        if not os.path.exists(self.path):
            raise self.error("is active, but has no device file")

    def close(self) -> None:
        """Accept it: whoever may use a volume may write to it."""

    def shutdown(self) -> None:
        """Accept it: volumes stay active."""

    def set_info(self, text: str) -> None:
        """Store a text as the volume's only tag."""
        tag = _tag(text)
        present = self._require()
        if present.tags == (tag,):
            return
        changes: list[str] = []
        for old in present.tags:
            changes += ["--deltag", old]
        self._change(
            "cannot get a tag", "lvchange", *changes, "--addtag", tag, "--", self._key
        )

    def status(self) -> DeviceStatus:
        """Return the status: faulty if a physical volume below is missing."""
        return _status(self, self._require())

    def snapshot(self, name: str | None, size_mib: int | None) -> tuple[Any, ...]:
        """Create a snapshot volume and return its logical id.

        Without a size it can hold every block of the volume. A snapshot of this
        volume with the same name, left by an interrupted operation, is replaced.

        Raises:
            BlockDeviceError: another volume has the name, or there is too little space.
        """
        present = self._require()
        new_id = (self._group, name or f"{self._name}{_SNAPSHOT}")
        _group, new = _checked(self.disk, new_id)
        old = lvm.volume(self._process, self._group, new)
        if old is not None:
            if old.origin != self._name:
                raise self.error(f"cannot be copied to {new}: that volume exists")
            self._change(
                f"cannot replace the snapshot {new}",
                *("lvremove", "--yes", "--", f"{self._group}/{new}"),
            )
        size = size_mib or int(-(-present.size_mib // 1))
        units = lvm.physical_volumes(self._process, self._group)
        self._placement.check_space([unit for unit in units if unit.is_usable], size)
        tags: list[str] = []
        for tag in present.tags:
            tags += ["--addtag", tag]
        self._change(
            "cannot get a snapshot",
            *("lvcreate", "--yes", "--snapshot", "--size", f"{size}m"),
            *("--name", new, *tags, "--", self._key),
        )
        return new_id

    def _change(self, what: str, *argv: str) -> None:
        problem = lvm.change(self._process, argv)
        if problem is not None:
            raise self.error(f"{what}: {problem}")


def remove_all(volumes: Sequence[VolumeDisk]) -> None:
    """Remove volumes of a node, each with its snapshots; missing ones are no error.

    Raises:
        BlockDeviceError: one could not be removed; the others are gone.
        StorageError: LVM failed.
    """
    present = [volume for volume in volumes if volume.exists()]
    if present:
        present[0].remove_with(present[1:])


def _status(disk: VolumeDisk, present: lvm.Volume) -> DeviceStatus:
    """Return the status of a volume from what LVM says of it."""
    major = minor = None
    if os.path.exists(disk.path):
        device = os.stat(disk.path).st_rdev
        major, minor = os.major(device), os.minor(device)
    is_faulty = present.is_partial or present.is_virtual
    return DeviceStatus(
        disk.path,
        major=major,
        minor=minor,
        is_degraded=is_faulty,
        ldisk_status=LocalStatus.FAULTY if is_faulty else LocalStatus.OK,
    )


def _tag(text: str) -> str:
    """Return a text as LVM accepts it as a tag."""
    # LVM takes no tag that begins with a hyphen, see lvm(8).
    return _NO_TAG.sub("_", text).lstrip("-")[:_MAX_TAG]


def _checked(disk: DiskX, logical_id: Sequence[Any]) -> tuple[str, str]:
    """Return group and name of a logical id.

    Raises:
        BlockDeviceError: it has another form, or LVM cannot use the names.
    """
    group, name = (*logical_id, None, None)[:2]
    if len(logical_id) != 2 or not (lvm.is_name(group) and lvm.is_name(name)):
        raise errors.BlockDeviceError(
            f"disk {disk.uuid}: wanted a volume group and a name that LVM can use,"
            f" found {list(logical_id)!r}"
        )
    return group, name
