"""The tags of automatic repair: parsing, formatting, and the permitted repairs.

After the prefix, a record of an instance is ``pending:KIND:ID:TIME:JOBS`` or
``result:KIND:ID:TIME:OUTCOME:JOBS``, with JOBS joined by ``+``. A policy is ``KIND``,
``suspend`` or ``suspend:TIME``, on an instance, a node group or the cluster. There,
``reinstall-file`` extends ``reinstall`` to instances with file disks.

A tag with the prefix that has none of these forms is unreadable. It may be a mistyped
suspension, or the damaged record of a repair under way. So an instance gets no repair
while such a tag is on it, or on the object whose policy applies to it.
"""

import dataclasses
import datetime as dt
import enum
import itertools
import math
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from ganeti.base.constants.misc import MAX_TAG_LEN

PREFIX: Final = "ganeti:watcher:autorepair:"
_SUSPEND: Final = "suspend"
#: Tag without which no policy permits the loss of file disks. Ganeti 3.0 never repaired
#: such instances, so an older ``reinstall`` tag does not mean them.
FILE_TAG: Final = f"{PREFIX}reinstall-file"
_RECORD: Final = re.compile(
    re.escape(PREFIX)
    + r"(?:(?P<pending>pending)|result):(?P<kind>[a-z-]+):(?P<id>[^:]+)"
    r":(?P<time>[0-9]{1,12})(?(pending)|:(?P<outcome>[a-z]+))"
    r":(?P<jobs>(?:[0-9]{1,15}(?:\+[0-9]{1,15})*)?)"
)
_SECONDS: Final = re.compile(r"[0-9]{1,12}")
_RECORD_WORDS: Final = ("pending", "result")
#: Objects whose tags hold a policy, from the nearest to the farthest.
OWNERS: Final = ("instance", "node group", "cluster")


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
    """Return the records in tags, oldest first; all other tags are skipped.

    Of two records with the same time and id, the one with fewer jobs is first.
    """
    parsed = [_record(tag) for tag in tags]
    kept = [record for record in parsed if record is not None]
    return sorted(kept, key=lambda rec: (rec.time, rec.id, len(rec.jobs), rec.jobs))


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
        unreadable: tag that cannot be read and forbids all repairs; usually empty.
        origin: the tag that decided and the kind of its object; empty without one.
    """

    allowed: RepairKind | None = None
    until: float | None = None
    with_files: bool = False
    unreadable: str = ""
    origin: str = dataclasses.field(default="", compare=False)

    def __str__(self) -> str:
        if self.unreadable:
            return f"not permitted while the tag {self.unreadable} cannot be read"
        if self.until is not None:
            if math.isinf(self.until):
                return "suspended without limit"
            return f"suspended until {moment(self.until)}"
        return "not enabled" if self.allowed is None else f"up to {self.allowed.word}"


def moment(seconds: float) -> str:
    """Return a time for people; the number itself where no calendar has it."""
    try:
        known = dt.datetime.fromtimestamp(seconds, tz=dt.UTC)
    except (ValueError, OverflowError, OSError):
        return f"{seconds:.0f}"
    return known.strftime("%Y-%m-%d %H:%M:%S UTC")


def policy(objects: Iterable[Iterable[str]], now: float) -> RepairPolicy:
    """Return the permitted repairs; the first object with such tags decides.

    Within an object, an unreadable tag forbids everything, the latest suspension
    overrides permissions, and the least severe permission applies. The tag for file
    disks may be on any of the objects.

    Args:
        objects: tags of the instance, of its group, and of the cluster, in this order.
        now: Unix seconds.
    """
    levels = [[tag for tag in tags if tag.startswith(PREFIX)] for tags in objects]
    with_files = any(FILE_TAG in tags for tags in levels)
    for owner, tags in zip(OWNERS, levels, strict=False):
        broken = unreadable(tags)
        if broken:
            return RepairPolicy(
                unreadable=broken[0], origin=f"{broken[0]} of the {owner}"
            )
        ends = {tag: _suspension(tag.removeprefix(PREFIX)) for tag in tags}
        lasting = {tag: end for tag, end in ends.items() if end and end > now}
        if lasting:
            last = max(lasting, key=lambda tag: lasting[tag])
            return RepairPolicy(until=lasting[last], origin=f"{last} of the {owner}")
        words = [tag.removeprefix(PREFIX) for tag in tags]
        kinds = [_KINDS[word] for word in words if word in _KINDS]
        if kinds:
            origin = f"{PREFIX}{min(kinds).word} of the {owner}"
            return RepairPolicy(min(kinds), with_files=with_files, origin=origin)
    return RepairPolicy()


def unreadable(tags: Iterable[str]) -> list[str]:
    """Return the tags with the prefix that have none of the known forms, sorted."""
    return sorted(tag for tag in tags if tag.startswith(PREFIX) and not _is_known(tag))


def unreadable_records(tags: Iterable[str]) -> list[str]:
    """Return the unreadable tags that are meant as records of repairs, sorted."""
    heads = tuple(f"{PREFIX}{word}:" for word in _RECORD_WORDS)
    return [tag for tag in unreadable(tags) if tag.startswith(heads)]


def _is_known(tag: str) -> bool:
    word = tag.removeprefix(PREFIX)
    if word in _KINDS or tag == FILE_TAG or _suspension(word) is not None:
        return True
    return word.partition(":")[0] in _RECORD_WORDS and _record(tag) is not None


def conflict(records: Sequence[RepairRecord]) -> str | None:
    """Return a description of records that contradict each other, or None.

    A program that ends between two changes of tags leaves two records of one repair:
    pending with fewer and with more jobs, or pending and its result. Everything else
    was not written by a program that follows the rules.
    """
    for first, second in itertools.combinations(records, 2):
        if first.id == second.id and not _are_compatible(first, second):
            return f"the tags {first.original_tag} and {second.original_tag} disagree"
    return None


def _are_compatible(first: RepairRecord, second: RepairRecord) -> bool:
    if first.kind != second.kind:
        return False
    if first.outcome is not None or second.outcome is not None:
        outcomes = {first.outcome, second.outcome}
        return len(outcomes) == 1 or None in outcomes
    return first.time == second.time and _continues(first.jobs, second.jobs)


def _continues(fewer: Sequence[int], more: Sequence[int]) -> bool:
    """Return whether a list of jobs can have grown into another one.

    Growth appends jobs; it may also drop the oldest ones, for lack of space in a tag.
    """
    if not fewer:
        return True
    kept = [job for job in fewer if job in set(more)]
    return bool(kept) and list(fewer[-len(kept) :]) == kept == list(more[: len(kept)])


def current(records: Collection[RepairRecord]) -> list[RepairRecord]:
    """Return the records without those that a later record of their repair replaces.

    Args:
        records: without conflicts, sorted as `records` returns them.
    """
    ended = {record.id for record in records if record.outcome is not None}
    latest = {record.id: record for record in records if record.outcome is None}
    return [
        record
        for record in records
        if record.outcome is not None
        or (record.id not in ended and latest[record.id] is record)
    ]


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
    return float(end) if _SECONDS.fullmatch(end) else None
