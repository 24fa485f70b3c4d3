"""New volumes for mirrored disks on one of their two nodes.

The new volumes get names of their own, and metadata without valid data, while the disk
is complete as before. Then the old volumes are renamed, and the new ones get their
names, the metadata first: at no moment does new data meet old metadata, which would
call it valid. So the records of the disks do not change. If the exchange fails, the old
volumes get their names back.
"""

from collections.abc import Iterator, Sequence

from ganeti.base import errors
from ganeti.base.constants import disks
from ganeti.decisions.verify import mirrors
from ganeti.master import config
from ganeti.model import objects
from ganeti.operations import base
from ganeti.operations.instance.disks import (
    mirror_states,
    node_disks,
    replacement_steps,
)
from ganeti.operations.instance.disks.replacement_steps import STEPS
from ganeti.protocols.rpc import Answer, calls


def new_records(
    ctx: base.Context,
    target: str,
    chosen: Sequence[tuple[int, objects.Disk]],
) -> list[objects.Disk]:
    """Return mirrors with new volumes that no node connects: nobody has their port."""
    records = []
    for index, disk in chosen:
        (minor,) = ctx.config.reserve_minors(ctx.owner, [target])
        other = next(node for node in disk.nodes if node != target)
        new = ctx.config.reserve_uuid(ctx.owner)
        children = tuple(
            child.replace(
                uuid=ctx.config.reserve_uuid(ctx.owner),
                logical_id=(child.logical_id[0], f"{new}.disk{index}_{kind}"),
                nodes=(target,),
            )
            for child, kind in zip(disk.children, ("data", "meta"), strict=True)
        )
        record = disk.replace(
            uuid=new,
            # Without a port it never connects, so the minor of the other node is not
            # used.
            logical_id=(target, other, None, minor, minor, disk.logical_id[5]),
            nodes=(target, other),
            children=children,
        )
        records.append(record)
    return records


class VolumeReplacement(replacement_steps.Replacement):
    """The steps that give one node new volumes."""

    @property
    def peer(self) -> str:
        """The node that has the data."""
        return next(
            node for node in self.chosen[0][1].nodes if node != self.work.target
        )

    def note(self) -> Iterator[config.MadeDisk]:
        """Yield the new volumes with their first names, and the renamed old ones."""
        nodes = (self.work.target,)
        for (_index, disk), made in zip(self.chosen, self.made, strict=True):
            for volume in made.children:
                yield config.MadeDisk(volume, nodes)
            for volume in _replaced(disk, self.work.suffix):
                yield config.MadeDisk(volume, nodes, kept_for=disk.uuid)

    # Steps
    def check(self) -> None:
        """Check that the devices exist, and that the other node has all data."""
        log, target, peer = self.ctx.log, self.work.target, self.peer
        log.step(1, STEPS, "Check that the devices exist")
        if not self.work.was_active:
            # The nodes have only begun to connect.
            mirror_states.wait_for_sync(
                self.ctx, self.instance, disks=self.chosen, once=True
            )
        own = self.states(target)
        for (index, disk), state in zip(self.chosen, own, strict=True):
            self._check_device(index, disk, state)
        log.step(2, STEPS, f"Check the data of node {self.name(peer)}")
        for (index, _disk), state, other in zip(
            self.chosen, own, self.states(peer), strict=True
        ):
            problem = _problem(state, other, self.instance.name)
            if problem is None and self._is_old(index, state, other):
                problem = (
                    "may be old, since the nodes are not connected; to go on with that"
                    f" data, run gnt-instance failover --ignore-consistency"
                    f" {self.instance.name} first"
                )
            if problem and not self._is_given_up(index, state, other):
                raise errors.OpExecError(
                    f"{self.what}: cannot replace {node_disks.label(index)} on node"
                    f" {self.name(target)}: on node {self.name(peer)} it {problem}"
                )

    def _compared(
        self, index: int, *ends: tuple[str, mirror_states.Status]
    ) -> mirrors.Problem | None:
        """Return the problem that the primary node and the other one have."""
        first, second = ((self.name(node), status.row) for node, status in ends)
        return mirrors.find(self.instance.name, index, first, second)

    def _is_old(
        self,
        index: int,
        own: mirror_states.Status | str,
        other: mirror_states.Status | str,
    ) -> bool:
        """Return whether the lost copy of the primary node may be the newer one."""
        if isinstance(own, str) or isinstance(other, str):
            return False
        if self.work.target != self.instance.primary_node:
            return False
        problem = self._compared(index, (self.work.target, own), (self.peer, other))
        return (
            problem is not None
            and problem.state is mirrors.State.DISKLESS
            and problem.activates
        )

    def _is_given_up(
        self,
        index: int,
        own: mirror_states.Status | str,
        other: mirror_states.Status | str,
    ) -> bool:
        """Return whether the data of the secondary node is to be given up anyway.

        After a split brain, both nodes have complete data that differ. Who replaces
        the disk of the secondary node has chosen that of the primary one.
        """
        if isinstance(own, str) or isinstance(other, str) or not other.is_complete:
            return False
        if self.work.target == self.instance.primary_node:
            return False
        problem = self._compared(index, (self.peer, other), (self.work.target, own))
        return (
            problem is not None
            and problem.state in mirrors.SECONDARY_IS_GIVEN_UP
            and not problem.forbids
        )

    def _check_device(
        self, index: int, disk: objects.Disk, state: mirror_states.Status | str
    ) -> None:
        """Refuse a device that is not active, unless its volumes are lost."""
        target = self.work.target
        if not isinstance(state, str) and state.is_active:
            return
        is_lost = not all(self.has(target, child) for child in disk.children)
        if is_lost and target != self.instance.primary_node:
            self.ctx.log.info(
                f"{node_disks.label(index)} has lost volumes on node"
                f" {self.name(target)}"
            )
            return
        why = state if isinstance(state, str) else "it is not active there"
        help_ = (
            f"fail the instance over (gnt-instance failover {self.instance.name})"
            if is_lost
            else f"run gnt-instance activate-disks {self.instance.name}"
        )
        raise errors.OpExecError(
            f"{self.what}: cannot replace {node_disks.label(index)} on node"
            f" {self.name(target)}: {why}; {help_} first"
        )

    def prepare(self) -> None:
        """Do nothing: the new volumes have names that are in use nowhere."""

    def create(self) -> None:
        """Create the new volumes with metadata; remove them again if it fails."""
        sized = self.sized(self.peer)
        for index, made in zip(self.work.indexes, sized, strict=True):
            result = self.create_one(index, made)
            if result.failed:
                for volume in (part for each in self.made for part in each.children):
                    self.remove(self.work.target, volume)
            result.unwrap(
                f"{self.what}: cannot create volumes of {node_disks.label(index)}"
            )

    def change(self) -> None:
        """Exchange the volumes, one disk after the other."""
        states = self.states(self.work.target)
        for position, (index, disk) in enumerate(self.chosen):
            _Exchange(self, index, disk, self.made[position], states[position]).run()
        self._connect()

    def _connect(self) -> None:
        """Have nodes connect that have ended their connection, as after a split brain.

        Raises:
            OpExecError: one cannot.
        """
        nodes = (self.work.target, self.peer)
        alone = [
            any(
                isinstance(state, mirror_states.Status) and state.is_standalone
                for state in ends
            )
            for ends in zip(*(self.states(node) for node in nodes), strict=True)
        ]
        for node in nodes:
            for (index, disk), is_alone in zip(self.chosen, alone, strict=True):
                if is_alone:
                    self.assemble(node, disk, index).unwrap(
                        f"{self.what}: cannot connect {node_disks.label(index)}"
                    )

    def remove_old(self) -> bool:
        """Remove the old volumes."""
        gone = [
            self.remove(self.work.target, volume)
            for _index, disk in self.chosen
            for volume in _replaced(disk, self.work.suffix)
        ]
        return all(gone)


class _Exchange:
    """The exchange of the volumes of one disk.

    Args:
        steps: the replacement that it belongs to.
        index: of the disk.
        disk: its record, whose volumes have the final names.
        made: the new volumes with their first names.
        state: of the disk on the node.
    """

    def __init__(
        self,
        steps: VolumeReplacement,
        index: int,
        disk: objects.Disk,
        made: objects.Disk,
        state: mirror_states.Status | str,
    ) -> None:
        self._steps, self._target = steps, steps.work.target
        self._index, self._disk, self._made, self._state = index, disk, made, state
        self._label = node_disks.label(index)
        self._old_renamed = _replaced(disk, steps.work.suffix)

    def run(self) -> None:
        """Exchange them; after a failure the old ones are in use again.

        Raises:
            OpExecError: it failed.
        """
        target, state = self._target, self._state
        is_active = isinstance(state, mirror_states.Status) and state.is_active
        is_faulty = isinstance(state, mirror_states.Status) and (
            state.ldisk == disks.LDS_FAULTY
        )
        self._steps.ctx.log.message(
            f"* exchanging the volumes of {self._label} on {self._steps.name(target)}"
        )
        # While a new volume has its first name, the exchange is not complete.
        is_first = not self._steps.is_resumed or any(self._exist(self._made.children))
        try:
            if is_first:
                if is_active:
                    self._detach()
                self._rename()
            # After an exchange that was complete, only a disk without volumes gets
            # them.
            if is_active and (is_first or is_faulty):
                children = [self._steps.wire(child) for child in self._disk.children]
                self._steps.ctx.rpc.call_node(
                    target,
                    calls.blockdev_addchildren(self._steps.wire(self._disk), children),
                ).unwrap(f"{self._steps.what}: cannot attach the new {self._label}")
            elif not is_active:
                self._steps.assemble(target, self._disk, self._index).unwrap(
                    f"{self._steps.what}: cannot activate the new {self._label}"
                )
        except errors.GenericError:
            self._undo()
            raise

    def _exist(self, volumes: Sequence[objects.Disk]) -> list[bool]:
        return [self._steps.has(self._target, volume) for volume in volumes]

    def _detach(self) -> None:
        children = [self._steps.wire(child) for child in self._disk.children]
        self._steps.ctx.rpc.call_node(
            self._target,
            calls.blockdev_removechildren(self._steps.wire(self._disk), children),
        ).unwrap(f"{self._steps.what}: cannot detach the old volumes of {self._label}")

    def _rename(self) -> None:
        """Rename the old volumes as far as they exist, then the new ones."""
        what = f"{self._steps.what}: cannot rename the %s volumes of {self._label}"
        away = zip(self._disk.children, self._old_renamed, strict=True)
        # After an interruption, some new volumes may have their final names already.
        left = (
            self._exist(self._made.children)
            if self._steps.is_resumed
            else [True] * len(self._made.children)
        )
        old = [
            (volume, replaced)
            for (volume, replaced), is_left in zip(away, left, strict=True)
            if is_left and self._steps.has(self._target, volume)
        ]
        if old:
            self._rename_all(old).unwrap(what % "old")
        new = [
            (volume, final)
            for volume, final, is_left in zip(
                self._made.children, self._disk.children, left, strict=True
            )
            if is_left
        ]
        # The metadata precedes the data, see above.
        self._rename_all(new[::-1]).unwrap(what % "new")

    def _rename_all(
        self, pairs: Sequence[tuple[objects.Disk, objects.Disk]]
    ) -> Answer[None]:
        rows = [(self._steps.wire(old), new.logical_id) for old, new in pairs]
        return self._steps.ctx.rpc.call_node(self._target, calls.blockdev_rename(rows))

    def _undo(self) -> None:
        """Give the old volumes their names back, and attach them."""
        replaced, node = self._old_renamed, self._steps.name(self._target)
        try:
            is_old = self._exist(replaced)
            if any(is_old) and self._has_volumes():
                # LVM would rename even these, and DRBD would go on with them.
                self._steps.ctx.log.warn(
                    f"{self._label} uses its new volumes on node {node} already",
                    "the old ones are removed when the disk is complete",
                )
                return
            if any(is_old):
                is_new = self._exist(self._made.children)
                out = [
                    (final, volume)
                    for final, volume, is_there in zip(
                        self._disk.children, self._made.children, is_new, strict=True
                    )
                    if not is_there and self._steps.has(self._target, final)
                ]
                if out:
                    self._rename_all(out).unwrap("new volumes")
                back = [
                    (volume, final)
                    for volume, final, is_there in zip(
                        replaced, self._disk.children, is_old, strict=True
                    )
                    if is_there
                ]
                self._rename_all(back[::-1]).unwrap("old volumes")
            self._steps.assemble(self._target, self._disk, self._index).unwrap(
                "old disk"
            )
        except errors.GenericError as err:
            self._steps.ctx.log.warn(
                f"{self._label} may have no volumes in use on node {node} now: {err}",
                "repeat the command when the node answers",
            )

    def _has_volumes(self) -> bool:
        """Return whether the target uses volumes for a disk.

        Raises:
            OpExecError: it does not say so.
        """
        position = [item for _index, item in self._steps.chosen].index(self._disk)
        state = self._steps.states(self._target)[position]
        if isinstance(state, str):
            raise errors.OpExecError(state)
        return state.is_active and state.ldisk != disks.LDS_FAULTY


def _replaced(disk: objects.Disk, suffix: str) -> tuple[objects.Disk, ...]:
    """Return the old volumes of a disk under their later names."""
    return tuple(
        child.replace(
            logical_id=(child.logical_id[0], f"{child.logical_id[1]}{suffix}")
        )
        for child in disk.children
    )


def _problem(
    own: mirror_states.Status | str, other: mirror_states.Status | str, instance: str
) -> str | None:
    """Return why the data of the other node does not suffice, None if it does."""
    if isinstance(other, str):
        return f"has an unknown state: {other}"
    if not other.is_active:
        return f"is not active; run gnt-instance activate-disks {instance}"
    if not other.is_complete:
        return "is not up to date; the only complete copy would be lost"
    is_both = isinstance(own, mirror_states.Status) and own.is_complete
    if is_both and other.is_degraded:
        return (
            "may be old, since the nodes are not connected; run gnt-instance"
            f" activate-disks {instance}"
        )
    return None


__all__ = ["VolumeReplacement", "new_records"]
