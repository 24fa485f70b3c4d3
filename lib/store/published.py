"""The durable state, as readers and followers see it."""

import collections
import threading
from collections.abc import Iterator
from typing import Final, NamedTuple

from ganeti.base import errors
from ganeti.model.objects import Network, Snapshot
from ganeti.store import wire
from ganeti.store.backend import Backend, Group
from ganeti.store.base import Change, ChangeSet

#: Bytes of change-sets kept in memory for followers; older ones come from the change
#: log.
RECENT_BYTES: Final = 4 * 1024 * 1024


class _Recent(NamedTuple):
    """A change-set for followers: what it builds on, and its size in bytes."""

    base: int
    size: int
    change_set: ChangeSet


def _pool_size(change: Change) -> int:
    """Return the bytes of an address pool, of which the payload may have a part."""
    record = change[2]
    if not isinstance(record, Network):
        return 0
    return len(record.reservations or "") + len(record.ext_reservations or "")


class Published:
    """The newest durable snapshot, and the change-sets that led to it.

    Followers sleep on a condition of their own, whose lock guards the fields. The
    committer's thread alone changes them; it exchanges `snapshot` under the lock, and
    everybody reads that without it.
    """

    def __init__(self, snapshot: Snapshot, backend: Backend) -> None:
        """Begin with a durable state; older change-sets come from the backend."""
        self.snapshot = snapshot
        self._backend = backend
        self._news = threading.Condition()
        self._recent: collections.deque[_Recent] = collections.deque()
        self._recent_bytes = 0
        self._is_closed = False

    def follow(self, from_revision: int) -> Iterator[ChangeSet]:
        """Yield durable change-sets after a revision until the store is closed."""
        seen = from_revision
        while True:
            with self._news:
                while not (self._is_closed or self.snapshot.revision > seen):
                    self._news.wait()
                if self.snapshot.revision <= seen:
                    return
                news = self._recent_since(seen)
            # Without the lock, so that a slow follower does not hold up the committer.
            for change_set in self._logged_since(seen) if news is None else news:
                seen = change_set.revision
                yield change_set

    def _recent_since(self, revision: int) -> list[ChangeSet] | None:
        if not self._recent or self._recent[0].base > revision:
            return None
        # From the newest on: followers ask after each commit, and thousands are kept.
        change_sets = []
        for item in reversed(self._recent):
            if item.change_set.revision <= revision:
                break
            change_sets.append(item.change_set)
        return change_sets[::-1]

    def _logged_since(self, revision: int) -> list[ChangeSet]:
        groups = self._backend.changes_since(revision, None)
        if groups is None:
            raise errors.StorageError(
                f"store: changes after revision {revision} are no longer kept;"
                f" start from a snapshot"
            )
        return [
            ChangeSet(group.revision, group.term, wire.to_changes(wire.rows_of(group)))
            for group in groups
        ]

    def publish(self, group: Group, changes: list[Change], staged: Snapshot) -> None:
        """Show a group that is durable, and wake followers."""
        with self._news:
            self.snapshot = staged
            change_set = ChangeSet(group.revision, group.term, changes)
            size = len(group.payload) + sum(map(_pool_size, changes))
            self._remember(_Recent(group.base, size, change_set))
            self._news.notify_all()

    def _remember(self, item: "_Recent") -> None:
        self._recent.append(item)
        self._recent_bytes += item.size
        while self._recent_bytes > RECENT_BYTES:
            self._recent_bytes -= self._recent.popleft().size

    def close(self) -> None:
        """End all followers."""
        with self._news:
            self._is_closed = True
            self._news.notify_all()
