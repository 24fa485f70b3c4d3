"""The SQLite file: one node's records, documents, change log and state.

The same layout serves the master, the copies on candidates and followers; what a
node may do with its file is decided by the modules that use this one. Not
thread-safe, except that different `Database` objects may share a file.
"""

import collections
import contextlib
import logging
import os
import pathlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.decisions.quorum import Term, Voters, refusal
from ganeti.model.objects import CLUSTER_KEY, TABLES, Snapshot
from ganeti.store import features, numbers, wire
from ganeti.store.backend import ARCHIVE_START, ArchivePage, Group, Row, chain
from ganeti.store.copies import voters
from ganeti.store.file import schema
from ganeti.store.file.sqlite_file import (
    damage_of,
    decoding,
    make_file,
    remove_file,
    state_of,
    translated,
)

_log = logging.getLogger(__name__)

#: Newest change-sets kept for followers and for candidates that fell behind.
LOG_BYTES: Final = 16 * 1024 * 1024
#: How long another process may hold the file before we give up, in seconds.
BUSY_TIMEOUT_S: Final = 10.0
#: Between two tries at what SQLite does not wait for itself.
_BUSY_STEP_S: Final = 0.005
#: Rows fetched at once by `Database.scan`; a long read would keep the WAL growing.
SCAN_ROWS: Final = 256
#: Written to find out whether a disk that was full has room again: commits of a busy
#: cluster for some seconds.
PROBE_BYTES: Final = 1024 * 1024

#: Tables that a copy replaces; of job logs it has those of live jobs. The rest, which
#: is much, is sent afterwards.
COPIED: Final = (*TABLES, "jobs", "joblogs", "meta", "journal")
_LIVE_LOGS: Final = (
    " WHERE substr(key, 1, instr(key, '/') - 1) IN (SELECT key FROM jobs)"
)
_ALL: Final = schema.ROW_TABLES
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


class Database:
    """An open file.

    Methods raise StorageError when the disk fails, and ConfigurationError when they
    find damage.
    """

    def __init__(
        self,
        path: str,
        *,
        create: bool,
        check: bool = False,
        read_only: bool = False,
    ) -> None:
        """Open the file.

        Args:
            path: of the file; its directory exists.
            create: make it if it is missing.
            check: look for damage in all pages.
            read_only: write nothing, not even a companion of the file, so that no right
                to write is needed. See `is_outdated`.

        Raises:
            ConfigurationError: missing, damaged, or of another version.
            StorageError: the disk failed.
        """
        self.path = path
        self._inode = 0
        #: State of a file that nobody has open for writing, and that is read as it is.
        self._unchanging: tuple[int, ...] | None = None
        if not create and not os.path.exists(path):
            raise errors.ConfigurationError(f"{path}: there is no such database")
        with translated(path):
            if create:
                make_file(path)
            if read_only and not os.path.exists(f"{path}-wal"):
                self._unchanging = state_of(path)
            # Transactions are begun and ended in the code (no isolation level). Callers
            # have locks of their own, so that any of their threads may use the
            # connection, one at a time.
            self._db = sqlite3.connect(
                f"{pathlib.Path(path).absolute().as_uri()}?{self._mode(read_only)}",
                uri=True,
                timeout=BUSY_TIMEOUT_S,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=64,
            )
        try:
            self._inode = os.stat(path).st_ino
            if read_only:
                self._check_kind()
            else:
                self._prepare(create=create, check=check)
            self._log = self._read_log_sizes()
            self._log_bytes = sum(size for _revision, size in self._log)
        except sqlite3.DatabaseError as err:
            self._db.close()
            # An operational error is of the disk or of a lock, and may pass; all others
            # are of the content, which will not get better.
            if isinstance(err, sqlite3.OperationalError):
                raise errors.StorageError(f"{path}: {err}") from err
            raise errors.ConfigurationError(f"{path}: damaged: {err}") from err
        except UnicodeDecodeError as err:
            self._db.close()
            raise errors.ConfigurationError(f"{path}: damaged: {err}") from err
        except BaseException:
            self._db.close()
            raise

    def _mode(self, read_only: bool) -> str:
        if not read_only:
            return "mode=rw"
        # Without the companions SQLite would have to make them.
        return "mode=ro" if self._unchanging is None else "mode=ro&immutable=1"

    def is_outdated(self) -> bool:
        """Return whether the file must be opened again, as it is no longer the same.

        A file that no writer has open is read without locks. If it is outdated, then
        what was read since it was opened may be wrong.
        """
        if self._unchanging is None:
            return self.is_gone()
        is_written = os.path.exists(f"{self.path}-wal")
        return is_written or state_of(self.path) != self._unchanging

    def _prepare(self, *, create: bool, check: bool) -> None:
        pragma = self._pragma
        self._begin_log()
        # Every commit is synced: an acknowledged change survives a power cut. The level
        # NORMAL syncs at checkpoints only.
        pragma("synchronous = FULL")
        # Pages of 4 KiB: a log of 8 MiB, so that a restart reads little of it.
        pragma("wal_autocheckpoint = 2000")
        self._db.execute("BEGIN")  # another process may be making the tables
        is_empty = pragma("schema_version") == 0
        self._db.execute("COMMIT")
        if is_empty:
            if not create:
                raise errors.ConfigurationError(f"{self.path}: nothing in it yet")
            self._create()
            folder = os.open(os.path.dirname(self.path) or ".", os.O_RDONLY)
            try:
                os.fsync(folder)  # or a power cut could take the whole file
            finally:
                os.close(folder)
            return
        # Before the pages: a file of another program is not damaged, it is the wrong
        # one.
        schema.check(self._db, self.path)
        if check:
            self.check_pages()
        self._upgrade()

    def check_pages(self) -> None:
        """Look for damage in all pages. Raises ConfigurationError if there is some."""
        with translated(self.path):
            text = str(self._pragma("quick_check(1)"))
        if text != "ok":
            # The first line is a title.
            lines = [line for line in text.splitlines() if not line.startswith("*** ")]
            raise errors.ConfigurationError(
                f"{self.path}: damaged: {'; '.join(lines) or text}"
            )

    def _version(self) -> int:
        with decoding(self.path):
            return schema.version_of(self._db)

    def _check_kind(self) -> None:
        if self._pragma("schema_version") == 0:
            raise errors.ConfigurationError(f"{self.path}: nothing in it yet")
        schema.check(self._db, self.path)
        if (version := self._version()) < schema.VERSION:
            raise errors.ConfigurationError(
                f"{self.path}: found version {version} of the store, wanted"
                f" {schema.VERSION}: the daemon that writes the file upgrades it when"
                " it starts"
            )

    def _upgrade(self) -> None:
        """Bring a file of an earlier release to the newest version."""
        if self._version() >= schema.VERSION:
            return
        with self.transaction():
            # Looks again inside the transaction: another process may have been faster.
            steps = schema.upgrade(self._db)
        for step in steps:
            _log.info("%s: version %d: %s", self.path, step.version, step.summary)

    def downgrade(self, version: int) -> None:
        """Bring the file back to an earlier version; nobody else may have it open.

        Raises:
            ConfigurationError: a step cannot be gone back; nothing was changed.
        """
        with self.transaction():
            steps = schema.downgrade(self._db, version)
        for step in steps:
            _log.info("%s: back before %s", self.path, step.summary)

    def _begin_log(self) -> None:
        """Have changes logged ahead.

        Of two who ask for that at once SQLite refuses one without waiting.
        """
        # The busy timeout does not apply to a change of the journal mode.
        last = time.monotonic() + BUSY_TIMEOUT_S
        while True:
            try:
                self._pragma("journal_mode = WAL")
            except sqlite3.OperationalError as err:
                if err.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                if time.monotonic() > last:
                    raise
                time.sleep(_BUSY_STEP_S)
            else:
                return

    def _pragma(self, text: str) -> int | str | None:
        row = self._db.execute(f"PRAGMA {text}").fetchone()
        return None if row is None else row[0]

    def _create(self) -> None:
        with self.transaction():
            if self._pragma("schema_version") != 0:
                return  # another process was faster
            schema.create(self._db)

    def _read_log_sizes(self) -> collections.deque[tuple[int, int]]:
        return collections.deque(
            self._db.execute(
                "SELECT revision, length(payload) FROM changelog ORDER BY revision"
            )
        )

    def checkpoint(self) -> None:
        """Bring everything into the main file, as far as readers let us."""
        with translated(self.path):
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close the file."""
        with translated(self.path):
            self._db.close()

    def is_gone(self) -> bool:
        """Return whether the file was removed or replaced since it was opened."""
        try:
            return os.stat(self.path).st_ino != self._inode
        except OSError:
            return True

    # Reading
    def position(self) -> Position:
        """Return where the file stands."""
        with translated(self.path):
            row = self._db.execute(f"SELECT {_STATE} FROM state").fetchone()
        try:  # SQLite returns other types from a damaged page.
            state = msgspec.convert(row, tuple[int, int, str, bytes, int])
        except msgspec.ValidationError as err:
            raise errors.ConfigurationError(f"{self.path}: damaged: {err}") from err
        revision, number, owner, digest, written = state
        return Position(revision, Term(number, owner), digest, written)

    def data_version(self) -> int:
        """Return a number that differs after other connections have written."""
        with translated(self.path):
            return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    def load(self) -> tuple[Snapshot, Position]:
        """Return all records, and where the file is.

        Raises:
            ConfigurationError: a record cannot be read.
        """
        with self.reading():
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
        with self.transaction():
            features.require(self.features(), self.path)
            self._promise(choose(self.position().term))
            position = self.position()
            self._db.execute("UPDATE state SET master = ?", (position.term.owner,))
            return self._records(position), position

    def contacts(self) -> Snapshot:
        """Return the records of the cluster and its nodes alone."""
        with self.reading():
            return self._records(self.position(), ("cluster", "nodes"))

    def _records(
        self, position: Position, tables: Iterable[str] = tuple(TABLES)
    ) -> Snapshot:
        with decoding(self.path):
            updates = [
                update
                for table in tables
                for update in wire.to_updates(table, self._rows_of(table))
            ]
        return Snapshot().apply(
            updates, revision=position.revision, term=position.term.number
        )

    def _rows_of(self, table: str) -> Iterator[tuple[str, bytes]]:
        for key, data in self._db.execute(f"SELECT key, data FROM {table}"):
            if not isinstance(key, str) or not isinstance(data, bytes | str):
                raise errors.ConfigurationError("a row without key or data")
            yield key, data.encode() if isinstance(data, str) else data

    def read(self, table: str, key: str) -> bytes | None:
        """Return one row."""
        with translated(self.path):
            row = self._db.execute(
                f"SELECT data FROM {_known(table)} WHERE key = ?",
                (key,),
            ).fetchone()
        return None if row is None else row[0]

    def scan_some(
        self, table: str, after: str | None, prefix: str
    ) -> list[tuple[str, bytes]]:
        """Return some rows with a prefix in order: all greater than ``after``."""
        conditions, values = ["key >= ?"], [prefix]
        if after is not None:
            conditions.append("key > ?")
            values.append(after)
        if prefix:
            conditions.append("key < ?")
            values.append(f"{prefix}\U0010ffff")
        with translated(self.path):
            return self._db.execute(
                f"SELECT key, data FROM {_known(table)}"
                f" WHERE {' AND '.join(conditions)} ORDER BY key LIMIT {SCAN_ROWS}",
                values,
            ).fetchall()

    def archive_cursor(self) -> str:
        """Return where the copy of the archive ends, empty if it is complete.

        See `ArchivePage`.
        """
        with translated(self.path):
            return str(self._db.execute("SELECT archive FROM state").fetchone()[0])

    def page(self, cursor: str, size: int) -> tuple[int, ArchivePage, list[Row]]:
        """Return the revision, and some rows of the archive; see `Backend.page`."""
        table, _separator, after = cursor.partition("/")
        rows: list[Row] = []
        with self.reading():
            revision = self.position().revision
            is_whole = not self.archive_cursor()
            stored = self._db.execute(
                f"SELECT key, data FROM {_known(table)} WHERE key > ? ORDER BY key"
                f" LIMIT {SCAN_ROWS}",
                (after,),
            )
            for key, data in stored:
                rows.append((table, key, data))
                size -= len(data)
                if size <= 0:
                    break
        upto = rows[-1][1] if rows else None
        return revision, ArchivePage(table, after, upto, is_whole), rows

    def cluster(self) -> str:
        """Return the uuid of the cluster whose file this is, empty if none yet."""
        stored = self.read("cluster", CLUSTER_KEY)
        with decoding(self.path):
            return wire.cluster_of(stored)

    def voters(self) -> Voters:
        """Return the candidate set in force."""
        stored = self.read("meta", voters.KEY)
        with translated(self.path), decoding(self.path):
            if stored is not None:
                return voters.decode(stored)
            rows = self._db.execute("SELECT data FROM nodes").fetchall()
            return Voters(voters.candidates_in(data for (data,) in rows))

    def features(self) -> features.Features:
        """Return the features of the stored form that are in use."""
        stored = self.read("meta", features.KEY)
        with decoding(self.path):
            return features.decode(stored)

    def changes_since(self, revision: int, digest: bytes | None) -> list[Group] | None:
        """Return the groups after a revision; None if they are not kept.

        With a digest, also None when the history up to there was another.
        """
        with self.reading():
            position = self.position()
            groups = [
                Group(*row)
                for row in self._db.execute(
                    f"SELECT {_GROUP} FROM changelog WHERE revision > ?"
                    " ORDER BY revision",
                    (revision,),
                )
            ]
        first = groups[0].base if groups else position.revision
        parent = groups[0].parent if groups else position.digest
        if digest is not None:
            return groups if (first, parent) == (revision, digest) else None
        return groups if first <= revision else None

    def log(self) -> list[Group]:
        """Return all groups that are kept, in order."""
        with translated(self.path):
            return [
                Group(*row)
                for row in self._db.execute(
                    f"SELECT {_GROUP} FROM changelog ORDER BY revision"
                )
            ]

    def forget(self, groups: Sequence[Group]) -> None:
        """Remove groups from the change log."""
        with self.transaction():
            self._db.executemany(
                "DELETE FROM changelog WHERE revision = ?",
                [(group.revision,) for group in groups],
            )
        self._log = self._read_log_sizes()

    def save_as(self, path: str) -> None:
        """Write everything to another file, durably; an old one is replaced.

        Raises:
            ConfigurationError: this file is damaged.
            StorageError: a disk failed.
        """
        with translated(path):
            remove_file(path)
            make_file(path)
            # The new file is empty: only this one can be damaged.
            with damage_of(self.path):
                self._db.execute("VACUUM INTO ?", (path,))
            files.sync_file(path)

    def dump(self) -> bytes:
        """Return everything that a candidate needs, packed."""
        with self.reading():
            position = self.position()
            history = [row[0] for row in self._db.execute(_NEWEST_DIGESTS)]
            oldest = self._db.execute(
                "SELECT parent FROM changelog ORDER BY revision LIMIT 1"
            ).fetchone()
            history += [position.digest] if oldest is None else [oldest[0]]
            rows: list[Row] = []
            for table in (*COPIED, *self._newer_tables()):
                which = _LIVE_LOGS if table == "joblogs" else ""
                records = self._db.execute(f"SELECT key, data FROM {table}{which}")
                rows += [(table, *row) for row in records]
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

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """See one state of the file in several reads."""
        with translated(self.path):
            self._db.execute("BEGIN")
            try:
                yield
            finally:
                self._db.execute("COMMIT")

    # Writing
    def probe(self) -> None:
        """Check that the disk takes what a commit writes; changes nothing.

        Raises:
            StorageError: it does not.
        """
        path = f"{self.path}.probe"
        with translated(self.path):
            try:
                with open(path, "wb") as file:
                    file.write(os.urandom(PROBE_BYTES))
                    file.flush()
                    os.fsync(file.fileno())
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
        with self.transaction():
            self._db.execute("UPDATE state SET revision = revision")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Write all or nothing; durable when left."""
        with translated(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                # A full disk has rolled back already.
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def own_numbers(self) -> numbers.Numbers:
        """Return the numbers of this copy; zeros for damaged documents."""
        revision = self.position().revision
        try:
            return numbers.of(self.read, revision)
        except ValueError:
            return numbers.Numbers(revision)

    def replaced(self) -> numbers.Numbers:
        """Return the highest numbers of the histories that were replaced here."""
        with translated(self.path):
            row = self._db.execute("SELECT replaced FROM state").fetchone()
        return numbers.decode(str(row[0]))

    def last_master(self) -> str:
        """Return the node that became master last, or may have; empty if unknown.

        That is the owner of the newest promise, but this node only once it began the
        term: a node that failed to be elected was not master.
        """
        with translated(self.path):
            return str(self._db.execute("SELECT master FROM state").fetchone()[0])

    def promise(self, term: Term, *, is_own: bool = False) -> Position:
        """Promise a term to its owner, durably, and return the position.

        Args:
            term: the term.
            is_own: this node asks for it.

        Raises:
            TermError: the file has promised a later term, or this one to another
                owner.
        """
        with self.transaction():
            self._promise(term)
            if not is_own and self.last_master() != term.owner:
                self._db.execute("UPDATE state SET master = ?", (term.owner,))
            return self.position()

    def _promise(self, term: Term) -> None:
        promised = self.position().term
        text = refusal(promised, term)
        if text is not None:
            raise errors.TermError(text)
        if term != promised:
            self._db.execute("UPDATE state SET term = ?, owner = ?", term)

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
        drop = self._excess(sum(len(group.payload) for group in groups))
        try:
            with self.transaction():
                self._move(old, new._replace(term=term))
                for group in groups:
                    self._put(wire.rows_of(group))
                if page is not None:
                    self._turn_page(page)
                self._put(extra)
                self._append_log(groups, drop)
        except _ElsewhereError:
            return False
        for _revision in drop:
            self._log_bytes -= self._log.popleft()[1]
        for group in groups:
            self._log.append((group.revision, len(group.payload)))
            self._log_bytes += len(group.payload)
        return True

    def _turn_page(self, page: ArchivePage) -> None:
        """Prepare for the rows of a page: remove what it lacks, and move the cursor."""
        if page.is_whole:
            last = "\U0010ffff" if page.upto is None else page.upto
            self._db.execute(
                f"DELETE FROM {_known(page.table)} WHERE key > ? AND key <= ?",
                (page.after, last),
            )
        # Another page than the expected one, such as a repeated one, moves nothing.
        self._db.execute(
            "UPDATE state SET archive = ? WHERE archive = ?",
            (page.next, f"{page.table}/{page.after}"),
        )

    def _append_log(self, groups: Sequence[Group], drop: list[int]) -> None:
        self._db.executemany(
            f"INSERT INTO changelog ({_GROUP}) VALUES (?, ?, ?, ?, ?, ?)",
            [group[:6] for group in groups],
        )
        if drop:
            self._db.execute("DELETE FROM changelog WHERE revision <= ?", (drop[-1],))

    def _excess(self, size: int) -> list[int]:
        """Return the oldest logged revisions that so many new bytes push out."""
        drop = []
        left = self._log_bytes + size - LOG_BYTES
        for revision, old_size in self._log:
            if left <= 0:
                break
            drop.append(revision)
            left -= old_size
        return drop

    def replace(self, copy: wire.Copy, term: Term) -> None:
        """Replace all records and documents but the archive; empties the change log.

        The numbers of the present history are kept, see `replaced`.

        Raises:
            TermError: the file has promised another term.
        """
        with self.transaction():
            self._promise(term)
            replaced = numbers.highest(self.own_numbers(), self.replaced())
            for table in (*COPIED, *self._newer_tables(), "changelog"):
                self._db.execute(f"DELETE FROM {table}")
            self._put(copy.rows)
            self._db.execute(
                "UPDATE state SET revision = ?, term = ?, owner = ?, digest = ?,"
                " written = ?, archive = ?, replaced = ?",
                (
                    *(copy.revision, *term, copy.digest, copy.written_term()),
                    *(ARCHIVE_START, numbers.encode(replaced)),
                ),
            )
        self._log.clear()
        self._log_bytes = 0

    def _move(self, old: Position, new: Position) -> None:
        cursor = self._db.execute(
            "UPDATE state SET revision = ?, term = ?, owner = ?, digest = ?,"
            " written = ? WHERE revision = ? AND term = ? AND owner = ?"
            " AND digest = ? AND written = ?",
            (*_columns(new), *_columns(old)),
        )
        if cursor.rowcount != 1:
            raise _ElsewhereError

    def _newer_tables(self) -> list[str]:
        """Return the tables of a newer release, whose rows a candidate keeps."""
        rows = self._db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        )
        return [name for (name,) in rows if wire.is_table(name) and name not in _ALL]

    def _table(self, name: str) -> str:
        """Return a table to write to; one of a newer release is made."""
        if name not in _ALL:
            if not wire.is_table(name):
                raise errors.StorageError(f"{self.path}: unknown table {name!r}")
            self._db.execute(f"CREATE TABLE IF NOT EXISTS {name} {schema.COLUMNS}")
        return name

    def _put(self, rows: Iterable[Row]) -> None:
        for table, key, data in rows:
            name = self._table(table)
            if data is None:
                self._db.execute(f"DELETE FROM {name} WHERE key = ?", (key,))
            else:
                self._db.execute(
                    f"INSERT OR REPLACE INTO {name} VALUES (?, ?)",
                    (key, data),
                )


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


def _known(table: str) -> str:
    if table not in _ALL:
        raise errors.ProgrammerError(f"store: unknown table {table}")
    return table
