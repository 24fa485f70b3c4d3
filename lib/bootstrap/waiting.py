"""Polling of a condition with growing pauses."""

import threading
from collections.abc import Callable
from typing import Final

from ganeti.base.clock import Clock

_FIRST_PAUSE_S: Final = 1.0
_GROWTH: Final = 1.5
_LONGEST_PAUSE_S: Final = 5.0


def wait_until(
    condition: Callable[[], bool], clock: Clock, *, timeout_s: float
) -> bool:
    """Poll a condition; return whether it became true before the timeout."""
    deadline = clock.monotonic() + timeout_s
    pause = _FIRST_PAUSE_S
    while not condition():
        left = deadline - clock.monotonic()
        if left <= 0:
            return False
        clock.wait(threading.Event(), min(pause, left))
        pause = min(pause * _GROWTH, _LONGEST_PAUSE_S)
    return True
