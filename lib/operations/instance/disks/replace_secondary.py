"""Another secondary node for mirrored disks.

The new node gets volumes with the recorded names, and devices without a connection.
Then the old node's devices are shut down, the primary is disconnected, one commit
records the new node, and the nodes connect. The volumes of the old node stay until all
data is copied, unless an early release is requested. If a step before the commit fails,
the old nodes connect again.
"""

from collections.abc import Iterator, Sequence

from ganeti.base import errors
from ganeti.decisions.verify import mirrors
from ganeti.master import config
from ganeti.model import objects
from ganeti.operations import base
from ganeti.operations.instance.disks import (
    mirror_records,
    mirror_states,
    node_disks,
    replacement_steps,
)
from ganeti.operations.instance.disks.replacement_steps import STEPS
from ganeti.protocols.rpc import calls


def new_records(
    ctx: base.Context,
    instance: objects.Instance,
    target: str,
    chosen: Sequence[tuple[int, objects.Disk]],
) -> list[objects.Disk]:
    """Return the future records: a new minor, with the port and secret of the old."""
    primary = instance.primary_node
    records = []
    for _index, disk in chosen:
        first, _second, port, *minors, secret = disk.logical_id
        (minor,) = ctx.config.reserve_minors(ctx.owner, [target])
        # The primary node keeps its place: with DRBD 9, its metadata has that number.
        if first == primary:
            pair, numbers = (primary, target), (minors[0], minor)
        else:
            pair, numbers = (target, primary), (minor, minors[1])
        children = tuple(child.replace(nodes=pair) for child in disk.children)
        record = disk.replace(
            logical_id=(*pair, port, *numbers, secret), nodes=pair, children=children
        )
        records.append(record)
    return records


class SecondaryReplacement(replacement_steps.Replacement):
    """The steps that give disks another secondary node."""

    def note(self) -> Iterator[config.MadeDisk]:
        """Yield the disks on the new node, and those on the old one."""
        work = self.work
        for (_index, disk), made in zip(self.chosen, self.made, strict=True):
            yield config.MadeDisk(made, (work.target,))
            yield config.MadeDisk(disk, (work.old,), kept_for=disk.uuid)

    # Steps
    def check(self) -> None:
        """Check that the primary node has the devices, with all data."""
        log, primary = self.ctx.log, self.instance.primary_node
        log.step(1, STEPS, "Check that the devices exist")
        states = self.states(primary)
        for (index, _disk), state in zip(self.chosen, states, strict=True):
            if isinstance(state, str) or not state.is_active:
                why = state if isinstance(state, str) else "is not active"
                raise errors.OpExecError(
                    f"{self.what}: {node_disks.label(index)} on its primary node"
                    f" {self.name(primary)}: {why}"
                )
        log.step(2, STEPS, f"Check the data of node {self.name(primary)}")
        for (index, _disk), state in zip(self.chosen, states, strict=True):
            if isinstance(state, mirror_states.Status) and not state.is_complete:
                raise errors.OpExecError(
                    f"{self.what}: {node_disks.label(index)} is not up to date on its"
                    f" primary node {self.name(primary)}, and the secondary node's data"
                    " would be lost; wait for the synchronisation, or replace the disk"
                    " on the primary node first (replace-disks -p)"
                )
        # Otherwise the old node has the same data.
        if any(not isinstance(item, str) and item.is_degraded for item in states):
            self._check_age(states)

    def _check_age(self, states: Sequence[mirror_states.Status | str]) -> None:
        """Refuse to give up data of the secondary node that is newer, if it answers.

        Raises:
            OpExecError: it is newer, or in use there.
        """
        chosen = [disk for _index, disk in self.chosen]
        others = mirror_states.statuses(self.ctx, self.instance, chosen, self.work.old)
        # Without an answer there is nothing to compare, so lengths may differ.
        for (index, _disk), own, other in zip(
            self.chosen, states, others or (), strict=others is not None
        ):
            if isinstance(own, str) or isinstance(other, str):
                continue
            problem = mirrors.find(
                self.instance.name,
                index,
                (self.name(self.instance.primary_node), own.row),
                (self.name(self.work.old), other.row),
            )
            if problem is not None and problem.forbids:
                raise errors.OpExecError(
                    f"{self.what}: {node_disks.label(index)}: {problem.line()}; the"
                    " only copy of that data would be lost"
                )

    def prepare(self) -> None:
        """Remove what an earlier replacement left, refuse what is somebody else's."""
        notes, target = self.ctx.config.disk_notes, self.work.target
        for disk in self.made:
            # No sweep may remove them later, when new volumes have their names.
            remains = notes.take_over(
                self.ctx.owner, disk.uuid, target, instance=self.instance.name
            )
            if not all(self.remove(target, old.disk) for old in remains):
                notes.leave(self.ctx.owner)
                raise errors.OpExecError(
                    f"{self.what}: an old copy of its disks on node"
                    f" {self.name(target)} cannot be removed"
                )
        for volume in (part for disk in self.made for part in disk.children):
            if self.has(target, volume):
                raise errors.OpExecError(
                    f"{self.what}: volume {'/'.join(volume.logical_id)} exists on node"
                    f" {self.name(target)} already; if nobody needs it, remove it there"
                    " (lvremove)"
                )

    def create(self) -> None:
        """Create the disks on the new node; remove them again if it fails."""
        made = []
        sized = self.sized(self.instance.primary_node)
        for index, disk in zip(self.work.indexes, sized, strict=True):
            # Before the call, since one that failed may have left volumes.
            made.append(disk)
            result = self.create_one(index, _alone(disk))
            if result.failed:
                for each in made:
                    self.remove(self.work.target, each)
            result.unwrap(f"{self.what}: cannot create {node_disks.label(index)}")

    @property
    def _is_committed(self) -> bool:
        current = self.ctx.snapshot.instance_disks(self.instance)
        return all(
            self.work.target in current[index].nodes for index in self.work.indexes
        )

    def change(self) -> None:
        """Leave the old node, record the new one, connect with it."""
        if not self._is_committed:
            for disk in self.made:
                # A restart has lost the reservations; an owner may repeat its own.
                mirror_records.reserve_again(self.ctx, disk)
            try:
                self._leave_old()
                self._commit()
            except errors.GenericError as err:
                if not errors.is_outcome_unknown(err):
                    self._undo()
                raise
        nodes = [self.instance.primary_node, self.work.target]
        if self.is_resumed:
            # A node may have been restarted in the meantime.
            for node in nodes:
                self._connect_again(node, self.made)
        wires = [self.wire(disk) for disk in self.made]
        answers = self.ctx.rpc.call_nodes(nodes, calls.drbd_attach_net(wires, False))
        for result in answers.values():
            self.ctx.warn_failed(result, f"{self.what}: its disks cannot connect")

    def _leave_old(self) -> None:
        log, work, primary = self.ctx.log, self.work, self.instance.primary_node
        for (index, _disk), disk in zip(self.chosen, self.made, strict=True):
            log.message(
                f"* activating {node_disks.label(index)} on {self.name(work.target)},"
                " without a connection"
            )
            # The primary node still exchanges data with the old node, under the same
            # port.
            self.assemble(work.target, _alone(disk), index).unwrap(
                f"{self.what}: cannot activate {node_disks.label(index)}"
            )
        for index, disk in self.chosen:
            log.message(
                f"* shutting down {node_disks.label(index)} on {self.name(work.old)}"
            )
            result = self.ctx.rpc.call_node(
                work.old, calls.blockdev_shutdown(self.wire(disk))
            )
            # The old node may be replaced because it is lost.
            if result.failed:
                log.warn(
                    result.describe(f"cannot shut down {node_disks.label(index)}"),
                    "its volumes are removed when the node answers",
                )
        log.message(f"* disconnecting the disks on {self.name(primary)}")
        wires = [self.wire(disk) for _index, disk in self.chosen]
        self.ctx.rpc.call_node(primary, calls.drbd_disconnect_net(wires)).unwrap(
            f"{self.what}: cannot disconnect its disks"
        )

    def _commit(self) -> None:
        self.ctx.log.message(
            f"* recording node {self.name(self.work.target)} as the secondary node"
        )
        with self.ctx.config.edit(self.ctx.owner) as edit:
            for disk in self.made:
                edit.update(disk)

    def _undo(self) -> None:
        """Connect the old nodes again, and remove the disks on the new one."""
        before = [disk for _index, disk in self.chosen]
        for node in (self.work.old, self.instance.primary_node):
            self._connect_again(node, before)
        for disk in self.made:
            self.remove(self.work.target, disk)

    def _connect_again(self, node: str, records: Sequence[objects.Disk]) -> None:
        for index, disk in zip(self.work.indexes, records, strict=True):
            result = self.assemble(node, disk, index)
            if result.failed and not result.offline:
                self.ctx.log.warn(
                    result.describe(f"cannot connect {node_disks.label(index)} again"),
                    f"run gnt-instance activate-disks {self.instance.name}",
                )

    def remove_old(self) -> bool:
        """Remove the disks on the old node."""
        gone = [self.remove(self.work.old, disk) for _index, disk in self.chosen]
        return all(gone)


def _alone(disk: objects.Disk) -> objects.Disk:
    """Return a mirror without a port, so that it does not connect."""
    first, second, _port, *rest = disk.logical_id
    return disk.replace(logical_id=(first, second, None, *rest))


__all__ = ["SecondaryReplacement", "new_records"]
