"""Make a volume group of disks: all of it, or nothing.

Each physical volume has a UUID that is chosen here, and each partition table likewise.
So an undo removes what this run has made and nothing that another program made there,
and a run after one that was killed knows what that one has left.
"""

import contextlib
import logging
import secrets
import string
import uuid
from collections.abc import Callable, Sequence
from typing import Final

from ganeti.base import errors
from ganeti.base.process import Runner
from ganeti.migration.lvmstrap import disks
from ganeti.migration.lvmstrap.disks import Disk, Disks
from ganeti.node.storage import lvm

_log = logging.getLogger(__name__)
_ALPHABET: Final = string.digits + string.ascii_letters
#: Lengths of the parts of LVM's UUIDs, behind those of the mark.
_UUID_PARTS: Final = (4, 4, 4, 6)
_TIMEOUT_S: Final = 120.0
_MAX_OUTPUT: Final = 1024 * 1024


class Creation:
    """One run that makes a group.

    Args:
        process: runs the programs.
        machine: looks at the disks again.
        group: name of the new group.
        use_partitions: make a partition table first on each empty disk.
    """

    def __init__(
        self, process: Runner, machine: Disks, group: str, *, use_partitions: bool
    ) -> None:
        self._process = process
        self._disks = machine
        self._group = group
        self._use_partitions = use_partitions
        #: Take the steps back, in order; each returns why it cannot.
        self._undo: list[Callable[[], str | None]] = []
        #: UUIDs of the group's physical volumes.
        self._volumes: set[str] = set()

    def run(self, chosen: Sequence[Disk]) -> lvm.Group:
        """Make the group of free disks; return it.

        Raises:
            OpExecError: a step failed; says what could not be undone.
            StorageError: LVM is missing or fails; the same.
        """
        try:
            members = [self._prepare(disk) for disk in chosen]
            self._undo.append(self._remove_group)
            self._change(["vgcreate", "-q", self._group, *members])
            (made,) = (g for g in lvm.groups(self._process) if g.name == self._group)
        except errors.GenericError as err:
            raise errors.OpExecError("; ".join([str(err), *self._take_back()])) from err
        except BaseException:
            for text in self._take_back():
                _log.warning("%s", text)
            raise
        return made

    def _prepare(self, disk: Disk) -> str:
        """Make a physical volume of a disk unless it is one; return its path."""
        self._check(disk)
        place = disk.place
        if place is None and self._use_partitions:
            place = self._partition(disk)
        path = disk.path if place is None else place.path
        if place is not None and place.uuid is not None:
            self._volumes.add(place.uuid)
            return path
        label = new_uuid()
        self._volumes.add(label)
        self._undo.append(lambda: self._remove_volume(label, path))
        # LVM asks if a signature has appeared, and takes the end of its input for no.
        argv = ["pvcreate", "-q", "--norestorefile", "--zero", "y", "--uuid", label]
        self._change([*argv, path])
        return path

    def _check(self, disk: Disk) -> None:
        """Refuse a disk that is not what it was when it was chosen."""
        (now,) = self._disks.look([disk.path])
        if now == disk:
            return
        difference = now.info if now.info != disk.info else "it is another disk"
        raise errors.OpExecError(
            f"disk {disk.name}: has changed since it was chosen: {difference};"
            " look at it with lvmstrap diskinfo"
        )

    def _partition(self, disk: Disk) -> disks.Place:
        """Make a partition table with one partition."""
        label = str(uuid.uuid4()).upper()
        self._undo.append(lambda: self._remove_table(label, disk.path))
        script = (
            f"label: gpt\nlabel-id: {label}\n"
            f"type={disks.LVM_TYPE}, name={disks.PARTITION_NAME}\n"
        )
        argv = ["sfdisk", "--quiet", "--wipe-partitions", "always", disk.path]
        try:
            problem = self._run(argv, script)
        except errors.OpExecError as err:
            problem = f"{err}; it is in the package fdisk"
        if problem:
            raise errors.OpExecError(f"disk {disk.name}: {problem}")
        # Without udev the kernel makes the device itself.
        with contextlib.suppress(errors.OpExecError):
            self._run(["udevadm", "settle", "--timeout=60"])
        (now,) = self._disks.look([disk.path])
        if now.reasons or now.place is None:
            raise errors.OpExecError(
                f"disk {disk.name}: its new partition does not appear or is used:"
                f" {now.info}"
            )
        return now.place

    def _change(self, argv: list[str]) -> None:
        _log.info("%s", " ".join(argv))
        if problem := lvm.change(self._process, argv):
            raise errors.OpExecError(problem)

    def _run(self, argv: list[str], stdin: str | None = None) -> str | None:
        """Run a program; return why it failed, None if it did not."""
        _log.info("%s", " ".join(argv))
        try:
            result = self._process.run_bounded(
                argv, timeout_s=_TIMEOUT_S, max_output=_MAX_OUTPUT, stdin=stdin
            )
        except errors.CommandError as err:
            raise errors.OpExecError(str(err)) from err
        if not result.failed:
            return None
        return f"{argv[0]} {result.reason}: {lvm.messages_of(result.stderr)}"

    def _take_back(self) -> list[str]:
        """Undo all steps; return what stays."""
        left = []
        while self._undo:
            step = self._undo.pop()
            try:
                problem = step()
            except errors.GenericError as err:
                problem = str(err)
            if problem:
                left.append(problem)
        return left

    def _remove_group(self) -> str | None:
        """Remove a group that a vgcreate has made that did not end well."""
        ours = {
            label.uuid
            for label in lvm.labels(self._process)
            if label.group == self._group
        }
        if not ours or not ours <= self._volumes:
            return None
        problem = lvm.change(self._process, ["vgremove", "-q", self._group])
        return problem and f"group {self._group} stays: {problem}"

    def _remove_volume(self, label: str, path: str) -> str | None:
        if label not in {each.uuid for each in lvm.labels(self._process)}:
            return None
        problem = lvm.change(self._process, ["pvremove", "-q", path])
        return problem and f"physical volume {path} stays: {problem}"

    def _remove_table(self, label: str, path: str) -> str | None:
        if self._disks.table_id(path) != label:
            return None
        problem = self._run(["wipefs", "--quiet", "--all", path])
        return problem and f"partition table of {path} stays: {problem}"


def new_uuid() -> str:
    """Return a UUID in LVM's form for a physical volume of this program."""
    parts = ("".join(secrets.choice(_ALPHABET) for _ in range(n)) for n in _UUID_PARTS)
    return disks.UUID_MARK + "-".join(parts)
