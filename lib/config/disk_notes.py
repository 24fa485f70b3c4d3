"""Notes of disks that are about to be made, so that a crash leaves none behind.

The record of a disk is committed after the disk was made. Before that, a note with all
that is needed to remove the disk is made durable. It is dropped when the opcode has
ended, which has committed the records or has removed the disks by then. Notes of disks
that could not be removed, and those that an earlier master daemon left, are swept by
`ganeti.masterd.leftover_disks`.
"""

import contextlib
import threading
from collections.abc import Sequence
from typing import Final

import msgspec

from ganeti import errors
from ganeti.objects import Disk
from ganeti.store import Document, Store

_TABLE: Final = "meta"
#: Keys are ``disks/<execution id>/<number>``.
_PREFIX: Final = "disks/"


class MadeDisk(msgspec.Struct, frozen=True):
    """A disk, and the uuids of the nodes that it is made on."""

    disk: Disk
    nodes: tuple[str, ...]


class DiskNote(msgspec.Struct, frozen=True):
    """Disks of one instance.

    Attributes:
        instance: its name, for messages.
        disks: in the order in which they are made.
        directories: (path, node uuid) of directories that are made for them.
    """

    instance: str
    disks: tuple[MadeDisk, ...]
    directories: tuple[tuple[str, str], ...] = ()


class DiskNotes:
    """The notes in a store; thread-safe.

    Attributes:
        news: set when notes are left to be swept.
        lock: held while a note is added. Whoever removes a directory that is in no note
            holds the lock, so that no job begins to use the directory at that time.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.lock = threading.Lock()
        self.news = threading.Event()
        self._own: dict[str, list[str]] = {}
        self._held: set[str] = set()

    def add(self, owner: str, note: DiskNote) -> None:
        """Make a note durable; blocks.

        Args:
            owner: execution id of the opcode that makes the disks.
            note: the disks.

        Raises:
            StorageError: it is not durable.
            TermError: another node became master.
        """
        with self.lock:
            keys = self._own.setdefault(owner, [])
            key = f"{_PREFIX}{owner}/{len(keys)}"
            keys.append(key)
            self._store.commit([Document(_TABLE, key, msgspec.json.encode(note))])

    def drop(self, owner: str) -> None:
        """Drop the notes of an opcode that has ended; returns at once.

        A note that stays, because the store takes no changes, does no harm: its disks
        have records, or are to be removed.
        """
        with self.lock:
            keys = self._own.pop(owner, [])
        if keys:
            self._remove(keys)

    def leave(self, owner: str) -> None:
        """Leave the notes of an opcode to be swept, as disks could not be removed."""
        with self.lock:
            if self._own.pop(owner, []):
                self.news.set()

    def hold(self, owner: str) -> None:
        """Keep the notes of an opcode until the next start of a master daemon.

        Whether the records of the disks are durable is not known before.
        """
        with self.lock:
            self._held.update(self._own.pop(owner, ()))

    def left(self) -> dict[str, DiskNote]:
        """Return the notes that no running opcode has, by key.

        Raises:
            ConfigurationError: one cannot be read.
        """
        with self.lock:
            own = {key for keys in self._own.values() for key in keys} | self._held
        rows = {
            key: data
            for key, data in self._store.scan(_TABLE, _PREFIX)
            if key not in own
        }
        return {key: _decode(key, data) for key, data in rows.items()}

    def all_directories(self, but: str) -> set[tuple[str, str]]:
        """Return the directories of all notes but one; the caller holds the lock."""
        return {
            place
            for key, data in self._store.scan(_TABLE, _PREFIX)
            if key != but
            for place in _decode(key, data).directories
        }

    def remove(self, key: str) -> None:
        """Remove a note whose disks are gone; returns at once."""
        self._remove([key])

    def _remove(self, keys: Sequence[str]) -> None:
        with contextlib.suppress(errors.StorageError, errors.TermError):
            self._store.commit_soon([Document(_TABLE, key, None) for key in keys])


def job_of(key: str) -> int:
    """Return the id of the job that made a note, 0 if it is not a job's."""
    number = key.removeprefix(_PREFIX).partition("/")[0]
    return int(number) if number.isascii() and number.isdigit() else 0


def _decode(key: str, data: bytes) -> DiskNote:
    try:
        return msgspec.json.decode(data, type=DiskNote)
    except msgspec.DecodeError as err:
        raise errors.ConfigurationError(f"note {key} of new disks: {err}") from err
