"""All locks of the cluster: levels in their order, and the rules against deadlock.

An owner takes locks level by level, upwards, all of a level at once, and the big lock
before anything else; a breach is a ProgrammerError, not a hang. Which locks an
operation needs, and how often it tries, does not belong here: that is the logical
unit's and the job queue's business.
"""

import dataclasses
import enum
import threading
from collections.abc import Collection, Mapping
from typing import Final

from ganeti import clock, errors
from ganeti.locking.lockset import LockSet
from ganeti.locking.sharedlock import LockInfo


class Level(enum.IntEnum):
    """A lock level; locks of a lower one are taken first."""

    CLUSTER = 0
    INSTANCE = 1
    NODEGROUP = 2
    NODE = 3
    NODE_RES = 4
    NETWORK = 5

    @property
    def label(self) -> str:
        """Return the name shown in lock lists, such as ``node-res``."""
        return self.name.lower().replace("_", "-")


#: The one lock of level CLUSTER: taken shared by nearly every opcode.
BGL: Final = "BGL"
#: Seconds between tries for enough opportunistic locks.
_OPPORTUNISTIC_PAUSE_S: Final = 2.0
#: Levels that have the same members as another one.
_TWINS: Final = {Level.NODE: Level.NODE_RES}
#: Levels whose members come and go.
_CHANGING: Final = frozenset(Level) - {Level.CLUSTER}


@dataclasses.dataclass(frozen=True)
class Request:
    """What to take at one level.

    Attributes:
        level: where.
        names: members; None for all, and those still to come.
        shared: take them shared.
        priority: smaller is more urgent.
        opportunistic: what is free is enough.
        count: with ``opportunistic``, the fewest locks to be content with.
        adding: members to create, held exclusively then.
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
        clk: time, for limits that span several locks.
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
        """Take locks of one level; all of them or none.

        Args:
            request: what to take.
            timeout_s: for everything; None waits without limit, and an opportunistic
                request is then an ordinary one, as nothing else would end the waiting.

        Returns:
            The names taken; None if the time ran out.

        Raises:
            LockError: no such lock, or one to be added exists.
            ProgrammerError: out of order.
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

    def release(self, level: Level, names: Collection[str] | None = None) -> None:
        """Give back some locks of a level, or all; the big lock only as the last.

        Raises:
            ProgrammerError: not owned, or the big lock before the others.
        """
        if level is Level.CLUSTER and self._owned_levels() - {Level.CLUSTER}:
            raise errors.ProgrammerError("the big lock is released as the last one")
        self._sets[level].release(names)

    def release_all(self) -> None:
        """Give back everything that this thread owns, highest level first."""
        for level in sorted(self._owned_levels(), reverse=True):
            self._sets[level].release()

    def interrupt(self, thread: threading.Thread) -> None:
        """Make a thread's waiting for locks end, now and until `resume`.

        What it asks for comes back as not had in time, unless it is free. Creating
        and deleting locks is not concerned.
        """
        self._interrupted.add(thread)
        for locks in self._sets.values():
            locks.interrupt(thread)

    def resume(self) -> None:
        """Let this thread wait again after an interruption."""
        self._interrupted.discard(threading.current_thread())

    def downgrade(self, level: Level, names: Collection[str] | None = None) -> None:
        """Make exclusive holds of a level shared ones."""
        self._sets[level].downgrade(names)

    # Members
    def add(
        self, level: Level, names: Collection[str], *, acquired: bool = False
    ) -> None:
        """Create members of a level; nodes get their resource lock too, not held.

        Raises:
            LockError: one exists already; none was added.
            ProgrammerError: out of order, or the level's members never change.
        """
        self._check_changing(level)
        if not self._sets[level].owns_all():
            self._check_order(level)
        self._sets[level].add(names, acquired=acquired)
        if level in _TWINS:
            self._sets[_TWINS[level]].add(names)

    def remove(self, level: Level, names: Collection[str]) -> set[str]:
        """Delete members held exclusively, or waited for if nothing is held there.

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
        """Return whether this thread owns anything at a level."""
        return self._sets[level].is_owned()

    def owns(self, level: Level, names: Collection[str], shared: int = -1) -> bool:
        """Return whether this thread owns them: 1 shared, 0 exclusively, -1 anyhow."""
        return self._sets[level].owns(names, shared)

    def owns_all(self, level: Level) -> bool:
        """Return whether this thread owns a whole level, present and future."""
        return self._sets[level].owns_all()

    def lock_info(self, *, used_only: bool = True) -> list[LockInfo]:
        """Return locks for lists, sorted by name.

        Args:
            used_only: leave out those that nobody holds or waits for.
        """
        rows = [row for group in self._sets.values() for row in group.info()]
        return sorted(row for row in rows if not used_only or row.mode or row.pending)

    # Inside
    def _owned_levels(self) -> set[Level]:
        return {level for level, locks in self._sets.items() if locks.is_owned()}

    def _check_order(self, level: Level) -> None:
        owned = self._owned_levels()
        if level is not Level.CLUSTER and Level.CLUSTER not in owned:
            raise errors.ProgrammerError(
                f"level {level.label}: asked for without the big lock"
            )
        higher = [held.label for held in sorted(owned) if held >= level]
        if higher:
            raise errors.ProgrammerError(
                f"level {level.label}: asked for while holding {', '.join(higher)}"
            )

    def _check_changing(self, level: Level) -> None:
        if level not in _CHANGING:
            raise errors.ProgrammerError(f"level {level.label}: its locks never change")

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
