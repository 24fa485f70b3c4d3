"""Terminals of people: raw while bytes go to another machine, always restored."""

import contextlib
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from typing import Final

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def kept(fd: int) -> Iterator[None]:
    """Restore a terminal at the end of a block, also of one that a signal ends.

    Other files than terminals stay as they are. For the main thread.
    """
    handlers = {number: signal.signal(number, _end) for number in _ENDING}
    before = termios.tcgetattr(fd) if os.isatty(fd) else None
    try:
        yield
    finally:
        if before is not None:
            termios.tcsetattr(fd, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _end(number: int, _frame: object) -> None:
    # As a shell shows the end by a signal.
    sys.exit(128 + number)


@contextlib.contextmanager
def raw(fd: int) -> Iterator[None]:
    """Put a terminal in raw mode during a block, then restore it."""
    with kept(fd):
        if os.isatty(fd):
            tty.setraw(fd)
        yield
