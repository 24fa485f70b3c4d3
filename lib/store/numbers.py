"""Numbers that others compare: revision, serial of the configuration, last job id.

They must never go back. A copy that is replaced because it holds another history may
have shown higher ones, to confd's clients for example. The master leaves these out.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

#: Keys among the ``meta`` documents, see `ganeti.config` and `ganeti.jqueue.documents`.
CONFIG_HEADER: Final = "config"
LAST_JOB: Final = "serial"
#: A number this far above the master's own is not believed: one lying node must not use
#: up all numbers.
MAX_JUMP: Final = 100_000_000


class Numbers(NamedTuple):
    """The numbers of one copy."""

    revision: int = 0
    serial: int = 0
    last_job: int = 0


class _Header(msgspec.Struct):
    serial_no: int = 0


def of(read: Callable[[str, str], bytes | None], revision: int) -> Numbers:
    """Return the numbers of a copy.

    Args:
        read: returns the document of a table and key.
        revision: of the copy.

    Raises:
        ValueError: a document is damaged.
    """
    header = read("meta", CONFIG_HEADER)
    decoded = msgspec.json.decode(header, type=_Header) if header else _Header()
    return Numbers(revision, decoded.serial_no, int(read("meta", LAST_JOB) or b"0"))


def to_status(numbers: Numbers) -> dict[str, int]:
    """Return numbers as a part of a candidate's answer, which has the revision."""
    return {"serial": numbers.serial, "last_job": numbers.last_job}


def above(own: Numbers, status: Mapping[str, Any]) -> Numbers | None:
    """Return the numbers to which the master has to go up, None if its own are as high.

    Args:
        own: of the master.
        status: answer of a candidate; earlier releases have no serial and no job id. A
            number that cannot be believed is left out.
    """
    values = []
    for name, at_least in own._asdict().items():
        value = status.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            value = at_least
        is_credible = at_least < value <= at_least + MAX_JUMP
        values.append(value if is_credible else at_least)
    wanted = Numbers(*values)
    return None if wanted == own else wanted
