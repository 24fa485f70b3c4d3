"""Numbers to leave out, because a replaced or a lost copy may have shown them.

See `ganeti.store.numbers`. The threads that bring copies up to date note them; whoever
has opened the store for writing takes and leaves out what was noted.

Where an administrator accepted loss, lost changes may have used serials of the
configuration and job ids above those that this copy knows, and clients may still ask
for them. More are left out than the silent copies can have used. Revisions are left out
by `ganeti.store`. What is left out has to be in the first group that is written: a
master that takes over from this one knows nothing of the loss.
"""

import threading
from typing import Final

import msgspec

from ganeti.base import errors
from ganeti.master.config.config import HEADER_KEY, Header
from ganeti.store import Document, Store
from ganeti.store.numbers import LAST_JOB, Numbers


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


SKIPPED_SERIALS: Final = 1_000_000
SKIPPED_JOBS: Final = 10_000


def job_ids(store: Store) -> Document:
    """Return the document that leaves out job ids."""
    last = int(store.read("meta", LAST_JOB) or b"0")
    return Document("meta", LAST_JOB, b"%d" % (last + SKIPPED_JOBS))


def serials(store: Store) -> Document:
    """Return the document that leaves out serials of the configuration."""
    header = Header.decode(store.read("meta", HEADER_KEY))
    left_out = msgspec.structs.replace(
        header, serial_no=header.serial_no + SKIPPED_SERIALS
    )
    return Document("meta", HEADER_KEY, msgspec.json.encode(left_out))
