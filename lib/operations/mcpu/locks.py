"""The locks of one running opcode: taken level by level, released in reverse order."""

import dataclasses
from collections.abc import Collection, Sequence

from ganeti.base import clock, errors
from ganeti.base.constants import ecodes
from ganeti.master.jqueue.effects import LockTimeout
from ganeti.master.locking import BGL, Level, LockManager, Request
from ganeti.model import objects
from ganeti.operations.base import LockRequest


class HeldLocks:
    """The locks of one opcode.

    Args:
        manager: all locks.
        clock_: clock of the deadline.
        timeout_s: time limit of all requests together; None waits without limit.
        priority: priority of all requests.
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
        """Release locks of a level early, except some."""
        if level not in self._levels:
            return
        drop = sorted(self._manager.owned(level) - set(keep))
        if drop:
            self._manager.release(level, drop)
            self._exclusive.get(level, set()).difference_update(drop)

    def downgrade(self, level: Level, names: Sequence[str]) -> None:
        """Convert exclusive locks to shared ones."""
        self._manager.downgrade(level, names)
        self._exclusive.get(level, set()).difference_update(names)

    # For the processor
    @property
    def timeout_s(self) -> float | None:
        """Seconds left for lock requests, None without limit."""
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - self._clock.monotonic())

    def take_big_lock(self, *, exclusive: bool) -> None:
        """Take the big lock, which every opcode takes first. Raises LockTimeout."""
        self._acquire(
            Request(
                Level.CLUSTER,
                (BGL,),
                shared=not exclusive,
                priority=self._priority,
            )
        )

    def take_level(self, level: Level, request: LockRequest) -> None:
        """Take the locks declared for a level.

        Raises:
            LockTimeout: the locks were not acquired in time.
            OpPrereqError: a lock to create exists, or a lock to take does not.
        """
        names, added = request.names.get(level, ()), request.add.get(level, ())
        wanted = Request(
            level,
            names=sorted(names) if isinstance(names, Collection) else None,
            shared=level in request.shared,
            priority=self._priority,
            opportunistic=level in request.opportunistic,
            count=request.opportunistic_count.get(level, 0),
            adding=added,
        )
        while not self._acquire(wanted, may_miss=level in request.without_removed):
            known = self._manager.names(level)
            # Objects are removed while this waits, so each attempt leaves out what is
            # missing.
            left = [name for name in wanted.names or () if name in known]
            wanted = dataclasses.replace(wanted, names=left)

    def _acquire(self, request: Request, *, may_miss: bool = False) -> bool:
        """Take locks; return false if one was removed and may be missing."""
        if request.names is not None and not (request.names or request.adding):
            return True
        try:
            got = self._manager.acquire(request, self.timeout_s)
        except errors.LockError as err:
            known = self._manager.names(request.level)
            if may_miss and not known.issuperset(request.names or ()):
                return False
            raise self._refused(request, err) from err
        if got is None:
            names = "all" if request.names is None else ", ".join(request.names)
            raise LockTimeout(
                f"{request.level.label}: {names}", self._manager.blockers(request.level)
            )
        self._levels.append(request.level)
        taken = set(request.adding)
        if not request.shared:
            taken |= got
        self._exclusive[request.level] = taken
        return True

    def _refused(self, request: Request, err: errors.LockError) -> errors.OpPrereqError:
        known = self._manager.names(request.level)
        if clash := sorted(known.intersection(request.adding)):
            return errors.OpPrereqError(
                f"{request.level.label} {', '.join(clash)}: exists already, or another"
                f" job is creating it",
                ecodes.ECODE_NOTUNIQUE,
            )
        return errors.OpPrereqError(
            f"{err}; the object was removed or renamed while the job waited for locks",
            ecodes.ECODE_NOENT,
        )

    def finish(self, snapshot: objects.Snapshot, *, members_changed: bool) -> None:
        """Release all locks, highest level first; delete locks without an object.

        Args:
            snapshot: the newest configuration.
            members_changed: objects may have been added or removed under the exclusive
                big lock, without locks of their own.
        """
        if members_changed and self._exclusive.get(Level.CLUSTER):
            self._renew_members(snapshot)
        while self._levels:
            level = self._levels.pop()
            gone = [
                name
                for name in self._exclusive.pop(level, ())
                if level is not Level.CLUSTER and not exists(snapshot, level, name)
            ]
            if gone:
                self._manager.remove(level, sorted(gone))
            if self._manager.is_owned(level):
                self._manager.release(level)

    def _renew_members(self, snapshot: objects.Snapshot) -> None:
        # The lock manager keeps NODE_RES equal to NODE.
        for level, present in (
            (Level.NODEGROUP, set(snapshot.nodegroups)),
            (Level.NODE, set(snapshot.nodes)),
        ):
            known = self._manager.names(level)
            if new := present - known:
                self._manager.add(level, sorted(new))
            if gone := known - present:
                self._manager.remove(level, sorted(gone))


def members(snapshot: objects.Snapshot) -> dict[Level, list[str]]:
    """Return the names of the locks that a configuration needs, by level."""
    return {
        Level.INSTANCE: list(snapshot.names("instances")),
        Level.NODEGROUP: list(snapshot.nodegroups),
        Level.NODE: list(snapshot.nodes),
        Level.NETWORK: list(snapshot.networks),
    }


def exists(snapshot: objects.Snapshot, level: Level, name: str) -> bool:
    """Return whether the configuration has the object of a lock."""
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
