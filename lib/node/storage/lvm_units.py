"""LVM's storage units: physical volumes and volume groups, in rows; change and repair.

Specified in storage-units, sections 2 and 3. Sizes are in MiB.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import storage as words
from ganeti.base.process import Runner
from ganeti.node.storage import lvm

PHYSICAL: Final = "lvm-pv"
GROUP: Final = "lvm-vg"
TYPES: Final = (PHYSICAL, GROUP)

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
            words.SF_NAME: unit.name,
            words.SF_USED: round(unit.used_mib),
            words.SF_SIZE: round(unit.size_mib),
            words.SF_FREE: round(unit.free_mib),
            words.SF_ALLOCATABLE: unit.is_usable,
        }
        for unit in lvm.physical_volumes(process)
    ]


def _group_rows(process: Runner) -> list[_Row]:
    return [
        {
            words.SF_NAME: group.name,
            words.SF_USED: round(group.size_mib - group.free_mib),
            words.SF_SIZE: round(group.size_mib),
            words.SF_FREE: round(group.free_mib),
            words.SF_ALLOCATABLE: True,
        }
        for group in lvm.groups(process)
    ]


_ROWS: Final[dict[str, Callable[[Runner], list[_Row]]]] = {
    PHYSICAL: _physical_rows,
    GROUP: _group_rows,
}


def rows(
    process: Runner, kind: str, name: str | None, fields: Sequence[str]
) -> list[list[Any]]:
    """Return one row of field values for each unit, or for the named one.

    Raises:
        StorageError: LVM failed, or there is no such unit.
    """
    units = [row for row in _ROWS[kind](process) if name in (None, row[words.SF_NAME])]
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
            f"volume group {name}: could not be repaired: vgreduce: {_short(output)};"
            f" vgs: {_short(checked)}"
        )


def _short(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())[
        :_MAX_OUTPUT
    ]


def space(
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
    value = changes.get(words.SF_ALLOCATABLE)
    if kind != PHYSICAL or set(changes) != {words.SF_ALLOCATABLE}:
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
