"""Procedures for storage units and directories of disk files."""

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypedDict

from ganeti import _buildconf
from ganeti.base import errors, pathutils
from ganeti.base.constants import disks
from ganeti.base.process import Runner
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.node.storage import allowed, files, gluster, lvm, providers
from ganeti.node.storage.base import MIB

PHYSICAL: Final = "lvm-pv"
GROUP: Final = "lvm-vg"
LVM_TYPES: Final = (PHYSICAL, GROUP)

_Row = dict[str, Any]
#: vgreduce prints it when the group has no missing parts any more.
_WROTE: Final = re.compile(r"wrote out consistent volume group", re.IGNORECASE)
_MISSING: Final = re.compile(
    r"missing|couldn't find device|unknown device", re.IGNORECASE
)
#: A disk that returns errors is no physical volume for LVM any more.
_LACKING: Final = (
    "LVM misses a physical volume of {}, as after the failure of its disk: nothing new"
    " is placed there, and gnt-node repair-storage takes it out of the group"
)
#: Longest part of a tool's output in an error.
_MAX_OUTPUT: Final = 2000


def _physical_rows(process: Runner) -> list[_Row]:
    return [
        {
            disks.SF_NAME: unit.name,
            disks.SF_USED: round(unit.used_mib),
            disks.SF_SIZE: round(unit.size_mib),
            disks.SF_FREE: round(unit.free_mib),
            disks.SF_ALLOCATABLE: unit.is_usable,
        }
        for unit in lvm.physical_volumes(process)
    ]


def _group_rows(process: Runner) -> list[_Row]:
    return [
        {
            disks.SF_NAME: group.name,
            disks.SF_USED: round(group.size_mib - group.free_mib),
            disks.SF_SIZE: round(group.size_mib),
            disks.SF_FREE: round(group.free_mib),
            disks.SF_ALLOCATABLE: True,
        }
        for group in lvm.groups(process)
    ]


_ROWS: Final[dict[str, Callable[[Runner], list[_Row]]]] = {
    PHYSICAL: _physical_rows,
    GROUP: _group_rows,
}


def lvm_rows(
    process: Runner, kind: str, name: str | None, fields: Sequence[str]
) -> list[list[Any]]:
    """Return one row of field values for each unit, or for the named one.

    Raises:
        StorageError: LVM failed, or there is no such unit.
    """
    units = [row for row in _ROWS[kind](process) if name in (None, row[disks.SF_NAME])]
    if name is not None and not units:
        raise errors.StorageError(f"storage type {kind}: no unit {name}")
    return [[row[field] for field in fields] for row in units]


def set_allocatable(process: Runner, name: str, *, allocatable: bool) -> None:
    """Allow or forbid that new volumes are placed on a physical volume.

    Raises:
        StorageError: there is no such physical volume, or LVM failed.
    """
    units = [unit for unit in lvm.physical_volumes(process) if unit.group]
    present = {unit.name: unit for unit in units if not unit.is_missing}
    unit = present.get(name)
    if unit is None:
        lacking = ", ".join(sorted({u.group for u in units if u.is_missing}))
        raise errors.StorageError(
            f"storage type {PHYSICAL}: no unit {name} in a volume group; there are"
            f" {', '.join(sorted(present)) or 'none'}"
            + (f"; {_LACKING.format(lacking)}" if lacking else "")
        )
    if unit.is_allocatable == allocatable:
        return
    word = "y" if allocatable else "n"
    problem = lvm.change(process, ("pvchange", "--allocatable", word, "--", name))
    if problem is not None:
        raise errors.StorageError(f"physical volume {name}: {problem}")


def repair(process: Runner, name: str) -> None:
    """Take missing physical volumes out of a group, with the volumes on them.

    Raises:
        StorageError: there is no such group, or it still misses something.
    """
    if not lvm.is_name(name):
        raise errors.StorageError(f"storage type {GROUP}: no unit {name!r}")
    argv = ("vgreduce", "--removemissing", name)
    done = lvm.run(process, argv)
    output = done.stdout + done.stderr
    if not _WROTE.search(output) or "--force" in output:
        done = lvm.run(process, ("vgreduce", "--removemissing", "--force", name))
        output += done.stdout + done.stderr
    check = lvm.run(process, ("vgs", "--noheadings", "--nosuffix", name))
    checked = check.stdout + check.stderr
    if check.failed or _MISSING.search(checked):
        raise errors.StorageError(
            f"volume group {name}: could not be repaired: vgreduce:"
            f" {_one_line(output)}; vgs: {_one_line(checked)}"
        )


def _one_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())[
        :_MAX_OUTPUT
    ]


def lvm_space(
    process: Runner, kind: str, group: str, *, exclusive: bool
) -> tuple[int, int] | None:
    """Return free and total space of a group, None if there is no such group.

    Space on physical volumes that are missing or may not be used counts as taken. For
    ``lvm-pv``, both are numbers of physical volumes; with ``exclusive`` only those
    without any volume are free.

    Raises:
        StorageError: LVM failed.
    """
    units = lvm.physical_volumes(process, group)
    if not units:
        return None
    usable = [unit for unit in units if unit.is_usable]
    empty = [unit for unit in usable if unit.is_empty]
    if kind == PHYSICAL:
        return len(empty), len(units)
    free = sum(unit.free_mib for unit in (empty if exclusive else usable))
    return int(free), int(sum(unit.size_mib for unit in units))


def changes_of(changes: Mapping[str, Any], kind: str, name: str) -> bool:
    """Return the value of ``allocatable`` in a request.

    Raises:
        StorageError: the type, or the request, has no such change.
    """
    value = changes.get(disks.SF_ALLOCATABLE)
    if kind != PHYSICAL or set(changes) != {disks.SF_ALLOCATABLE}:
        raise errors.StorageError(
            f"storage type {kind}: unit {name}: cannot change"
            f" {', '.join(sorted(changes)) or 'anything'}"
        )
    if not isinstance(value, bool):
        raise errors.StorageError(
            f"storage type {kind}: unit {name}: allocatable: wanted true or false,"
            f" found {value!r}"
        )
    return value


_SF_NODE: Final = "node"
_SF_TYPE: Final = "type"

# Space of storage units: reports for allocation, and lists for users.
#
# Sizes are in MiB. Files and LVM are offered; the report of another type is None, which
# callers show as unknown. Specified in storage-units, sections 2 to 4.

_FILE_TYPES: Final = ("file", "gluster", "sharedfile")


class UnitSpace(TypedDict):
    """Free and total space of one storage unit, in MiB."""

    type: str
    name: str
    storage_free: int
    storage_size: int


def space_report(
    paths: pathutils.Paths,
    process: Runner,
    kind: str,
    key: str,
    *,
    exclusive: bool = False,
) -> UnitSpace | None:
    """Return the space of a storage unit, None for types without a report.

    Args:
        paths: paths of this node.
        process: runs LVM's tools.
        kind: storage type.
        key: directory or volume group; the directory of exports counts as one of files.
        exclusive: whether disks get whole physical volumes.

    Raises:
        StorageError: the file system or LVM cannot be queried, or no such group.
        FileStoragePathError: the directory is not allowed.
    """
    if kind in LVM_TYPES:
        known = lvm_space(process, kind, key, exclusive=exclusive)
        if known is None:
            raise errors.StorageError(f"no volume group {key}")
        free, size = known
    elif kind in _FILE_TYPES:
        free, size = _file_system(_local(paths, kind, key))
    else:
        return None
    return {"type": kind, "name": key, "storage_free": free, "storage_size": size}


def _existing(path: str) -> str:
    """Return a directory, or the nearest one above it that exists."""
    while not os.path.isdir(path) and path != "/":
        path = os.path.dirname(path)
    return path


def _local(paths: pathutils.Paths, kind: str, directory: str) -> str:
    """Return the local path of the directory, or mount point, of a unit.

    Raises:
        FileStoragePathError: the directory is not allowed.
        StorageError: several Gluster volumes are mounted, so that no one is meant.
    """
    if kind == "file" and directory == _buildconf.EXPORT_DIR:
        return _existing(paths.at(directory))
    if kind != "gluster":
        return allowed.check(paths, directory, exact_ok=True)
    points = gluster.mount_points(paths, directory)
    if len(points) != 1:
        raise errors.StorageError(
            f"{directory}: wanted one Gluster volume that is mounted there, found"
            f" {len(points)}; a volume is mounted when its first disk is used"
        )
    return points[0]


def _file_system(local: str) -> tuple[int, int]:
    try:
        info = os.statvfs(local)
    except OSError as err:
        raise errors.StorageError(f"{local}: {err.strerror}") from err
    unit = info.f_frsize
    return round(info.f_bavail * unit / MIB), round(info.f_blocks * unit / MIB)


def list_storage_units(
    paths: pathutils.Paths,
    process: Runner,
    kind: str,
    *,
    args: Sequence[Any],
    name: str | None,
    fields: Sequence[str],
) -> list[list[Any]]:
    """Return one row of field values for each storage unit.

    Args:
        paths: paths of this node.
        process: runs LVM's tools.
        kind: storage type.
        args: ``[[directory, ...]]``; nothing for LVM.
        name: name of the only unit to list; None for all.
        fields: any of `allocatable`, `free`, `name`, `size` and `used`.

    Raises:
        StorageError: unknown field, a type that cannot be listed, or unknown unit.
    """
    if kind not in (*_FILE_TYPES, *LVM_TYPES):
        raise errors.StorageError(f"storage type {kind}: not offered by this node")
    known = set(disks.VALID_STORAGE_FIELDS) - {
        _SF_NODE,
        _SF_TYPE,
    }
    if unknown := set(fields) - known:
        raise errors.StorageError(
            f"storage type {kind}: unknown fields {', '.join(sorted(unknown))}"
        )
    if kind in LVM_TYPES:
        return lvm_rows(process, kind, name, fields)
    directories = [text for text in (args[0] if args else []) if text]
    if name is not None:
        if name not in directories:
            raise errors.StorageError(f"storage type {kind}: no unit {name}")
        directories = [name]
    rows = (_row(paths, kind, directory, fields) for directory in directories)
    return list(rows)


def _row(
    paths: pathutils.Paths, kind: str, directory: str, fields: Sequence[str]
) -> list[Any]:
    local = _local(paths, kind, directory)
    free, size = _file_system(local)
    values: dict[str, Any] = {
        disks.SF_NAME: directory,
        disks.SF_FREE: free,
        disks.SF_SIZE: size,
        disks.SF_ALLOCATABLE: True,
    }
    if disks.SF_USED in fields:
        values[disks.SF_USED] = round(_used_bytes(local) / MIB)
    return [values[field] for field in fields]


def _used_bytes(directory: str) -> int:
    """Return the bytes allocated below a directory, as ``du`` counts them."""
    total = 0
    for root, dirs, names in os.walk(directory):
        for name in (*dirs, *names):
            try:
                total += os.lstat(f"{root}/{name}").st_blocks * 512
            except FileNotFoundError:
                continue
    return total


# Procedures that list LVM's volume groups and volumes.


@procedure("vg_list")
def vg_list(node: LocalNode) -> dict[str, int]:
    """Return the size of each volume group in MiB."""
    return lvm.volume_groups(node.process)


@procedure("lv_list")
def lv_list(
    node: LocalNode, vg_name: str | list[str]
) -> dict[str, tuple[str, bool, bool]]:
    """Return size text, inactive and open of each volume, by ``group/name``.

    Virtual volumes, which hold no data of their own, are left out.
    """
    groups = [vg_name] if isinstance(vg_name, str) else vg_name
    return {
        f"{volume.group}/{volume.name}": (
            volume.size_text,
            volume.is_inactive,
            volume.is_open,
        )
        for volume in lvm.volumes(node.process, [name for name in groups if name])
        if not volume.is_virtual
    }


@procedure("node_volumes")
def node_volumes(node: LocalNode) -> list[dict[str, str]]:
    """Return a row for each device of each volume; ``-`` when it has none."""
    return [
        {
            "name": volume.name,
            "size": volume.size_text,
            "dev": device,
            "vg": volume.group,
        }
        for volume in lvm.volumes(node.process)
        for device in volume.devices or ("-",)
    ]


logger = logging.getLogger(__name__)


@procedure("storage_list")
def storage_list(
    node: LocalNode,
    su_name: str,
    su_args: list[Any],
    name: str | None,
    fields: list[str],
) -> list[list[Any]]:
    """Return one row of field values for each storage unit."""
    return list_storage_units(
        node.paths, node.process, su_name, args=su_args, name=name, fields=fields
    )


@procedure("storage_modify")
def storage_modify(
    node: LocalNode,
    su_name: str,
    su_args: list[Any],
    name: str,
    changes: dict[str, Any],
) -> None:
    """Change fields of a storage unit: ``allocatable`` of a physical volume."""
    del su_args
    allocatable = changes_of(changes, su_name, name)
    set_allocatable(node.process, name, allocatable=allocatable)


@procedure("storage_execute")
def storage_execute(
    node: LocalNode, su_name: str, su_args: list[Any], name: str, op: str
) -> None:
    """Run an operation of a storage unit: ``fix-consistency`` of a volume group."""
    del su_args
    if op not in disks.VALID_STORAGE_OPERATIONS.get(su_name, ()):
        raise errors.StorageError(f"storage type {su_name}: unit {name}: cannot {op}")
    repair(node.process, name)


@procedure("extstorage_diagnose")
def extstorage_diagnose(node: LocalNode) -> list[list[Any]]:
    """Return all providers of external storage of this node."""
    return providers.diagnose(node.paths)


@procedure("file_storage_dir_create")
def file_storage_dir_create(node: LocalNode, file_storage_dir: str) -> None:
    """Create a directory for disks; an existing directory is not an error."""
    files.make_directory(node.paths, file_storage_dir)


@procedure("file_storage_dir_remove")
def file_storage_dir_remove(node: LocalNode, file_storage_dir: str) -> None:
    """Remove an empty directory of disks; a missing directory is not an error."""
    files.remove_directory(node.paths, file_storage_dir)


@procedure("file_storage_dir_rename")
def file_storage_dir_rename(
    node: LocalNode, old_file_storage_dir: str, new_file_storage_dir: str
) -> None:
    """Rename a directory of disks; do nothing if it is already renamed."""
    files.rename_directory(node.paths, old_file_storage_dir, new_file_storage_dir)


def space_reports(
    node: LocalNode, units: list[tuple[str, str, list[Any]]]
) -> list[UnitSpace | None]:
    """Return a report for each ``(type, key, parameters)``, for ``node_info``.

    None stands for a type without reports, and for a unit that cannot be queried.
    The latter is logged; it does not fail the call, whose other reports are needed.
    """
    return [_report(node, kind, key, args) for kind, key, args in units]


def _report(node: LocalNode, kind: str, key: str, args: list[Any]) -> UnitSpace | None:
    exclusive = bool(args and args[0] is True)
    try:
        return space_report(node.paths, node.process, kind, key, exclusive=exclusive)
    except errors.GenericError as err:
        logger.warning("storage unit %s %s: no report: %s", kind, key, err)
        return None
