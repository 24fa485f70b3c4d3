"""The store on disk: the engine over one SQLite file."""

import threading
from collections.abc import Callable, Iterator

from ganeti import clock as clock_door
from ganeti import errors
from ganeti.store.backend import Group, State
from ganeti.store.database import SCAN_ROWS, Database, Position
from ganeti.store.engine import Engine
from ganeti.store.peers import Peers, Replicate


class SqliteBackend:
    """A master's database file.

    The committer writes on one connection; readers share another, under a lock.
    """

    def __init__(self, path: str) -> None:
        """Open the file, make it if it is missing.

        Raises:
            ConfigurationError: damaged, or of another version.
            StorageError: the disk failed.
        """
        self._writer = Database(path, create=True, check=True)
        self._reader = Database(path, create=False)
        self._reader_lock = threading.Lock()
        self._position = self._writer.position()

    def open(self, seen_term: int) -> State:
        """Load everything and begin a new term, durably."""
        snapshot, position = self._writer.load()
        term = max(position.term, seen_term) + 1
        self._position = self._writer.begin_term(term)
        if self._position.revision != snapshot.revision:
            raise errors.StorageError(
                f"{self._writer.path}: another process writes to it"
            )
        return State(snapshot.at(snapshot.revision, term), self._position.digest)

    def write(self, group: Group) -> None:
        """Make a group durable, all or nothing."""
        if not self._writer.append([group], self._position, term=group.term):
            found = self._writer.position()
            raise errors.TermError(
                f"{self._writer.path}: term {group.term} is over: wanted revision"
                f" {self._position.revision}, found {found.revision} of term"
                f" {found.term}"
            )
        self._position = Position(group.revision, group.term, group.digest)

    def read(self, table: str, key: str) -> bytes | None:
        """Return one durable document."""
        with self._reader_lock:
            return self._reader.read(table, key)

    def scan(self, table: str, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Yield durable documents in the order of their keys."""
        after: str | None = None
        while True:
            with self._reader_lock:
                rows = self._reader.scan_some(table, after, prefix)
            yield from rows
            if len(rows) < SCAN_ROWS:
                return
            after = rows[-1][0]

    def changes_since(self, revision: int, digest: bytes | None) -> list[Group] | None:
        """Return the groups after a revision, None when they are not kept."""
        with self._reader_lock:
            return self._reader.changes_since(revision, digest)

    def dump(self) -> bytes:
        """Return all that a candidate needs."""
        # On a connection of its own: this takes long on a big cluster.
        copier = Database(self._writer.path, create=False)
        try:
            return copier.dump()
        finally:
            copier.close()

    def close(self) -> None:
        """Close the file."""
        with self._reader_lock:
            self._reader.close()
        self._writer.close()


def open_master(
    path: str,
    *,
    replicate: Replicate | None,
    clock: clock_door.Clock,
    node: str = "",
    seen_term: int = 0,
    on_deposed: Callable[[], None] | None = None,
) -> Engine:
    """Open the store for writing, with a new term.

    Args:
        path: of the database file; it is made if it is missing.
        replicate: sends to master candidates; None for a store without copies.
        clock: paces retries to candidates that failed.
        node: uuid of this node, to which nothing is sent; by default the master of
            the configuration.
        seen_term: highest term that other nodes have seen, as from a vote.
        on_deposed: called once, from any thread, when another master has taken over;
            nothing can be written any more.

    Raises:
        ConfigurationError: the file is damaged, or of another version.
        StorageError: the disk failed.
    """
    backend = SqliteBackend(path)
    copies = (
        None
        if replicate is None
        else Peers(backend, replicate=replicate, clock=clock, node=node)
    )
    try:
        return Engine(
            backend, copies=copies, seen_term=seen_term, on_deposed=on_deposed
        )
    except BaseException:
        backend.close()
        raise
