"""The command line of ``lvmstrap``."""

import argparse
import contextlib
import json
import logging
import os
import secrets
import string
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes, versions
from ganeti.base.process import Runner, SystemRunner
from ganeti.base.text import arguments, control_chars
from ganeti.commands.cli.output import table
from ganeti.migration import lvmstrap_disks
from ganeti.migration.lvmstrap_disks import Disk, Disks, Kernel, SystemKernel
from ganeti.node.storage import lvm
from ganeti.tools import common

# Make a volume group of disks: all of it, or nothing.
#
# Each physical volume has a UUID that is chosen here, and each partition table
# likewise. So an undo removes what this run has made and nothing that another program
# made there, and a run after one that was killed knows what that one has left.

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

    def _partition(self, disk: Disk) -> lvmstrap_disks.Place:
        """Make a partition table with one partition."""
        label = str(uuid.uuid4()).upper()
        self._undo.append(lambda: self._remove_table(label, disk.path))
        script = (
            f"label: gpt\nlabel-id: {label}\n"
            f"type={lvmstrap_disks.LVM_TYPE}, name={lvmstrap_disks.PARTITION_NAME}\n"
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
    return lvmstrap_disks.UUID_MARK + "-".join(parts)


NAME: Final = "lvmstrap"
_GROUP: Final = "xenvg"
_COLUMNS: Final = (
    table.Column("Name"),
    table.Column("Size[M]", "number"),
    table.Column("Used"),
    table.Column("Mount"),
    table.Column("LVM?"),
    table.Column("Info"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool."""
    options = parse(argv)
    common.start_log(NAME, options)
    return common.run(NAME, lambda: work(options, SystemRunner(), SystemKernel()))


def work(options: argparse.Namespace, process: Runner, kernel: Kernel) -> None:
    """Show disks or make the group, as the options say.

    Raises:
        OpPrereqError: this cannot be done here, and nothing has changed.
        OpExecError: making the group failed.
        StorageError: LVM or a program that looks at disks is missing or fails.
    """
    if os.geteuid() != 0:
        raise errors.OpPrereqError("run this as root", ecodes.ECODE_STATE)
    machine = Disks(process, kernel, allow_removable=options.allow_removable)
    if options.command == "diskinfo":
        print(_shown(machine.look(options.disks), as_json=options.json))
        return
    if options.vg_name in lvm.volume_groups(process):
        raise errors.OpPrereqError(
            f"volume group {options.vg_name}: exists on this machine; choose another"
            " name with -g, or extend it with vgextend",
            ecodes.ECODE_EXISTS,
        )
    chosen = _chosen(machine, options.disks)
    creation = Creation(
        process, machine, options.vg_name, use_partitions=options.use_sfdisk
    )
    made = creation.run(chosen)
    names = ",".join(disk.name for disk in chosen)
    print(f"Done! VG: size {made.size_mib / 1024:.2f} GiB, disks: {names}")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options; a wrong use ends the program with exit code 2."""
    parser = argparse.ArgumentParser(
        prog=NAME,
        description="Shows the disks of this machine, or makes a volume group of them.",
        formatter_class=arguments.Formatter,
    )
    add = parser.add_argument
    add("command", choices=("diskinfo", "create"), metavar="diskinfo|create")
    add("--alldisks", action="store_true", help="use every free disk")
    add("-d", "--disks", type=_names, default=[], metavar="DISK,...", help="disks")
    add("-r", "--allow-removable", action="store_true", help="also removable disks")
    add("-g", "--vg-name", type=_group, default=_GROUP, metavar="NAME", help="group")
    add("--use-sfdisk", action="store_true", help="make a partition on each disk")
    add("--json", action="store_true", help="print JSON (diskinfo)")
    add("-v", "--verbose", action="store_true", help="log each step")
    version = f"{NAME} (ganeti) {versions.RELEASE_VERSION}"
    add("--version", action="version", version=version)
    parser.set_defaults(debug=False)
    options = parser.parse_args(argv)
    if options.command == "diskinfo":
        return options
    if options.json:
        parser.error("--json belongs to diskinfo")
    if bool(options.disks) == options.alldisks:
        parser.error("create wants either --disks or --alldisks")
    return options


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names) or not text.isprintable():
        raise argparse.ArgumentTypeError(f"wanted names of disks, found {text!r}")
    return names


def _group(text: str) -> str:
    if not lvm.is_name(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name of a volume group")
    return text


def _chosen(machine: Disks, words: Sequence[str]) -> list[Disk]:
    """Return the disks to use: those named, all of them free, or all free ones."""
    looked_at = machine.look(words)
    used = [disk for disk in looked_at if disk.reasons]
    if words and used:
        text = "; ".join(control_chars.escape(disk.problem) for disk in used)
        raise errors.OpPrereqError(text, ecodes.ECODE_STATE)
    free = [disk for disk in looked_at if not disk.reasons]
    if not free:
        texts = [control_chars.escape(disk.problem) for disk in used]
        raise errors.OpPrereqError(
            "; ".join(["this machine has no free disk", *texts]), ecodes.ECODE_NORES
        )
    return free


def _shown(disks: Sequence[Disk], *, as_json: bool) -> str:
    if as_json:
        return json.dumps([_object(disk) for disk in disks], indent=2)
    rows = [
        (
            disk.name,
            str(disk.size_mib),
            _yes_no(bool(disk.reasons)),
            control_chars.escape(",".join(disk.mounts)) or "-",
            _yes_no(disk.is_lvm),
            control_chars.escape(disk.info),
        )
        for disk in disks
    ]
    cells = [[row[index] for row in rows] for index in range(len(_COLUMNS))]
    return table.render(_COLUMNS, cells, separator=None, headers=True, pad_header=True)


def _yes_no(value: bool) -> str:
    return "yes" if value else "no"


def _object(disk: Disk) -> dict[str, Any]:
    return {
        "name": disk.name,
        "path": disk.path,
        "size": disk.size_mib,
        "used": bool(disk.reasons),
        "mounts": list(disk.mounts),
        "lvm": disk.is_lvm,
        "info": disk.info,
    }
