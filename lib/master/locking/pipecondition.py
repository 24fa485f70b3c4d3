"""A condition variable whose waiters block in poll(2) on a pipe.

Notification closes the write end, which wakes all waiters at once. The kernel
implements timeouts, without periodic wake-ups. The conditions themselves do not belong
here. Source: design 2.1, "Condition".
"""

import math
import os
import select
import threading
from types import TracebackType
from typing import Protocol


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
