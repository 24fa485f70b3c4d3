"""Interrupts from the terminal, none of which is lost.

Python raises KeyboardInterrupt at the place that the program has reached. If that is a
callback of the interpreter, for example one that runs at the end of each import, or a
``__del__`` method, the exception is printed and dropped, and the program goes on. Some
libraries written in C drop it without a word. A command that takes minutes would then
create what its user asked it not to create. So an exception that the interpreter drops
is not printed, and the interrupt is sent again until the program gets it.
"""

import contextlib
import signal
import sys
import threading
import time
import types
from collections.abc import Iterator
from typing import Any, Final, Self

#: Seconds until an interrupt is sent again; the callback that dropped it ends at once.
_AGAIN_S: Final = 0.01


class Interrupts:
    """Handler of SIGINT that raises KeyboardInterrupt and remembers it.

    As a context manager it handles the signal during the block; a program that was
    started with the signal ignored goes on ignoring it. After the block an interrupt
    ends the program at once and without a traceback, as nothing but its last message is
    left to do. For the main thread only.
    """

    def __init__(self) -> None:
        self._is_pending = False
        self._is_deferred = False
        self._is_once = False
        self._main = threading.get_ident()
        self._is_in_hook = False
        #: Of the thread that sends an interrupt again; None once it has arrived.
        self._again: object | None = None

    def __enter__(self) -> Self:
        self._before = signal.getsignal(signal.SIGINT)
        self._hook_before = sys.unraisablehook
        if self._before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._on_signal)
            sys.unraisablehook = self._on_dropped
        return self

    def __exit__(self, *_error: object) -> None:
        self._again = None
        sys.unraisablehook = self._hook_before
        after = self._before
        if after is signal.default_int_handler:
            after = signal.SIG_DFL
        signal.signal(signal.SIGINT, after)

    def _on_signal(self, _number: int, _frame: types.FrameType | None) -> None:
        if self._is_in_hook:
            # The exception would be dropped once more, and no hook called. The thread
            # sends until the signal arrives outside.
            return
        is_repeated = self._is_pending
        self._is_pending = True
        self._again = None
        if not self._is_deferred and not (self._is_once and is_repeated):
            raise KeyboardInterrupt

    def _on_dropped(self, about: Any) -> None:
        """Send the interrupt again whose exception the interpreter has dropped."""
        if about.exc_type is not KeyboardInterrupt:
            self._hook_before(about)
            return
        self._is_in_hook = True
        self._is_pending = False
        self._again = again = object()
        try:
            threading.Thread(target=self._send, args=(again,), daemon=True).start()
        finally:
            self._is_in_hook = False

    def _send(self, again: object) -> None:
        # A signal that arrives just before a system call does not interrupt the call,
        # so one is not always enough.
        while True:
            time.sleep(_AGAIN_S)
            if self._again is not again:
                return
            signal.pthread_kill(self._main, signal.SIGINT)

    def check(self) -> None:
        """Raise KeyboardInterrupt if an interrupt has arrived, even if dropped."""
        if self._is_pending or self._again is not None:
            self._again = None
            self._is_pending = True
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

    @contextlib.contextmanager
    def once(self) -> Iterator[None]:
        """Raise KeyboardInterrupt for the first interrupt of a block alone.

        Used where the block removes after an interrupt what it has made: a user who
        presses the keys twice would interrupt the removal.
        """
        self._is_once = True
        try:
            yield
        finally:
            self._is_once = False
