"""Decisions on the holders and the queue of one lock, without threads or time.

A `LockState` knows its holders and a queue of *conditions* (`Pending`): one FIFO per
priority, the smallest number first. An exclusive request is a condition of its own;
shared requests of one priority join one condition, which therefore may pass exclusive
requests queued after it. Only the first condition of the most urgent FIFO can be
granted; it then leaves the queue at once, so that shared requests arriving from then
on queue behind the waiting exclusive ones.

A lock is *handed over*: the step that ends a hold makes the next waiters holders and
returns the conditions to wake. A waiter never competes for a free lock, so no wake-up
is lost and no other request can take the lock in between. The invariants, checked in
the tests:

1. there is one exclusive holder and no other, or any number of shared ones;
2. the first condition can never be granted in the present state, because an earlier
   step would have handed the lock over already;
3. at most one shared condition is queued per priority.

Waiting, waking and time do not belong here, see `ganeti.master.locking.sharedlock`.
Source: design 2.1, "SharedLock redesign".
"""

from collections.abc import Callable, Hashable, Iterator
from typing import Any

from ganeti.base import errors

#: The owner of a lock: a thread in the daemon, any value in tests.
Owner = Hashable
DEFAULT_PRIORITY = 0


class Pending:
    """One condition in the queue of a lock.

    Attributes:
        shared: whether it waits for shared mode.
        priority: priority of its FIFO; smaller is more urgent.
        waiters: owners that wait, in order of arrival.
        signal: for use by the caller, such as the condition variable of the waiters.
    """

    __slots__ = ("priority", "shared", "signal", "waiters")

    def __init__(self, *, shared: bool, priority: int) -> None:
        self.shared = shared
        self.priority = priority
        self.waiters: dict[Owner, None] = {}
        self.signal: Any = None


class LockState:
    """Holders and queue of one lock. Not thread-safe: the caller has a mutex.

    Args:
        now: returns the time of a step, as a number of seconds.
    """

    __slots__ = ("_deleted", "_exclusive", "_fifos", "_holders", "_now")

    def __init__(self, now: Callable[[], float] = lambda: 0.0) -> None:
        self._now = now
        self._holders: dict[Owner, float] = {}
        self._exclusive = False
        self._deleted = False
        self._fifos: dict[int, list[Pending]] = {}

    # Questions
    @property
    def is_deleted(self) -> bool:
        """Whether the lock was deleted."""
        return self._deleted

    @property
    def is_free(self) -> bool:
        """Whether nobody holds it or waits for it, and it was not deleted."""
        return not (self._holders or self._deleted or any(self._fifos.values()))

    @property
    def mode(self) -> str | None:
        """``exclusive``, ``shared`` or ``deleted``; None if free."""
        if self._deleted:
            return "deleted"
        if not self._holders:
            return None
        return "exclusive" if self._exclusive else "shared"

    @property
    def holders(self) -> tuple[Owner, ...]:
        """The holders, in the order of acquisition."""
        return tuple(self._holders)

    @property
    def held_since(self) -> dict[Owner, float]:
        """When each holder got the lock; a downgrade does not count."""
        return dict(self._holders)

    @property
    def queue(self) -> tuple[Pending, ...]:
        """The waiting conditions, next one first."""
        return tuple(self._in_order())

    def is_held_by(self, owner: Owner, *, shared: bool | None = None) -> bool:
        """Return whether an owner holds the lock, in any mode if ``shared`` is None."""
        if owner not in self._holders:
            return False
        return shared is None or shared != self._exclusive

    # Steps
    def request(
        self, owner: Owner, *, shared: bool, priority: int = DEFAULT_PRIORITY
    ) -> Pending | None:
        """Request the lock; return None if granted, else the condition to wait on.

        Raises:
            LockError: the lock was deleted.
            ProgrammerError: the owner holds the lock already.
        """
        if self._deleted:
            raise errors.LockError("the lock was deleted")
        if owner in self._holders:
            raise errors.ProgrammerError(
                f"{owner} requests a lock that it holds already"
            )
        # While anybody waits, even a request that fits joins a queue: readers that
        # arrive one after another would otherwise keep a writer waiting without limit.
        if not self._fifos and self._fits(shared):
            self._hold(owner, shared)
            return None
        pending = self._join(shared, priority)
        pending.waiters[owner] = None
        # Only a request that is more urgent than all queued ones is granted here.
        self._hand_over()
        return None if owner in self._holders else pending

    def withdraw(self, owner: Owner, pending: Pending) -> list[Pending]:
        """Stop waiting; return the conditions that this grants."""
        pending.waiters.pop(owner, None)
        if not pending.waiters:
            self._dequeue(pending)
        return self._hand_over()

    def release(self, owner: Owner) -> list[Pending]:
        """End a hold of any mode; return the conditions that this grants.

        Raises:
            ProgrammerError: the owner does not hold the lock.
        """
        if owner not in self._holders:
            raise errors.ProgrammerError(
                f"{owner} releases a lock that it does not hold"
            )
        del self._holders[owner]
        self._exclusive = False
        return self._hand_over()

    def downgrade(self, owner: Owner) -> list[Pending]:
        """Downgrade an exclusive hold to a shared one; return the conditions granted.

        The shared condition of the most urgent priority overtakes the exclusive ones of
        its FIFO. Does nothing if the hold is shared already.

        Raises:
            ProgrammerError: the owner does not hold the lock.
        """
        if owner not in self._holders:
            raise errors.ProgrammerError(
                f"{owner} downgrades a lock that it does not hold"
            )
        if not self._exclusive:
            return []
        self._exclusive = False
        if self._fifos:
            fifo = self._fifos[min(self._fifos)]
            # The sort is stable, so exclusive requests keep their order.
            fifo.sort(key=lambda pending: not pending.shared)
        return self._hand_over()

    def delete(self, owner: Owner) -> list[Pending]:
        """Delete the lock, which the owner must hold exclusively.

        Returns:
            All waiting conditions; none of them was granted.

        Raises:
            ProgrammerError: the owner does not hold the lock exclusively.
        """
        if not self.is_held_by(owner, shared=False):
            raise errors.ProgrammerError(
                f"{owner} deletes a lock that it does not hold exclusively"
            )
        # Nobody is granted a deleted lock: the caller wakes all of them, and each finds
        # that the lock was deleted.
        waiting = list(self._in_order())
        self._deleted = True
        self._exclusive = False
        self._holders.clear()
        self._fifos.clear()
        return waiting

    # Inside
    def _fits(self, shared: bool) -> bool:
        if shared:
            return not self._exclusive
        return not self._holders

    def _hold(self, owner: Owner, shared: bool) -> None:
        self._holders[owner] = self._now()
        self._exclusive = not shared

    def _in_order(self) -> Iterator[Pending]:
        for priority in sorted(self._fifos):
            yield from self._fifos[priority]

    def _join(self, shared: bool, priority: int) -> Pending:
        fifo = self._fifos.setdefault(priority, [])
        if shared:
            for pending in fifo:
                if pending.shared:
                    return pending
        fifo.append(Pending(shared=shared, priority=priority))
        return fifo[-1]

    def _dequeue(self, pending: Pending) -> None:
        fifo = self._fifos.get(pending.priority)
        if fifo and pending in fifo:
            fifo.remove(pending)
            if not fifo:
                del self._fifos[pending.priority]

    def _hand_over(self) -> list[Pending]:
        granted: list[Pending] = []
        while self._fifos:
            first = self._fifos[min(self._fifos)][0]
            if not self._fits(first.shared):
                break
            self._dequeue(first)
            for owner in first.waiters:
                self._hold(owner, first.shared)
            granted.append(first)
        return granted
