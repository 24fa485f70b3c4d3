"""A store on top of another one: reads what is there, keeps changes to itself.

For finding out what operations would do. Nothing reaches the store below, nothing is
durable, and no thread or file belongs to a fork: dropping it is enough. One thread
uses a fork.
"""

import contextlib
import threading
from collections.abc import Iterator, Sequence

from ganeti.base import errors
from ganeti.decisions.quorum import Term
from ganeti.model.objects import Snapshot, Update
from ganeti.store.base import Batch, Change, ChangeSet, CopyState, Done, Store


class Fork:
    """A `ganeti.store.Store` that begins as another one is now.

    Attributes:
        start: the snapshot that it began with.
    """

    def __init__(self, below: Store) -> None:
        self._below = below
        self.start = self._snapshot = below.snapshot()
        self._documents: dict[tuple[str, str], bytes | None] = {}
        self._log: list[ChangeSet] = []

    @property
    def term(self) -> Term:
        """The term of the store below."""
        return self._below.term

    def snapshot(self) -> Snapshot:
        """Return the newest state of the fork."""
        return self._snapshot

    @contextlib.contextmanager
    def writing(self) -> Iterator[Batch]:
        """Change records; an exception in the body drops the batch."""
        batch = Batch(self._snapshot)
        yield batch
        self._take(batch.changes, batch.snapshot)

    def commit(self, changes: Sequence[Change]) -> int:
        """Take changes over and return their revision."""
        batch = Batch(self._snapshot)
        batch.put(*changes)
        self._take(batch.changes, batch.snapshot)
        return self._snapshot.revision

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

    def _take(self, changes: Sequence[Change], snapshot: Snapshot) -> None:
        if not changes:
            return
        for change in changes:
            if not isinstance(change, Update):
                self._documents[change.table, change.key] = change.data
        # Numbered as the real store would, so that a plan shows the revisions of a run.
        revision = self._snapshot.revision + 1
        self._snapshot = snapshot.at(revision, snapshot.term)
        self._log.append(ChangeSet(revision, snapshot.term, tuple(changes)))

    def copies(self) -> dict[str, CopyState]:
        """Return the copies of the store below."""
        return self._below.copies()

    def release_copy(self, node: str, seconds: float) -> bool:  # noqa: ARG002
        """Do nothing: a fork sends nothing."""
        return True

    def exposure(self) -> str:
        """Return the warning of the store below."""
        return self._below.exposure()

    def stall(self) -> str:
        """Return nothing: a fork waits for nobody."""
        return ""

    def require_leading(self) -> None:
        """Do nothing: a fork calls no nodes that act."""

    def note_refusal(self) -> None:
        """Do nothing: a fork calls no nodes that act."""

    def require_confirmed(self, give_up: threading.Event | None = None) -> None:
        """Do nothing: a fork calls no nodes that act."""

    def check_term(self) -> None:
        """Do nothing: a fork writes nothing."""

    def read(self, table: str, key: str) -> bytes | None:
        """Return one document."""
        # None stands for a document that the fork has removed.
        if (table, key) in self._documents:
            return self._documents[table, key]
        return self._below.read(table, key)

    def scan(self, table: str, prefix: str = "") -> Iterator[tuple[str, bytes]]:
        """Yield the documents of a table in the order of their keys."""
        own = {
            key: data
            for (name, key), data in self._documents.items()
            if name == table and key.startswith(prefix)
        }
        below = {k: v for k, v in self._below.scan(table, prefix) if k not in own}
        both = below | {key: data for key, data in own.items() if data is not None}
        return iter(sorted(both.items()))

    def may_use(self, feature: str) -> bool:
        """Return whether a feature may be used, as in the store below."""
        return self._below.may_use(feature)

    def follow(self, from_revision: int) -> Iterator[ChangeSet]:
        """Yield the fork's own change-sets after a revision; never waits.

        Raises:
            StorageError: that revision is older than the fork.
        """
        if from_revision < self.start.revision:
            raise errors.StorageError(
                f"fork: begins at revision {self.start.revision}, wanted what came"
                f" after {from_revision}"
            )
        return iter([item for item in self._log if item.revision > from_revision])

    def close(self) -> None:
        """Leave the store below as it is."""
