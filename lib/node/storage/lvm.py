"""LVM on this node: its physical volumes, groups, volumes, and how to change them.

Disks in volume groups do not belong here, nor storage units. Sizes are in MiB. Reports
of the tools are JSON of bounded length; nothing of them is used as an option.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from ganeti.base import errors
from ganeti.base.process import SAFE_PATH, Runner

_Part = TypeVar("_Part")

#: Environment of the tools: they read their own configuration and nothing of ours.
#: LVM would warn of each open file that a tool inherits, see lvm(8).
_ENVIRONMENT: Final = {
    "PATH": SAFE_PATH,
    "LC_ALL": "C",
    "LVM_SUPPRESS_FD_WARNINGS": "1",
}
_COMMON: Final = ("--reportformat", "json", "--units", "m", "--nosuffix")
#: Limit in seconds for a tool that waits for LVM's locks: the node must answer.
_TIMEOUT_S: Final = 50.0
#: The same for a tool that changes something, below the limit of such calls.
_CHANGE_TIMEOUT_S: Final = 600.0
#: Bytes of a report or of messages: 10,000 volumes have 3 MB.
_MAX_OUTPUT: Final = 32 * 1024 * 1024
_VOLUME_FIELDS: Final = "vg_name,lv_name,lv_size,lv_attr,devices,lv_tags,origin"
_UNIT_FIELDS: Final = (
    "pv_name,vg_name,pv_size,pv_free,pv_used,pv_attr,pv_missing,pv_pe_alloc_count,"
    "vg_extent_size"
)
#: See lvm(8), "valid names"; its reserved words, which it uses for parts of volumes.
_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9+_.-]{1,127}")
_RESERVED: Final = re.compile(
    r"\.{1,2}|snapshot.*|pvmove.*|.*(_cdata|_cmeta|_corig|_mimage|_mlog|_pmspare|_rimage"
    r"|_rmeta|_tdata|_tmeta|_vdata|_vorigin|_imeta|_iorig|_cpool|_cvol|_wcorig).*"
)


def is_name(text: object) -> bool:
    """Return whether LVM accepts a text as the name of a group or volume."""
    return (
        isinstance(text, str)
        and _NAME.fullmatch(text) is not None
        and _RESERVED.fullmatch(text) is None
    )


@dataclasses.dataclass(frozen=True)
class Volume:
    """One logical volume.

    Attributes:
        group: its volume group.
        name: name within the group.
        size_text: MiB with two decimals, as LVM prints it.
        attributes: the ``lv_attr`` word of LVM, see lvs(8).
        devices: devices of its extents, each once, in order; empty for thin volumes.
        tags: its tags, in LVM's order.
        origin: the volume of which this is a snapshot, empty if it is none.
    """

    group: str
    name: str
    size_text: str
    attributes: str
    devices: tuple[str, ...]
    tags: tuple[str, ...] = ()
    origin: str = ""

    @property
    def size_mib(self) -> float:
        """Size; whole extents."""
        return float(self.size_text)

    @property
    def is_virtual(self) -> bool:
        """Whether the volume holds no data of its own."""
        return self.attributes.startswith("v")

    @property
    def is_inactive(self) -> bool:
        """Whether the volume is not active in the kernel."""
        return self.attributes[4:5] == "-"

    @property
    def is_open(self) -> bool:
        """Whether the volume is in use."""
        return self.attributes[5:6] == "o"

    @property
    def is_partial(self) -> bool:
        """Whether a physical volume with extents of the volume is missing."""
        return self.attributes[8:9] == "p"


@dataclasses.dataclass(frozen=True)
class PhysicalVolume:
    """One physical volume of a group.

    Attributes:
        name: path of its device; LVM's text for a device that is missing.
        group: its volume group, empty without one.
        size_mib: its size.
        free_mib: its free space.
        used_mib: its used space.
        is_allocatable: whether new volumes may be placed on it.
        is_missing: whether its device cannot be read.
        is_empty: whether no extent is in use.
        extent_mib: size of the extents of its group, 0 without one.
    """

    name: str
    group: str
    size_mib: float
    free_mib: float
    used_mib: float
    is_allocatable: bool
    is_missing: bool
    is_empty: bool
    extent_mib: float = 0.0

    @property
    def is_usable(self) -> bool:
        """Whether new volumes can be placed on it."""
        return self.is_allocatable and not self.is_missing


@dataclasses.dataclass(frozen=True)
class Label:
    """The label of a physical volume.

    Attributes:
        name: path of its device; LVM's text for a device that is missing.
        uuid: in LVM's form.
        group: its volume group, empty without one.
        is_in_use: it belongs to a group, perhaps one whose description is missing.
    """

    name: str
    uuid: str
    group: str
    is_in_use: bool


@dataclasses.dataclass(frozen=True)
class Group:
    """One volume group: its name, size and free space."""

    name: str
    size_mib: float
    free_mib: float


def volume_groups(process: Runner) -> dict[str, int]:
    """Return the size of each volume group in whole MiB, by name.

    Raises:
        StorageError: LVM is not installed or failed.
    """
    return {group.name: int(group.size_mib) for group in groups(process)}


def groups(process: Runner) -> list[Group]:
    """Return all volume groups.

    Raises:
        StorageError: LVM is not installed or failed.
    """

    def group(row: Mapping[str, Any]) -> Group:
        return Group(row["vg_name"], float(row["vg_size"]), float(row["vg_free"]))

    return _report(process, "vgs", ("-o", "vg_name,vg_size,vg_free"), "vg", group)


def physical_volumes(process: Runner, group: str | None = None) -> list[PhysicalVolume]:
    """Return the physical volumes of a group; of all groups, and of none, by default.

    A group that does not exist has none.

    Raises:
        StorageError: LVM is not installed or failed.
    """
    units = _report(process, "pvs", ("-o", _UNIT_FIELDS), "pv", _physical_volume)
    return [unit for unit in units if group is None or unit.group == group]


def labels(process: Runner) -> list[Label]:
    """Return the labels of all physical volumes.

    Raises:
        StorageError: LVM is not installed or failed.
    """

    def label(row: Mapping[str, Any]) -> Label:
        names = (row["pv_name"], row["pv_uuid"], row["vg_name"])
        return Label(*names, is_in_use=bool(row["pv_in_use"]))

    return _report(
        process, "pvs", ("-o", "pv_name,pv_uuid,vg_name,pv_in_use"), "pv", label
    )


def _physical_volume(row: Mapping[str, Any]) -> PhysicalVolume:
    return PhysicalVolume(
        name=row["pv_name"],
        group=row["vg_name"],
        size_mib=float(row["pv_size"]),
        free_mib=float(row["pv_free"]),
        used_mib=float(row["pv_used"]),
        is_allocatable=row["pv_attr"].startswith("a"),
        is_missing=bool(row["pv_missing"]),
        is_empty=row["pv_pe_alloc_count"] == "0",
        extent_mib=float(row["vg_extent_size"] or 0),
    )


def volumes(process: Runner, groups: Sequence[str] = ()) -> list[Volume]:
    """Return the logical volumes of the groups, of all groups if none is named.

    Raises:
        StorageError: LVM is not installed or failed, or a group does not exist.
    """
    for name in groups:
        if not is_name(name):
            raise errors.StorageError(f"{name!r} is no name of a volume group")
    return _volumes(process, ("--", *groups))


def volume(process: Runner, group: str, name: str) -> Volume | None:
    """Return a logical volume, None if there is none, or no such group.

    Args:
        process: runs LVM's tools.
        group: a name in the sense of `is_name`.
        name: likewise.

    Raises:
        StorageError: LVM is not installed or failed.
    """
    # A selection that matches nothing is no error, unlike the name of a missing volume.
    rows = _volumes(process, ("--select", f"vg_name={group} && lv_name={name}"))
    return next((v for v in rows if (v.group, v.name) == (group, name)), None)


def _volumes(process: Runner, arguments: Sequence[str]) -> list[Volume]:
    segments = _report(
        process, "lvs", ("-o", _VOLUME_FIELDS, *arguments), "lv", _segment
    )
    by_key: dict[tuple[str, str], Volume] = {}
    for segment in segments:
        key = segment.group, segment.name
        before = by_key[key].devices if key in by_key else ()
        devices = tuple(dict.fromkeys((*before, *segment.devices)))
        by_key[key] = dataclasses.replace(segment, devices=devices)
    return list(by_key.values())


def _segment(row: Mapping[str, Any]) -> Volume:
    """Return a row, which LVM prints for each segment, as a volume."""
    tags = tuple(tag for tag in row.get("lv_tags", "").split(",") if tag)
    devices = tuple(dict.fromkeys(_devices(row["devices"])))
    names = (row["vg_name"], row["lv_name"], row["lv_size"], row["lv_attr"])
    return Volume(*names, devices, tags, row.get("origin", ""))


def _devices(text: str) -> Iterator[str]:
    """Yield the devices of ``/dev/sda(0),/dev/sdb(10)``, without first extents."""
    for part in text.split(","):
        if part:
            yield part.rpartition("(")[0] or part


def change(process: Runner, argv: Sequence[str]) -> str | None:
    """Run a tool that changes something; return why it failed, None if it did not.

    Raises:
        StorageError: LVM is not installed.
    """
    result = run(process, argv, timeout_s=_CHANGE_TIMEOUT_S)
    if not result.failed:
        return None
    return f"{argv[0]} {result.reason}: {messages_of(result.stderr)}"


def messages_of(stderr: str) -> str:
    """Return a tool's messages as one line, without warnings that others explain."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return "; ".join(lines[-8:]) or "no output"


def run(process: Runner, argv: Sequence[str], *, timeout_s: float = _TIMEOUT_S) -> Any:
    """Run one of LVM's tools; return the result of the process.

    Raises:
        StorageError: LVM is not installed.
    """
    try:
        return process.run_bounded(
            list(argv), env=_ENVIRONMENT, timeout_s=timeout_s, max_output=_MAX_OUTPUT
        )
    except errors.CommandError as err:
        raise errors.StorageError(
            f"cannot use LVM: {err}; its tools are in the package lvm2"
        ) from err


def _report(
    process: Runner,
    tool: str,
    arguments: Sequence[str],
    kind: str,
    make: Callable[[Mapping[str, Any]], _Part],
) -> list[_Part]:
    result = run(process, [tool, *_COMMON, *arguments])
    if result.failed:
        raise errors.StorageError(
            f"{tool} {result.reason}: {messages_of(result.stderr)}"
        )
    try:
        report = json.loads(result.stdout)["report"]
        return [make(row) for part in report for row in part[kind]]
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise errors.StorageError(f"{tool}: no report in its output: {err!r}") from err
