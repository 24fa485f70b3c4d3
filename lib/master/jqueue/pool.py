"""Worker threads, created when first needed and then kept.

The caller decides on the tasks and their number: `WorkerPool.put` must be called only
while fewer jobs run than the limit allows.
"""

import itertools
import logging
import queue
import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from ganeti.base import clock

_log = logging.getLogger(__name__)
T = TypeVar("T")

#: Seconds between two looks at a thread that is waited for.
_STEP_S: Final = 0.1


class WorkerPool(Generic[T]):
    """Threads named ``Jq1``, ``Jq2``, … that call a function for each task."""

    def __init__(self, work: Callable[[T], None]) -> None:
        self._work = work
        self._inbox: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self._numbers = itertools.count(1)
        self._threads: list[threading.Thread] = []

    @property
    def size(self) -> int:
        """The number of threads."""
        return len(self._threads)

    def put(self, task: T, busy: int) -> None:
        """Pass a task to a free thread.

        Args:
            task: the argument of the function.
            busy: number of unfinished tasks with this one; a thread is added if needed.
        """
        self._inbox.put(task)
        if busy > len(self._threads):
            name = f"Jq{next(self._numbers)}"
            thread = threading.Thread(
                target=self._loop, args=(name,), name=name, daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def stop(
        self,
        clk: clock.Clock,
        timeout_s: float | None = None,
        *,
        is_left: Callable[[threading.Thread], bool] = lambda _thread: False,
    ) -> bool:
        """End the threads after their present tasks; return whether all have ended.

        Args:
            clk: the clock.
            timeout_s: seconds to wait for all threads together; None: no limit.
            is_left: returns whether a thread is not waited for any longer.
        """
        for _ in self._threads:
            self._inbox.put(None)
        end = None if timeout_s is None else clk.monotonic() + timeout_s
        for thread in self._threads:
            while thread.is_alive() and not is_left(thread):
                left_s = _STEP_S if end is None else end - clk.monotonic()
                if left_s <= 0:
                    break
                thread.join(min(left_s, _STEP_S))
        return not any(thread.is_alive() for thread in self._threads)

    def _loop(self, name: str) -> None:
        me = threading.current_thread()
        while (task := self._inbox.get()) is not None:
            try:
                self._work(task)
            except Exception:  # noqa: BLE001 - the worker must survive
                _log.exception("%s: task failed", name)
            me.name = name
