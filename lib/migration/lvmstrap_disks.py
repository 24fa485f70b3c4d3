"""The disks of this machine, and why each is in use.

Sources are ``lsblk`` for devices and mounts, ``wipefs`` for signatures, LVM's report,
and the kernel. A disk is used if any of them says so, or cannot be asked. Their texts
are shown and compared; only paths of devices become arguments.
"""

import collections
import dataclasses
import errno
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.errors import refusal
from ganeti.base.filesystem import files
from ganeti.base.process import Limits, Runner, RunResult
from ganeti.base.text.nicesort import nice_sorted
from ganeti.node.storage import lvm

#: Programs that look at each device that changes, for a moment.
_PASSING: Final = ("systemd-udevd", "(udev-worker)", "udevd")
#: Whether a mode is that of a block device.
_is_block = stat.S_ISBLK


class Kernel(Protocol):
    """The questions about devices that no program of util-linux answers."""

    def claim(self, path: str, number: str) -> str | None:
        """Return why a device cannot be used exclusively now, None if it can."""

    def users(self) -> dict[str, str]:
        """Return device number -> process that has the device open."""


class SystemKernel:
    """The kernel of this machine."""

    def claim(self, path: str, number: str) -> str | None:
        """Return why a device cannot be used exclusively now, None if it can.

        File systems, swap, RAID, LVM and DRBD have the devices below them exclusively,
        in any namespace; see ``O_EXCL`` in open(2).

        Args:
            path: of the device.
            number: the ``MAJOR:MINOR`` that it must have.
        """
        try:
            fd = os.open(path, os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as err:
            if err.errno == errno.EBUSY:
                return "is in use by the kernel"
            return f"cannot be opened: {err.strerror}"
        try:
            info = os.fstat(fd)
        finally:
            os.close(fd)
        if not _is_block(info.st_mode) or _number(info) != number:
            return "is not the device that was found before"
        return None

    def users(self) -> dict[str, str]:
        """Return device number -> process that has the device open.

        A guest has its disk open like a file, not exclusively.
        """
        return {
            number: f"{pid} ({name})"
            for pid in os.listdir("/proc")
            if pid.isdecimal() and (name := _name(pid)) not in _PASSING
            for number in _open_devices(pid)
        }


def _open_devices(pid: str) -> Iterator[str]:
    directory = f"/proc/{pid}/fd"
    try:
        names = os.listdir(directory)
    except OSError:
        return  # It has ended.
    for name in names:
        try:
            info = os.stat(f"{directory}/{name}")
        except OSError:
            continue
        if _is_block(info.st_mode):
            yield _number(info)


def _name(pid: str) -> str:
    try:
        return files.text_of(f"/proc/{pid}/comm", 64).strip()
    except OSError:
        return ""


def _number(info: os.stat_result) -> str:
    return f"{os.major(info.st_rdev)}:{os.minor(info.st_rdev)}"


#: Beginning of the UUIDs of physical volumes that this program makes. One without a
#: group is free: it is what a run that was killed leaves behind.
UUID_MARK: Final = "Ganeti-lvms-trap-"
#: Name of the partitions that this program makes, for the same purpose.
PARTITION_NAME: Final = "ganeti-lvmstrap"
#: Partition type "Linux LVM" of GPT.
LVM_TYPE: Final = "E6D6D379-F507-44C2-A23C-238F2A3DF928"
_COLUMNS: Final = (
    "KNAME,PATH,MAJ:MIN,TYPE,SIZE,RM,HOTPLUG,RO,SUBSYSTEMS,MOUNTPOINTS,SERIAL,WWN"
)
#: Seconds for one look at a disk that hardly answers.
_TIMEOUT_S: Final = 60.0
_MAX_OUTPUT: Final = 16 * 1024 * 1024
_AT_ONCE: Final = 8
_PATH: Final = re.compile(r"/dev/[A-Za-z0-9+_.:@=!/-]{1,250}")
_MIB: Final = 1024 * 1024
_SWAP: Final = "[SWAP]"
_LVM: Final = "LVM2_member"
_GPT: Final = frozenset(("gpt", "PMBR"))
#: Signatures of partition tables, as libblkid names them.
_TABLES: Final = _GPT | {
    *("dos", "mac", "sgi", "sun", "bsd", "solaris_x86", "unixware", "minix", "atari"),
    *("ultrix", "amiga"),
}


class Reason(NamedTuple):
    """Why a disk is used: text, and how to free it, empty if there is no way."""

    text: str
    cure: str


@dataclasses.dataclass(frozen=True)
class Place:
    """A place for a physical volume that an earlier run has prepared.

    Attributes:
        path: device of the disk, or of its partition.
        number: ``MAJOR:MINOR`` of the device.
        uuid: that of the physical volume that it is already, None if it is none.
    """

    path: str
    number: str
    uuid: str | None


@dataclasses.dataclass(frozen=True)
class Disk:
    """A disk at one moment; two equal ones are the same disk in the same state.

    Attributes:
        name: its path without ``/dev/``.
        path: of its device.
        number: ``MAJOR:MINOR``.
        identity: serial number and world wide name, None where it has none.
        size_bytes: its size.
        mounts: where something of it is mounted.
        is_lvm: it is a physical volume, or a partition of it is.
        reasons: why it is used; empty if it is free.
        place: what an earlier run has prepared; None for an empty disk.
    """

    name: str
    path: str
    number: str
    identity: tuple[str | None, str | None]
    size_bytes: int
    mounts: tuple[str, ...]
    is_lvm: bool
    reasons: tuple[Reason, ...]
    place: Place | None = None

    @property
    def size_mib(self) -> int:
        """Size in whole MiB."""
        return self.size_bytes // _MIB

    @property
    def info(self) -> str:
        """Return a text that says what is on it."""
        if self.reasons:
            return "; ".join(reason.text for reason in self.reasons)
        if self.place is None:
            return "empty"
        if self.place.uuid is not None:
            return "physical volume without a group, made by lvmstrap"
        return "partition table made by lvmstrap"

    @property
    def problem(self) -> str:
        """Return why it is refused and how to free it."""
        cures = dict.fromkeys(reason.cure for reason in self.reasons if reason.cure)
        advice = f" ({', '.join(cures)})" if cures else ""
        return f"disk {self.name}: {self.info}{advice}"


@dataclasses.dataclass(frozen=True)
class _Block:
    """One row of lsblk."""

    kernel_name: str
    path: str
    number: str
    kind: str
    size_bytes: int
    is_removable: bool
    is_read_only: bool
    subsystems: tuple[str, ...]
    mounts: tuple[str, ...]
    identity: tuple[str | None, str | None]
    children: "tuple[_Block, ...]"

    @property
    def name(self) -> str:
        return self.path.removeprefix("/dev/")

    @property
    def is_listed(self) -> bool:
        """Whether it is a disk with hardware of its own, or an array of disks.

        Disks of software have no bus: those of DRBD, NBD, compressed memory. Images of
        RADOS have one. All these may be disks of instances.
        """
        if self.size_bytes <= 0:
            return False
        if self.kind == "disk":
            return bool(set(self.subsystems) - {"block", "rbd"})
        return self.kind == "mpath" or self.kind.startswith("raid")

    @property
    def is_allowed(self) -> bool:
        """Whether it may be used if the administrator names it."""
        return self.is_listed or (self.kind == "loop" and self.size_bytes > 0)

    def below(self) -> "Iterator[_Block]":
        """Yield all devices that are made of it."""
        for child in self.children:
            yield child
            yield from child.below()


class _Signature(NamedTuple):
    kind: str
    uuid: str


class Disks:
    """Looks at the disks of this machine.

    Args:
        process: runs the programs.
        kernel: knows who uses a device.
        allow_removable: removable disks are not used for that reason alone.
    """

    def __init__(
        self, process: Runner, kernel: Kernel, *, allow_removable: bool
    ) -> None:
        self._process = process
        self._kernel = kernel
        self._allow_removable = allow_removable

    def look(self, words: Sequence[str] = ()) -> list[Disk]:
        """Return disks as they are now.

        Args:
            words: names or paths of disks, in the order wanted; by default all, sorted.

        Raises:
            OpPrereqError: a word is no disk of this machine.
            StorageError: LVM or a program of util-linux is missing or fails.
        """
        blocks = self._blocks()
        if words:
            named = [_named(blocks, word) for word in words]
            chosen = list({block.kernel_name: block for block in named}.values())
        else:
            listed = [block for block in blocks if block.is_listed]
            chosen = nice_sorted(listed, lambda block: block.name)
        labels = lvm.labels(self._process)
        parts = [part for block in chosen for part in _partitions(block)]
        looked_at = [*chosen, *parts]
        signatures = self._signatures([block.path for block in looked_at])
        look = _Look(labels, signatures, self._kernel.users())
        return [self._disk(block, look) for block in chosen]

    def table_id(self, path: str) -> str | None:
        """Return the identity of a partition table of this program, None without one.

        Such a table has one partition, with the type and the name that this program
        gives.
        """
        try:
            result = self._run(["sfdisk", "--json", path])
        except errors.StorageError:
            return None
        if result.failed:
            return None
        try:
            table = json.loads(result.stdout)["partitiontable"]
            (only,) = table["partitions"]
            own = (table["label"], only["type"].upper(), only["name"])
            return table["id"] if own == ("gpt", LVM_TYPE, PARTITION_NAME) else None
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def _disk(self, block: _Block, look: "_Look") -> Disk:
        place = self._place(block, look)
        reasons = list(self._reasons(block, look, place))
        on_it = [block, *block.below()]
        uses = (block, *_partitions(block))
        return Disk(
            name=block.name,
            path=block.path,
            number=block.number,
            identity=block.identity,
            size_bytes=block.size_bytes,
            mounts=tuple(dict.fromkeys(m for b in on_it for m in b.mounts)),
            is_lvm=any(s.kind == _LVM for b in uses for s in look.of(b.path)),
            reasons=tuple(reasons),
            place=None if reasons else place,
        )

    def _place(self, block: _Block, look: "_Look") -> Place | None:
        """Return what an earlier run has prepared and nobody uses."""
        present = look.of(block.path)
        if not block.children and look.is_spare(present):
            return Place(block.path, block.number, present[0].uuid)
        kinds = {signature.kind for signature in present}
        if "gpt" not in kinds or not kinds <= _GPT or len(block.children) != 1:
            return None
        (part,) = block.children
        if part.kind != "part" or part.children or part.mounts:
            return None
        if part.path in look.problems or self.table_id(block.path) is None:
            return None
        inside = look.of(part.path)
        if inside and not look.is_spare(inside):
            return None
        return Place(part.path, part.number, inside[0].uuid if inside else None)

    def _reasons(
        self, block: _Block, look: "_Look", place: Place | None
    ) -> Iterator[Reason]:
        """Yield all reasons why a disk is used."""
        if block.is_read_only:
            yield Reason("is read-only", "")
        if block.is_removable and not self._allow_removable:
            yield Reason("is removable", "allow it with -r")
        for each in (block, *block.below()):
            yield from _mount_reasons(block, each)
        on_disk = list(_child_reasons(block)) if place is None else []
        if block.path in look.problems:
            on_disk.append(Reason(look.problems[block.path], ""))
        elif place is None:
            on_disk.extend(_signature_reasons(block, look))
        yield from on_disk
        if not on_disk and not any(b.mounts for b in (block, *block.below())):
            yield from self._use_reasons(block, look, place)

    def _use_reasons(
        self, block: _Block, look: "_Look", place: Place | None
    ) -> Iterator[Reason]:
        """Yield who uses a device on which nothing is found."""
        devices = {block.number: block.path}
        if place is not None:
            devices[place.number] = place.path
        for number, path in devices.items():
            problem = self._kernel.claim(path, number)
            if problem is not None:
                yield Reason(problem, "")
            elif number in look.users:
                user = look.users[number]
                yield Reason(f"is open in process {user}", "end that process")

    def _signatures(
        self, paths: Sequence[str]
    ) -> "dict[str, list[_Signature] | errors.StorageError]":
        """Return path -> the signatures on it, or why they are unknown."""
        limits = Limits(_TIMEOUT_S, _MAX_OUTPUT, at_once=_AT_ONCE)
        commands = [["wipefs", "--json", path] for path in paths]
        results = self._process.run_many(commands, limits=limits)
        return {
            path: _signatures_of(result)
            for path, result in zip(paths, results, strict=True)
        }

    def _blocks(self) -> list[_Block]:
        """Return all block devices, each once."""
        result = self._run(["lsblk", "--json", "--bytes", "--output", _COLUMNS])
        if result.failed:
            raise errors.StorageError(
                f"lsblk {result.reason}: {lvm.messages_of(result.stderr)}"
            )
        try:
            tops = [_block(row) for row in json.loads(result.stdout)["blockdevices"]]
        except (ValueError, KeyError, TypeError, AttributeError) as err:
            raise errors.StorageError(
                f"lsblk: no list of devices in its output: {err!r}"
            ) from err
        every = [block for top in tops for block in (top, *top.below())]
        return list({block.kernel_name: block for block in every}.values())

    def _run(self, argv: list[str]) -> RunResult:
        try:
            return self._process.run_bounded(
                argv, timeout_s=_TIMEOUT_S, max_output=_MAX_OUTPUT
            )
        except errors.CommandError as err:
            raise errors.StorageError(f"cannot look at the disks: {err}") from err


class _Look:
    """The answers of all programs in one look.

    Attributes:
        problems: path -> why its signatures are unknown.
        users: number of a device -> process that has it open.
        labels: UUID -> physical volume that LVM knows.
    """

    def __init__(
        self,
        labels: Iterable[lvm.Label],
        signatures: "Mapping[str, list[_Signature] | errors.StorageError]",
        users: Mapping[str, str],
    ) -> None:
        self.problems: dict[str, str] = {}
        self._signatures: dict[str, list[_Signature]] = {}
        for path, outcome in signatures.items():
            if isinstance(outcome, errors.StorageError):
                self.problems[path] = str(outcome)
            else:
                self._signatures[path] = outcome
        self.users = users
        self.labels = {label.uuid: label for label in labels}
        self._uuids = collections.Counter(
            one.uuid for each in self._signatures.values() for one in each
        )

    def of(self, path: str) -> list[_Signature]:
        """Return the signatures on a device; none if they are unknown."""
        return self._signatures.get(path, [])

    def is_spare(self, present: Sequence[_Signature]) -> bool:
        """Return whether all that is there is a volume of ours without a group.

        A copy of a disk has the UUID of the original: LVM would take either.
        """
        if len(present) != 1:
            return False
        (kind, uuid) = present[0]
        label = self.labels.get(uuid)
        return (
            kind == _LVM
            and uuid.startswith(UUID_MARK)
            and self._uuids[uuid] == 1
            and label is not None
            and not label.group
            and not label.is_in_use
        )


def _partitions(block: _Block) -> list[_Block]:
    return [child for child in block.children if child.kind == "part"]


def _mount_reasons(disk: _Block, block: _Block) -> Iterator[Reason]:
    subject = "is" if block is disk else f"{block.name} is"
    for mount in block.mounts:
        if mount == _SWAP:
            yield Reason(f"{subject} swap in use", f"end that: swapoff {block.path}")
        else:
            yield Reason(f"{subject} mounted on {mount}", "unmount it")


def _child_reasons(block: _Block) -> Iterator[Reason]:
    names = [part.name for part in _partitions(block)]
    if names:
        yield Reason(f"has partitions {', '.join(names)}", _wipe(block))
    for child in block.children:
        if child.kind != "part":
            yield Reason(
                f"is part of {child.name} ({child.kind})", f"remove {child.name}"
            )


def _signature_reasons(block: _Block, look: _Look) -> Iterator[Reason]:
    reported: set[str] = set()
    has_table = any(signature.kind == "gpt" for signature in look.of(block.path))
    for kind, uuid in look.of(block.path):
        if kind in reported or (has_table and kind == "PMBR"):
            continue
        reported.add(kind)
        if kind == _LVM:
            yield _volume_reason(block, look.labels.get(uuid))
        elif kind in _TABLES:
            yield Reason(f"has a partition table ({kind})", _wipe(block))
        elif kind.endswith("_member"):
            yield Reason(f"is part of an array of disks ({kind})", _wipe(block))
        else:
            yield Reason(f"has a file system or other data ({kind})", _wipe(block))


def _volume_reason(block: _Block, label: lvm.Label | None) -> Reason:
    if label is None:
        return Reason("is a physical volume that LVM does not list", _wipe(block))
    if label.group:
        return Reason(
            f"is a physical volume of group {label.group}",
            f"if nothing of it is needed: vgremove {label.group}, pvremove"
            f" {block.path}",
        )
    return Reason(
        "is a physical volume without a group",
        f"if nothing of it is needed: pvremove {block.path}",
    )


def _wipe(block: _Block) -> str:
    return f"if nothing of it is needed: wipefs --all {block.path}"


def _named(blocks: Sequence[_Block], word: str) -> _Block:
    """Return the disk with a name or path; links such as in /dev/disk are followed."""
    path = os.path.realpath(os.path.join("/dev", word))
    for block in blocks:
        if path in (block.path, f"/dev/{block.kernel_name}"):
            break
    else:
        raise errors.OpPrereqError(
            f"disk {word}: this machine has no such disk; lvmstrap diskinfo lists them",
            ecodes.ECODE_NOENT,
        )
    if not block.is_allowed:
        raise refusal(
            f"disk {word}: wanted a whole disk or an array of disks, found a device of"
            f" type {block.kind}"
            + (" without hardware" if block.kind == "disk" else "")
        )
    return block


def _signatures_of(
    result: RunResult | errors.CommandError,
) -> "list[_Signature] | errors.StorageError":
    if isinstance(result, errors.CommandError):
        return errors.StorageError(str(result))
    if result.failed:
        text = lvm.messages_of(result.stderr)
        return errors.StorageError(f"is not readable: wipefs {result.reason}: {text}")
    try:
        rows = json.loads(result.stdout)["signatures"] if result.stdout.strip() else []
        return [_Signature(str(row["type"]), row["uuid"] or "") for row in rows]
    except (ValueError, KeyError, TypeError) as err:
        return errors.StorageError(f"has unknown content: output of wipefs: {err!r}")


def _block(row: Mapping[str, Any]) -> _Block:
    path = row["path"]
    if not _PATH.fullmatch(path):
        raise ValueError(f"path {path!r} of a device")
    return _Block(
        kernel_name=row["kname"],
        path=path,
        number=row["maj:min"].strip(),
        kind=row["type"],
        size_bytes=int(row["size"] or 0),
        is_removable=bool(row["rm"] or row["hotplug"]),
        is_read_only=bool(row["ro"]),
        subsystems=tuple((row["subsystems"] or "").split(":")),
        mounts=tuple(mount for mount in row["mountpoints"] if mount),
        identity=(row["serial"], row["wwn"]),
        children=tuple(_block(child) for child in row.get("children", ())),
    )
