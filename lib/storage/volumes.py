"""Disks that are logical volumes: template ``plain``, and the parts of mirrored disks.

The logical id is ``(volume group, name)``. LVM rounds sizes up to whole extents. A
volume stays active between uses: activating it again, as after a start of the node, is
all that assembly does. LVM's tools change the volumes; a name that they could read as
an option, or that LVM reserves, never gets to them.
"""

import os
import re
from collections.abc import Sequence
from typing import Any, Final

from ganeti import errors, pathutils
from ganeti.objects.filled import DiskX
from ganeti.process import Runner
from ganeti.storage import lvm
from ganeti.storage.base import MIB, Device, DeviceStatus, LocalStatus

#: Characters that LVM allows in a tag, see lvm(8); others become underscores.
_NO_TAG: Final = re.compile(r"[^A-Za-z0-9_+.\-/=!:&#]")
_MAX_TAG: Final = 128
#: Directory of the device files.
DEVICES: Final = "/dev"
#: Suffix of a snapshot whose name is not given.
_SNAPSHOT: Final = ".snap"


class VolumeDisk(Device):
    """A disk that is a logical volume."""

    def __init__(self, paths: pathutils.Paths, disk: DiskX, process: Runner) -> None:
        super().__init__(paths, disk, process)
        self._group, self._name = _checked(disk, disk.logical_id)

    @property
    def path(self) -> str:
        """Path of the device, which exists while the volume is active."""
        return f"{DEVICES}/{self._group}/{self._name}"

    @property
    def _key(self) -> str:
        return f"{self._group}/{self._name}"

    def _find(self) -> lvm.Volume | None:
        return lvm.volume(self._process, self._group, self._name)

    def _require(self) -> lvm.Volume:
        present = self._find()
        if present is None:
            raise self.error(f"volume group {self._group} has no such volume")
        return present

    def require(self) -> None:
        """Raise BlockDeviceError unless the volume exists."""
        self._require()

    def exists(self) -> bool:
        """Return whether the volume exists.

        Raises:
            StorageError: LVM failed.
        """
        return self._find() is not None

    def create(
        self, size_mib: int, *, exclusive: bool = False, is_primary: bool = True
    ) -> None:
        """Create and activate the volume, without old signatures at its beginning.

        Raises:
            BlockDeviceError: it exists, or there is too little space; names both.
            StorageError: LVM failed.
        """
        del is_primary
        units = lvm.physical_volumes(self._process, self._group)
        if not units:
            raise self.error(f"this node has no volume group {self._group}")
        if self.exists():
            raise self.error("exists already")
        if exclusive:
            chosen = self._empty_units(units, size_mib)
            # Each of them gets a part of the disk, so that none counts as empty.
            stripes = len(chosen)
        else:
            chosen = [unit for unit in units if unit.is_usable]
            self._check_space(chosen, size_mib)
            chosen.sort(key=lambda unit: unit.free_mib, reverse=True)
            stripes = min(
                int((self.disk.params or {}).get("stripes") or 1), len(chosen)
            )
        done = self._run(
            *("lvcreate", "--yes", "--wipesignatures", "y", "--zero", "y"),
            *("--size", f"{size_mib}m", "--name", self._name),
            *("--stripes", str(stripes), "--", self._group),
            *(unit.name for unit in chosen),
        )
        if done is not None and stripes > 1:
            # Striped space needs as much on each physical volume.
            done = self._run(
                *("lvcreate", "--yes", "--wipesignatures", "y", "--zero", "y"),
                *("--size", f"{size_mib}m", "--name", self._name, "--", self._group),
                *(unit.name for unit in chosen),
            )
        if done is not None:
            raise self.error(f"cannot be created: {done}")

    def _check_space(self, units: Sequence[lvm.PhysicalVolume], size_mib: int) -> None:
        free = int(sum(unit.free_mib for unit in units))
        if free < size_mib:
            raise self.error(
                f"needs {size_mib} MiB in volume group {self._group}, which has {free}"
                " MiB free on allocatable physical volumes"
            )

    def _empty_units(
        self, units: Sequence[lvm.PhysicalVolume], size_mib: int
    ) -> list[lvm.PhysicalVolume]:
        """Return the physical volumes that become this disk's alone.

        As many as the disk has spindles; without a number, the fewest that suffice.
        """
        empty = [unit for unit in units if unit.is_usable and unit.is_empty]
        empty.sort(key=lambda unit: unit.free_mib, reverse=True)
        wanted = self.disk.spindles
        if wanted is None:
            wanted, space = 0, 0.0
            while wanted < len(empty) and space < size_mib:
                space += empty[wanted].free_mib
                wanted += 1
            wanted = max(wanted, 1)
        chosen = empty[:wanted]
        space = sum(unit.free_mib for unit in chosen)
        if len(chosen) < wanted or space < size_mib:
            raise self.error(
                f"needs {wanted} empty physical volumes of volume group {self._group}"
                f" with {size_mib} MiB in all, found {len(chosen)} with {int(space)}"
                " MiB"
            )
        return chosen

    def remove(self) -> None:
        """Remove the volume, and with it its snapshots."""
        if self.exists():
            self._change("cannot be removed", "lvremove", "--yes", "--", self._key)

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
        self._check_space(usable, int(wanted - present.size_mib))
        test = ("--test",) if dryrun else ()
        size = ("--size", f"{wanted}m", "--", self._key)
        self._change(
            f"cannot grow to {wanted} MiB",
            *("lvextend", *test, *size, *(unit.name for unit in usable)),
        )

    def rename(self, new_id: tuple[Any, ...]) -> None:
        """Give the volume another name in its group; never that of another volume."""
        group, name = _checked(self.disk, new_id)
        if group != self._group:
            raise self.error(f"cannot be renamed to another volume group, {group}")
        if name == self._name:
            return
        self._require()
        self._change(
            f"cannot be renamed to {name}",
            *("lvrename", "--yes", "--", self._group, self._name, name),
        )

    def size_bytes(self) -> int:
        """Return the volume's size, which is a multiple of the group's extents."""
        return round(self._require().size_mib * MIB)

    def assemble(self) -> None:
        """Activate the volume.

        Raises:
            BlockDeviceError: it does not exist, or parts of it are missing.
        """
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
        tag = _NO_TAG.sub("_", text).lstrip("-")[:_MAX_TAG]
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
        present = self._require()
        major = minor = None
        if os.path.exists(self.path):
            device = os.stat(self.path).st_rdev
            major, minor = os.major(device), os.minor(device)
        is_faulty = present.is_partial or present.is_virtual
        return DeviceStatus(
            self.path,
            major=major,
            minor=minor,
            is_degraded=is_faulty,
            ldisk_status=LocalStatus.FAULTY if is_faulty else LocalStatus.OK,
        )

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
        self._check_space([unit for unit in units if unit.is_usable], size)
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
        problem = self._run(*argv)
        if problem is not None:
            raise self.error(f"{what}: {problem}")

    def _run(self, *argv: str) -> str | None:
        return lvm.change(self._process, argv)


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
