"""The store on disk: the engine over one SQLite file."""

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from ganeti.base import clock as clock_module
from ganeti.base import errors
from ganeti.decisions.quorum import Term, next_number
from ganeti.store import numbers
from ganeti.store.backend import (
    ArchivePage,
    ArchiveTables,
    Copies,
    Group,
    Limits,
    Row,
    State,
)
from ganeti.store.database import Database, Position
from ganeti.store.engine import Engine
from ganeti.store.numbers import CommitSettings
from ganeti.store.tables import SCAN_ROWS

# Calls of candidates load the client of nodes. Programs that only read a store, such as
# confd on all nodes, do without it.
if TYPE_CHECKING:
    from ganeti.store.copies.doubts import Doubts
    from ganeti.store.copies.sending import Replicate

#: Revisions that a master leaves out after an accepted loss: more than the lost groups
#: can have had, for example 100 per second for some hours.
SKIPPED: Final = 1_000_000


_LIMITS: Final = Limits(
    group=2 * 1024 * 1024,  # so that no call to a candidate is much larger
    commit=128 * 1024 * 1024,  # an import of 20,000 instances is one commit
    value=64 * 1024 * 1024,
)


class SqliteBackend:
    """A master's database file.

    The committer writes on one connection; readers share another, under a lock. The
    outcome of a write is always known: a transaction that failed is rolled back.
    """

    limits = _LIMITS
    place = "the disk of the master"

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

    def higher(self) -> numbers.Numbers | None:
        """Return numbers of histories replaced here, None if they are not higher."""
        own, replaced = self._writer.own_numbers(), self._writer.replaced()
        status = numbers.to_status(own, replaced)
        return numbers.above(own, status, is_replaced=False)

    def open(self, choose: Callable[[Term], Term]) -> State:
        """Load everything and begin a new term, in one transaction."""
        snapshot, self._position = self._writer.begin_term(choose)
        return State(
            snapshot,
            self._position.digest,
            self._position.term,
            self._writer.tables.voters(),
            self._writer.tables.features(),
        )

    def write(self, group: Group) -> None:
        """Make a group durable, all or nothing."""
        # The file refuses the group if another process has begun a term in it since: a
        # master that was replaced on this node cannot overwrite the new history.
        term = self._position.term
        if not self._writer.append([group], self._position, term=term):
            position = self._writer.position()
            raise errors.TermError(
                f"{self._writer.file.path}: term {term.number} is over: wanted revision"
                f" {self._position.revision}, position {position.revision} of term"
                f" {position.term}"
            )
        self._position = Position(group.revision, term, group.digest, group.term)

    def end(self) -> tuple[int, bytes]:
        """Return revision and digest of the last durable group."""
        position = self._writer.position()
        return position.revision, position.digest

    @property
    def archive(self) -> ArchiveTables:
        """The archived jobs: a table of their own in the same file."""
        return ArchiveTables(self)

    def probe(self) -> None:
        """Check that the disk takes a commit."""
        self._writer.file.probe()

    def promised(self) -> Term:
        """Return the term that the file has promised."""
        with self._reader_lock:
            return self._reader.position().term

    def read(self, table: str, key: str) -> bytes | None:
        """Return one durable document."""
        with self._reader_lock:
            return self._reader.tables.read(table, key)

    def scan(self, table: str, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Yield durable documents in the order of their keys."""
        after: str | None = None
        while True:
            # In pieces, without the lock between them: a long scan does not hold up
            # others.
            with self._reader_lock:
                rows = self._reader.tables.scan_some(table, after, prefix)
            yield from rows
            if len(rows) < SCAN_ROWS:
                return
            after = rows[-1][0]

    def page(self, cursor: str, size: int) -> tuple[int, ArchivePage, list[Row]]:
        """Return the durable revision, and some rows of the archive."""
        with self._reader_lock:
            return self._reader.page(cursor, size)

    def changes_since(self, revision: int, digest: bytes | None) -> list[Group] | None:
        """Return the groups after a revision, None when they are not kept."""
        with self._reader_lock:
            return self._reader.changes_since(revision, digest)

    def dump(self) -> bytes:
        """Return all that a candidate needs."""
        # On a connection of its own: this takes long on a big cluster.
        copier = Database(self._writer.file.path, create=False)
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
    replicate: "Replicate | None",
    clock: clock_module.Clock,
    node: str = "",
    seen_term: int = 0,
    term: Term | None = None,
    settings: CommitSettings | None = None,
) -> Engine:
    """Open the store for writing, with a new term.

    Args:
        path: of the database file; it is made if it is missing.
        replicate: sends to master candidates; None for a store without copies.
        clock: paces retries to candidates that failed.
        node: uuid of this node, to which nothing is sent; by default the master of
            the configuration.
        seen_term: highest number of a term that is known elsewhere.
        term: the term for which this node was elected, see
            `ganeti.store.copies.election`; by default the next one of the file.
        settings: when commits are acknowledged, and who is called at the end.

    Raises:
        ConfigurationError: the file is damaged, or of another version.
        StorageError: the disk failed.
        TermError: the file has promised another term.
    """

    def choose(promised: Term) -> Term:
        if term is not None:
            return term
        return Term(next_number(promised.number, [seen_term]), node)

    settings = settings or CommitSettings()
    doubts: Doubts | None = None
    copies: Copies | None = None
    if replicate is not None:
        doubts = _doubts(replicate, clock, settings)
    backend = SqliteBackend(path)
    if (higher := backend.higher()) is not None:
        settings.on_higher(higher)
    if replicate is not None:
        from ganeti.store.copies.peers import Peers

        copies = Peers(
            backend, replicate=replicate, clock=clock, node=node, settings=settings
        )
    try:
        return Engine(
            backend,
            copies=copies,
            choose=choose,
            on_deposed=settings.on_deposed,
            skipped=SKIPPED if settings.accept_loss else 0,
            doubts=doubts,
        )
    except BaseException:
        backend.close()
        raise


def _doubts(
    replicate: "Replicate", clock: clock_module.Clock, settings: CommitSettings
) -> "Doubts":
    """Return what has the candidates confirm the term; it notes their refusals."""
    from ganeti.store.copies.doubts import Doubts

    doubts = Doubts(
        replicate, clock, lambda: settings.accept_loss or settings.is_lenient()
    )
    on_refusal = settings.on_refusal

    def note(node: str) -> bool:
        doubts.note()
        return on_refusal(node)

    settings.on_refusal = note
    return doubts
