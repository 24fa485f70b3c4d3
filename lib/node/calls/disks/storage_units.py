"""Procedures for storage units and directories of disk files."""

import logging
from typing import Any

from ganeti.base import errors
from ganeti.base.constants import storage as words
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.node.storage import files, lvm_units, providers, space

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
    return space.list_units(
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
    allocatable = lvm_units.changes_of(changes, su_name, name)
    lvm_units.set_allocatable(node.process, name, allocatable=allocatable)


@procedure("storage_execute")
def storage_execute(
    node: LocalNode, su_name: str, su_args: list[Any], name: str, op: str
) -> None:
    """Run an operation of a storage unit: ``fix-consistency`` of a volume group."""
    del su_args
    if op not in words.VALID_STORAGE_OPERATIONS.get(su_name, ()):
        raise errors.StorageError(f"storage type {su_name}: unit {name}: cannot {op}")
    lvm_units.repair(node.process, name)


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
) -> list[space.UnitSpace | None]:
    """Return a report for each ``(type, key, parameters)``, for ``node_info``.

    None stands for a type without reports, and for a unit that cannot be queried.
    The latter is logged; it does not fail the call, whose other reports are needed.
    """
    return [_report(node, kind, key, args) for kind, key, args in units]


def _report(
    node: LocalNode, kind: str, key: str, args: list[Any]
) -> space.UnitSpace | None:
    exclusive = bool(args and args[0] is True)
    try:
        return space.report(node.paths, node.process, kind, key, exclusive=exclusive)
    except errors.GenericError as err:
        logger.warning("storage unit %s %s: no report: %s", kind, key, err)
        return None
