"""The decision journal: rounds of automatons, what each one considered, and why.

An automaton is a program that acts on the cluster by itself: the watcher, the automatic
repair, the maintenance daemon. Each of its rounds is an entry. A round that repeats the
last one of its automaton and did nothing is counted there, so a quiet cluster needs one
row. Pure; the master daemon keeps the entries.
"""

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Self

import msgspec

from ganeti.base import errors
from ganeti.base.constants import jobqueue

#: Source of the entry in the reason trail of a job that names the round.
REASON_SOURCE: Final = "gnt:journal"
#: Automatons.
WATCHER: Final = "watcher"
MAINTD: Final = "maintd"
AUTOREPAIR: Final = "autorepair"
NODE_DEATH: Final = "node-death"
#: Kinds of objects.
INSTANCE: Final = "instance"
NODE: Final = "node"
GROUP: Final = "group"
CLUSTER: Final = "cluster"
#: Most entries, and bytes of all of them; the oldest ones are removed.
MAX_ENTRIES: Final = 10_000
MAX_BYTES: Final = 4 << 20
#: Bytes of one entry: a round over 1,000 instances in trouble. A store in etcd takes
#: 1 MiB per value.
MAX_ENTRY: Final = 256 << 10
#: Characters of a text.
_MAX_TEXT: Final = 500
#: Bytes for the number of omitted parts.
_SPARE: Final = 64
#: The part of the entries that remains for those that did nothing.
_IDLE_PART: Final = 4
#: In the stored form of an entry that did something, and of one without results.
_ACT: Final = b'"decision":"chosen"'
_NO_RESULTS: Final = b'"results":[]'
#: Most jobs, ids and nodes of one item.
_MAX_PARTS: Final = 50
_NANOSECONDS: Final = 1_000_000_000


class Decision(enum.StrEnum):
    """The decision about one object."""

    #: Something was done.
    CHOSEN = "chosen"
    #: Nothing was done, and nothing will be done until something changes.
    REFUSED = "refused"
    #: Nothing was done yet: something else comes first.
    WAITING = "waiting"


_ORDER: Final = {decision: place for place, decision in enumerate(Decision)}


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One object that a round considered.

    Attributes:
        kind: ``instance``, ``node``, ``group`` or ``cluster``.
        name: of the object.
        decision: whether something is done.
        action: what is done, or would be done.
        reason: why, or why not.
        jobs: that do it; 0 stands for one that is submitted with the round.
        ids: of the repair in the object's tags, or of the incident.
        nodes: names of other nodes that it is about.
        moves: whether the jobs move the instance.
        limit: that refused it, see `ganeti.decisions.repair.limits`.
    """

    kind: str
    name: str
    decision: Decision
    action: str
    reason: str = ""
    jobs: tuple[int, ...] = ()
    ids: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    moves: bool = False
    limit: str = ""

    def bounded(self) -> Self:
        """Return it with texts and lists of limited length."""
        return msgspec.structs.replace(
            self,
            kind=_cut(self.kind),
            name=_cut(self.name),
            action=_cut(self.action),
            reason=_cut(self.reason),
            limit=_cut(self.limit),
            jobs=self.jobs[:_MAX_PARTS],
            ids=tuple(map(_cut, self.ids[:_MAX_PARTS])),
            nodes=tuple(map(_cut, self.nodes[:_MAX_PARTS])),
        )


class JobEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a job: its status, and the error of one that failed."""

    job: int
    status: str
    error: str = ""


def first_error(results: Any) -> str:
    """Return the text of the first error in the results of opcodes; "" without one."""
    for result in results or ():
        if (error := errors.decode(result)) is not None:
            return str(error.args[0]) if error.args else str(error)
    return ""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """A round as its automaton reports it.

    Attributes:
        round: UUID; a later report with it replaces the earlier one.
        automaton: `WATCHER`, `MAINTD`, `NODE_DEATH`, `AUTOREPAIR` (``harep``).
        scope: name of the only node group that it is about; empty for the cluster.
        revision: of the configuration when the round began; the inputs are of this
            revision or a later one.
        items: objects that it considered. Healthy ones are not considered.
        results: ends of jobs that it has learnt.
    """

    round: str
    automaton: str
    scope: str = ""
    revision: int = 0
    items: tuple[Item, ...] = ()
    results: tuple[JobEnd, ...] = ()

    @property
    def has_acted(self) -> bool:
        """Whether the round did something, or learnt the end of a job."""
        chosen = any(item.decision is Decision.CHOSEN for item in self.items)
        return chosen or bool(self.results)

    def with_jobs(self, ids: Sequence[int]) -> Self:
        """Return it with the ids of its jobs, in order, instead of zeros."""
        left = iter(ids)
        items = tuple(
            msgspec.structs.replace(
                item, jobs=tuple(job or next(left, 0) for job in item.jobs)
            )
            if 0 in item.jobs
            else item
            for item in self.items
        )
        return msgspec.structs.replace(self, items=items)


class Entry(Round, frozen=True, kw_only=True):
    """A round in the journal.

    Attributes:
        id: number; later rounds have higher ones.
        ctime: of the first report, seconds since 1970.
        mtime: cursor of the last change: a time while the clock of the master goes on,
            and larger than that of all earlier changes when it went back.
        last: of the last round that is counted here.
        count: rounds that are counted here.
        omitted: items and results that were too many.
    """

    id: int = 0
    ctime: float = 0.0
    mtime: float = 0.0
    last: float = 0.0
    count: int = 1
    omitted: int = 0


class Selection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The entries that a reader wants; None for all.

    Attributes:
        since: last round at or after this time.
        changed_after: changed after this time, as ``mtime`` gives it.
        node, instance: about this object, by its name or the first labels of it; the
            master daemon accepts UUIDs, too.
        automaton: name.
        id: number of the entry, or the UUID of the round, of a repair, of an incident.
        job: id of a job of the entry.
        limit: most entries; the newest ones are returned.
    """

    since: float | None = None
    changed_after: float | None = None
    node: str | None = None
    instance: str | None = None
    automaton: str | None = None
    id: str | None = None
    job: int | None = None
    limit: int | None = None

    def matches(self, entry: Entry) -> bool:
        """Return whether an entry is wanted, apart from the limit."""
        if self.since is not None and entry.last < self.since:
            return False
        if self.changed_after is not None and entry.mtime <= self.changed_after:
            return False
        if self.automaton is not None and entry.automaton != self.automaton:
            return False
        if self.id is not None and not _has_id(entry, self.id):
            return False
        if self.job is not None and self.job not in _jobs(entry):
            return False
        if self.node is not None and not _is_about(entry, NODE, self.node):
            return False
        return self.instance is None or _is_about(entry, INSTANCE, self.instance)


def is_of_automaton(trail: Iterable[Sequence[Any]]) -> bool:
    """Return whether a reason trail is that of a job which an automaton submitted."""
    return any(entry[0] == REASON_SOURCE for entry in trail)


def reason(round_id: str, now_ns: int) -> list[Any]:
    """Return the entry of a reason trail that names a round."""
    return [REASON_SOURCE, f"round {round_id}", now_ns]


def maintd_trail(texts: Iterable[str], round_id: str, now: float) -> list[list[Any]]:
    """Return the reason trail of a job that the maintenance daemon submits.

    Args:
        texts: what the job is for.
        round_id: UUID of the round; empty for none.
        now: seconds since 1970.
    """
    now_ns = int(now * _NANOSECONDS)
    trail = [[jobqueue.OPCODE_REASON_SRC_MAINTD, text, now_ns] for text in texts]
    return [*trail, reason(round_id, now_ns)] if round_id else trail


def is_repeated(entry: Entry, new: Round) -> bool:
    """Return whether a round only repeats an entry, and both did nothing."""
    return not entry.has_acted and not new.has_acted and entry.items == new.items


def bounded(new: Round) -> Round:
    """Return a round with texts and lists of limited length."""
    results = tuple(
        msgspec.structs.replace(end, status=_cut(end.status), error=_cut(end.error))
        for end in new.results
    )
    return msgspec.structs.replace(
        new,
        round=_cut(new.round),
        automaton=_cut(new.automaton),
        scope=_cut(new.scope),
        items=tuple(item.bounded() for item in new.items),
        results=results,
    )


def encode(entry: Entry) -> bytes:
    """Return the stored form, of at most `MAX_ENTRY` bytes.

    Of an entry that is too long the last waiting items are left out first, then refused
    ones, chosen ones, and results.
    """
    data = msgspec.json.encode(entry)
    if len(data) <= MAX_ENTRY:
        return data
    rest = msgspec.structs.replace(entry, items=(), results=())
    room = MAX_ENTRY - len(msgspec.json.encode(rest)) - _SPARE
    kept: dict[int, Item | JobEnd] = {}
    parts: list[Item | JobEnd] = [*entry.results, *entry.items]
    ordered = sorted(enumerate(parts), key=lambda pair: _rank(pair[1]))
    for place, part in ordered:
        # One more for the comma.
        room -= len(msgspec.json.encode(part)) + 1
        if room < 0:
            break
        kept[place] = part
    parts = [kept[place] for place in sorted(kept)]
    omitted = len(ordered) - len(parts)
    return msgspec.json.encode(
        msgspec.structs.replace(
            entry,
            items=tuple(part for part in parts if isinstance(part, Item)),
            results=tuple(part for part in parts if isinstance(part, JobEnd)),
            omitted=omitted,
        )
    )


def _rank(part: Item | JobEnd) -> int:
    """Return the place of a part in the order in which parts are kept."""
    return _ORDER[part.decision] if isinstance(part, Item) else -1


def is_idle(data: bytes) -> bool:
    """Return whether the stored form of an entry shows no act.

    Texts in an entry cannot pretend an act: their quotation marks are escaped.
    """
    return _ACT not in data and _NO_RESULTS in data


def excess(sizes: Mapping[int, int], idle: Collection[int] = ()) -> list[int]:
    """Return the numbers of entries that are too many, the oldest ones first.

    Entries that did nothing are removed before others, unless there are few of them. A
    node whose reports change all the time makes such entries: it cannot displace the
    acts of the past, nor can acts displace all that was refused.

    Args:
        sizes: bytes of each entry by number, in ascending order.
        idle: numbers of entries that did nothing.
    """
    count, size = len(sizes), sum(sizes.values())
    idle_left = [number for number in sizes if number in idle]
    surplus = iter(idle_left[: max(0, len(idle_left) - MAX_ENTRIES // _IDLE_PART)])
    removed: dict[int, None] = {}
    oldest = iter(sizes)
    while count > MAX_ENTRIES or size > MAX_BYTES:
        number = next(surplus, None)
        if number is None:
            number = next(each for each in oldest if each not in removed)
        removed[number] = None
        count, size = count - 1, size - sizes[number]
    return list(removed)


def select(entries: Iterable[Entry], selection: Selection) -> list[Entry]:
    """Return the wanted entries in their order."""
    chosen = [entry for entry in entries if selection.matches(entry)]
    if selection.limit is None:
        return chosen
    # A slice from -limit would be everything for a limit of 0.
    return chosen[max(0, len(chosen) - selection.limit) :]


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."


def _jobs(entry: Entry) -> set[int]:
    ended = {end.job for end in entry.results}
    return ended.union(*(item.jobs for item in entry.items))


def _has_id(entry: Entry, wanted: str) -> bool:
    if wanted in (str(entry.id), entry.round):
        return True
    return any(wanted in item.ids for item in entry.items)


def _is_about(entry: Entry, kind: str, wanted: str) -> bool:
    for item in entry.items:
        names = [item.name] if item.kind == kind else []
        if kind == NODE:
            names.extend(item.nodes)
        if any(name == wanted or name.startswith(f"{wanted}.") for name in names):
            return True
    return False
