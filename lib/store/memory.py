"""A backend without a disk, for the simulator and for tests."""

import threading
from collections.abc import Callable, Iterator, Sequence

from ganeti.base import errors
from ganeti.decisions.quorum import Term, Voters, next_number
from ganeti.model.objects import TABLES, Snapshot
from ganeti.store import features, wire
from ganeti.store.backend import (
    NO_HISTORY,
    ArchivePage,
    ArchiveTables,
    Copies,
    Group,
    Limits,
    Row,
    State,
)
from ganeti.store.base import DOCUMENT_TABLES
from ganeti.store.copies import voters
from ganeti.store.engine import Engine


class MemoryBackend:
    """Keeps rows in dictionaries and the whole change log.

    ``failure`` is raised instead of writing while it is set.
    """

    limits = Limits(2 * 1024 * 1024, 128 * 1024 * 1024, 64 * 1024 * 1024)
    place = "the disk of the master"

    def __init__(self) -> None:
        self.failure: errors.GenericError | None = None
        self._lock = threading.Lock()
        self._rows: dict[str, dict[str, bytes]] = {
            table: {} for table in (*TABLES, *DOCUMENT_TABLES)
        }
        self._log: list[Group] = []
        self._revision, self._term, self._digest = 0, Term(), NO_HISTORY
        self._written = 0

    def open(self, choose: Callable[[Term], Term]) -> State:
        """Load everything and begin a new term."""
        with self._lock:
            self._term = choose(self._term)
            updates = [
                update
                for table in TABLES
                for update in wire.to_updates(table, self._rows[table].items())
            ]
            snapshot = Snapshot().apply(
                updates, revision=self._revision, term=self._term.number
            )
            stored = self._rows["meta"].get(voters.KEY)
            return State(
                snapshot,
                self._digest,
                self._term,
                voters.decode(stored)
                if stored
                else Voters(voters.candidates_of(snapshot)),
                features.decode(self._rows["meta"].get(features.KEY)),
            )

    def write(self, group: Group) -> None:
        """Take over a group."""
        if self.failure is not None:
            raise self.failure
        with self._lock:
            if group.term != self._term.number:
                raise errors.TermError(
                    f"store: term {group.term} is over, now is term {self._term.number}"
                )
            for table, key, data in wire.rows_of(group):
                if data is None:
                    self._rows[table].pop(key, None)
                else:
                    self._rows[table][key] = data
            # Without the rows: whoever needs them decodes the payload again.
            self._log.append(group._replace(rows=None))
            self._revision, self._digest = group.revision, group.digest
            self._written = group.term

    def end(self) -> tuple[int, bytes]:
        """Return revision and digest of the last group."""
        with self._lock:
            return self._revision, self._digest

    @property
    def archive(self) -> ArchiveTables:
        """The archived jobs."""
        return ArchiveTables(self)

    def probe(self) -> None:
        """Raise the failure that is set."""
        if self.failure is not None:
            raise self.failure

    def promised(self) -> Term:
        """Return the newest term."""
        return self._term

    def read(self, table: str, key: str) -> bytes | None:
        """Return one document."""
        with self._lock:
            return self._rows[table].get(key)

    def scan(self, table: str, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Yield documents in the order of their keys."""
        with self._lock:
            rows = sorted(self._rows[table].items())
        return (item for item in rows if item[0].startswith(prefix))

    def page(self, cursor: str, size: int) -> tuple[int, ArchivePage, list[Row]]:
        """Return the revision, and some rows of one table."""
        table, _separator, after = cursor.partition("/")
        with self._lock:
            rows: list[Row] = []
            for key in sorted(key for key in self._rows[table] if key > after):
                rows.append((table, key, self._rows[table][key]))
                size -= len(self._rows[table][key])
                if size <= 0:
                    break
            upto = rows[-1][1] if rows else None
            return self._revision, ArchivePage(table, after, upto, True), rows

    def changes_since(self, revision: int, digest: bytes | None) -> list[Group] | None:
        """Return the groups after a revision."""
        with self._lock:
            groups = [group for group in self._log if group.revision > revision]
            first = groups[0].parent if groups else self._digest
        return None if digest is not None and digest != first else groups

    def dump(self) -> bytes:
        """Return all that a candidate needs."""
        with self._lock:
            rows = _flat(self._rows, (*TABLES, "jobs", "meta", "journal"))
            live = self._rows["jobs"].keys()
            rows += [
                ("joblogs", key, data)
                for key, data in self._rows["joblogs"].items()
                if key.partition("/")[0] in live
            ]
            return wire.pack_copy(
                wire.Copy(
                    self._revision,
                    self._term.number,
                    self._digest,
                    rows,
                    self._written,
                )
            )

    def close(self) -> None:
        """Keep everything, so that it can be opened again."""


def _flat(
    rows: dict[str, dict[str, bytes]], tables: Sequence[str]
) -> list[tuple[str, str, bytes | None]]:
    return [(table, key, data) for table in tables for key, data in rows[table].items()]


def open_memory(
    backend: MemoryBackend | None = None,
    *,
    copies: Copies | None = None,
    seen_term: int = 0,
) -> Engine:
    """Return a store that forgets everything with its backend."""

    def choose(promised: Term) -> Term:
        return Term(next_number(promised.number, [seen_term]), "memory")

    return Engine(backend or MemoryBackend(), copies=copies, choose=choose)
