"""The locks of one running opcode: taken level by level, given back in reverse."""

import threading
from collections.abc import Sequence
from typing import Final, Protocol

from ganeti import clock, errors, objects
from ganeti.cmdlib.base import LockRequest
from ganeti.constants import ecodes
from ganeti.jqueue.executor import LockTimeout
from ganeti.locking import BGL, Level

#: Seconds between two tries of an opportunistic request.
OPPORTUNISTIC_INTERVAL_S: Final = 2.0


class LockManager(Protocol):
    """What this package needs of `ganeti.locking`; the owner is the calling thread."""

    def acquire(
        self,
        level: Level,
        names: Sequence[str] | None,
        *,
        shared: bool,
        timeout_s: float | None,
        priority: int,
        opportunistic: bool = False,
    ) -> frozenset[str] | None:
        """Take locks of a level (None: all), or nothing and return None on timeout."""

    def owned(self, level: Level) -> frozenset[str]:
        """Return the names that the thread holds at a level."""

    def release(self, level: Level, names: Sequence[str] | None = None) -> None:
        """Give back some or all locks of a level."""

    def downgrade(self, level: Level, names: Sequence[str] | None = None) -> None:
        """Turn exclusive locks into shared ones."""

    def add(self, level: Level, names: Sequence[str]) -> None:
        """Create locks, held exclusively. Raises LockError: one exists already."""

    def remove(self, level: Level, names: Sequence[str]) -> None:
        """Delete locks that the thread holds exclusively."""


class HeldLocks:
    """What one opcode holds.

    Args:
        manager: all locks.
        clock_: for the deadline.
        timeout_s: for all requests together; None waits for ever.
        priority: of the requests.
    """

    def __init__(
        self,
        manager: LockManager,
        clock_: clock.Clock,
        *,
        timeout_s: float | None,
        priority: int,
    ) -> None:
        self._manager = manager
        self._clock = clock_
        self._deadline = None if timeout_s is None else clock_.monotonic() + timeout_s
        self._priority = priority
        self._levels: list[Level] = []
        self._exclusive: dict[Level, set[str]] = {}

    # For logical units
    def owned(self, level: Level) -> frozenset[str]:
        """Return the names held at a level."""
        return self._manager.owned(level) if level in self._levels else frozenset()

    def release(self, level: Level, *, keep: Sequence[str] = ()) -> None:
        """Give back locks of a level early, all but some."""
        if level not in self._levels:
            return
        drop = sorted(self._manager.owned(level) - set(keep))
        if drop:
            self._manager.release(level, drop)
            self._exclusive.get(level, set()).difference_update(drop)

    def downgrade(self, level: Level, names: Sequence[str]) -> None:
        """Turn exclusive locks into shared ones."""
        self._manager.downgrade(level, names)
        self._exclusive.get(level, set()).difference_update(names)

    # For the processor
    @property
    def timeout_s(self) -> float | None:
        """The time that is left for locks, None without limit."""
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - self._clock.monotonic())

    def take_big_lock(self, *, exclusive: bool) -> None:
        """Take the lock that every opcode takes first. Raises LockTimeout."""
        self._acquire(Level.CLUSTER, (BGL,), shared=not exclusive)

    def take_level(self, level: Level, request: LockRequest) -> None:
        """Take the locks declared for a level.

        Raises:
            LockTimeout: not had in time.
            OpPrereqError: a lock to be created exists, or one to be taken is gone.
        """
        if level in request.names:
            wanted = request.names[level]
            names = sorted(wanted) if isinstance(wanted, Sequence) else None
            shared = level in request.shared
            if level in request.opportunistic and self._deadline is not None:
                self._acquire_some(
                    level, names, shared, request.opportunistic_count.get(level, 0)
                )
            else:
                self._acquire(level, names, shared=shared)
        if added := request.add.get(level):
            self._add(level, added)

    def _acquire(
        self, level: Level, names: Sequence[str] | None, *, shared: bool
    ) -> None:
        if names is not None and not names:
            self._levels.append(level)
            return
        try:
            got = self._manager.acquire(
                level,
                names,
                shared=shared,
                timeout_s=self.timeout_s,
                priority=self._priority,
            )
        except errors.LockError as err:
            raise errors.OpPrereqError(
                f"{err}; the object was removed or renamed meanwhile, retry",
                ecodes.ECODE_NOENT,
            ) from err
        if got is None:
            raise LockTimeout(f"{level.label}: {names or 'all'}")
        self._note(level, got, shared=shared)

    def _acquire_some(
        self, level: Level, names: Sequence[str] | None, shared: bool, count: int
    ) -> None:
        while True:
            got = self._manager.acquire(
                level,
                names,
                shared=shared,
                timeout_s=0,
                priority=self._priority,
                opportunistic=True,
            )
            if got is not None and len(got) >= count:
                self._note(level, got, shared=shared)
                return
            if got:
                self._manager.release(level, sorted(got))
            left = self.timeout_s
            if not left:
                raise LockTimeout(f"{level.label}: fewer than {count} are free")
            self._clock.wait(threading.Event(), min(left, OPPORTUNISTIC_INTERVAL_S))

    def _add(self, level: Level, names: Sequence[str]) -> None:
        try:
            self._manager.add(level, names)
        except errors.LockError as err:
            raise errors.OpPrereqError(
                f"{level.label} {', '.join(names)}: being created by another job"
                f" ({err})",
                ecodes.ECODE_NOTUNIQUE,
            ) from err
        self._note(level, names, shared=False)

    def _note(self, level: Level, names: Sequence[str] | frozenset[str], *, shared: bool) -> None:
        if level not in self._levels:
            self._levels.append(level)
        if not shared:
            self._exclusive.setdefault(level, set()).update(names)

    def finish(self, snapshot: objects.Snapshot) -> None:
        """Give everything back, highest level first; drop locks of no object."""
        while self._levels:
            level = self._levels.pop()
            gone = [
                name
                for name in self._exclusive.pop(level, ())
                if level is not Level.CLUSTER and not exists(snapshot, level, name)
            ]
            if gone:
                self._manager.remove(level, sorted(gone))
            if self._manager.owned(level):
                self._manager.release(level)


def exists(snapshot: objects.Snapshot, level: Level, name: str) -> bool:
    """Tell whether the object that a lock stands for is in the configuration."""
    if level is Level.INSTANCE:
        return (
            snapshot.uuid_of("instances", name) is not None
            or name in snapshot.instances
        )
    if level is Level.NODEGROUP:
        return name in snapshot.nodegroups
    if level is Level.NETWORK:
        return name in snapshot.networks
    return name in snapshot.nodes
