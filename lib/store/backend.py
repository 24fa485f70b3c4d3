"""Where commits end up, as the engine needs it: disk or memory, and other copies.

A backend is used by one engine. `Backend.write` is called from one thread only; the
reading methods from any.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from ganeti.base import errors
from ganeti.decisions.quorum import Term, Voters
from ganeti.model.objects import Snapshot
from ganeti.store.base import CopyState

#: Table, key, and the stored form or None for a removed row.
Row = tuple[str, str, bytes | None]


class Group(NamedTuple):
    """Commits that became durable together.

    Attributes:
        base: revision before.
        revision: revision after; more than one higher if several commits shared it.
        term: number of the master term that wrote it.
        parent: digest of the history before, see `chain`.
        digest: digest of the history with this group.
        payload: the changes, see `ganeti.store.wire`.
        rows: the same in stored form; None in groups that were read back.
    """

    base: int
    revision: int
    term: int
    parent: bytes
    digest: bytes
    payload: bytes
    rows: Sequence[Row] | None = None


#: Tables that a whole copy lacks, in the order in which they are sent after it. Job
#: logs of live jobs are in the whole copy as well.
ARCHIVE_TABLE = "archive"
ARCHIVED = (ARCHIVE_TABLE, "joblogs")
#: A cursor of `ArchivePage` before the first row.
ARCHIVE_START = f"{ARCHIVED[0]}/"


class ArchivePage(NamedTuple):
    """Some rows of the archive: all of a table in a range of keys.

    A *cursor* is a table and the last key before the rows that follow,
    ``TABLE/KEY``; it is empty behind the last row.

    Attributes:
        table: one of `ARCHIVED`.
        after: key before the first row.
        upto: key of the last row; None if the table ends there.
        is_whole: the sender's archive is complete, so a row in the range that is not in
            the page was removed.
    """

    table: str
    after: str
    upto: str | None
    is_whole: bool

    @property
    def next(self) -> str:
        """The cursor behind these rows."""
        if self.upto is not None:
            return f"{self.table}/{self.upto}"
        following = ARCHIVED.index(self.table) + 1
        return f"{ARCHIVED[following]}/" if following < len(ARCHIVED) else ""


class State(NamedTuple):
    """Where a store stands.

    Attributes:
        snapshot: its records.
        digest: of its history.
        term: the master's.
        voters: the candidate set in force.
        features: those that the stored form uses, see `ganeti.store.features`.
    """

    snapshot: Snapshot
    digest: bytes
    term: Term
    voters: Voters
    features: frozenset[str] = frozenset()


class Limits(NamedTuple):
    """Sizes that a backend takes, in bytes.

    Attributes:
        group: data up to which commits are joined in one group.
        commit: data of one commit. Records count with a rough size.
        value: stored form of one record or document.
    """

    group: int
    commit: int
    value: int


class OutcomeUnknownError(Exception):
    """A group may have become durable, or not: see `Backend.write`."""


class Archive(Protocol):
    """The archived jobs, apart from the live state.

    A backend whose place for live state is small and costly, such as etcd, keeps these
    elsewhere. Rows get there by `Backend.write`: it stores the rows of a group that
    are of the archive before it stores the others, so that a job is never in neither.
    """

    def read(self, key: str) -> bytes | None:
        """Return one archived job."""

    def scan(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Yield archived jobs in the order of their keys."""

    def page(self, cursor: str, size: int) -> tuple[int, ArchivePage, list[Row]]:
        """Return the durable revision, and some rows of the archive.

        Args:
            cursor: see `ArchivePage`.
            size: bytes after which the page ends.
        """


class _WithArchive(Protocol):
    """A backend that keeps the archive beside its other tables."""

    def read(self, table: str, key: str) -> bytes | None: ...
    def scan(self, table: str, prefix: str) -> Iterator[tuple[str, bytes]]: ...
    def page(self, cursor: str, size: int) -> tuple[int, ArchivePage, list[Row]]: ...


class ArchiveTables(Archive):
    """The archive of a backend that keeps it beside its other tables."""

    def __init__(self, backend: _WithArchive) -> None:
        self._backend = backend

    def read(self, key: str) -> bytes | None:
        """Return one archived job."""
        return self._backend.read(ARCHIVE_TABLE, key)

    def scan(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Yield archived jobs in the order of their keys."""
        return self._backend.scan(ARCHIVE_TABLE, prefix)

    def page(self, cursor: str, size: int) -> tuple[int, ArchivePage, list[Row]]:
        """Return the durable revision, and some rows of the archive."""
        return self._backend.page(cursor, size)


class Backend(Protocol):
    """A place for records, documents and the log of changes."""

    @property
    def limits(self) -> Limits:
        """The sizes that it takes; constant."""

    @property
    def archive(self) -> Archive:
        """The archived jobs."""

    @property
    def place(self) -> str:
        """Name of the place for messages: until PLACE can be written."""

    def open(self, choose: Callable[[Term], Term]) -> State:
        """Load everything and begin a new term, in one transaction.

        Args:
            choose: returns the new term, of the one that is stored.

        Raises:
            ConfigurationError: damaged, or of another version.
            StorageError: the disk failed.
            TermError: a later term is stored, or this one of another owner.
        """

    def promised(self) -> Term:
        """Return the term that is stored: not ours if another master has begun."""

    def write(self, group: Group) -> None:
        """Make a group durable, all or nothing.

        Raises:
            StorageError: nothing was changed.
            TermError: somebody else has written since `open`.
            OutcomeUnknownError: the group may have become durable, or may become so
                later. The caller finds out by `end` before it does anything else.
        """

    def end(self) -> tuple[int, bytes]:
        """Return revision and digest of the last durable group, read again.

        The answer is final: a write of an unknown outcome that is not in it will not
        become durable any more.

        Raises:
            StorageError: they cannot be read.
            TermError: somebody else has written since `open`.
        """

    def probe(self) -> None:
        """Write something that changes nothing: after a failure of `write`.

        Raises:
            StorageError: a commit would fail, too.
        """

    def read(self, table: str, key: str) -> bytes | None:
        """Return one durable document."""

    def scan(self, table: str, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Yield durable documents in the order of their keys."""

    def changes_since(self, revision: int, digest: bytes | None) -> list[Group] | None:
        """Return the groups after a revision, None when they are not kept.

        With a digest, also None when the history up to that revision was another.
        """

    def dump(self) -> bytes:
        """Return all that a candidate needs, see `ganeti.store.wire`."""

    def close(self) -> None:
        """Close files."""


class Copies(Protocol):
    """The copies on master candidates, as the engine sees them."""

    def start(
        self,
        snapshot: Snapshot,
        term: Term,
        voters: Voters,
        on_deposed: Callable[[errors.TermError], None],
    ) -> None:
        """Begin to bring candidates up to the present state.

        ``on_deposed`` is called, from any thread, when too many candidates follow
        another master.
        """

    def send(self, group: Group) -> None:
        """Send a group to the candidates that are up to date; returns at once.

        Raises:
            TermError: this master is deposed.
        """

    def all_know(self, feature: str) -> bool:
        """Return whether the releases of all candidates know a feature."""

    def use(self, used: frozenset[str]) -> None:
        """Take notice of the features in use; who lacks one gets nothing."""

    def disown(self) -> bool:
        """Take back the group that was sent last: it did not become durable here.

        Returns:
            False if a candidate may have it.
        """

    def pause(self, seconds: float) -> None:
        """Wait before something is tried again."""

    def begin_close(self) -> None:
        """Stop waiting for a majority that is missing."""

    def wait(self, group: Group) -> None:
        """Block until a group may be acknowledged.

        Raises:
            TermError: this master is deposed.
        """

    @property
    def refuses(self) -> bool:
        """Return whether changes are refused, for want of a majority."""

    def refresh(self, snapshot: Snapshot, voters: Voters) -> None:
        """Take notice of nodes that became candidates or ceased to be."""

    def await_dropped(self, node: str, seconds: float) -> bool:
        """Wait for calls to a node that is no candidate now; return if all ended."""

    def status(self) -> dict[str, CopyState]:
        """Return the state of each candidate's copy by node uuid."""

    def exposure(self) -> str:
        """Return a warning about changes that too few copies hold; empty if none."""

    def check_now(self) -> None:
        """Find out soon whether this master is deposed."""

    def close(self) -> None:
        """Stop sending."""


#: Digest of an empty history.
NO_HISTORY = bytes(16)


def chain(parent: bytes, payload: bytes) -> bytes:
    """Return the digest of a history that goes on with a payload.

    Equal digests mean equal histories, so that a copy which took changes that its
    master lost is recognised even though the revision numbers are the same.
    """
    return hashlib.blake2b(payload, digest_size=16, key=parent).digest()
