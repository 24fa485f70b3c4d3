"""Interrupts from the terminal, none of which is lost.

Python raises KeyboardInterrupt at the place that the program has reached. If that is a
callback of the interpreter, for example one that runs at the end of each import, or a
``__del__`` method, the exception is printed and dropped, and the program goes on. Some
libraries written in C drop it without a word. A command that takes minutes would then
create what its user asked it not to create.
"""

import contextlib
import signal
import types
from collections.abc import Iterator
from typing import Self


class Interrupts:
    """Handler of SIGINT that raises KeyboardInterrupt and remembers it.

    As a context manager it handles the signal during the block; a program that was
    started with the signal ignored goes on ignoring it. For the main thread only.
    """

    def __init__(self) -> None:
        self._is_pending = False
        self._is_deferred = False

    def __enter__(self) -> Self:
        self._before = signal.getsignal(signal.SIGINT)
        if self._before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_error: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, _number: int, _frame: types.FrameType | None) -> None:
        self._is_pending = True
        if not self._is_deferred:
            raise KeyboardInterrupt

    def check(self) -> None:
        """Raise KeyboardInterrupt if an interrupt has arrived, even if dropped."""
        if self._is_pending:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Raise KeyboardInterrupt for interrupts during a block at the block's end.

        Used around imports, where the interpreter would drop the exception.
        """
        self._is_deferred = True
        try:
            yield
        finally:
            self._is_deferred = False
        self.check()
