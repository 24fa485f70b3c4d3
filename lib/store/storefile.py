"""The SQLite file itself: opening and checking it, transactions, failures of the disk.

What is in the file is the business of `ganeti.store.database`, the layout of its tables
and their versions that of `ganeti.store.schema`.
"""

import contextlib
import logging
import os
import pathlib
import sqlite3
import time
from collections.abc import Iterator
from typing import Final

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.store import schema
from ganeti.store.schema import (
    damage_of,
    decoding,
    make_file,
    remove_file,
    state_of,
    translated,
)

_log = logging.getLogger(__name__)

#: How long another process may hold the file before we give up, in seconds.
BUSY_TIMEOUT_S: Final = 10.0
#: Between two tries at what SQLite does not wait for itself.
_BUSY_STEP_S: Final = 0.005
#: Written to find out whether a disk that was full has room again: commits of a busy
#: cluster for some seconds.
PROBE_BYTES: Final = 1024 * 1024


class StoreFile:
    """An open file and its one connection.

    It has no lock: it belongs to one `ganeti.store.database.Database`, whose owner lets
    one thread at a time use both.

    Methods raise StorageError when the disk fails, and ConfigurationError when they
    find damage.

    Attributes:
        path: of the file.
        sql: the connection, for statements inside `reading` or `transaction`, and for
            single ones.
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
            self.sql = sqlite3.connect(
                f"{pathlib.Path(path).absolute().as_uri()}?{self._mode(read_only)}",
                uri=True,
                timeout=BUSY_TIMEOUT_S,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=64,
            )
        with self.opening():
            self._inode = os.stat(path).st_ino
            if read_only:
                self._check_kind()
            else:
                self._prepare(create=create, check=check)

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """Read what is needed before the file is used; it is closed after a failure."""
        try:
            yield
        except sqlite3.DatabaseError as err:
            self.sql.close()
            # An operational error is of the disk or of a lock, and may pass; all others
            # are of the content, which will not get better.
            if isinstance(err, sqlite3.OperationalError):
                raise errors.StorageError(f"{self.path}: {err}") from err
            raise errors.ConfigurationError(f"{self.path}: damaged: {err}") from err
        except UnicodeDecodeError as err:
            self.sql.close()
            raise errors.ConfigurationError(f"{self.path}: damaged: {err}") from err
        except BaseException:
            self.sql.close()
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
        self.sql.execute("BEGIN")  # another process may be making the tables
        is_empty = pragma("schema_version") == 0
        self.sql.execute("COMMIT")
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
        schema.check(self.sql, self.path)
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
            return schema.version_of(self.sql)

    def _check_kind(self) -> None:
        if self._pragma("schema_version") == 0:
            raise errors.ConfigurationError(f"{self.path}: nothing in it yet")
        schema.check(self.sql, self.path)
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
            steps = schema.upgrade(self.sql)
        for step in steps:
            _log.info("%s: version %d: %s", self.path, step.version, step.summary)

    def downgrade(self, version: int) -> None:
        """Bring the file back to an earlier version; nobody else may have it open.

        Raises:
            ConfigurationError: a step cannot be gone back; nothing was changed.
        """
        with self.transaction():
            steps = schema.downgrade(self.sql, version)
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
        row = self.sql.execute(f"PRAGMA {text}").fetchone()
        return None if row is None else row[0]

    def _create(self) -> None:
        with self.transaction():
            if self._pragma("schema_version") != 0:
                return  # another process was faster
            schema.create(self.sql)

    def checkpoint(self) -> None:
        """Bring everything into the main file, as far as readers let us."""
        with translated(self.path):
            self.sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close the file."""
        with translated(self.path):
            self.sql.close()

    def is_gone(self) -> bool:
        """Return whether the file was removed or replaced since it was opened."""
        try:
            return os.stat(self.path).st_ino != self._inode
        except OSError:
            return True

    def data_version(self) -> int:
        """Return a number that differs after other connections have written."""
        with translated(self.path):
            return int(self.sql.execute("PRAGMA data_version").fetchone()[0])

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
                self.sql.execute("VACUUM INTO ?", (path,))
            files.sync_file(path)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """See one state of the file in several reads."""
        with translated(self.path):
            self.sql.execute("BEGIN")
            try:
                yield
            finally:
                self.sql.execute("COMMIT")

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
            self.sql.execute("UPDATE state SET revision = revision")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Write all or nothing; durable when left."""
        with translated(self.path):
            self.sql.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.sql.execute("COMMIT")
            except BaseException:
                # A full disk has rolled back already.
                if self.sql.in_transaction:
                    self.sql.execute("ROLLBACK")
                raise
