"""Steps that both ways to replace mirrored disks share, their stored work and notes.

`replace_volumes` gives a node new volumes, `replace_secondary` gives the disks another
secondary node. Each step looks at the present state first, so an interrupted work can
be continued or repeated.
"""

import abc
import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.master import config, locking
from ganeti.model import objects
from ganeti.model.objects import params
from ganeti.operations import base
from ganeti.operations.instance import common
from ganeti.operations.instance.disks import mirror_records, mirror_states, node_disks
from ganeti.protocols.rpc import Result, calls, encode

#: Numbers of the steps in the job log.
STEPS: Final = 6
#: Phases of an interrupted work: while the mirrors change, afterwards, after an early
#: release, and when only the deactivation of the disks is left.
CHANGE: Final = "change"
SYNC: Final = "sync"
RELEASED: Final = "released"
DONE: Final = "done"


class Work(msgspec.Struct, frozen=True):
    """A replacement, as it is stored for a restart of the master daemon.

    Attributes:
        target: uuid of the node that gets volumes.
        indexes: of the disks.
        made: records of what the target gets, in this order.
        before: records of the disks at the beginning.
        suffix: of the names of replaced volumes.
        was_active: whether the disks were active before.
        releases_early: remove the old storage before the synchronisation.
        old: uuid of the secondary node that is left; empty if the nodes stay.
        phase: see above.
    """

    target: str
    indexes: list[int]
    made: list[dict[str, Any]]
    before: list[dict[str, Any]]
    suffix: str
    was_active: bool
    releases_early: bool
    old: str = ""
    phase: str = CHANGE

    @property
    def released(self) -> frozenset[locking.Level]:
        """The levels of locks that have been released before this phase."""
        if self.phase == CHANGE or (self.phase == SYNC and self.releases_early):
            return frozenset()
        both = frozenset((locking.Level.NODE, locking.Level.NODE_RES))
        return both if self.releases_early else frozenset((locking.Level.NODE,))


class Replacement(common.InstanceWork, abc.ABC):
    """The steps of one replacement."""

    def __init__(
        self, ctx: base.Context, instance: objects.Instance, work: Work
    ) -> None:
        super().__init__(ctx, instance)
        self.work = work
        self.is_resumed = False
        before = [objects.from_dict(objects.Disk, item) for item in work.before]
        #: Index and record of the disks, as they were at the beginning.
        self.chosen = list(zip(work.indexes, before, strict=True))
        self.made = [objects.from_dict(objects.Disk, item) for item in work.made]

    def name(self, node: str) -> str:
        """Return a node's name, for messages."""
        return self.ctx.node_name(node)

    # Steps
    def run(self) -> None:
        """Replace the disks.

        Raises:
            OpExecError: a step failed. Before the mirrors changed, nothing of it stays;
                afterwards it can be repeated.
        """
        with self._active():
            self.check()
            self.ctx.log.step(3, STEPS, "Create new volumes")
            self.prepare()
            with self._noted():
                self.create()
                # Not before: until here, an interrupted work is not continued, and its
                # notes have the new volumes removed.
                self.save(CHANGE)
                self._change_and_finish()

    def resume(self) -> None:
        """Continue after a restart of the master daemon.

        Raises:
            OpExecError: see `run`.
        """
        self.ctx.log.message(
            "* the master daemon was restarted; the replacement goes on"
        )
        self.is_resumed = True
        with self._active(), self._noted():
            if self.work.phase == CHANGE:
                self._change_and_finish()
            elif self.work.phase == SYNC:
                self._finish()
            elif self.work.phase == RELEASED:
                self._synchronise(6)

    def _change_and_finish(self) -> None:
        self.ctx.log.step(4, STEPS, "Change the mirrors")
        self.change()
        self.save(SYNC)
        self._finish()

    def _finish(self) -> None:
        """Copy the data and remove the old storage, or the reverse."""
        if not self.work.releases_early:
            # The nodes may be used by others while the data is copied.
            self.ctx.locks.release(locking.Level.NODE)
            self._synchronise(5)
            self._remove_old(6)
            return
        self._remove_old(5)
        # Stored first: a restarted master takes no locks that are released here.
        self.save(RELEASED)
        for level in (locking.Level.NODE_RES, locking.Level.NODE):
            self.ctx.locks.release(level)
        self._synchronise(6)

    def _synchronise(self, number: int) -> None:
        self.ctx.log.step(number, STEPS, "Synchronise the disks")
        # `chosen` has the records from before the change, with the former nodes.
        current = self.ctx.snapshot.instance_disks(self.instance)
        chosen = [(index, current[index]) for index in self.work.indexes]
        if degraded := mirror_states.wait_for_sync(
            self.ctx, self.instance, disks=chosen
        ):
            raise errors.OpExecError(
                f"{self.what}: {', '.join(degraded)} is degraded and not being"
                " synchronised; see gnt-instance info for the states on both nodes, and"
                f" run gnt-instance activate-disks {self.instance.name}; the old"
                " volumes are removed when the disk is complete"
            )

    def _remove_old(self, number: int) -> None:
        self.ctx.log.step(number, STEPS, "Remove the old volumes")
        if not self.remove_old():
            self.ctx.log.warn(
                "old volumes are still there",
                hint="the master removes them as soon as their node answers",
            )
            self.ctx.config.disk_notes.leave(self.ctx.owner)

    @abc.abstractmethod
    def check(self) -> None:
        """Check devices and data: steps 1 and 2.

        Raises:
            OpExecError: they do not allow a replacement.
        """

    @abc.abstractmethod
    def prepare(self) -> None:
        """Make room for the new volumes; nothing is noted yet.

        Raises:
            OpExecError: something else has their place.
        """

    @abc.abstractmethod
    def note(self) -> Iterable[config.MadeDisk]:
        """Return what has to be removed if the work ends at any moment."""

    @abc.abstractmethod
    def create(self) -> None:
        """Create the new volumes; if it fails, nothing is left.

        Raises:
            OpExecError: it failed.
        """

    @abc.abstractmethod
    def change(self) -> None:
        """Take the new volumes into use; can be repeated.

        Raises:
            OpExecError: it failed; what could be undone is undone.
        """

    @abc.abstractmethod
    def remove_old(self) -> bool:
        """Remove the old volumes; return whether all are gone."""

    # Notes
    def _noted(self) -> contextlib.AbstractContextManager[None]:
        """Make durable what may be left behind; leave it to the sweep of a failure."""
        note = config.DiskNote(self.instance.name, tuple(self.note()))
        return self.ctx.config.disk_notes.noted(self.ctx.owner, note)

    def save(self, phase: str) -> None:
        """Store the state for a restart of the master daemon."""
        state = msgspec.structs.replace(self.work, phase=phase)
        self.ctx.save_resumption(msgspec.to_builtins(state))

    # Activity
    @contextlib.contextmanager
    def _active(self) -> Iterator[None]:
        """Activate inactive disks, and deactivate them at the end."""
        if not self.instance.disks_active and self.work.phase != DONE:
            self.ctx.log.message("* activating the disks for the replacement")
            # The copy that is replaced may be the one of the secondary node.
            node_disks.assemble(self.ctx, self.instance, ignore_secondaries=True)
        try:
            yield
            if not self.work.was_active:
                self.save(DONE)
        finally:
            if not self.work.was_active and not node_disks.shutdown(
                self.ctx, self.instance
            ):
                self.ctx.log.warn(f"{self.what}: its disks are still active")

    # Calls
    def wire(self, disk: objects.Disk) -> dict[str, Any]:
        """Return a disk as nodes get it."""
        return encode.disk(self.ctx.snapshot, disk, self.instance)

    def states(self, node: str) -> list[mirror_states.Status | str]:
        """Return the states of the disks on a node.

        Raises:
            OpExecError: it does not answer.
        """
        chosen = [disk for _index, disk in self.chosen]
        known = mirror_states.statuses(self.ctx, self.instance, chosen, node)
        if known is None:
            raise errors.OpExecError(
                f"{self.what}: node {self.name(node)} does not report the state of its"
                " disks"
            )
        return known

    def has(self, node: str, volume: objects.Disk) -> bool:
        """Return whether a node has a volume.

        Raises:
            OpExecError: it does not answer.
        """
        answer = self.ctx.rpc.call_node(node, calls.blockdev_find(self.wire(volume)))
        what = f"{self.what}: cannot find out whether {node_disks.place(volume)} exists"
        return answer.unwrap(what) is not None

    def remove(self, node: str, disk: objects.Disk) -> bool:
        """Remove a disk or volume from a node; return whether it is gone."""
        answer = self.ctx.rpc.call_node(node, calls.blockdev_remove(self.wire(disk)))
        what = f"cannot remove {node_disks.place(disk)} of {self.what}"
        return not self.ctx.warn_failed(answer, what)

    def assemble(self, node: str, disk: objects.Disk, index: int) -> Result:
        """Activate a disk on a node."""
        owner = encode.instance(self.ctx.snapshot, self.instance)
        is_primary = node == self.instance.primary_node
        return self.ctx.rpc.call_node(
            node, calls.blockdev_assemble(self.wire(disk), owner, is_primary, index)
        )

    def create_one(self, index: int, disk: objects.Disk) -> Result:
        """Create the volumes of a mirror on the target, without valid data."""
        target = self.work.target
        self.ctx.log.message(
            f"* creating new volumes of {node_disks.label(index)} on"
            f" {self.name(target)}: {node_disks.place(disk)}"
        )
        creation = calls.blockdev_create(
            # As primary, DRBD would call the content of the new volumes valid.
            *(self.wire(disk), disk.size, self.instance.name, False),
            f"originstname+{self.instance.name}",
            params.has_exclusive_storage(self.ctx.snapshot, target),
        )
        return self.ctx.rpc.call_node(target, creation)

    def sized(self, source: str) -> list[objects.Disk]:
        """Return the mirrors to make, see `mirror_records.with_sizes`."""
        wires = [self.wire(disk.children[0]) for _index, disk in self.chosen]
        return mirror_records.with_sizes(self.ctx, self.what, source, wires, self.made)
