"""The clock interface: a daemon's ``main`` creates the only source of time."""

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time, elapsed time and waiting, all in seconds."""

    def time(self) -> float:
        """Return seconds since 1970."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment; the value never decreases."""

    def wait(self, event: threading.Event, timeout_s: float | None) -> bool:
        """Block until the event is set; return false if the time ran out first."""


class SystemClock:
    """The machine's clock."""

    def time(self) -> float:
        """Return seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment."""
        return time.monotonic()

    def wait(self, event: threading.Event, timeout_s: float | None) -> bool:
        """Block until the event is set or the time ran out."""
        return event.wait(timeout_s)


def split_time(seconds: float) -> tuple[int, int]:
    """Return ``(seconds, microseconds)``, the form of time stamps in job records."""
    micros = round(seconds * 1_000_000)
    return micros // 1_000_000, micros % 1_000_000
