"""The real locks, with a memory of what was asked."""

from ganeti.master import locking
from ganeti.master.locking import Level

TABLES = {Level.INSTANCE: "instances", Level.NODEGROUP: "nodegroups"}


class RecordingLocks(locking.LockManager):
    """Remembers every request and every removal, in order."""

    def __init__(self, clock, snapshot):
        members = {
            Level.INSTANCE: list(snapshot.names("instances")),
            Level.NODEGROUP: list(snapshot.nodegroups),
            Level.NODE: list(snapshot.nodes),
            Level.NETWORK: list(snapshot.networks),
        }
        super().__init__(clock, members)
        self.requests = []
        self.removed = []

    def acquire(self, request, timeout_s=None):
        self.requests.append(request)
        return super().acquire(request, timeout_s)

    def remove(self, level, names):
        self.removed.append((level, tuple(names)))
        return super().remove(level, names)

    def modes(self):
        """Return level -> (names or None for all, shared), without the big lock."""
        return {
            row.level: (None if row.names is None else frozenset(row.names), row.shared)
            for row in self.requests
            if row.level is not Level.CLUSTER
        }

    def big_lock_is_exclusive(self):
        """Return how the big lock was taken."""
        return not self.requests[0].shared

    def is_idle(self):
        """Return whether this thread holds nothing."""
        return not any(self.is_owned(level) for level in Level)
