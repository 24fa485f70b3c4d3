"""One lock that threads hold shared or exclusively, with priorities and timeouts.

The decisions are in `ganeti.locking.rules`; this puts threads to sleep and wakes
them. Owners are threads and show up by their name, which a worker sets to what it is
doing, such as ``Jq3/Job812/I_STARTUP``.
"""

import threading
from collections.abc import Container, Iterable
from typing import NamedTuple, cast

from ganeti import clock, errors
from ganeti.locking import rules
from ganeti.locking.pipecondition import PipeCondition


class LockInfo(NamedTuple):
    """One lock as lists show it.

    Attributes:
        name: ``<level>/<name>``.
        mode: ``exclusive``, ``shared``, ``deleted`` or None.
        owners: names of the holders, sorted.
        pending: (mode, names of those who wait) per condition, next one first.
    """

    name: str
    mode: str | None
    owners: tuple[str, ...]
    pending: tuple[tuple[str, tuple[str, ...]], ...]


class SharedLock:
    """A lock held by one thread exclusively, or by several shared; not recursive.

    Args:
        name: ``<level>/<name>``.
        clk: time.
    """

    def __init__(self, name: str, *, clk: clock.Clock | None = None) -> None:
        self.name = name
        self._clock = clk or clock.SystemClock()
        self._mutex = threading.Lock()
        self._state = rules.LockState()

    def __repr__(self) -> str:
        return f"SharedLock({self.name!r}, {self._state.mode or 'free'})"

    def acquire(
        self,
        shared: int = 0,
        timeout: float | None = None,
        priority: int | None = None,
        interrupted: Container[threading.Thread] = (),
    ) -> bool:
        """Take the lock; return whether it was had in time.

        Args:
            shared: take it shared with others instead of alone.
            timeout: seconds; None waits without limit, 0 or less tries once.
            priority: smaller is more urgent; None is 0.
            interrupted: threads that shall not wait any more, see `interrupt`.

        Raises:
            LockError: the lock was deleted, maybe while waiting for it.
            ProgrammerError: the thread holds it already.
        """
        with self._mutex:
            if threading.current_thread() in interrupted:
                timeout = 0
            return self._acquire_locked(bool(shared), timeout, priority or 0)

    def release(self) -> None:
        """Give the lock back, whatever its mode.

        Raises:
            ProgrammerError: the thread does not hold it.
        """
        with self._mutex:
            self._wake(self._state.release(threading.current_thread()))

    def downgrade(self) -> bool:
        """Turn an exclusive hold into a shared one; true always.

        Raises:
            ProgrammerError: the thread does not hold it.
        """
        with self._mutex:
            self._wake(self._state.downgrade(threading.current_thread()))
            return True

    def delete(self, timeout: float | None = None, priority: int | None = None) -> bool:
        """Delete the lock, taking it exclusively first unless it is so held.

        Everyone waiting for it, and everyone who asks later, gets a LockError.

        Returns:
            False if the lock could not be had in time; it then lives on.

        Raises:
            LockError: somebody else has deleted it.
            ProgrammerError: the thread holds it shared.
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
        """End a thread's waiting as if its time were over.

        The caller puts the thread into the container given to `acquire` first: then it
        does not matter whether the thread waits already or is just about to.
        """
        with self._mutex:
            for pending in self._state.queue:
                if thread in pending.waiters:
                    self._wake((*self._state.withdraw(thread, pending), pending))

    def is_owned(self, shared: int = -1) -> bool:
        """Return whether this thread holds it: 1 shared, 0 exclusively, -1 anyhow."""
        mode = None if shared < 0 else bool(shared)
        with self._mutex:
            return self._state.is_held_by(threading.current_thread(), shared=mode)

    @property
    def is_deleted(self) -> bool:
        """Whether the lock is gone for good."""
        return self._state.is_deleted

    def info(self) -> LockInfo:
        """Return mode, holders and waiters by name."""
        with self._mutex:
            return LockInfo(
                self.name,
                self._state.mode,
                tuple(sorted(_names(self._state.holders))),
                tuple(
                    ("shared" if p.shared else "exclusive", tuple(_names(p.waiters)))
                    for p in self._state.queue
                ),
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
        except BaseException:
            self._give_up(me, pending)
            raise
        if self._state.is_deleted:
            raise errors.LockError(f"lock {self.name}: deleted while waiting for it")
        # Handed over, maybe just after the time ran out: then it is ours anyway.
        if self._state.is_held_by(me):
            return True
        self._wake(self._state.withdraw(me, pending))
        return False

    def _wait(
        self, me: threading.Thread, pending: rules.Pending, timeout: float | None
    ) -> None:
        """Sleep until there is an answer, or the time is over."""
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
            # Somebody else on the same condition was interrupted.
            left = None if end is None else end - self._clock.monotonic()

    def _give_up(self, me: threading.Thread, pending: rules.Pending) -> None:
        if self._state.is_held_by(me):
            self._wake(self._state.release(me))
        else:
            self._wake(self._state.withdraw(me, pending))

    @staticmethod
    def _wake(conditions: Iterable[rules.Pending]) -> None:
        for pending in conditions:
            if pending.signal is not None:
                pending.signal.notify_all()


def _names(owners: Iterable[rules.Owner]) -> Iterable[str]:
    return (cast("threading.Thread", owner).name for owner in owners)
