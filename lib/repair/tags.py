"""The tags of automatic repair: parsing, formatting, and the permitted repairs.

After the prefix, a record of an instance is ``pending:KIND:ID:TIME:JOBS`` or
``result:KIND:ID:TIME:OUTCOME:JOBS``, with JOBS joined by ``+``. A policy is ``KIND``,
``suspend`` or ``suspend:TIME``, on an instance, a node group or the cluster. There,
``reinstall-file`` extends ``reinstall`` to instances with file disks.
"""

import dataclasses
import enum
import math
import re
from collections.abc import Iterable
from typing import Final

from ganeti.constants.tags import MAX_TAG_LEN

PREFIX: Final = "ganeti:watcher:autorepair:"
_SUSPEND: Final = "suspend"
#: Tag without which no policy permits the loss of file disks. Ganeti 3.0 never repaired
#: such instances, so an older ``reinstall`` tag does not mean them.
FILE_TAG: Final = f"{PREFIX}reinstall-file"
_RECORD: Final = re.compile(
    re.escape(PREFIX)
    + r"(?:(?P<pending>pending)|result):(?P<kind>[a-z-]+):(?P<id>[^:]+):(?P<time>\d+)"
    r"(?(pending)|:(?P<outcome>[a-z]+)):(?P<jobs>(?:\d+(?:\+\d+)*)?)"
)


class RepairKind(enum.IntEnum):
    """Kinds of repairs by severity; permission for one includes the kinds before it."""

    FIX_STORAGE = 0
    MIGRATE = 1
    FAILOVER = 2
    REINSTALL = 3

    @property
    def word(self) -> str:
        """The kind's name in tags."""
        return self.name.lower().replace("_", "-")


class RepairOutcome(enum.StrEnum):
    """Outcome of a repair."""

    SUCCESS = "success"
    FAILURE = "failure"
    ENOPERM = "enoperm"


_KINDS: Final = {kind.word: kind for kind in RepairKind}


@dataclasses.dataclass(frozen=True, slots=True)
class RepairRecord:
    """A repair, as recorded in a tag of the instance.

    Attributes:
        kind: the most severe kind that this repair may use.
        id: a UUID.
        time: Unix seconds of its begin, or of its end if it has an outcome.
        outcome: None while it is pending.
        jobs: ids of its jobs, oldest first.
        original_tag: the tag that was parsed, empty for a new record.
    """

    kind: RepairKind
    id: str
    time: int
    outcome: RepairOutcome | None = None
    jobs: tuple[int, ...] = ()
    original_tag: str = dataclasses.field(default="", compare=False)

    @property
    def tag(self) -> str:
        """The tag of this record; the oldest jobs are left out if it is too long."""
        head = f"{self.kind.word}:{self.id}:{self.time}:"
        if self.outcome is None:
            head = f"{PREFIX}pending:{head}"
        else:
            head = f"{PREFIX}result:{head}{self.outcome}:"
        jobs = "+".join(str(job) for job in self.jobs)
        while len(head + jobs) > MAX_TAG_LEN and "+" in jobs:
            jobs = jobs.partition("+")[2]
        return head + jobs


def records(tags: Iterable[str]) -> list[RepairRecord]:
    """Return the records in tags, oldest first; all other tags are skipped."""
    parsed = [_record(tag) for tag in tags]
    kept = [record for record in parsed if record is not None]
    return sorted(kept, key=lambda record: (record.time, record.id))


def _record(tag: str) -> RepairRecord | None:
    match = _RECORD.fullmatch(tag)
    if match is None or match["kind"] not in _KINDS:
        return None
    if match["outcome"] is not None and match["outcome"] not in set(RepairOutcome):
        return None
    return RepairRecord(
        kind=_KINDS[match["kind"]],
        id=match["id"],
        time=int(match["time"]),
        outcome=None if match["outcome"] is None else RepairOutcome(match["outcome"]),
        jobs=tuple(int(job) for job in match["jobs"].split("+") if job),
        original_tag=tag,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class RepairPolicy:
    """The permitted repairs of an instance.

    Attributes:
        allowed: the most severe permitted kind; None for no repairs.
        until: Unix seconds before which no repair begins, infinity for an unlimited
            suspension; None without suspension.
        with_files: whether a permitted reinstallation may also replace file disks.
    """

    allowed: RepairKind | None = None
    until: float | None = None
    with_files: bool = False

    def __str__(self) -> str:
        if self.until is not None:
            end = (
                "without limit" if math.isinf(self.until) else f"until {self.until:.0f}"
            )
            return f"suspended {end}"
        return "not enabled" if self.allowed is None else f"up to {self.allowed.word}"


def policy(objects: Iterable[Iterable[str]], now: float) -> RepairPolicy:
    """Return the permitted repairs; the first object with such tags decides.

    Within an object, the latest suspension overrides permissions, and the least severe
    permission applies. The tag for file disks may be on any of the objects.

    Args:
        objects: tags of the instance, of its group, and of the cluster, in this order.
        now: Unix seconds.
    """
    levels = [list(tags) for tags in objects]
    with_files = any(FILE_TAG in tags for tags in levels)
    for tags in levels:
        words = [tag.removeprefix(PREFIX) for tag in tags if tag.startswith(PREFIX)]
        ends = [end for end in map(_suspension, words) if end is not None and end > now]
        if ends:
            return RepairPolicy(until=max(ends))
        kinds = [_KINDS[word] for word in words if word in _KINDS]
        if kinds:
            return RepairPolicy(allowed=min(kinds), with_files=with_files)
    return RepairPolicy()


def expired(tags: Iterable[str], now: float) -> list[str]:
    """Return the tags of expired suspensions."""
    ended = []
    for tag in tags:
        if tag.startswith(PREFIX):
            end = _suspension(tag.removeprefix(PREFIX))
            if end is not None and end <= now:
                ended.append(tag)
    return ended


def _suspension(word: str) -> float | None:
    """Return the end of a suspension in Unix seconds; None for other tags."""
    name, _, end = word.partition(":")
    if name != _SUSPEND:
        return None
    if not end:
        return math.inf
    return float(end) if end.isdecimal() else None
