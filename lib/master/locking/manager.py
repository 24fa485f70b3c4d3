"""All locks of the cluster, with the order of levels that prevents deadlock.

An owner takes the big lock first, then locks level by level upwards, all of a level at
once. A violation raises a ProgrammerError instead of a deadlock. The logical unit
defines which locks an operation needs; the job queue defines how often it tries.
"""

import dataclasses
import enum
import threading
from collections.abc import Collection, Mapping
from typing import Final

from ganeti.base import clock, errors
from ganeti.master.locking.lockset import LockSet
from ganeti.master.locking.sharedlock import LockInfo


class Level(enum.IntEnum):
    """A lock level; locks of lower levels are taken first."""

    CLUSTER = 0
    INSTANCE = 1
    NODEGROUP = 2
    NODE = 3
    NODE_RES = 4
    NETWORK = 5

    @property
    def label(self) -> str:
        """Return the name in lock lists, such as ``node-res``."""
        return self.name.lower().replace("_", "-")


#: The only lock of level CLUSTER; nearly every opcode takes it shared.
BGL: Final = "BGL"
#: Seconds between attempts to get enough opportunistic locks.
_OPPORTUNISTIC_PAUSE_S: Final = 2.0
#: Levels with the same members as another level.
_TWINS: Final = {Level.NODE: Level.NODE_RES}
#: Levels whose members can be added and removed.
_CHANGING: Final = frozenset(Level) - {Level.CLUSTER}


@dataclasses.dataclass(frozen=True)
class Request:
    """A request for locks of one level.

    Attributes:
        level: the level.
        names: members; None for all, including future ones.
        shared: take shared locks.
        priority: smaller is more urgent.
        opportunistic: take only free locks.
        count: with ``opportunistic``, the smallest sufficient number of locks.
        adding: members to create, held exclusively.
    """

    level: Level
    names: Collection[str] | None = ()
    shared: bool = False
    priority: int = 0
    opportunistic: bool = False
    count: int = 0
    adding: Collection[str] = ()


class LockManager:
    """The locks of the master daemon, owned by threads.

    Args:
        clk: the clock of time limits that span several locks.
        members: names by level; those of NODE are members of NODE_RES too.
    """

    def __init__(
        self, clk: clock.Clock, members: Mapping[Level, Collection[str]] | None = None
    ) -> None:
        known = dict(members or {})
        known[Level.CLUSTER] = (BGL,)
        for level, twin in _TWINS.items():
            known[twin] = known.get(level, ())
        self._clock = clk
        self._interrupted: set[threading.Thread] = set()
        self._sets = {
            level: LockSet(
                level.label,
                known.get(level, ()),
                clk=clk,
                interrupted=self._interrupted,
            )
            for level in Level
        }

    # Taking
    def acquire(
        self, request: Request, timeout_s: float | None = None
    ) -> frozenset[str] | None:
        """Take locks of one level: all of them or none.

        Args:
            request: the locks to take.
            timeout_s: time limit of the whole request. None waits without limit; an
                opportunistic request is then treated as an ordinary one, because its
                attempts would never end.

        Returns:
            The names of the locks taken; None after the time limit.

        Raises:
            LockError: a lock does not exist, or one to add exists.
            ProgrammerError: the order of levels is violated.
        """
        self._check_order(request.level)
        if request.opportunistic and timeout_s is not None:
            return self._acquire_opportunistic(request, timeout_s)
        got = self._sets[request.level].acquire(
            request.names,
            timeout_s,
            shared=request.shared,
            priority=request.priority,
            adding=request.adding,
        )
        return None if got is None else frozenset(got)

    def blockers(self, level: Level) -> frozenset[threading.Thread]:
        """Return, once, the holders because of which the last request timed out.

        Empty if nobody held the lock in a conflicting mode, for instance because only
        other waiting requests were ahead.
        """
        return self._sets[level].waits.take_blockers()

    def release(self, level: Level, names: Collection[str] | None = None) -> None:
        """Release some or all locks of a level; the big lock must be the last.

        Raises:
            ProgrammerError: a lock is not owned, or the big lock is not the last.
        """
        if level is Level.CLUSTER and self._owned_levels() - {Level.CLUSTER}:
            raise errors.ProgrammerError("the big lock must be released last")
        self._sets[level].release(names)

    def release_all(self) -> None:
        """Release all locks of this thread, highest level first."""
        for level in sorted(self._owned_levels(), reverse=True):
            self._sets[level].release()

    def interrupt(self, thread: threading.Thread) -> None:
        """End a thread's waits for locks, now and until `resume`.

        The thread's requests time out at once unless the locks are free. Creating and
        deleting locks is not affected.
        """
        self._interrupted.add(thread)
        for locks in self._sets.values():
            locks.waits.interrupt(thread)

    def resume(self) -> None:
        """Allow this thread to wait again after an interruption."""
        self._interrupted.discard(threading.current_thread())

    def downgrade(self, level: Level, names: Collection[str] | None = None) -> None:
        """Downgrade exclusive locks of a level to shared ones."""
        self._sets[level].downgrade(names)

    # Members
    def add(
        self, level: Level, names: Collection[str], *, acquired: bool = False
    ) -> None:
        """Create members of a level; nodes also get their resource lock, not held.

        Raises:
            LockError: a member exists already; none was added.
            ProgrammerError: the order of levels is violated, or the level's members are
                fixed.
        """
        self._check_changing(level)
        if not self._sets[level].owns_all():
            self._check_order(level)
        self._sets[level].add(names, acquired=acquired)
        if level in _TWINS:
            self._sets[_TWINS[level]].add(names)

    def remove(self, level: Level, names: Collection[str]) -> set[str]:
        """Delete members that this thread owns exclusively, or wait for them first.

        Returns:
            The names that this call removed.
        """
        self._check_changing(level)
        removed = self._sets[level].remove(names)
        if level in _TWINS:
            self._sets[_TWINS[level]].remove(removed)
        return removed

    # Questions
    def names(self, level: Level) -> set[str]:
        """Return the present members of a level."""
        return self._sets[level].names()

    def owned(self, level: Level) -> frozenset[str]:
        """Return the members that this thread owns at a level."""
        return self._sets[level].owned()

    def is_owned(self, level: Level) -> bool:
        """Return whether this thread owns a lock of a level."""
        return self._sets[level].is_owned()

    def owns(self, level: Level, names: Collection[str], shared: int = -1) -> bool:
        """Return whether this thread owns them: 1 shared, 0 exclusively, -1 any."""
        return self._sets[level].owns(names, shared)

    def owns_all(self, level: Level) -> bool:
        """Return whether this thread owns a whole level, including future members."""
        return self._sets[level].owns_all()

    def lock_info(self, *, used_only: bool = True) -> list[LockInfo]:
        """Return the state of locks, sorted by name.

        Args:
            used_only: omit locks without holders and waiters.
        """
        groups = self._sets.values()
        return sorted(
            row for group in groups for row in group.info(used_only=used_only)
        )

    # Inside
    def _owned_levels(self) -> set[Level]:
        return {level for level, locks in self._sets.items() if locks.is_owned()}

    def _check_order(self, level: Level) -> None:
        owned = self._owned_levels()
        if level is not Level.CLUSTER and Level.CLUSTER not in owned:
            raise errors.ProgrammerError(
                f"level {level.label}: requested without the big lock"
            )
        higher = [held.label for held in sorted(owned) if held >= level]
        if higher:
            raise errors.ProgrammerError(
                f"level {level.label}: requested while holding {', '.join(higher)}"
            )

    def _check_changing(self, level: Level) -> None:
        if level not in _CHANGING:
            raise errors.ProgrammerError(
                f"level {level.label}: its locks cannot be added or removed"
            )

    def _acquire_opportunistic(
        self, request: Request, timeout_s: float
    ) -> frozenset[str] | None:
        locks = self._sets[request.level]
        end = self._clock.monotonic() + timeout_s
        while True:
            left = max(0.0, end - self._clock.monotonic())
            got = locks.acquire(
                request.names,
                left if request.names is None else None,
                shared=request.shared,
                priority=request.priority,
                opportunistic=True,
            )
            if got is not None and len(got) >= request.count:
                return frozenset(got)
            if got is not None:
                locks.release()
            is_interrupted = threading.current_thread() in self._interrupted
            if is_interrupted or self._clock.monotonic() >= end:
                return None
            pause = min(_OPPORTUNISTIC_PAUSE_S, end - self._clock.monotonic())
            self._clock.wait(threading.Event(), pause)
