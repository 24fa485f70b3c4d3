"""Disk and NIC options: from ``INDEX:key=value,...`` to opcode parameters."""

from collections.abc import Collection
from typing import Any

from ganeti.base.constants.disks import MAX_DISKS, MAX_NICS
from ganeti.base.errors import refusal
from ganeti.base.text import units
from ganeti.commands.cli import values

Given = list[tuple[str, Any]]


def parse_index(text: str, what: str) -> int:
    """Return a device index.

    Raises:
        OpPrereqError: not a number.
    """
    try:
        return int(text)
    except ValueError as err:
        raise refusal(f"{what}: wanted an index, found {text!r}") from err


def expiry(text: str | None) -> int | None:
    """Return seconds from now; 0 for never, None if nothing is given.

    Raises:
        OpPrereqError: not a duration.
    """
    if text is None:
        return None
    return 0 if text == "never" else units.parse_duration(text)


def parse_size(text: Any, what: str) -> int:
    """Return MiB.

    Raises:
        OpPrereqError: not a size.
    """
    try:
        return values.parse_size(str(text))
    except values.BadValueError as err:
        raise refusal(f"{what}: {err}") from err


def _by_index(given: Given, what: str, most: int) -> list[dict[str, Any]]:
    """Return parameters by index; indices without an option are empty.

    Raises:
        OpPrereqError: no index, or one that the given number of devices cannot have.
    """
    by_index: dict[int, dict[str, Any]] = {}
    for ident, parameters in given:
        index = parse_index(ident, what)
        if not 0 <= index < most:
            raise refusal(f"{what} {index}: wanted an index from 0 to {most - 1}")
        if not isinstance(parameters, dict):
            raise refusal(f"{what} {index}: wanted key=value parameters")
        by_index[index] = parameters
    return [by_index.get(index, {}) for index in range(max(by_index, default=-1) + 1)]


def new_nics(given: Given, *, none: bool) -> list[dict[str, Any]]:
    """Return the NICs of a new instance; by default one.

    Raises:
        OpPrereqError: NICs together with ``--no-nics``, or a wrong index.
    """
    if none:
        if given:
            raise refusal("--no-nics and --net exclude each other")
        return []
    return _by_index(given, "NIC", MAX_NICS) if given else [{}]


def new_disks(
    given: Given, *, size_mib: int | None, template: str | None
) -> list[dict[str, Any]]:
    """Return the disks of a new instance.

    Raises:
        OpPrereqError: options exclude each other, or a disk has no size.
    """
    if template == "diskless":
        if given or size_mib is not None:
            raise refusal("a diskless instance cannot have disks")
        return []
    if given and size_mib is not None:
        raise refusal("--disk and --os-size exclude each other")
    if size_mib is not None:
        return [{"size": size_mib}]
    if not given:
        raise refusal("no disk information specified: use --disk or --os-size")
    disks = _by_index(given, "disk", MAX_DISKS)
    if {} in disks and not _is_named(given, disks.index({})):
        raise refusal(
            f"disk {len(disks) - 1}: wanted also disks with lower indices, found no"
            f" disk {disks.index({})}"
        )
    return [_new_disk(index, parameters) for index, parameters in enumerate(disks)]


def _is_named(given: Given, index: int) -> bool:
    """Return whether one of the options is for an index."""
    return any(parse_index(ident, "disk") == index for ident, _ in given)


def without_size(parameters: Collection[str]) -> str:
    """Return the complaint about a disk without a size; names what it has."""
    others = ", ".join(sorted(parameters))
    return f"no size given, only {others}" if others else "no size given"


def _new_disk(index: int, parameters: dict[str, Any]) -> dict[str, Any]:
    disk = dict(parameters)
    if "adopt" in disk:
        if "size" in disk:
            raise refusal(f"disk {index}: size and adopt exclude each other")
        return {**disk, "size": 0}
    if "size" not in disk:
        raise refusal(f"disk {index}: {without_size(disk)}")
    disk["size"] = parse_size(disk["size"], f"disk {index}: size")
    return disk
