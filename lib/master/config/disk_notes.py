"""Notes of disks that are about to be made, so that a crash leaves none behind.

The record of a disk is committed after the disk was made. Before that, a note with all
that is needed to remove the disk is made durable. It is dropped when the opcode has
ended, which has committed the records or has removed the disks by then. Notes of disks
that could not be removed, and those that an earlier master daemon left, are swept by
`ganeti.daemons.masterd.duties.leftover_disks`.

Notes also name disks that a replacement takes out of use: they are removed when the
disk that follows them is complete.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants.disks import DTS_LVM
from ganeti.model.objects import Disk
from ganeti.store import Document, Store

_TABLE: Final = "meta"
#: Keys are ``disks/<execution id>/<number>``.
_PREFIX: Final = "disks/"


class MadeDisk(msgspec.Struct, frozen=True, omit_defaults=True):
    """A disk, and the uuids of the nodes that it is made on.

    Attributes:
        disk: enough of its record to remove it.
        nodes: uuids of its nodes.
        kept_for: uuid of the recorded disk that must be complete on its nodes before
            this one is removed; empty if it has no data of value.
        device: a mirror on these nodes of which only the device and its metadata, which
            is ``disk``, are removed: its data volume is a disk of its own. A master of
            an earlier release, which ignores this, does not touch the data either.
    """

    disk: Disk
    nodes: tuple[str, ...]
    kept_for: str = ""
    device: Disk | None = None

    @property
    def volumes(self) -> frozenset[tuple[Any, ...]]:
        """The locations of the logical volumes that are removed."""
        parts = self.disk.children or (self.disk,)
        return frozenset(part.logical_id for part in parts if part.dev_type in DTS_LVM)


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
        #: Keys of notes that are being removed; the store may still have them.
        self._ended: set[str] = set()
        #: Key of the note that is being swept.
        self._swept: str | None = None

    def add(self, owner: str, note: DiskNote) -> None:
        """Make a note durable; blocks.

        Args:
            owner: execution id of the opcode that makes the disks.
            note: the disks.

        Raises:
            ConfigurationError: remains with the names of the disks are being removed at
                this moment.
            StorageError: it is not durable.
            TermError: another node became master.
        """
        with self.lock:
            self._refuse_swept(note)
            keys = self._own.setdefault(owner, [])
            key = f"{_PREFIX}{owner}/{len(keys)}"
            keys.append(key)
            self._store.commit([Document(_TABLE, key, msgspec.json.encode(note))])

    def _refuse_swept(self, note: DiskNote) -> None:
        """Refuse disks whose places are being swept; the caller holds the lock."""
        if self._swept is None:
            return
        for key, data in self._store.scan(_TABLE, self._swept):
            if key == self._swept and _overlap(note, _decode(key, data)):
                raise _being_removed(note.instance)

    def is_claimed(
        self, made: MadeDisk, node: str, *, has_ended: Callable[[int], bool]
    ) -> bool:
        """Return whether an opcode that goes on makes volumes in the places of a disk.

        One of which nobody knows whether it has recorded them counts as well.

        Args:
            made: the remains of a disk.
            node: uuid of the node that has them.
            has_ended: returns whether a job, given by its id, has ended.
        """
        wanted = DiskNote("", (msgspec.structs.replace(made, nodes=(node,)),))
        with self.lock:
            # The records of held ones may be durable.
            own = {key for keys in self._own.values() for key in keys} | self._held
            rows = list(self._store.scan(_TABLE, _PREFIX))
        return any(
            _overlap(wanted, _decode(key, data))
            for key, data in rows
            if key in own or (key != self._swept and not has_ended(job_of(key)))
        )

    def drop(self, owner: str) -> None:
        """Drop the notes of an opcode that has ended; returns at once.

        A note that stays, because the store takes no changes, does no harm: its disks
        have records, or are to be removed.
        """
        with self.lock:
            keys = self._own.pop(owner, [])
            self._ended.update(keys)
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

    @contextlib.contextmanager
    def noted(self, owner: str, note: DiskNote) -> Iterator[None]:
        """Add a note for a block; leave or hold the notes of its opcode if it fails."""
        self.add(owner, note)
        try:
            yield
        except BaseException as err:
            if errors.is_outcome_unknown(err):
                self.hold(owner)
            else:
                self.leave(owner)
            raise

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

    def begin_sweep(self, key: str) -> DiskNote | None:
        """Return a note that is swept from now on; None if it was taken over.

        Raises:
            ConfigurationError: it cannot be read.
        """
        with self.lock:
            for known, data in self._store.scan(_TABLE, key):
                if known == key:
                    note = _decode(key, data)
                    self._swept = key
                    return note
        return None

    def end_sweep(
        self, key: str, *, is_clean: bool, rest: DiskNote | None = None
    ) -> None:
        """End the sweep of a note, and remove it if nothing of it is left.

        Args:
            key: of the note.
            is_clean: whether nothing is left.
            rest: replaces a note of which something is left.
        """
        with self.lock:
            self._swept = None
            if rest is not None and not is_clean:
                change = Document(_TABLE, key, msgspec.json.encode(rest))
                with contextlib.suppress(errors.StorageError, errors.TermError):
                    self._store.commit_soon([change])
            if is_clean:
                self._ended.add(key)
        if is_clean:
            self._remove([key])

    def take_over(
        self, owner: str, uuid: str, node: str, *, instance: str
    ) -> list[MadeDisk]:
        """Return the noted remains of a disk on a node, for a removal by the caller.

        They are in a note of the caller from then on, so that no sweep removes what the
        caller makes in the same place.

        Args:
            owner: execution id of the opcode that makes the disk there again.
            uuid: of the disk.
            node: uuid of the node.
            instance: name of the owner of the disk, for messages.

        Raises:
            ConfigurationError: they are being removed at this moment.
            StorageError: the change is not durable.
        """
        taken: list[MadeDisk] = []
        changes: list[Document] = []
        with self.lock:
            own = {key for keys in self._own.values() for key in keys}
            for key, data in self._store.scan(_TABLE, _PREFIX):
                note = _decode(key, data)
                mine = [
                    made
                    for made in note.disks
                    if made.disk.uuid == uuid and node in made.nodes
                ]
                if not mine or key in own:
                    continue
                if key == self._swept:
                    raise _being_removed(instance)
                taken += [msgspec.structs.replace(made, nodes=(node,)) for made in mine]
                rest = tuple(
                    msgspec.structs.replace(
                        made, nodes=tuple(name for name in made.nodes if name != node)
                    )
                    if made in mine
                    else made
                    for made in note.disks
                )
                left = msgspec.structs.replace(
                    note, disks=tuple(made for made in rest if made.nodes)
                )
                changes.append(Document(_TABLE, key, msgspec.json.encode(left)))
            if taken:
                keys = self._own.setdefault(owner, [])
                key = f"{_PREFIX}{owner}/{len(keys)}"
                keys.append(key)
                data = msgspec.json.encode(DiskNote(instance, tuple(taken)))
                self._store.commit([*changes, Document(_TABLE, key, data)])
        return taken

    def all_disks(self) -> list[MadeDisk]:
        """Return the disks of all notes.

        Raises:
            ConfigurationError: a note cannot be read.
        """
        return [
            made
            for key, data in self._store.scan(_TABLE, _PREFIX)
            for made in _decode(key, data).disks
        ]

    def all_directories(self, but: str) -> set[tuple[str, str]]:
        """Return the directories of all notes but one; the caller holds the lock.

        Notes that have ended have none: nobody would remove them otherwise.
        """
        rows = dict(self._store.scan(_TABLE, _PREFIX))
        self._ended.intersection_update(rows)
        return {
            place
            for key, data in rows.items()
            if key != but and key not in self._ended
            for place in _decode(key, data).directories
        }

    def _remove(self, keys: Sequence[str]) -> None:
        with contextlib.suppress(errors.StorageError, errors.TermError):
            self._store.commit_soon([Document(_TABLE, key, None) for key in keys])


def _overlap(note: DiskNote, other: DiskNote) -> bool:
    """Return whether two notes have a volume in common on one of their nodes."""
    places = {
        (node, volume)
        for made in note.disks
        for node in made.nodes
        for volume in made.volumes
    }
    return any(
        (node, volume) in places
        for made in other.disks
        for node in made.nodes
        for volume in made.volumes
    )


def _being_removed(instance: str) -> errors.ConfigurationError:
    return errors.ConfigurationError(
        f"instance {instance}: an old copy of one of its disks is being removed from"
        " the node at this moment; try again later"
    )


def job_of(key: str) -> int:
    """Return the id of the job that made a note, 0 if it is not a job's."""
    number = key.removeprefix(_PREFIX).partition("/")[0]
    return int(number) if number.isascii() and number.isdigit() else 0


def _decode(key: str, data: bytes) -> DiskNote:
    try:
        return msgspec.json.decode(data, type=DiskNote)
    except msgspec.DecodeError as err:
        raise errors.ConfigurationError(f"note {key} of new disks: {err}") from err
