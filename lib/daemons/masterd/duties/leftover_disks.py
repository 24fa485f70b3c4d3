"""Removal of disks without a record, whose creation was cut short.

`ganeti.master.config.disk_notes` names them: those that an earlier master daemon was
making when it ended, and those that an opcode could not remove. A disk that has a
record stays, whatever the note says. The old copy of a replaced disk stays until the
new one is complete. Nodes that do not answer are tried again.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

import msgspec

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants.disks import DTS_LVM
from ganeti.master.config import disk_notes
from ganeti.master.config.disk_notes import DiskNote, DiskNotes, MadeDisk
from ganeti.model import objects
from ganeti.protocols import rpc
from ganeti.protocols.rpc import calls, encode
from ganeti.protocols.rpc.answers import BlockDevice, DeviceRow

_log = logging.getLogger(__name__)

#: Seconds until nodes that failed are tried again; the last value is repeated.
RETRY_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
#: Seconds for the removal of an empty directory, during which no job makes disks.
_DIRECTORY_S: Final = 10.0


class LeftoverDisks:
    """Removes the disks in one thread, from `start` to `stop`."""

    def __init__(
        self,
        notes: DiskNotes,
        snapshot: Callable[[], objects.Snapshot],
        runner: rpc.Runner,
        clock: Clock,
        *,
        has_ended: Callable[[int], bool],
    ) -> None:
        """Prepare.

        Args:
            notes: of the disks.
            snapshot: returns the newest configuration.
            runner: calls nodes.
            clock: for pauses.
            has_ended: returns whether a job, given by its id, has ended. One that goes
                on still uses its disks.
        """
        self._notes = notes
        self._snapshot = snapshot
        self._rpc = runner
        self._clock = clock
        self._has_ended = has_ended
        self._warned: set[str] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="leftover-disks", daemon=True
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no further removal; a call under way ends by itself."""
        self._stopping.set()
        self._notes.news.set()

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            # Cleared first: a note that is left during the sweep is not missed.
            self._notes.news.clear()
            failures = 0 if self._try() else failures + 1
            pause = RETRY_S[min(failures, len(RETRY_S)) - 1] if failures else None
            if not self._stopping.is_set():
                self._clock.wait(self._notes.news, pause)

    def _try(self) -> bool:
        try:
            return self.sweep()
        except errors.GenericError as err:
            _log.error("disks of interrupted jobs: %s", err)
        except Exception:  # noqa: BLE001 - logged, and tried again
            _log.exception("disks of interrupted jobs")
        return False

    def sweep(self) -> bool:
        """Remove what can be removed now; return whether nothing is left.

        Raises:
            ConfigurationError: a note cannot be read.
        """
        is_clean = True
        for key in self._notes.left():
            if self._stopping.is_set():
                return False
            # A job that goes on drops its notes itself, or leaves them for later.
            if not self._has_ended(disk_notes.job_of(key)):
                is_clean = False
                continue
            note = self._notes.begin_sweep(key)
            if note is None:
                continue
            is_done, rest = False, None
            try:
                rest = self._without_record(note)
                is_done = self._sweep(key, note)
            finally:
                changed = None if rest == note else rest
                self._notes.end_sweep(key, is_clean=is_done, rest=changed)
            is_clean = is_done and is_clean
        return is_clean

    def _without_record(self, note: DiskNote) -> DiskNote:
        """Return a note without the disks that have got a record.

        When they lose it later, another note says so, perhaps with a copy to wait for.
        """
        snapshot = self._snapshot()
        disks = []
        for made in note.disks:
            nodes = tuple(
                node for node in made.nodes if not _is_recorded(snapshot, made, node)
            )
            if nodes:
                disks.append(msgspec.structs.replace(made, nodes=nodes))
        return msgspec.structs.replace(note, disks=tuple(disks))

    def _sweep(self, key: str, note: DiskNote) -> bool:
        is_clean = True
        for made in note.disks:
            is_clean = self._remove(note, made) and is_clean
        return is_clean and self._remove_directories(key, note)

    def _remove(self, note: DiskNote, made: MadeDisk) -> bool:
        """Remove a disk from those of its nodes where it has no record.

        Returns whether all have done so.
        """
        is_clean = True
        snapshot = self._snapshot()
        nodes = [
            node
            for node in made.nodes
            # A removed node took the disk with it.
            if node in snapshot.nodes and not _is_recorded(snapshot, made, node)
        ]
        if nodes and not self._is_replaced(note, made):
            return not any(self._may_be_on(node, made) for node in nodes)
        for node in nodes:
            if self._notes.is_claimed(made, node, has_ended=self._has_ended):
                # A job makes volumes with these names there, and will note their end.
                is_clean = False
                continue
            where = ", ".join(
                "/".join(map(str, part.logical_id[1:]))
                for part in made.disk.children or (made.disk,)
            )
            what = f"disk {where} of instance {note.instance}, which has no record"
            answer = self._remove_from(snapshot, node, made)
            if answer.failed:
                self._warn(answer.describe(f"{what}, cannot be removed"))
                is_clean = False
            else:
                _log.info("%s: removed from node %s", what, answer.node)
        return is_clean

    def _remove_from(
        self, snapshot: objects.Snapshot, node: str, made: MadeDisk
    ) -> rpc.Result:
        """Remove a disk from a node, or all of a mirror but its data."""
        wire = encode.disk(snapshot, made.disk)
        answer = self._rpc.call_node(node, calls.blockdev_remove(wire))
        if answer.failed and made.device is not None:
            # The device may still use it. Another disk may have the minor by now.
            device = encode.disk(snapshot, made.device)
            self._rpc.call_node(node, calls.blockdev_shutdown(device))
            answer = self._rpc.call_node(node, calls.blockdev_remove(wire))
        return answer

    def _is_replaced(self, note: DiskNote, made: MadeDisk) -> bool:
        """Return whether the disk that follows is complete, or no longer recorded."""
        snapshot = self._snapshot()
        after = snapshot.disks.get(made.kept_for)
        owner = snapshot.disk_owner(made.kept_for) if after is not None else None
        if after is None or owner is None:
            return True
        instance = snapshot.instances[owner]
        if not instance.disks_active:
            return False
        answer = self._rpc.call_node(
            instance.primary_node,
            calls.blockdev_getmirrorstatus_multi(
                [encode.disk(snapshot, after, instance)]
            ),
        )
        what = f"an old copy of {after.iv_name} of instance {note.instance} stays"
        if answer.failed:
            self._warn(answer.describe(what))
            return False
        return [_is_complete(row) for row in answer.payload] == [True]

    def _may_be_on(self, node: str, made: MadeDisk) -> bool:
        """Return whether a node has a disk, or does not say that it has not."""
        wire = encode.disk(self._snapshot(), made.disk)
        answer = self._rpc.call_node(node, calls.blockdev_find(wire))
        return answer.failed or answer.payload is not None

    def _warn(self, text: str) -> None:
        """Log a failure once: nodes are tried again and again."""
        if text not in self._warned:
            self._warned.add(text)
            _log.warning("%s", text)

    def _remove_directories(self, key: str, note: DiskNote) -> bool:
        """Remove directories that nothing uses; return whether all are gone."""
        is_clean = True
        for path, node in note.directories:
            with self._notes.lock:
                snapshot = self._snapshot()
                if node not in snapshot.nodes or _is_used(snapshot, path):
                    continue
                if (path, node) in self._notes.all_directories(but=key):
                    continue
                answer = self._rpc.call_node(
                    node, calls.file_storage_dir_remove(path), timeout_s=_DIRECTORY_S
                )
            if answer.failed:
                self._warn(answer.describe(f"directory {path} stays"))
                is_clean = False
        return is_clean


def _is_complete(row: DeviceRow) -> bool:
    """Return whether a row about a mirror says that both nodes have all data."""
    is_known, status = row
    return bool(
        is_known
        and isinstance(status, BlockDevice)
        and status.dev_path
        and status.is_degraded is False
    )


def _is_recorded(snapshot: objects.Snapshot, made: MadeDisk, node: str) -> bool:
    """Return whether a disk, or another one at one of its places, has a record.

    The volumes of a mirror have the same names on each of its nodes, so a mirror that
    has left a node has no record there. Names of volumes outlive the disks: a
    conversion keeps them.
    """
    disk = made.disk
    if made.volumes:
        return any(
            part.logical_id in made.volumes
            and node in ({*part.nodes, *other.nodes} or {node})
            for other in snapshot.disks.values()
            if not other.forthcoming
            for part in other.children or (other,)
            if part.dev_type in DTS_LVM
        )
    recorded = snapshot.disks.get(disk.uuid)
    if recorded is not None and not recorded.forthcoming:
        # Each creation of a reserved disk uses a name of its own.
        return _name(recorded) == _name(disk)
    place = (disk.dev_type, disk.logical_id)
    return any(
        (other.dev_type, other.logical_id) == place and not other.forthcoming
        for other in snapshot.disks.values()
    )


def _name(disk: objects.Disk) -> str:
    """Return the last part of a disk's location; its directory may be renamed."""
    return str(disk.logical_id[-1]).rpartition("/")[2]


def _is_used(snapshot: objects.Snapshot, directory: str) -> bool:
    return any(
        str(disk.logical_id[1]).rpartition("/")[0] == directory
        for disk in snapshot.disks.values()
        if disk.dev_type in ("file", "sharedfile") and not disk.forthcoming
    )
