"""The store of a simulation: in memory, durable at once, without threads.

What `ganeti.store` promises about durability is not simulated: a commit is on all
copies when it returns. Each master daemon opens the store; one that was killed can
change nothing any more.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

from ganeti.base import errors
from ganeti.decisions.quorum import Term
from ganeti.model.objects import Snapshot, Update
from ganeti.store import Batch, Change, ChangeSet, CopyState, Done

#: Called after each commit, with the changes.
OnCommit = Callable[[Sequence[Change]], None]


class Data:
    """The stored state that all master daemons of a simulation share.

    Attributes:
        snapshot: the newest configuration.
        documents: table -> key -> content.
        term: number of the newest term.
        on_commit: called after each commit.
        may_write: asked before each commit: whether a majority of copies takes it.
    """

    def __init__(self, start: Snapshot) -> None:
        self.snapshot = start
        self.documents: dict[str, dict[str, bytes]] = {}
        self.term = 0
        self.on_commit: OnCommit = _ignore
        self.may_write: Callable[[], bool] = lambda: True

    def take(self, changes: Sequence[Change], snapshot: Snapshot) -> None:
        """Make changes durable."""
        if not changes:
            return
        for change in changes:
            if isinstance(change, Update):
                continue
            table = self.documents.setdefault(change.table, {})
            if change.data is None:
                table.pop(change.key, None)
            else:
                table[change.key] = change.data
        revision = self.snapshot.revision + 1
        self.snapshot = snapshot.at(revision, self.term)
        self.on_commit(changes)


class SimulatedStore:
    """A `ganeti.store.Store`, opened by one master daemon."""

    def __init__(self, data: Data) -> None:
        """Open the data with a new term."""
        self._data = data
        data.term += 1
        self._term = Term(data.term, "simulation")
        self._is_open = True

    @property
    def term(self) -> Term:
        """The term of this daemon."""
        return self._term

    def snapshot(self) -> Snapshot:
        """Return the newest state."""
        return self._data.snapshot

    @contextlib.contextmanager
    def writing(self) -> Iterator[Batch]:
        """Change records; an exception in the body drops the batch."""
        self.require_leading()
        batch = Batch(self._data.snapshot)
        yield batch
        # The body may have slept, and this daemon may have been killed since.
        self.require_leading()
        self._data.take(batch.changes, batch.snapshot)

    def commit(self, changes: Sequence[Change]) -> int:
        """Take changes over and return their revision."""
        self.require_leading()
        batch = Batch(self._data.snapshot)
        batch.put(*changes)
        self._data.take(batch.changes, batch.snapshot)
        return self._data.snapshot.revision

    def commit_soon(
        self,
        changes: Sequence[Change],
        done: Done | None = None,
        *,
        wait_s: float = 0.0,
    ) -> None:
        """Take changes over and call ``done`` at once."""
        del wait_s
        revision = self.commit(changes)
        if done is not None:
            done(revision, None)

    def read(self, table: str, key: str) -> bytes | None:
        """Return one document."""
        return self._data.documents.get(table, {}).get(key)

    def scan(self, table: str, prefix: str = "") -> Iterator[tuple[str, bytes]]:
        """Yield the documents of a table in the order of their keys."""
        rows = self._data.documents.get(table, {})
        return iter(sorted((k, v) for k, v in rows.items() if k.startswith(prefix)))

    def follow(self, from_revision: int) -> Iterator[ChangeSet]:
        """Refuse: nobody follows a simulation.

        Raises:
            StorageError: always.
        """
        raise errors.StorageError(f"simulation: revision {from_revision} is too old")

    def may_use(self, feature: str) -> bool:
        """Return true: all candidates have this release."""
        del feature
        return True

    def copies(self) -> dict[str, CopyState]:
        """Return nothing: copies are not simulated."""
        return {}

    def release_copy(self, node: str, seconds: float) -> bool:
        """Return true: copies are not simulated."""
        del node, seconds
        return True

    def exposure(self) -> str:
        """Return nothing: commits are durable."""
        return ""

    def stall(self) -> str:
        """Return nothing: no commit waits."""
        return ""

    def check_term(self) -> None:
        """Do nothing: `require_leading` knows."""

    def require_leading(self) -> None:
        """Raise TermError if this daemon was killed."""
        if not (self._is_open and self._data.may_write()):
            raise errors.TermError(f"simulation: term {self._term.number} is over")

    def note_refusal(self) -> None:
        """Do nothing: no node refuses a term."""

    def require_confirmed(self, give_up: threading.Event | None = None) -> None:
        """Do nothing: no node refuses a term."""
        del give_up

    def close(self) -> None:
        """Refuse all changes from now on."""
        self._is_open = False


def _ignore(_changes: Sequence[Change]) -> None:
    """Do nothing."""
