"""Terminals of people: raw while bytes go to another machine, always restored."""

import contextlib
import os
import termios
import tty
from collections.abc import Iterator


@contextlib.contextmanager
def kept(fd: int) -> Iterator[None]:
    """Restore a terminal at the end of a block; do nothing for other files."""
    if not os.isatty(fd):
        yield
        return
    before = termios.tcgetattr(fd)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


@contextlib.contextmanager
def raw(fd: int) -> Iterator[None]:
    """Put a terminal in raw mode during a block, then restore it."""
    with kept(fd):
        if os.isatty(fd):
            tty.setraw(fd)
        yield
