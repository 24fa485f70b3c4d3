"""Worker threads, made when they are first needed and kept.

Who gets work, and how much at once, is decided elsewhere: `WorkerPool.put` must be
called only while fewer jobs run than may run.
"""

import itertools
import logging
import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_log = logging.getLogger(__name__)
T = TypeVar("T")


class WorkerPool(Generic[T]):
    """Threads named ``Jq1``, ``Jq2``, … that call a function for each task."""

    def __init__(self, work: Callable[[T], None]) -> None:
        self._work = work
        self._inbox: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self._numbers = itertools.count(1)
        self._threads: list[threading.Thread] = []

    @property
    def size(self) -> int:
        """How many threads there are."""
        return len(self._threads)

    def put(self, task: T, busy: int) -> None:
        """Give a task to a free thread.

        Args:
            task: what to do.
            busy: tasks under way, this one included; a thread is added if needed.
        """
        self._inbox.put(task)
        if busy > len(self._threads):
            name = f"Jq{next(self._numbers)}"
            thread = threading.Thread(
                target=self._loop, args=(name,), name=name, daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def stop(self, timeout_s: float | None = None) -> bool:
        """End the threads after their present task; return whether all ended."""
        for _ in self._threads:
            self._inbox.put(None)
        for thread in self._threads:
            thread.join(timeout_s)
        return not any(thread.is_alive() for thread in self._threads)

    def _loop(self, name: str) -> None:
        me = threading.current_thread()
        while (task := self._inbox.get()) is not None:
            try:
                self._work(task)
            except Exception:  # noqa: BLE001 - the worker must survive
                _log.exception("%s: task failed", name)
            me.name = name
