"""Space of storage units: reports for allocation, and lists for users.

Sizes are in MiB. Files and LVM are offered; the report of another type is None, which
callers show as unknown. Specified in storage-units, sections 2 to 4.
"""

import os
from collections.abc import Sequence
from typing import Any, Final, TypedDict

from ganeti import _buildconf
from ganeti.base import errors, pathutils
from ganeti.base.constants import storage as storage_constants
from ganeti.base.process import Runner
from ganeti.node.storage import allowed, gluster, lvm_units
from ganeti.node.storage.base import MIB

_FILE_TYPES: Final = ("file", "gluster", "sharedfile")


class UnitSpace(TypedDict):
    """Free and total space of one storage unit, in MiB."""

    type: str
    name: str
    storage_free: int
    storage_size: int


def report(
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
    if kind in lvm_units.TYPES:
        known = lvm_units.space(process, kind, key, exclusive=exclusive)
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


def list_units(
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
    if kind not in (*_FILE_TYPES, *lvm_units.TYPES):
        raise errors.StorageError(f"storage type {kind}: not offered by this node")
    known = set(storage_constants.VALID_STORAGE_FIELDS) - {
        storage_constants.SF_NODE,
        storage_constants.SF_TYPE,
    }
    if unknown := set(fields) - known:
        raise errors.StorageError(
            f"storage type {kind}: unknown fields {', '.join(sorted(unknown))}"
        )
    if kind in lvm_units.TYPES:
        return lvm_units.rows(process, kind, name, fields)
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
        storage_constants.SF_NAME: directory,
        storage_constants.SF_FREE: free,
        storage_constants.SF_SIZE: size,
        storage_constants.SF_ALLOCATABLE: True,
    }
    if storage_constants.SF_USED in fields:
        values[storage_constants.SF_USED] = round(_used_bytes(local) / MIB)
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
