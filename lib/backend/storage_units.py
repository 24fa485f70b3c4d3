"""Procedures for storage units and directories of disk files."""

import logging
from typing import Any, NoReturn

from ganeti import errors
from ganeti.backend.registry import LocalNode, procedure
from ganeti.storage import files, space

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
    return space.list_units(node.paths, su_name, su_args, name, fields)


@procedure("storage_modify")
def storage_modify(
    node: LocalNode,
    su_name: str,
    su_args: list[Any],
    name: str,
    changes: dict[str, Any],
) -> NoReturn:
    """Refuse: no field of the storage offered here can be changed."""
    del node, su_args
    raise errors.StorageError(
        f"storage type {su_name}: unit {name}: cannot change"
        f" {', '.join(sorted(changes)) or 'anything'}"
    )


@procedure("storage_execute")
def storage_execute(
    node: LocalNode, su_name: str, su_args: list[Any], name: str, op: str
) -> NoReturn:
    """Refuse: the storage offered here has no operations."""
    del node, su_args
    raise errors.StorageError(f"storage type {su_name}: unit {name}: cannot {op}")


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
    return [_report(node, kind, key) for kind, key, _ in units]


def _report(node: LocalNode, kind: str, key: str) -> space.UnitSpace | None:
    try:
        return space.report(node.paths, kind, key)
    except errors.GenericError as err:
        logger.warning("storage unit %s %s: no report: %s", kind, key, err)
        return None
