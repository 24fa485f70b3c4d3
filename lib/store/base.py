"""The interface of a store: snapshots, commits, followers, documents.

Configuration records live in the tables of `ganeti.model.objects.TABLES` and are part
of snapshots. Documents are opaque bytes by table and key (jobs and their logs), made
durable and copied to master candidates the same way, but not part of snapshots.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from ganeti.base import errors
from ganeti.decisions.quorum import Term
from ganeti.model.objects import Snapshot, Update

#: Document tables: live jobs by id, archived jobs by id, log entries by
#: ``<job id>/<serial, 10 digits>``, single values (queue serial, drain flag), and the
#: decision journal by number, 12 digits.
DOCUMENT_TABLES: Final = ("jobs", "archive", "joblogs", "meta", "journal")


class Document(NamedTuple):
    """One changed document; ``data`` None removes it."""

    table: str
    key: str
    data: bytes | None


Change = Update | Document
#: Called once, from the committer thread: with the revision, or with the error.
Done = Callable[[int, BaseException | None], None]


class CopyState(NamedTuple):
    """One candidate's copy as the master knows it.

    Attributes:
        is_current: it has, or is being sent, every revision, and has all archived jobs.
        revision: newest one that is known to be there, -1 if none.
        trouble: why it is not current, empty if it is.
        wants_restart: it has promised a term that is not below the master's to another
            node; a restart of the master daemon takes a higher one, and is not refused
            for this copy.
    """

    is_current: bool
    revision: int
    trouble: str = ""
    wants_restart: bool = False


class ChangeSet(NamedTuple):
    """The changes of one revision."""

    revision: int
    term: int
    changes: Sequence[Change]


class Batch:
    """Changes under way, see `Store.writing`.

    Attributes:
        snapshot: the newest state with the batch's own changes.
        changes: what was put.
    """

    __slots__ = ("changes", "snapshot")

    def __init__(self, snapshot: Snapshot) -> None:
        """Begin with the newest state."""
        self.snapshot = snapshot
        self.changes: list[Change] = []

    def put(self, *changes: Change) -> None:
        """Add changes to the batch."""
        records = [change for change in changes if isinstance(change, Update)]
        if records:
            self.snapshot = self.snapshot.apply(records)
        self.changes.extend(changes)


class Store(Protocol):
    """A store opened for writing by the master. All methods are thread-safe."""

    @property
    def term(self) -> Term:
        """The master term that this store was opened with."""

    def snapshot(self) -> Snapshot:
        """Return the newest durable snapshot; never blocks."""

    def writing(self) -> contextlib.AbstractContextManager[Batch]:
        """Change records: read, decide and commit as one step.

        The body runs under the writers' lock, on the newest state, which may not be
        durable yet; it must be quick: no RPC, no waiting, no other store call. Leaving
        it releases the lock and blocks until the batch is durable. An exception in the
        body drops the batch.

        Raises (on leaving):
            StorageError: not durable; nothing was changed.
            TermError: another master has taken over.
        """

    def commit(self, changes: Sequence[Change]) -> int:
        """Make changes durable and return their revision; blocks.

        For documents, whose one writer is the job queue, and for changes that need
        no look at the present state. Same errors as `writing`.
        """

    def commit_soon(
        self,
        changes: Sequence[Change],
        done: Done | None = None,
        *,
        wait_s: float = 0.0,
    ) -> None:
        """Ask for a commit and return at once; ``done`` is called when it is durable.

        Commits become durable in the order in which they were asked for. One that can
        wait for some seconds does so, unless another one, be it an empty one, takes it
        along.

        Raises:
            StorageError: the store is closed; ``done`` is not called.
            TermError: another master has taken over; ``done`` is not called.
        """

    def read(self, table: str, key: str) -> bytes | None:
        """Return one document."""

    def scan(self, table: str, prefix: str = "") -> Iterator[tuple[str, bytes]]:
        """Yield the documents of a table in the order of their keys."""

    def follow(self, from_revision: int) -> Iterator[ChangeSet]:
        """Yield durable change-sets after a revision, blocking for the next one.

        Raises:
            StorageError: that revision is too old; start from a snapshot.
        """

    def may_use(self, feature: str) -> bool:
        """Return whether all candidates know a feature of `ganeti.store.features`."""

    def copies(self) -> dict[str, CopyState]:
        """Return the state of the other candidates' copies by node uuid."""

    def release_copy(self, node: str, seconds: float) -> bool:
        """Make the end of a node's candidacy, which is committed, take full effect.

        When it returns true, nothing is sent any more that could make a copy there.

        Args:
            node: uuid; it is no master candidate now.
            seconds: to wait for calls that are under way.
        """

    def exposure(self) -> str:
        """Return why changes are refused or may be lost; empty if they are not."""

    def stall(self) -> str:
        """Return why the commit under way waits without limit; empty if none does."""

    def check_term(self) -> None:
        """Find out soon whether another master took over; returns at once."""

    def require_leading(self) -> None:
        """Raise TermError if this master is deposed and must not act."""

    def note_refusal(self) -> None:
        """Take notice that a node has refused this master's term; returns at once."""

    def require_confirmed(self, give_up: threading.Event | None = None) -> None:
        """Block until a majority has confirmed the term since a node refused it.

        Args:
            give_up: set by others to end the wait.

        Raises:
            TermError: this master is deposed and must not act.
            StorageError: the store was closed, or the wait given up, before that.
        """

    def close(self) -> None:
        """Finish what was asked for and close the files."""


_Form = TypeVar("_Form", bound=msgspec.Struct)


def read_typed(
    store: Store, table: str, key: str, form: type[_Form], what: str
) -> _Form:
    """Return a document; without one, its type with the defaults that all fields have.

    Raises:
        ConfigurationError: it cannot be read; ``what`` names it.
    """
    data = store.read(table, key)
    if data is None:
        return form()
    try:
        return msgspec.json.decode(data, type=form)
    except (msgspec.DecodeError, UnicodeError) as err:
        raise errors.ConfigurationError(f"{what}: {err}") from err
