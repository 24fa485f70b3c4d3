"""Timers, run by one thread; the time comes from `ganeti.base.clock`."""

import heapq
import itertools
import logging
import threading
from collections.abc import Callable

from ganeti.base import clock

_log = logging.getLogger(__name__)


class Timer:
    """An action at a time; `cancel` removes it."""

    __slots__ = ("_owner", "action", "when")

    def __init__(
        self, owner: "Timers", when: float, action: Callable[[], None]
    ) -> None:
        self._owner = owner
        self.when = when
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Cancel the action, unless it is running already."""
        if self.action is not None:
            self.action = None
            self._owner.note_canceled()


class Timers:
    """Runner of timed actions, in one thread named ``jq-timers``."""

    def __init__(self, clk: clock.Clock) -> None:
        self._clock = clk
        self._lock = threading.Lock()
        self._heap: list[tuple[float, int, Timer]] = []
        self._count = itertools.count()
        self._canceled = 0
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(
            target=self._loop, name="jq-timers", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End the thread; remaining actions are dropped."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def after(self, seconds: float, action: Callable[[], None]) -> Timer:
        """Run an action after some seconds, in the timer thread."""
        timer = Timer(self, self._clock.monotonic() + seconds, action)
        with self._lock:
            # The count keeps timers of the same time in their order; timers themselves
            # cannot be compared.
            entry = (timer.when, next(self._count), timer)
            heapq.heappush(self._heap, entry)
            is_first = self._heap[0] is entry
        if is_first:
            self._wake.set()
        return timer

    def note_canceled(self) -> None:
        """Count a canceled timer; drop all canceled ones when they are the majority."""
        with self._lock:
            self._canceled += 1
            if self._canceled > 64 and self._canceled > len(self._heap) // 2:
                self._heap = [e for e in self._heap if e[2].action is not None]
                heapq.heapify(self._heap)
                self._canceled = 0

    def run_due(self) -> float | None:
        """Run due actions; return the seconds until the next one, or None."""
        while True:
            with self._lock:
                if not self._heap:
                    return None
                left = self._heap[0][0] - self._clock.monotonic()
                if left > 0:
                    return left
                timer = heapq.heappop(self._heap)[2]
            # Taken out of the timer: one that is running cannot be canceled any more.
            action, timer.action = timer.action, None
            if action is None:
                self._canceled = max(0, self._canceled - 1)
                continue
            try:
                action()
            except Exception:  # noqa: BLE001 - the thread must survive
                _log.exception("timer failed")

    def _loop(self) -> None:
        while not self._stopping:
            left = self.run_due()
            self._clock.wait(self._wake, left)
            self._wake.clear()
