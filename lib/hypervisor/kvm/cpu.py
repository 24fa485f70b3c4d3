"""CPU masks, and pinning of a guest's virtual processors."""

import os
from typing import Final

from ganeti import errors
from ganeti.constants import hypervisors as hypervisor_constants
from ganeti.hypervisor.kvm.qmp import Qmp

_ALL: Final = hypervisor_constants.CPU_PINNING_ALL


def parse_mask(text: str) -> list[frozenset[int] | None]:
    """Return one set of processors per part; None means all processors.

    ``0-3,^2`` is 0, 1 and 3; parts are separated by colons.

    Raises:
        ParseError: names the text and the problem.
    """
    return [_parse_part(part.strip(), text) for part in text.split(":")]


def _parse_part(part: str, text: str) -> frozenset[int] | None:
    if part == _ALL:
        return None
    wanted: set[int] = set()
    unwanted: set[int] = set()
    for word in part.split(","):
        target = unwanted if word.startswith("^") else wanted
        target |= _parse_range(word.removeprefix("^"), text)
    if not wanted - unwanted:
        raise errors.ParseError(f"CPU mask {text!r}: {part!r} leaves no processor")
    return frozenset(wanted - unwanted)


def _parse_range(word: str, text: str) -> set[int]:
    low, dash, high = word.partition("-")
    if not low.isdigit() or (dash and not high.isdigit()):
        raise errors.ParseError(
            f"CPU mask {text!r}: wanted a number or a range, found {word!r}"
        )
    first, last = int(low), int(high or low)
    if last < first:
        raise errors.ParseError(f"CPU mask {text!r}: {word!r} starts above its end")
    return set(range(first, last + 1))


def assign(mask: str, vcpus: int) -> list[frozenset[int] | None]:
    """Return the processors of each virtual processor; a single part applies to all.

    Raises:
        HypervisorError: the mask has a wrong number of parts.
    """
    parts = parse_mask(mask)
    if len(parts) == 1:
        return parts * vcpus
    if len(parts) != vcpus:
        raise errors.HypervisorError(
            f"CPU mask {mask!r}: wanted 1 or {vcpus} parts, found {len(parts)}"
        )
    return parts


def pin(qmp: Qmp, name: str, mask: str) -> None:
    """Bind a guest's virtual processors to processors of the node.

    Raises:
        HypervisorError: the mask does not fit guest or node.
    """
    if mask == _ALL:
        return
    rows = sorted(qmp.execute("query-cpus-fast"), key=lambda row: row["cpu-index"])
    for row, cpus in zip(rows, assign(mask, len(rows)), strict=True):
        if cpus is None:
            continue
        try:
            os.sched_setaffinity(row["thread-id"], cpus)
        except OSError as err:
            raise errors.HypervisorError(
                f"instance {name}: cannot pin virtual processor {row['cpu-index']} to"
                f" {sorted(cpus)}: {err.strerror}"
            ) from err
