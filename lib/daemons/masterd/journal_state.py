"""The decision journal in the store: one row per entry, the oldest ones removed.

The rows are also in memory, encoded, so a reader needs neither the store nor a lock.
The count of an entry that only repeats itself is written once in a while and with the
next other entry: a master that dies loses the last hour of a count, never an entry.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import msgspec

from ganeti.base.clock import Clock
from ganeti.decisions.repair import journal
from ganeti.decisions.repair.journal import Entry, Round, Selection
from ganeti.store import Document, Store

_log = logging.getLogger(__name__)

TABLE: Final = "journal"
#: Seconds between two writes of a count.
_COUNT_S: Final = 3600.0
#: Smallest difference between the times of two changes.
_TICK_S: Final = 1e-6

Place = tuple[str, str]


class Moment(NamedTuple):
    """The time of a change, and its place in the order of all changes.

    The cursor is a time too, while the clock goes on; it never goes back with it.
    """

    time: float
    cursor: float


class Batch:
    """Documents of entries that are being written; see `Keeper.writing`."""

    def __init__(self, keeper: "Keeper", rows: dict[int, bytes]) -> None:
        self._keeper = keeper
        self.rows = rows
        self.last = dict(keeper.last)
        self.written: set[int] = set()
        self.number = 0

    def put(self, new: Round) -> list[Document]:
        """Add a round; return the documents to commit, none if it is only counted."""
        new = journal.bounded(new)
        now = self._keeper.time()
        place = (new.automaton, new.scope)
        old = self.last.get(place)
        if old is not None and old.id not in self.rows:
            old = None
        if old is not None and old.round == new.round:
            entry = _entry(new, old.id, old.ctime, now)
        elif old is not None and journal.is_repeated(old, new):
            entry = msgspec.structs.replace(
                old, last=now.time, count=old.count + 1, revision=new.revision
            )
            self._take(place, entry)
            # After a clock that was ahead the last write is in the future.
            if abs(now.time - self._keeper.counted.get(place, old.last)) < _COUNT_S:
                return []
            return self._documents({entry.id, *self._keeper.uncounted})
        else:
            number = 1 + max(self.rows, default=0)
            entry = _entry(new, number, now.time, now)
        self._take(place, entry)
        return self._documents({entry.id, *self._keeper.uncounted})

    def _take(self, place: Place, entry: Entry) -> None:
        self.rows[entry.id] = journal.encode(entry)
        # With all of its items, or a long round would never repeat it.
        self.last[place] = entry
        self.number = entry.id

    def _documents(self, numbers: set[int]) -> list[Document]:
        sizes = {each: len(self.rows[each]) for each in self.rows}
        removed = journal.excess(sizes)
        if removed:
            idle = {each for each in self.rows if journal.is_idle(self.rows[each])}
            removed = journal.excess(sizes, idle)
        for each in removed:
            del self.rows[each]
        self.written = numbers
        changed = [each for each in sorted(numbers) if each in self.rows]
        return [
            *(Document(TABLE, _key(each), self.rows[each]) for each in changed),
            *(Document(TABLE, _key(each), None) for each in removed),
        ]


class Keeper:
    """The only writer of the journal. For use by many threads; calls may block.

    Attributes:
        last: the last entry of each automaton and scope.
        counted: when the count of it was last written.
        uncounted: numbers of entries whose count has changed since.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        #: Stored form by number, ascending. Replaced as a whole, so readers need no
        #: lock; None before the first use.
        self._rows: dict[int, bytes] | None = None
        self._mtime = 0.0
        self.last: dict[Place, Entry] = {}
        self.counted: dict[Place, float] = {}
        self.uncounted: set[int] = set()

    def record(self, new: Round) -> int:
        """Add a round, or replace the earlier report of it; return the number.

        Raises:
            StorageError: it could not be made durable.
            TermError: another master has taken over.
        """
        with self.writing() as batch:
            documents = batch.put(new)
            if documents:
                self._store.commit(documents)
        return batch.number

    @contextmanager
    def writing(self) -> Iterator[Batch]:
        """Write entries: the body puts them and commits the documents.

        An exception in the body leaves open which of them are durable, so the next use
        reads the store again.
        """
        with self._lock:
            batch = Batch(self, dict(self._loaded()))
            try:
                yield batch
            except BaseException:
                self._forget()
                raise
            self._adopt(batch)

    def entries(self, selection: Selection, *, with_text: bytes = b"") -> list[Entry]:
        """Return entries in ascending order.

        Args:
            selection: the entries.
            with_text: return only entries whose stored form has it.
        """
        rows = self._rows
        if rows is None:
            with self._lock:
                rows = self._loaded()
        # To look for a name in the stored form is much faster than to decode it.
        words = [
            msgspec.json.encode(word)[1:-1]
            for word in (selection.node, selection.instance)
            if word is not None
        ]
        return journal.select(
            (
                msgspec.json.decode(data, type=Entry)
                for data in rows.values()
                if with_text in data and all(word in data for word in words)
            ),
            selection,
        )

    def time(self) -> "Moment":
        """Return the time of a change, with a cursor that is later than all others."""
        now = self._clock.time()
        self._mtime = max(now, self._mtime + _TICK_S)
        return Moment(now, self._mtime)

    def _adopt(self, batch: Batch) -> None:
        self._rows = batch.rows
        for place, entry in batch.last.items():
            if self.last.get(place) is entry:
                continue
            if entry.id in batch.written:
                self.counted[place] = entry.last
            else:
                self.uncounted.add(entry.id)
        # Places whose last entry was removed are forgotten, so that names which nobody
        # uses any more take no memory.
        self.last = {p: e for p, e in batch.last.items() if e.id in batch.rows}
        self.counted = {p: t for p, t in self.counted.items() if p in self.last}
        self.uncounted -= batch.written
        self.uncounted &= batch.rows.keys()

    def _forget(self) -> None:
        self._rows = None
        self.last, self.counted, self.uncounted = {}, {}, set()

    def _loaded(self) -> dict[int, bytes]:
        """Return all rows. The caller holds the lock."""
        if self._rows is not None:
            return self._rows
        rows: dict[int, bytes] = {}
        for key, data in self._store.scan(TABLE):
            try:
                entry = msgspec.json.decode(data, type=Entry)
            except (msgspec.DecodeError, UnicodeError) as err:
                _log.error("journal: entry %s cannot be read: %s", key, err)
                continue
            rows[entry.id] = data
            place = (entry.automaton, entry.scope)
            self.last[place] = entry
            self.counted[place] = entry.last
            self._mtime = max(self._mtime, entry.mtime)
        self._rows = rows
        return rows


def _entry(new: Round, number: int, ctime: float, now: Moment) -> Entry:
    fields = msgspec.structs.asdict(new)
    return Entry(**fields, id=number, ctime=ctime, mtime=now.cursor, last=now.time)


def _key(number: int) -> str:
    return f"{number:012}"
