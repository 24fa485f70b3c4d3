"""Reading a node's store from another process, for confd.

The file is written by the master daemon or by the node daemon that keeps the copy.
A follower looks for news when it is asked to; asking costs microseconds while there
are none. It needs no right to write. Not thread-safe.

While a writer has the file open, the writer's companions of the file (``-wal``,
``-shm``) keep readers and the writer apart. When the last writer closes the file, it
removes the companions; then the file is read without locks, and what was read counts
only if the file is the same afterwards.
"""

import contextlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from ganeti.base import errors
from ganeti.model.objects import Snapshot, Update
from ganeti.store import numbers, tables, wire
from ganeti.store.base import ChangeSet
from ganeti.store.database import Database, Position


class News(NamedTuple):
    """Changes since the last look.

    Attributes:
        change_sets: new ones in order.
        is_reload: the snapshot was read again, and the change-sets are incomplete.
    """

    change_sets: list[ChangeSet]
    is_reload: bool

    @property
    def is_empty(self) -> bool:
        """Return whether nothing has changed."""
        return not (self.change_sets or self.is_reload)


#: Attempts to read a file that a writer opens, changes or closes at that moment.
_ATTEMPTS: Final = 20
_NOTHING = News([], False)


def read_snapshot(path: str) -> Snapshot:
    """Return the configuration in a file as it is now.

    Raises:
        ConfigurationError: there is none yet, or it is damaged.
        StorageError: the disk failed.
    """
    with contextlib.closing(Follower(path)) as follower:
        return follower.snapshot()


def check_pages(path: str) -> None:
    """Look for damage in all pages of a file, which others may have open.

    Raises:
        ConfigurationError: there is none, or it is damaged.
        StorageError: the disk failed.
    """
    with contextlib.closing(Database(path, create=False, read_only=True)) as db:
        db.file.check_pages()


class Follower:
    """Follows the file at a path, which may come, go and be replaced."""

    def __init__(self, path: str) -> None:
        """Open the file and read the snapshot.

        Raises:
            ConfigurationError: there is none yet, or it is damaged.
            StorageError: the disk failed.
        """
        self.path = path
        self._db: Database | None = None
        self._snapshot = Snapshot()
        self._reopen()

    def _reopen(self) -> None:
        self.close()
        # A writer replaces the file by a rename, so a file that was just opened may be
        # the old one. It counts only if it is still in its place after the reading.
        for attempt in range(1, _ATTEMPTS + 1):
            self._db = Database(self.path, create=False, read_only=True)
            try:
                self._version = self._db.file.data_version()
                self._snapshot, self._position = self._db.load()
            except errors.GenericError:
                if attempt == _ATTEMPTS or not self._db.file.is_outdated():
                    raise
            else:
                if not self._db.file.is_outdated():
                    return
            self.close()
        raise errors.StorageError(f"{self.path}: changes all the time")

    def snapshot(self) -> Snapshot:
        """Return the configuration as of the last `poll`."""
        return self._snapshot

    def poll(self) -> News:
        """Look for news and return them.

        Raises:
            ConfigurationError: the file is gone or damaged; the snapshot stays.
            StorageError: the disk failed.
        """
        if self._db is None or self._db.file.is_outdated():
            self._reopen()
            return News([], True)
        # SQLite counts the commits of other connections: without one there is nothing
        # to read.
        version = self._db.file.data_version()
        if version == self._version:
            return _NOTHING
        news = self._read_news(self._db)
        self._version = version
        return news

    def _read_news(self, db: Database) -> News:
        groups = db.changes_since(self._position.revision, self._position.digest)
        if groups is None:
            self._snapshot, self._position = db.load()
            return News([], True)
        change_sets = []
        for group in groups:
            changes = wire.to_changes(wire.rows_of(group), self._snapshot)
            self._snapshot = self._snapshot.apply(
                (change for change in changes if isinstance(change, Update)),
                revision=group.revision,
                term=group.term,
            )
            self._position = Position(
                group.revision, self._position.term, group.digest, group.term
            )
            change_sets.append(ChangeSet(group.revision, group.term, changes))
        return News(change_sets, False)

    def is_below_replaced(self) -> bool:
        """Return whether a history that was replaced in this file went further.

        Until the master has left its revisions out, the file shows lower ones than
        before.

        Raises:
            ConfigurationError: the file is gone.
            StorageError: the disk failed.
        """
        if self._db is None:
            raise errors.ConfigurationError(f"{self.path}: closed")
        own = numbers.Numbers(revision=self._position.revision)
        revision = self._db.replaced().revision
        status = numbers.to_status(own, numbers.Numbers(revision=revision))
        return numbers.above(own, status, is_replaced=False) is not None

    def read(self, table: str, key: str) -> bytes | None:
        """Return one document as it is now.

        Raises:
            ConfigurationError: the file is gone.
            StorageError: the disk failed.
        """
        if self._db is None:
            raise errors.ConfigurationError(f"{self.path}: closed")
        for _attempt in range(_ATTEMPTS):
            data = self._db.tables.read(table, key)
            if not self._db.file.is_outdated():
                break
            # The snapshot stays as of the last `poll`, which will return news.
            self._db.close()
            self._db = Database(self.path, create=False, read_only=True)
            self._version = -1
        return data

    def scan(self, table: str) -> Iterator[tuple[str, bytes]]:
        """Yield the documents of a table in the order of their keys.

        Raises:
            ConfigurationError: the file is closed, or was replaced on the way.
            StorageError: the disk failed.
        """
        after: str | None = None
        while True:
            if self._db is None or self._db.file.is_outdated():
                raise errors.ConfigurationError(f"{self.path}: closed or replaced")
            rows = self._db.tables.scan_some(table, after, "")
            yield from rows
            if len(rows) < tables.SCAN_ROWS:
                return
            after = rows[-1][0]

    def close(self) -> None:
        """Close the file."""
        if self._db is not None:
            self._db.close()
            self._db = None
