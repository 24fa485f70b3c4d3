"""The SQLite file: one node's records, documents, change log and state.

The same layout serves the master, the copies on candidates and followers; what a
node may do with its file is decided by the modules that use this one. Not
thread-safe, except that different `Database` objects may share a file. The file itself
is `ganeti.store.storefile`, its rows are `ganeti.store.tables`.
"""

import collections
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from ganeti.base import errors
from ganeti.decisions.quorum import Term, refusal
from ganeti.model.objects import TABLES, Snapshot
from ganeti.store import features, numbers, wire
from ganeti.store.backend import ARCHIVE_START, ArchivePage, Group, Row, chain
from ganeti.store.schema import translated
from ganeti.store.storefile import StoreFile
from ganeti.store.tables import Tables

#: Newest change-sets kept for followers and for candidates that fell behind.
LOG_BYTES: Final = 16 * 1024 * 1024
_STATE = "revision, term, owner, digest, written"
#: Points of the history that a whole copy names.
_HISTORY: Final = 4096
_NEWEST_DIGESTS = (
    f"SELECT digest FROM changelog ORDER BY revision DESC LIMIT {_HISTORY}"
)
_GROUP = "base, revision, term, parent, digest, payload"


class Position(NamedTuple):
    """Where a file stands.

    Attributes:
        revision: of the last group.
        term: promised to its owner; lower ones are refused.
        digest: of the history.
        written: number of the term that wrote the last group.
    """

    revision: int
    term: Term
    digest: bytes
    written: int


class ChangeLog:
    """The newest groups of the history, for followers and candidates that lack them.

    It has no lock: it belongs to one `Database`, whose transactions write it. What it
    counts in memory is changed after them, when they are durable.
    """

    def __init__(self, file: StoreFile) -> None:
        """Count the groups of a file that was checked."""
        self._file = file
        self._sql = file.sql
        self._count_all()

    def _count_all(self) -> None:
        rows = self._sql.execute(
            "SELECT revision, length(payload) FROM changelog ORDER BY revision"
        )
        self._sizes = collections.deque[tuple[int, int]](rows)
        self._bytes = sum(size for _revision, size in self._sizes)

    def groups(self) -> list[Group]:
        """Return all groups that are kept, in order."""
        with translated(self._file.path):
            return [
                Group(*row)
                for row in self._sql.execute(
                    f"SELECT {_GROUP} FROM changelog ORDER BY revision"
                )
            ]

    def after(self, revision: int) -> list[Group]:
        """Return the groups after a revision, in order."""
        return [
            Group(*row)
            for row in self._sql.execute(
                f"SELECT {_GROUP} FROM changelog WHERE revision > ? ORDER BY revision",
                (revision,),
            )
        ]

    def points(self, end: bytes) -> list[bytes]:
        """Return the points of the history that a whole copy names, as digests.

        Args:
            end: of the history; the only point if no group is kept.
        """
        points = [row[0] for row in self._sql.execute(_NEWEST_DIGESTS)]
        oldest = self._sql.execute(
            "SELECT parent FROM changelog ORDER BY revision LIMIT 1"
        ).fetchone()
        return [*points, end if oldest is None else oldest[0]]

    def forget(self, groups: Sequence[Group]) -> None:
        """Remove groups from the change log."""
        with self._file.transaction():
            self._sql.executemany(
                "DELETE FROM changelog WHERE revision = ?",
                [(group.revision,) for group in groups],
            )
        self._count_all()

    def excess(self, size: int) -> list[int]:
        """Return the oldest logged revisions that so many new bytes push out."""
        drop = []
        left = self._bytes + size - LOG_BYTES
        for revision, old_size in self._sizes:
            if left <= 0:
                break
            drop.append(revision)
            left -= old_size
        return drop

    def append(self, groups: Sequence[Group], drop: list[int]) -> None:
        """Write groups and remove old ones, inside a transaction."""
        self._sql.executemany(
            f"INSERT INTO changelog ({_GROUP}) VALUES (?, ?, ?, ?, ?, ?)",
            [group[:6] for group in groups],
        )
        if drop:
            self._sql.execute("DELETE FROM changelog WHERE revision <= ?", (drop[-1],))

    def count(self, groups: Sequence[Group], drop: list[int]) -> None:
        """Take notice that `append` is durable."""
        for _revision in drop:
            self._bytes -= self._sizes.popleft()[1]
        for group in groups:
            self._sizes.append((group.revision, len(group.payload)))
            self._bytes += len(group.payload)

    def remove_all(self) -> None:
        """Remove all groups, inside a transaction."""
        self._sql.execute("DELETE FROM changelog")

    def count_none(self) -> None:
        """Take notice that `remove_all` is durable."""
        self._sizes.clear()
        self._bytes = 0


class Database:
    """The contents of an open file: where it stands, and what moves it on.

    It has no lock: its owner lets one thread at a time use it and its parts.

    Methods raise StorageError when the disk fails, and ConfigurationError when they
    find damage.

    Attributes:
        file: the file, its transactions and its end.
        tables: its rows.
        log: its change log.
    """

    def __init__(
        self,
        path: str,
        *,
        create: bool,
        check: bool = False,
        read_only: bool = False,
    ) -> None:
        """Open the file; arguments and errors are those of `StoreFile`."""
        self.file = StoreFile(path, create=create, check=check, read_only=read_only)
        self.tables = Tables(self.file)
        self._sql = self.file.sql
        with self.file.opening():
            self.log = ChangeLog(self.file)

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    # Reading
    def position(self) -> Position:
        """Return where the file stands."""
        with translated(self.file.path):
            row = self._sql.execute(f"SELECT {_STATE} FROM state").fetchone()
        try:  # SQLite returns other types from a damaged page.
            state = msgspec.convert(row, tuple[int, int, str, bytes, int])
        except msgspec.ValidationError as err:
            raise errors.ConfigurationError(
                f"{self.file.path}: damaged: {err}"
            ) from err
        revision, number, owner, digest, written = state
        return Position(revision, Term(number, owner), digest, written)

    def load(self) -> tuple[Snapshot, Position]:
        """Return all records, and where the file is.

        Raises:
            ConfigurationError: a record cannot be read.
        """
        with self.file.reading():
            position = self.position()
            return self._records(position), position

    def begin_term(self, choose: Callable[[Term], Term]) -> tuple[Snapshot, Position]:
        """Enter a term and return all records, in one transaction.

        Args:
            choose: returns the term, of the one that the file has promised.

        Raises:
            TermError: the file has promised another term.
            ConfigurationError: a record cannot be read.
        """
        with self.file.transaction():
            features.require(self.tables.features(), self.file.path)
            self._promise(choose(self.position().term))
            position = self.position()
            self._sql.execute("UPDATE state SET master = ?", (position.term.owner,))
            return self._records(position), position

    def contacts(self) -> Snapshot:
        """Return the records of the cluster and its nodes alone."""
        with self.file.reading():
            return self._records(self.position(), ("cluster", "nodes"))

    def _records(
        self, position: Position, tables: Iterable[str] = tuple(TABLES)
    ) -> Snapshot:
        return Snapshot().apply(
            self.tables.updates(tables),
            revision=position.revision,
            term=position.term.number,
        )

    def archive_cursor(self) -> str:
        """Return where the copy of the archive ends, empty if it is complete.

        See `ArchivePage`.
        """
        with translated(self.file.path):
            return str(self._sql.execute("SELECT archive FROM state").fetchone()[0])

    def page(self, cursor: str, size: int) -> tuple[int, ArchivePage, list[Row]]:
        """Return the revision, and some rows of the archive; see `Backend.page`."""
        table, _separator, after = cursor.partition("/")
        with self.file.reading():
            revision = self.position().revision
            is_whole = not self.archive_cursor()
            rows = self.tables.first_rows(table, after, size)
        upto = rows[-1][1] if rows else None
        return revision, ArchivePage(table, after, upto, is_whole), rows

    def changes_since(self, revision: int, digest: bytes | None) -> list[Group] | None:
        """Return the groups after a revision; None if they are not kept.

        With a digest, also None when the history up to there was another.
        """
        with self.file.reading():
            position = self.position()
            groups = self.log.after(revision)
        first = groups[0].base if groups else position.revision
        parent = groups[0].parent if groups else position.digest
        if digest is not None:
            return groups if (first, parent) == (revision, digest) else None
        return groups if first <= revision else None

    def dump(self) -> bytes:
        """Return everything that a candidate needs, packed."""
        with self.file.reading():
            position = self.position()
            history = self.log.points(position.digest)
            rows = self.tables.copied()
        return wire.pack_copy(
            wire.Copy(
                position.revision,
                position.term.number,
                position.digest,
                rows,
                position.written,
                history,
            )
        )

    def own_numbers(self) -> numbers.Numbers:
        """Return the numbers of this copy; zeros for damaged documents."""
        revision = self.position().revision
        try:
            return numbers.of(self.tables.read, revision)
        except ValueError:
            return numbers.Numbers(revision)

    def replaced(self) -> numbers.Numbers:
        """Return the highest numbers of the histories that were replaced here."""
        with translated(self.file.path):
            row = self._sql.execute("SELECT replaced FROM state").fetchone()
        return numbers.decode(str(row[0]))

    def last_master(self) -> str:
        """Return the node that became master last, or may have; empty if unknown.

        That is the owner of the newest promise, but this node only once it began the
        term: a node that failed to be elected was not master.
        """
        with translated(self.file.path):
            return str(self._sql.execute("SELECT master FROM state").fetchone()[0])

    # Writing
    def promise(self, term: Term, *, is_own: bool = False) -> Position:
        """Promise a term to its owner, durably, and return the position.

        Args:
            term: the term.
            is_own: this node asks for it.

        Raises:
            TermError: the file has promised a later term, or this one to another
                owner.
        """
        with self.file.transaction():
            self._promise(term)
            if not is_own and self.last_master() != term.owner:
                self._sql.execute("UPDATE state SET master = ?", (term.owner,))
            return self.position()

    def _promise(self, term: Term) -> None:
        promised = self.position().term
        text = refusal(promised, term)
        if text is not None:
            raise errors.TermError(text)
        if term != promised:
            self._sql.execute("UPDATE state SET term = ?, owner = ?", term)

    def append(
        self,
        groups: Sequence[Group],
        old: Position,
        *,
        term: Term,
        extra: Sequence[Row] = (),
        page: ArchivePage | None = None,
    ) -> bool:
        """Make groups durable; false and nothing changed if they do not fit.

        Args:
            groups: in order; they go to the change log, too.
            old: where the file must be; the first group must go on from there.
            term: of the new position, which the file has promised.
            extra: rows to write besides, not logged.
            page: the part of the archive that ``extra`` is.
        """
        new = _end_of_chain(groups, old)
        if new is None:
            return False
        drop = self.log.excess(sum(len(group.payload) for group in groups))
        try:
            with self.file.transaction():
                self._move(old, new._replace(term=term))
                for group in groups:
                    self.tables.put(wire.rows_of(group))
                if page is not None:
                    self._turn_page(page)
                self.tables.put(extra)
                self.log.append(groups, drop)
        except _ElsewhereError:
            return False
        self.log.count(groups, drop)
        return True

    def _turn_page(self, page: ArchivePage) -> None:
        """Prepare for the rows of a page: remove what it lacks, and move the cursor."""
        if page.is_whole:
            last = "\U0010ffff" if page.upto is None else page.upto
            self.tables.remove_between(page.table, page.after, last)
        # Another page than the expected one, such as a repeated one, moves nothing.
        self._sql.execute(
            "UPDATE state SET archive = ? WHERE archive = ?",
            (page.next, f"{page.table}/{page.after}"),
        )

    def replace(self, copy: wire.Copy, term: Term) -> None:
        """Replace all records and documents but the archive; empties the change log.

        The numbers of the present history are kept, see `replaced`.

        Raises:
            TermError: the file has promised another term.
        """
        with self.file.transaction():
            self._promise(term)
            replaced = numbers.highest(self.own_numbers(), self.replaced())
            self.tables.remove_copied()
            self.log.remove_all()
            self.tables.put(copy.rows)
            self._sql.execute(
                "UPDATE state SET revision = ?, term = ?, owner = ?, digest = ?,"
                " written = ?, archive = ?, replaced = ?",
                (
                    *(copy.revision, *term, copy.digest, copy.written_term()),
                    *(ARCHIVE_START, numbers.encode(replaced)),
                ),
            )
        self.log.count_none()

    def _move(self, old: Position, new: Position) -> None:
        # The old position was read in another transaction. A process that has begun a
        # term since then has changed it, and its history is not overwritten.
        cursor = self._sql.execute(
            "UPDATE state SET revision = ?, term = ?, owner = ?, digest = ?,"
            " written = ? WHERE revision = ? AND term = ? AND owner = ?"
            " AND digest = ? AND written = ?",
            (*_columns(new), *_columns(old)),
        )
        if cursor.rowcount != 1:
            raise _ElsewhereError


def _columns(position: Position) -> tuple[int, int, str, bytes, int]:
    revision, (number, owner), digest, written = position
    return revision, number, owner, digest, written


class _ElsewhereError(Exception):
    """The file is not at the position that a change builds on."""


def _end_of_chain(groups: Sequence[Group], old: Position) -> Position | None:
    """Return where groups lead from a position, None if they do not go on from it."""
    for group in groups:
        if (group.base, group.parent) != (old.revision, old.digest):
            return None
        if chain(group.parent, group.payload) != group.digest:
            raise errors.StorageError(
                f"change-set of revision {group.revision}: its digest is wrong"
            )
        old = Position(group.revision, old.term, group.digest, group.term)
    return old
