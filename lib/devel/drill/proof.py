"""The disk of a guest that proves how often it has run, and never twice at once.

Each boot of the guest has a sector with a line: an id of the boot, a counter that grows
as long as the guest lives, and the last counter of the boot before as this boot saw it
at its beginning. If the boot before has counted on since then, two guests ran at the
same time; no clock takes part in this proof. See ``tools/os/tiny/guest/init``.
"""

import itertools
import re
from typing import Final, NamedTuple

from ganeti.base import errors

SECTOR: Final = 512
#: Most boots that are read.
_MAX_BOOTS: Final = 2048
_LINE: Final = re.compile(rb"([0-9a-f-]{36}) ([0-9]{1,12}) ([0-9]{1,12})")


class Boot(NamedTuple):
    """One boot of the guest.

    Attributes:
        boot_id: made by the kernel of the guest.
        counter: last step.
        seen: counter of the boot before when this one began; 0 for the first.
    """

    boot_id: str
    counter: int
    seen: int


def read(path: str) -> tuple[Boot, ...]:
    """Return the boots on a disk, in order.

    Raises:
        OpExecError: a sector is not of the form that the guest writes.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as disk:
        return parse(disk.read(_MAX_BOOTS * SECTOR))


def parse(data: bytes) -> tuple[Boot, ...]:
    """Return the boots in the sectors of a disk; see `read`."""
    boots = []
    for start in range(0, len(data), SECTOR):
        line = data[start : start + SECTOR].rstrip(b"\0").rstrip(b"\n")
        if not line:
            break
        match = _LINE.fullmatch(line)
        if match is None:
            raise errors.OpExecError(
                f"sector {start // SECTOR} of the disk of the guest: wanted a boot and"
                f" two counters, found {line[:60]!r}"
            )
        boot_id, counter, seen = match.groups()
        boots.append(Boot(boot_id.decode(), int(counter), int(seen)))
    return tuple(boots)


def overlap(boots: tuple[Boot, ...]) -> str:
    """Return how two boots ran at the same time, as a text; empty if none did."""
    for number, (before, after) in enumerate(itertools.pairwise(boots), 1):
        if before.counter != after.seen:
            return (
                f"boot {number} counted to {before.counter}, but to {after.seen} when"
                f" boot {number + 1} began: the guest ran twice at the same time"
            )
    return ""
