"""One lock that threads hold shared or exclusively, with priorities and timeouts.

`ganeti.decisions.lock_rules` decides; this module blocks and wakes threads. Owners are
threads, listed by name; a worker's name contains its present job, such as
``Jq3/Job812/I_STARTUP``.

`PipeCondition` is a condition variable whose waiters block in poll(2) on a pipe.
Notification closes the write end, which wakes all waiters at once. The kernel
implements timeouts, without periodic wake-ups. Source: design 2.1, "Condition".
"""

import math
import os
import select
import threading
from collections.abc import Container, Iterable
from types import TracebackType
from typing import NamedTuple, Protocol, cast

from ganeti.base import clock, errors
from ganeti.decisions import lock_rules


class Mutex(Protocol):
    """The mutex of a condition: ``threading.Lock`` or ``RLock``."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the mutex."""

    def release(self) -> None:
        """Release the mutex."""

    def __enter__(self) -> bool: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None: ...


class _OneShot:
    """One notification: a pipe, and the threads that wait for its write end to close.

    All methods but `sleep` need the mutex of the condition.
    """

    __slots__ = ("_read_fd", "_write_fd", "waiters")

    def __init__(self) -> None:
        self.waiters: dict[threading.Thread, None] = {}
        self._read_fd, self._write_fd = os.pipe()

    @property
    def is_notified(self) -> bool:
        return self._write_fd < 0

    def sleep(self, timeout: float | None) -> None:
        poller = select.poll()
        # POLLHUP is always reported; an interrupted call continues with the remaining
        # time.
        poller.register(self._read_fd, 0)
        poller.poll(None if timeout is None else math.ceil(max(0.0, timeout) * 1000))

    def notify(self) -> None:
        if self._write_fd >= 0:
            os.close(self._write_fd)
            self._write_fd = -1

    def leave(self, thread: threading.Thread) -> None:
        del self.waiters[thread]
        if not self.waiters:
            self.notify()
            os.close(self._read_fd)


class PipeCondition:
    """A condition on a given mutex; ``with condition:`` takes the mutex.

    A condition without waiters has no descriptors. A notification does not wake threads
    that begin to wait after it.
    """

    __slots__ = ("_current", "_lock")

    def __init__(self, lock: Mutex) -> None:
        self._lock = lock
        self._current: _OneShot | None = None

    def __enter__(self) -> bool:
        return self._lock.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._lock.__exit__(kind, value, trace)

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until notified; the mutex is released during the sleep.

        Args:
            timeout: seconds; None waits without limit, 0 or less does not wait.

        Returns:
            False if the time ran out first.

        Raises:
            RuntimeError: the mutex is not held.
        """
        self._check_held("wait")
        if self._current is None:
            self._current = _OneShot()
        shot = self._current
        me = threading.current_thread()
        shot.waiters[me] = None
        self._lock.release()
        try:
            shot.sleep(timeout)
        finally:
            self._lock.acquire()
            notified = shot.is_notified
            shot.leave(me)
            if not shot.waiters and self._current is shot:
                self._current = None
        return notified

    def notify_all(self) -> None:
        """Wake all present waiters.

        Raises:
            RuntimeError: the mutex is not held.
        """
        self._check_held("notify")
        if self._current is not None:
            self._current.notify()
            self._current = None

    def has_waiting(self) -> bool:
        """Return whether a thread waits for the next notification."""
        return self._current is not None

    def get_waiting(self) -> tuple[threading.Thread, ...]:
        """Return the threads that wait for the next notification, in order."""
        return tuple(self._current.waiters) if self._current is not None else ()

    def _check_held(self, what: str) -> None:
        is_owned = getattr(self._lock, "_is_owned", None)
        if is_owned is not None:
            held = bool(is_owned())
        else:
            held = not self._lock.acquire(blocking=False)
            if not held:
                self._lock.release()
        if not held:
            raise RuntimeError(f"cannot {what} on a condition without its lock")


class LockInfo(NamedTuple):
    """One row of a lock list.

    Attributes:
        name: ``<level>/<name>``.
        mode: ``exclusive``, ``shared``, ``deleted`` or None.
        owners: names of the holders, sorted.
        pending: (mode, names of the waiters) per condition, next one first.
        held_s: seconds that each of the owners has held the lock, in their order.
    """

    name: str
    mode: str | None
    owners: tuple[str, ...]
    pending: tuple[tuple[str, tuple[str, ...]], ...]
    held_s: tuple[float, ...] = ()


class SharedLock:
    """A lock held by one thread exclusively, or by several shared; not recursive.

    Args:
        name: ``<level>/<name>``.
        clk: the clock.
    """

    def __init__(self, name: str, *, clk: clock.Clock | None = None) -> None:
        self.name = name
        self._clock = clk or clock.SystemClock()
        self._mutex = threading.Lock()
        self._state = lock_rules.LockState(self._clock.monotonic)

    def __repr__(self) -> str:
        return f"SharedLock({self.name!r}, {self._state.mode or 'free'})"

    def acquire(
        self,
        shared: int = 0,
        timeout: float | None = None,
        priority: int | None = None,
        interrupted: Container[threading.Thread] = (),
    ) -> bool:
        """Take the lock; return whether it was acquired in time.

        Args:
            shared: take it shared instead of exclusively.
            timeout: seconds; None waits without limit, 0 or less does not wait.
            priority: smaller is more urgent; None is 0.
            interrupted: threads that must not wait any more, see `interrupt`.

        Raises:
            LockError: the lock was deleted, possibly during the wait.
            ProgrammerError: the thread holds the lock already.
        """
        with self._mutex:
            # Read under the mutex: `interrupt` sees this thread among the waiters, or
            # this thread sees itself among the interrupted ones.
            if threading.current_thread() in interrupted:
                timeout = 0
            return self._acquire_locked(bool(shared), timeout, priority or 0)

    def release(self) -> None:
        """Release the lock from any mode.

        Raises:
            ProgrammerError: the thread does not hold the lock.
        """
        with self._mutex:
            self._wake(self._state.release(threading.current_thread()))

    def downgrade(self) -> bool:
        """Downgrade an exclusive hold to a shared one; return true.

        Raises:
            ProgrammerError: the thread does not hold the lock.
        """
        with self._mutex:
            self._wake(self._state.downgrade(threading.current_thread()))
            return True

    def delete(self, timeout: float | None = None, priority: int | None = None) -> bool:
        """Delete the lock; take it exclusively first unless it is held exclusively.

        All present waiters and all later requests get a LockError.

        Returns:
            False if the lock was not acquired in time; then it is not deleted.

        Raises:
            LockError: another thread has deleted the lock.
            ProgrammerError: the thread holds the lock shared.
        """
        me = threading.current_thread()
        with self._mutex:
            if self._state.is_held_by(me, shared=True):
                raise errors.ProgrammerError(
                    f"lock {self.name}: cannot be deleted while held shared"
                )
            if not self._state.is_held_by(me) and not self._acquire_locked(
                False, timeout, priority or 0
            ):
                return False
            self._wake(self._state.delete(me))
            return True

    def interrupt(self, thread: threading.Thread) -> None:
        """End a thread's wait as if its time limit had passed.

        The caller must first add the thread to the container given to `acquire`. Then
        the call works for a thread that waits already and for one that is about to
        wait.
        """
        with self._mutex:
            for pending in self._state.queue:
                if thread in pending.waiters:
                    self._wake((*self._state.withdraw(thread, pending), pending))

    def is_owned(self, shared: int = -1) -> bool:
        """Return whether this thread holds it: 1 shared, 0 exclusively, -1 any."""
        mode = None if shared < 0 else bool(shared)
        with self._mutex:
            return self._state.is_held_by(threading.current_thread(), shared=mode)

    def blockers(self, *, shared: bool) -> frozenset[threading.Thread]:
        """Return the holders that keep a request of this mode from being granted.

        Threads that only wait are not among them: they can give way.
        """
        with self._mutex:
            if shared and self._state.mode != "exclusive":
                return frozenset()
            return frozenset(
                cast("threading.Thread", each) for each in self._state.holders
            )

    @property
    def is_deleted(self) -> bool:
        """Whether the lock was deleted."""
        return self._state.is_deleted

    @property
    def is_free(self) -> bool:
        """Whether nobody holds it or waits for it at the moment."""
        with self._mutex:
            return self._state.is_free

    def info(self) -> LockInfo:
        """Return mode, names of holders and waiters, and times of the holders."""
        with self._mutex:
            now, since = self._clock.monotonic(), self._state.held_since
            held = sorted(zip(_names(since), since.values(), strict=True))
            return LockInfo(
                self.name,
                self._state.mode,
                tuple(name for name, _since in held),
                tuple(
                    ("shared" if p.shared else "exclusive", tuple(_names(p.waiters)))
                    for p in self._state.queue
                ),
                tuple(now - start for _name, start in held),
            )

    def _acquire_locked(
        self, shared: bool, timeout: float | None, priority: int
    ) -> bool:
        me = threading.current_thread()
        try:
            pending = self._state.request(me, shared=shared, priority=priority)
        except errors.GenericError as err:
            raise type(err)(f"lock {self.name}: {err}") from err
        if pending is None:
            return True
        try:
            self._wait(me, pending, timeout)
        # Also for a signal: a waiter that is not removed would be granted the lock, and
        # nobody would release it.
        except BaseException:
            self._give_up(me, pending)
            raise
        if self._state.is_deleted:
            raise errors.LockError(
                f"lock {self.name}: was deleted while waiting for it"
            )
        # A lock handed over just after the time limit is held all the same.
        if self._state.is_held_by(me):
            return True
        self._wake(self._state.withdraw(me, pending))
        return False

    def _wait(
        self, me: threading.Thread, pending: lock_rules.Pending, timeout: float | None
    ) -> None:
        """Block until the lock is granted or deleted, or the time limit has passed."""
        end = None if timeout is None else self._clock.monotonic() + timeout
        left = timeout
        while left is None or left > 0:
            if pending.signal is None:
                pending.signal = PipeCondition(self._mutex)
            if not pending.signal.wait(left):
                return
            is_answered = self._state.is_deleted or self._state.is_held_by(me)
            if is_answered or me not in pending.waiters:
                return
            # Another thread on the same condition was interrupted.
            left = None if end is None else end - self._clock.monotonic()

    def _give_up(self, me: threading.Thread, pending: lock_rules.Pending) -> None:
        if self._state.is_held_by(me):
            self._wake(self._state.release(me))
        else:
            self._wake(self._state.withdraw(me, pending))

    @staticmethod
    def _wake(conditions: Iterable[lock_rules.Pending]) -> None:
        for pending in conditions:
            if pending.signal is not None:
                pending.signal.notify_all()


def _names(owners: Iterable[lock_rules.Owner]) -> Iterable[str]:
    return (cast("threading.Thread", owner).name for owner in owners)
