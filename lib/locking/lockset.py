"""Named locks of one level, taken together under one time limit.

Beside its members a set has one lock of its own, shown as ``<level>/[lockset]``:
who takes *all* members takes it first, and new members need it exclusively, so that
"all" means the present and the future ones. Order between levels does not belong
here, see `ganeti.locking.manager`. Source: design 2.1, "Retry acquiring locks".
"""

import threading
from collections.abc import Collection, Container, Iterable
from typing import NamedTuple

from ganeti import clock, errors
from ganeti.locking.sharedlock import LockInfo, SharedLock


class _Deadline:
    """The rest of a time limit that spans several waits."""

    def __init__(self, clk: clock.Clock, timeout: float | None) -> None:
        self._clock = clk
        self._end = None if timeout is None else clk.monotonic() + timeout

    def left(self) -> float | None:
        """Return the seconds that remain, 0 if none, None for no limit."""
        if self._end is None:
            return None
        return max(0.0, self._end - self._clock.monotonic())


class _Request(NamedTuple):
    """How to take locks: the mode, the urgency, and whether what is free is enough."""

    shared: bool
    priority: int | None
    opportunistic: bool


class LockSet:
    """The locks of one level. Thread-safe; a thread owns what it acquired.

    Args:
        name: of the level.
        members: names at first.
        clk: time.
        interrupted: threads that shall not wait any more, see `interrupt`.
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
        self._interrupted = interrupted
        self._set_lock = self._make("[lockset]")
        #: Guards the two maps; taken for moments only, never while waiting.
        self._mutex = threading.Lock()
        self._members = {member: self._make(member) for member in members}
        self._owned: dict[threading.Thread, set[str]] = {}
        #: The lock that a thread waits for, or is about to wait for.
        self._waiting: dict[threading.Thread, SharedLock] = {}

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
        """Take several locks; all of them or, if the time runs out, none.

        Args:
            names: members to take; None for all, and those still to come.
            timeout: seconds for everything; None waits without limit. With
                ``opportunistic`` it is for the set's own lock.
            shared: take them shared.
            priority: smaller is more urgent; None is 0.
            opportunistic: take what is free, even nothing.
            adding: new members to create; they are held exclusively then.

        Returns:
            The names taken, maybe none; None if the time ran out.

        Raises:
            LockError: no such member, or a new one exists already.
            ProgrammerError: the thread owns something here already.
        """
        if self.is_owned():
            raise errors.ProgrammerError(
                f"level {self.name}: asked twice while holding {sorted(self.owned())}"
            )
        if opportunistic and names is not None and timeout is not None:
            raise errors.ProgrammerError(
                f"level {self.name}: opportunistic locks by name take no timeout"
            )
        deadline = _Deadline(self._clock, timeout)
        done = False
        try:
            if names is None or adding:
                set_shared = bool(shared) and not adding
                set_request = _Request(set_shared, priority, opportunistic=False)
                if not self._wait_for(self._set_lock, deadline.left(), set_request):
                    return None
            request = _Request(bool(shared), priority, opportunistic)
            if not self._take_members(names, deadline, request):
                return None
            if adding:
                self._create(adding, shared=False, acquired=True)
                if names is not None:
                    self._set_lock.release()
                elif shared:
                    self._set_lock.downgrade()
            done = True
            return set(self.owned())
        finally:
            if not done:
                self.release()

    def release(self, names: Collection[str] | None = None) -> None:
        """Give back some members, or all; the set's own lock goes first.

        Raises:
            ProgrammerError: the thread does not own one of them.
        """
        owned = self.owned()
        missing = set(names or ()) - owned
        if missing:
            raise errors.ProgrammerError(
                f"level {self.name}: released without owning: {sorted(missing)}"
            )
        if self._set_lock.is_owned():
            self._set_lock.release()
        for name in sorted(owned if names is None else set(names)):
            self._members[name].release()
            self._forget(name)

    def downgrade(self, names: Collection[str] | None = None) -> None:
        """Make exclusive holds shared; the set's own too once no member is exclusive.

        Raises:
            ProgrammerError: the thread does not own one of them.
        """
        owned = self.owned()
        downgraded = owned if names is None else set(names)
        if downgraded - owned:
            raise errors.ProgrammerError(
                f"level {self.name}: downgraded without owning: "
                f"{sorted(downgraded - owned)}"
            )
        for name in sorted(downgraded):
            self._members[name].downgrade()
        if self._set_lock.is_owned(shared=0) and not any(
            self._members[name].is_owned(shared=0) for name in owned
        ):
            self._set_lock.downgrade()

    def interrupt(self, thread: threading.Thread) -> None:
        """End a thread's waiting; it has to be among the interrupted ones before."""
        lock = self._waiting.get(thread)
        if lock is not None:
            lock.interrupt(thread)

    # Members
    def add(
        self,
        names: Collection[str],
        *,
        acquired: bool = False,
        shared: int = 0,
        timeout: float | None = None,
    ) -> bool:
        """Create members, taking the set's own lock exclusively for a moment.

        Args:
            names: new members.
            acquired: leave the thread owning them.
            shared: own them shared.
            timeout: seconds to wait for the set's own lock.

        Returns:
            Whether it was done in time.

        Raises:
            LockError: one exists already; none was added.
            ProgrammerError: the thread owns members, or the set's own lock shared.
        """
        borrowed = not self._set_lock.is_owned()
        if borrowed and self.owned():
            raise errors.ProgrammerError(
                f"level {self.name}: members added while holding {sorted(self.owned())}"
            )
        if self._set_lock.is_owned(shared=1):
            raise errors.ProgrammerError(
                f"level {self.name}: members added while holding the set shared"
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
        """Delete members; who waits for one of them gets a LockError.

        The thread holds all of them exclusively, or nothing here; then they are
        waited for. Of several removers one wins.

        Returns:
            The names that this call removed.

        Raises:
            ProgrammerError: the thread owns some, but not all of them exclusively.
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
                continue  # another remover was first
            with self._mutex:
                del self._members[name]
            self._forget(name)
            removed.add(name)
        return removed

    # Questions
    def names(self) -> set[str]:
        """Return the present members."""
        with self._mutex:
            return set(self._members)

    def owned(self) -> frozenset[str]:
        """Return the members that this thread owns."""
        return frozenset(self._owned.get(threading.current_thread(), ()))

    def is_owned(self) -> bool:
        """Return whether this thread owns anything here."""
        return bool(self.owned()) or self._set_lock.is_owned()

    def owns_all(self) -> bool:
        """Return whether this thread owns the set's own lock."""
        return self._set_lock.is_owned()

    def owns(self, names: Iterable[str], shared: int = -1) -> bool:
        """Return whether this thread owns all of them: 1 shared, 0 exclusively, -1."""
        owned = self.owned()
        return all(
            name in owned and self._members[name].is_owned(shared=shared)
            for name in names
        )

    def info(self) -> list[LockInfo]:
        """Return the state of the set's own lock and of the members, by name."""
        with self._mutex:
            locks = [self._set_lock, *self._members.values()]
        return sorted(lock.info() for lock in locks)

    # Inside
    def _take_members(
        self,
        names: Collection[str] | None,
        deadline: _Deadline,
        request: _Request,
    ) -> bool:
        for name in sorted(self.names() if names is None else set(names)):
            left = 0.0 if request.opportunistic else deadline.left()
            try:
                taken = self._take(name, left, request)
            except errors.LockError:
                if names is None:
                    continue  # deleted since we looked
                raise
            if not taken and not request.opportunistic:
                return False
        return True

    def _take(self, name: str, timeout: float | None, request: _Request) -> bool:
        lock = self._lookup(name)
        if lock is None:
            raise errors.LockError(f"lock {self.name}/{name}: does not exist")
        taken = self._wait_for(lock, timeout, request)
        if taken:
            self._owned.setdefault(threading.current_thread(), set()).add(name)
        return taken

    def _wait_for(
        self, lock: SharedLock, timeout: float | None, request: _Request
    ) -> bool:
        me = threading.current_thread()
        self._waiting[me] = lock
        try:
            return lock.acquire(
                request.shared, timeout, request.priority, self._interrupted
            )
        finally:
            del self._waiting[me]

    def _make(self, member: str) -> SharedLock:
        return SharedLock(f"{self.name}/{member}", clk=self._clock)

    def _create(self, names: Collection[str], *, shared: bool, acquired: bool) -> None:
        new = {name: self._make(name) for name in names}
        if acquired:
            for lock in new.values():
                lock.acquire(shared=shared)
        with self._mutex:
            known = sorted(set(names) & set(self._members))
            if known:
                raise errors.LockError(
                    f"level {self.name}: locks exist already: {', '.join(known)}"
                )
            self._members.update(new)
        if acquired and new:
            self._owned.setdefault(threading.current_thread(), set()).update(new)

    def _lookup(self, name: str) -> SharedLock | None:
        with self._mutex:
            return self._members.get(name)

    def _forget(self, name: str) -> None:
        me = threading.current_thread()
        mine = self._owned.get(me)
        if mine is not None:
            mine.discard(name)
            if not mine:
                del self._owned[me]
