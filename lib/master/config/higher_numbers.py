"""Numbers to leave out, since a replaced copy may have shown them.

See `ganeti.store.numbers`. The threads that bring copies up to date note them; whoever
has opened the store for writing takes and leaves out what was noted.
"""

import threading

from ganeti.base import errors
from ganeti.store.numbers import Numbers


class HigherNumbers:
    """Noted numbers; thread-safe."""

    def __init__(self) -> None:
        """Begin with none."""
        self._changed = threading.Condition()
        self._noted: Numbers | None = None
        self._is_closed = False

    def note(self, numbers: Numbers) -> None:
        """Note numbers; returns at once.

        Raises:
            StorageError: this is closed, so that nobody would leave them out.
        """
        with self._changed:
            if self._is_closed:
                raise errors.StorageError(
                    "it has another history with higher numbers, and the master daemon"
                    " replaces it when it starts"
                )
            old = self._noted or Numbers()
            self._noted = Numbers(*map(max, old, numbers))
            self._changed.notify()

    def take(self) -> Numbers | None:
        """Wait for numbers; return them, or None when closed and all are taken."""
        with self._changed:
            while self._noted is None and not self._is_closed:
                self._changed.wait()
            numbers, self._noted = self._noted, None
            return numbers

    def close(self) -> None:
        """Refuse further notes."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
