"""Numbers that others compare, and the settings with which a master commits them.

They must never go back. A copy that is replaced because it holds another history may
have shown higher ones, to confd's clients for example. The master leaves these out.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

#: Keys among the ``meta`` documents, see `ganeti.master.config` and
#: `ganeti.master.jqueue.effects`.
CONFIG_HEADER: Final = "config"
LAST_JOB: Final = "serial"
#: A number this far above the master's own is not believed: one lying node must not use
#: up all numbers.
MAX_JUMP: Final = 100_000_000
#: Begins the names of the numbers of replaced histories in a candidate's answer.
REPLACED: Final = "replaced_"


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


def highest(one: Numbers, other: Numbers) -> Numbers:
    """Return the higher one of each number."""
    return Numbers(*map(max, one, other))


def encode(numbers: Numbers) -> str:
    """Return numbers as `decode` takes them."""
    return msgspec.json.encode(tuple(numbers)).decode()


def decode(text: str) -> Numbers:
    """Return the numbers in a text; zeros if it has none, or is damaged."""
    try:
        return Numbers(*msgspec.json.decode(text, type=list[int]))
    except (msgspec.DecodeError, TypeError):
        return Numbers()


def to_status(numbers: Numbers, replaced: Numbers) -> dict[str, int]:
    """Return numbers as a part of a candidate's answer, which has the revision.

    Args:
        numbers: of its copy.
        replaced: highest ones of histories that its copy has replaced.
    """
    return {
        "serial": numbers.serial,
        "last_job": numbers.last_job,
        **{f"{REPLACED}{name}": value for name, value in replaced._asdict().items()},
    }


def above(
    own: Numbers, status: Mapping[str, Any], *, is_replaced: bool
) -> Numbers | None:
    """Return the numbers to which the master has to go up, None if its own are as high.

    Args:
        own: of the master.
        status: answer of a candidate; earlier releases lack all numbers but the
            revision. A number that cannot be believed is left out.
        is_replaced: the copy itself is about to be replaced.
    """
    wanted = own
    if is_replaced:
        wanted = _credible(own, [status.get(name) for name in Numbers._fields])
    replaced = [status.get(f"{REPLACED}{name}") for name in Numbers._fields]
    wanted = highest(wanted, _credible(own, replaced))
    return None if wanted == own else wanted


def _credible(own: Numbers, values: Sequence[object]) -> Numbers:
    return Numbers(
        *(
            value
            if isinstance(value, int)
            and not isinstance(value, bool)
            and at_least < value <= at_least + MAX_JUMP
            else at_least
            for at_least, value in zip(own, values, strict=True)
        )
    )


@dataclasses.dataclass
class CommitSettings:
    """How a master commits.

    Attributes:
        is_lenient: returns whether the administrator chose availability: commits are
            acknowledged without a majority, with a warning.
        accept_loss: the administrator started this master without a majority; until
            there is one, the master goes on without.
        is_patient: without a majority, wait for one; else the commit fails, and may be
            durable nevertheless.
        on_deposed: called once, from any thread, when another master has taken over;
            nothing can be written any more.
        on_higher: called from any thread, before a copy with another history is
            replaced, with the numbers to leave out since that copy may have shown them.
            Returns at once.
        on_refusal: called with the uuid of a candidate that refuses this master's term,
            while a majority follows this master. Other candidates do not wait for it.
            Returns whether the candidate's copy lets the master daemon start again.
        silent: uuids of candidates that have just not answered. The first commit does
            not wait until they are heard: that would take a second time limit.
    """

    is_lenient: Callable[[], bool] = bool
    accept_loss: bool = False
    is_patient: bool = True
    on_deposed: Callable[[], None] = lambda: None
    on_higher: Callable[[Numbers], None] = lambda _numbers: None
    on_refusal: Callable[[str], bool] = lambda _node: True
    silent: frozenset[str] = frozenset()
