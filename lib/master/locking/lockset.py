"""Named locks of one level, taken together under one time limit.

Beside its members, a set has one lock of its own, shown as ``<level>/[lockset]``. A
request for *all* members takes this lock first, and adding members needs it
exclusively. So "all" means the present and the future members. The order of levels does
not belong here, see `ganeti.master.locking.manager`. Source: design 2.1, "Retry
acquiring locks".
"""

import threading
from collections.abc import Collection, Container, Iterable
from typing import NamedTuple

from ganeti.base import clock, errors
from ganeti.master.locking.sharedlock import LockInfo, SharedLock


class _Deadline:
    """A time limit that spans several waits."""

    def __init__(self, clk: clock.Clock, timeout: float | None) -> None:
        self._clock = clk
        self._end = None if timeout is None else clk.monotonic() + timeout

    def left(self) -> float | None:
        """Return the seconds that remain, 0 if none, None for no limit."""
        if self._end is None:
            return None
        return max(0.0, self._end - self._clock.monotonic())


class _Request(NamedTuple):
    """How to take locks: mode, priority, and whether to take only free locks."""

    shared: bool
    priority: int | None
    opportunistic: bool


class _Waits:
    """Waits of threads for locks of a set; thread-safe.

    Args:
        interrupted: threads that must not wait any more.
    """

    def __init__(self, interrupted: Container[threading.Thread]) -> None:
        self._interrupted = interrupted
        #: Thread -> the lock that it waits for or is about to wait for.
        self._waiting: dict[threading.Thread, SharedLock] = {}
        #: Thread -> the holders because of which its last request timed out.
        self._blockers: dict[threading.Thread, frozenset[threading.Thread]] = {}

    def acquire(
        self, lock: SharedLock, timeout: float | None, request: _Request
    ) -> bool:
        me = threading.current_thread()
        self._waiting[me] = lock
        try:
            taken = lock.acquire(
                request.shared, timeout, request.priority, self._interrupted
            )
        finally:
            del self._waiting[me]
        if not taken:
            self._blockers[me] = lock.blockers(shared=request.shared)
        return taken

    def interrupt(self, thread: threading.Thread) -> None:
        """End a thread's wait; the thread must be among the interrupted ones before."""
        lock = self._waiting.get(thread)
        if lock is not None:
            lock.interrupt(thread)

    def take_blockers(self) -> frozenset[threading.Thread]:
        """Return, once, the holders because of which the last request timed out."""
        return self._blockers.pop(threading.current_thread(), frozenset())


class _Owners:
    """The names that each thread owns; a thread changes its own alone."""

    def __init__(self) -> None:
        self._names: dict[threading.Thread, set[str]] = {}

    def mine(self) -> frozenset[str]:
        return frozenset(self._names.get(threading.current_thread(), ()))

    def add(self, names: Iterable[str]) -> None:
        self._names.setdefault(threading.current_thread(), set()).update(names)

    def discard(self, name: str) -> None:
        me = threading.current_thread()
        mine = self._names.get(me)
        if mine is not None:
            mine.discard(name)
            if not mine:
                del self._names[me]


class LockSet:
    """The locks of one level. Thread-safe; the acquiring thread owns a lock.

    Args:
        name: the level's name.
        members: names of the first members.
        clk: the clock.
        interrupted: threads that must not wait any more, see `LockManager.interrupt`.
    """

    def __init__(
        self,
        name: str,
        members: Iterable[str] = (),
        *,
        clk: clock.Clock,
        interrupted: Container[threading.Thread] = (),
    ) -> None:
        self.name = name
        self._clock = clk
        #: `LockManager` interrupts waits, and asks why one timed out.
        self.waits = _Waits(interrupted)
        self._set_lock = self._make("[lockset]")
        #: Guards the two maps; held only briefly, never during a wait.
        self._mutex = threading.Lock()
        self._members = {member: self._make(member) for member in members}
        self._owned = _Owners()

    # Taking
    def acquire(
        self,
        names: Collection[str] | None,
        timeout: float | None = None,
        *,
        shared: int = 0,
        priority: int | None = None,
        opportunistic: bool = False,
        adding: Collection[str] = (),
    ) -> set[str] | None:
        """Take several locks: all of them or, after the time limit, none.

        Args:
            names: members to take; None for all, including future ones.
            timeout: time limit of the whole request in seconds; None waits without
                limit. With ``opportunistic``, it limits the wait for the set's own
                lock.
            shared: take shared locks.
            priority: smaller is more urgent; None is 0.
            opportunistic: take only free locks, possibly none.
            adding: new members to create, held exclusively.

        Returns:
            The names of the locks taken, possibly none; None after the time limit.

        Raises:
            LockError: a member does not exist, or a new one exists already.
            ProgrammerError: the thread owns locks of this set already.
        """
        if self.is_owned():
            raise errors.ProgrammerError(
                f"level {self.name}: second request while holding"
                f" {sorted(self.owned())}"
            )
        if opportunistic and names is not None and timeout is not None:
            raise errors.ProgrammerError(
                f"level {self.name}: an opportunistic request by name cannot have a"
                f" timeout"
            )
        deadline = _Deadline(self._clock, timeout)
        done = False
        try:
            # The set's own lock keeps the membership as it is. New members need it
            # exclusively; a request of all members needs it in its own mode. Requests
            # by name do without it: there, a member that disappears is an error.
            if names is None or adding:
                set_shared = bool(shared) and not adding
                set_request = _Request(set_shared, priority, opportunistic=False)
                if not self.waits.acquire(self._set_lock, deadline.left(), set_request):
                    return None
            request = _Request(bool(shared), priority, opportunistic)
            if not self._take_members(names, deadline, request):
                return None
            if adding:
                self._create(adding, shared=False, acquired=True)
                if names is not None:
                    self._set_lock.release()
                # Everything was requested shared: others may read the set now.
                elif shared:
                    self._set_lock.downgrade()
            done = True
            return set(self.owned())
        finally:
            # All or nothing: a request that failed half way holds no lock of the set.
            if not done:
                self.release()

    def release(self, names: Collection[str] | None = None) -> None:
        """Release some members, or all; the set's own lock is released first.

        Raises:
            ProgrammerError: the thread does not own all of them.
        """
        owned = self.owned()
        missing = set(names or ()) - owned
        if missing:
            raise errors.ProgrammerError(
                f"level {self.name}: release of locks that are not owned:"
                f" {sorted(missing)}"
            )
        if self._set_lock.is_owned():
            self._set_lock.release()
        for name in sorted(owned if names is None else set(names)):
            self._members[name].release()
            self._owned.discard(name)

    def downgrade(self, names: Collection[str] | None = None) -> None:
        """Downgrade to shared; also the set's own lock if no member remains exclusive.

        Raises:
            ProgrammerError: the thread does not own all of them.
        """
        owned = self.owned()
        downgraded = owned if names is None else set(names)
        if downgraded - owned:
            raise errors.ProgrammerError(
                f"level {self.name}: downgrade of locks that are not owned: "
                f"{sorted(downgraded - owned)}"
            )
        for name in sorted(downgraded):
            self._members[name].downgrade()
        if self._set_lock.is_owned(shared=0) and not any(
            self._members[name].is_owned(shared=0) for name in owned
        ):
            self._set_lock.downgrade()

    # Members
    def add(
        self,
        names: Collection[str],
        *,
        acquired: bool = False,
        shared: int = 0,
        timeout: float | None = None,
    ) -> bool:
        """Create members; this takes the set's own lock exclusively for a moment.

        Args:
            names: new members.
            acquired: the thread owns them afterwards.
            shared: the thread owns them shared.
            timeout: seconds to wait for the set's own lock.

        Returns:
            Whether the members were created in time.

        Raises:
            LockError: a member exists already; none was added.
            ProgrammerError: the thread owns members, or the set's own lock shared.
        """
        borrowed = not self._set_lock.is_owned()
        if borrowed and self.owned():
            raise errors.ProgrammerError(
                f"level {self.name}: adding members while holding"
                f" {sorted(self.owned())}"
            )
        if self._set_lock.is_owned(shared=1):
            raise errors.ProgrammerError(
                f"level {self.name}: adding members while holding the set shared"
            )
        if borrowed and not self._set_lock.acquire(timeout=timeout):
            return False
        try:
            self._create(names, shared=bool(shared), acquired=acquired)
        finally:
            if borrowed:
                self._set_lock.release()
        return True

    def remove(self, names: Collection[str]) -> set[str]:
        """Delete members; threads that wait for one of them get a LockError.

        The thread must own all of them exclusively, or nothing of this set; then this
        call waits for them. Of several concurrent removals, one succeeds.

        Returns:
            The names that this call removed.

        Raises:
            ProgrammerError: the thread owns members, but not all of these exclusively.
        """
        owned = self.owned()
        if owned and not self.owns(names, shared=0):
            raise errors.ProgrammerError(
                f"level {self.name}: removing {sorted(names)} while holding "
                f"{sorted(owned)}"
            )
        removed: set[str] = set()
        for name in sorted(names):
            lock = self._lookup(name)
            try:
                if lock is None or not lock.delete():
                    continue
            except errors.LockError:
                continue  # another thread removed it first
            # Between the two steps a request finds a deleted lock, and fails as if the
            # member did not exist.
            with self._mutex:
                del self._members[name]
            self._owned.discard(name)
            removed.add(name)
        return removed

    # Questions
    def names(self) -> set[str]:
        """Return the present members."""
        with self._mutex:
            return set(self._members)

    def owned(self) -> frozenset[str]:
        """Return the members that this thread owns."""
        return self._owned.mine()

    def is_owned(self) -> bool:
        """Return whether this thread owns a lock of this set."""
        return bool(self.owned()) or self._set_lock.is_owned()

    def owns_all(self) -> bool:
        """Return whether this thread owns the set's own lock."""
        return self._set_lock.is_owned()

    def owns(self, names: Iterable[str], shared: int = -1) -> bool:
        """Return whether this thread owns them all: 1 shared, 0 exclusively, -1 any."""
        owned = self.owned()
        return all(
            name in owned and self._members[name].is_owned(shared=shared)
            for name in names
        )

    def info(self, *, used_only: bool = False) -> list[LockInfo]:
        """Return the state of the set's own lock and of the members, by name.

        With ``used_only``, omit locks without holders and waiters; most have none.
        """
        with self._mutex:
            locks = [self._set_lock, *self._members.values()]
        rows = [lock.info() for lock in locks if not (used_only and lock.is_free)]
        return sorted(row for row in rows if not used_only or row.mode or row.pending)

    # Inside
    def _take_members(
        self,
        names: Collection[str] | None,
        deadline: _Deadline,
        request: _Request,
    ) -> bool:
        # Every thread takes the members of a level in the order of their names, and the
        # levels in their order, so no two threads wait for each other.
        for name in sorted(self.names() if names is None else set(names)):
            left = 0.0 if request.opportunistic else deadline.left()
            try:
                taken = self._take(name, left, request)
            except errors.LockError:
                if names is None:
                    continue  # deleted since the lookup
                raise
            if not taken and not request.opportunistic:
                return False
        return True

    def _take(self, name: str, timeout: float | None, request: _Request) -> bool:
        lock = self._lookup(name)
        if lock is None:
            raise errors.LockError(f"lock {self.name}/{name}: does not exist")
        taken = self.waits.acquire(lock, timeout, request)
        if taken:
            self._owned.add([name])
        return taken

    def _make(self, member: str) -> SharedLock:
        return SharedLock(f"{self.name}/{member}", clk=self._clock)

    def _create(self, names: Collection[str], *, shared: bool, acquired: bool) -> None:
        new = {name: self._make(name) for name in names}
        # Before they can be looked up: no other thread can get one in between.
        if acquired:
            for lock in new.values():
                lock.acquire(shared=shared)
        with self._mutex:
            known = sorted(set(names) & set(self._members))
            if known:
                raise errors.LockError(
                    f"level {self.name}: these locks exist already: {', '.join(known)}"
                )
            self._members.update(new)
        if acquired and new:
            self._owned.add(new)

    def _lookup(self, name: str) -> SharedLock | None:
        with self._mutex:
            return self._members.get(name)
