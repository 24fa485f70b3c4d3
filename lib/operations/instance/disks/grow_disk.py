"""OP_INSTANCE_GROW_DISK: enlarge a disk."""

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import disks, ecodes
from ganeti.base.text import messages
from ganeti.base.text.units import exact_mib
from ganeti.master import locking
from ganeti.master.jqueue.effects import Canceled
from ganeti.model import objects, opcodes
from ganeti.model.objects import params
from ganeti.operations.instance import capacity, checks, common
from ganeti.operations.instance.disks import (
    mirror_records,
    mirror_states,
    node_disks,
    volumes,
)
from ganeti.protocols.rpc import Result, calls, encode

_MIB: Final = 1024 * 1024


class Interrupted(msgspec.Struct, frozen=True):
    """The state of a growth whose master daemon ended.

    Attributes:
        disk_uuid: the disk.
        target_mib: its size afterwards.
        offset_mib: the beginning of the part that is not wiped; None before a node
            has enlarged the disk, as long as it is not known.
        is_growing: whether the nodes may not have enlarged it yet.
    """

    disk_uuid: str
    target_mib: int
    offset_mib: int | None
    is_growing: bool = False


class InstanceGrowDisk(common.InstanceUnit[opcodes.InstanceGrowDisk]):
    """Unit that enlarges one disk on its nodes, then notifies a running guest."""

    HOOKS_PATH: ClassVar[str | None] = "disk-grow"
    LOCK_NODES: ClassVar[bool] = True
    NEEDS_EXISTING: ClassVar[str] = ""
    growth: "Growth"

    def check_prereq(self) -> None:
        """Check disk, amount, policy and nodes."""
        instance, snapshot, op = self.instance, self.ctx.snapshot, self.op
        if not instance.forthcoming:
            self.require_online_primary()
        if op.disk >= len(instance.disks):
            raise self.prereq(
                f"instance {instance.name}: has no disk {op.disk}, it has"
                f" {messages.places(len(instance.disks))}",
                ecodes.ECODE_NOENT,
            )
        self.disk: objects.Disk = snapshot.disks[instance.disks[op.disk]]
        if self.disk.dev_type not in disks.DTS_GROWABLE:
            raise self.prereq(
                f"instance {instance.name}: disk {op.disk}: template"
                f" {self.disk.dev_type} cannot grow"
            )
        self.target_mib = op.amount if op.absolute else self.disk.size + op.amount
        if self.target_mib < self.disk.size:
            raise self.prereq(
                f"instance {instance.name}: disk {op.disk} is"
                f" {exact_mib(self.disk.size)}, shrinking to"
                f" {exact_mib(self.target_mib)} is not supported",
                ecodes.ECODE_STATE,
            )
        self.growth = Growth(self, self.disk, self.target_mib)
        self.delta_mib = self.growth.delta_mib
        self._check_policy()
        self._check_space()
        if instance.forthcoming:
            return
        # A guest on another node would not see the new size.
        self.require_nowhere_else("have a disk grown", must_answer=False)
        what = f"instance {instance.name}: disk {op.disk} cannot grow"
        # All nodes try it before any node grows: volumes do not shrink again.
        for node in node_disks.nodes_of(self.disk, instance):
            self.growth.grow_volume(node, dryrun=True).require(what, ecodes.ECODE_NORES)
        if self.delta_mib and instance.disks_active:
            # A mirror that is being synchronised cannot grow, but its volumes can.
            self.growth.grow_device(dryrun=True, what=what)

    def _check_space(self) -> None:
        """Refuse a growth into space that reservations hold, its own included."""
        instance, is_reserved = self.instance, self.instance.forthcoming
        # `capacity.require_space` leaves out what the instance reserves, so all of it
        # counts.
        own_mib = sum(
            disk.size
            for disk in self.ctx.snapshot.instance_disks(instance)
            if is_reserved and disk.dev_type == self.disk.dev_type
        )
        if self.disk.dev_type in disks.DTS_LVM:
            self._check_volume(is_reserved=is_reserved)
        elif self.delta_mib:
            capacity.require_space(
                self.ctx,
                instance.primary_node,
                instance.name,
                self.disk.dev_type,
                own_mib + self.delta_mib,
            )

    def _check_volume(self, *, is_reserved: bool) -> None:
        """Refuse the growth of a volume into space that reservations hold.

        The node itself refuses what does not fit, unless the volume is reserved, too.
        """
        snapshot = self.ctx.snapshot
        data = next(mirror_records.parts(self.disk))
        group = str(data.logical_id[0])
        for node in node_disks.nodes_of(self.disk, self.instance):
            held = capacity.volumes(snapshot, node, group, besides={self.disk.uuid})
            if self.delta_mib and (held.mib or is_reserved):
                # A reserved volume does not exist yet, so all of it needs space.
                size_mib = self.target_mib if is_reserved else self.delta_mib
                # Its own reservation does not count, whoever holds the volume.
                future = data.replace(size=size_mib, uuid=self.disk.uuid)
                volumes.require_space(self.ctx, [node], [future], self.instance.name)

    def _check_policy(self) -> None:
        if self.op.ignore_ipolicy:
            return
        instance, snapshot = self.instance, self.ctx.snapshot
        sizes = [
            self.target_mib if disk.uuid == self.disk.uuid else disk.size
            for disk in snapshot.instance_disks(instance)
        ]
        problems = checks.problems_of(
            snapshot, instance, self.primary.group, disk_sizes=sizes
        )
        checks.require_policy(problems, snapshot, self.primary.group, instance.name)

    def declare_locks(self, level: locking.Level) -> None:
        """Declare the locks of the nodes; a wipe only shares those of the nodes."""
        super().declare_locks(level)
        if self.ctx.resumption is None or level is not locking.Level.NODE:
            return
        if not msgspec.convert(self.ctx.resumption, Interrupted).is_growing:
            self.locks.shared.add(level)

    def hooks_env(self) -> dict[str, Any]:
        """Return the variables of the instance and of the growth."""
        return super().hooks_env() | {
            "DISK": self.op.disk,
            "AMOUNT": self.op.amount,
            "ABSOLUTE": self.op.absolute,
        }

    def execute(self) -> None:
        """Grow the disk, record it, wipe the new part, notify the guest."""
        instance, op = self.instance, self.op
        if not self.delta_mib:
            size = exact_mib(self.target_mib)
            self.ctx.log.info(f"disk {op.disk} already has {size}")
            return
        if instance.forthcoming:
            with self.ctx.config.edit(self.ctx.owner) as edit:
                edit.update(mirror_records.with_size(self.disk, self.target_mib))
            return
        self.growth.run()

    def resume(self) -> None:
        """Continue the growth, or the wipe of the new part."""
        left = msgspec.convert(self.ctx.resumption, Interrupted)
        instance, snapshot = self.instance, self.ctx.snapshot
        if left.disk_uuid not in instance.disks:
            raise errors.OpExecError(
                f"instance {instance.name}: disk {self.op.disk} was removed while it"
                " was being enlarged"
            )
        disk = snapshot.disks[left.disk_uuid]
        self.growth = Growth(self, disk, left.target_mib)
        self.growth.resume(left)


class Growth(common.InstanceWork):
    """The growth of one disk, from its volumes to the notice for the guest."""

    def __init__(
        self, unit: InstanceGrowDisk, disk: objects.Disk, target_mib: int
    ) -> None:
        super().__init__(unit.ctx, unit.instance)
        self._unit, self._index = unit, unit.op.disk
        self.disk, self.target_mib = disk, target_mib
        self.delta_mib = target_mib - disk.size
        #: The state that was stored last.
        self._state: Interrupted | None = None

    def grow_volume(self, node: str, *, dryrun: bool) -> Result:
        """Have a node enlarge what is below the disk."""
        snapshot = self.ctx.snapshot
        return self.ctx.rpc.call_node(
            node,
            calls.blockdev_grow(
                encode.disk(snapshot, self.disk, self.instance),
                self.delta_mib,
                dryrun,
                True,
                params.has_exclusive_storage(snapshot, node),
            ),
        )

    def grow_device(self, *, dryrun: bool, what: str) -> None:
        """Have the primary node enlarge the device of a mirror.

        Raises:
            OpPrereqError: it cannot, says a trial.
            OpExecError: it cannot.
        """
        if not mirror_records.is_mirror(self.disk):
            return
        answer = self.ctx.rpc.call_node(
            self.instance.primary_node,
            calls.blockdev_grow(
                encode.disk(self.ctx.snapshot, self.disk, self.instance),
                self.delta_mib,
                dryrun,
                False,
                False,
            ),
        )
        if dryrun:
            answer.require(what, ecodes.ECODE_STATE)
        else:
            answer.unwrap(what)

    def run(self) -> None:
        """Grow the disk, record it, wipe the new part, notify the guest."""
        with self._wiped_to_the_end():
            self._grow()

    def resume(self, left: Interrupted) -> None:
        """Continue the growth, or the wipe of the new part."""
        self._state = left
        with self._wiped_to_the_end():
            self._announce(left)
            self._continue(left)

    def _grow(self) -> None:
        # Stored first: a larger disk that nobody wipes would show old data.
        self._save(None, is_growing=True)
        with self._active():
            offset_mib = self._first_unused()
            self._save(offset_mib, is_growing=True)
            self.ctx.log.message(
                f"Growing disk {self._index} of instance '{self.instance.name}' by"
                f" {self.delta_mib} MiB to {self.target_mib} MiB"
            )
            self._grow_volumes()
            self.grow_device(dryrun=False, what=self._failed)
            self._record_and_wipe(offset_mib)

    def _announce(self, left: Interrupted) -> None:
        goes_on = f"is wiped on from {left.offset_mib} MiB"
        if left.is_growing:
            goes_on = f"grows on to {left.target_mib} MiB"
        self.ctx.log.message(
            f"* the master daemon was restarted; disk {self._index} {goes_on}"
        )

    def _continue(self, left: Interrupted) -> None:
        """Do what a state leaves to be done."""
        self.disk = self.ctx.snapshot.disks[left.disk_uuid]
        self.delta_mib = max(0, left.target_mib - self.disk.size)
        with self._active():
            offset_mib = left.offset_mib
            if offset_mib is None:
                offset_mib = self._first_unused()
                self._save(offset_mib, is_growing=True)
            # 0 once the size is recorded, which follows the growth on all nodes.
            if left.is_growing and self.delta_mib:
                self._grow_volumes()
                if not self._has_grown():
                    self.grow_device(dryrun=False, what=self._failed)
            self._record_and_wipe(offset_mib)

    @contextlib.contextmanager
    def _wiped_to_the_end(self) -> Iterator[None]:
        """Have a client that kills the job wait for the wipe, and name what it left.

        A larger disk that is not wiped shows old data of others to its guest.
        """
        try:
            yield
        except (Canceled, errors.GenericError):
            left = self._unwiped()
            if left is not None and self._was_killed():
                self.ctx.log.warn(
                    f"the job was killed; the new part of disk {self._index} is wiped"
                    " before it ends"
                )
                # The first error is raised below in any case.
                with contextlib.suppress(Canceled, errors.GenericError):
                    self._continue(left)
            left = self._unwiped()
            if left is not None and not left.is_growing:
                self.ctx.log.warn(
                    f"disk {self._index} of instance {self.instance.name} may have"
                    f" data of others from {left.offset_mib} MiB on, since its new part"
                    " was not wiped to the end"
                )
            raise

    def _unwiped(self) -> Interrupted | None:
        """Return the state if nodes may have a new part that is not wiped."""
        left = self._state
        if left is None or left.offset_mib is None or not self._wipes:
            return None
        return left if left.is_growing or left.offset_mib < left.target_mib else None

    @property
    def _wipes(self) -> bool:
        return bool(self.ctx.snapshot.cluster.prealloc_wipe_disks)

    def _was_killed(self) -> bool:
        """Return whether a client had the job killed."""
        try:
            # It raises if a client asks to kill the job.
            self.ctx.pause(0.0)
        except Canceled:
            return True
        return False

    @property
    def _failed(self) -> str:
        return f"instance {self.instance.name}: disk {self._index} could not grow"

    @contextlib.contextmanager
    def _active(self) -> Iterator[None]:
        """Have the disk active; an inactive one is so again at the end."""
        ctx, instance = self.ctx, self.instance
        if instance.disks_active:
            yield
            return
        node_disks.assemble(ctx, instance, disks=[self.disk])
        try:
            # The activation may have begun a copy, during which no device grows.
            self._wait_for_sync()
            yield
        finally:
            node_disks.shutdown(ctx, instance, disks=[self.disk], mark=False)

    def _grow_volumes(self) -> None:
        """Have all nodes enlarge what is below the disk; a larger one stays."""
        for node in node_disks.nodes_of(self.disk, self.instance):
            self.grow_volume(node, dryrun=False).unwrap(self._failed)

    def _has_grown(self) -> bool:
        """Return whether the device of a mirror has its new size already.

        While the new part is being copied, it could not grow again.
        """
        is_mirror = mirror_records.is_mirror(self.disk)
        return not is_mirror or self._measured_bytes() >= self.target_mib * _MIB

    def _first_unused(self) -> int:
        """Return where the part begins that no guest can have used, in MiB.

        A disk may be larger than recorded: LVM rounds sizes up, and a growth may have
        failed after a node had enlarged it. A guest that was started then uses all.
        """
        recorded = self.disk.size
        if not self._wipes:
            return recorded
        actual = -(-self._measured_bytes() // _MIB)
        if actual > recorded:
            self.ctx.log.warn(
                f"disk {self._index} has {actual} MiB already, {recorded} MiB are"
                " recorded: the part in between is not wiped, since the guest may use"
                " it"
            )
        return min(max(recorded, actual), self.target_mib)

    def _measured_bytes(self) -> int:
        """Return the size that the active disk has for its guest.

        Raises:
            OpExecError: the primary node does not report it.
        """
        node = self.instance.primary_node
        wire = encode.disk(self.ctx.snapshot, self.disk, self.instance)
        answer = self.ctx.rpc.call_node(node, calls.blockdev_getdimensions([wire]))
        rows = answer.unwrap(self._failed)
        if not rows or not rows[0]:
            raise errors.OpExecError(
                f"{self._failed}: node {self.ctx.node_name(node)} does not"
                " report its size"
            )
        return int(rows[0][0])

    def _record_and_wipe(self, offset_mib: int) -> None:
        """Record the new size, wipe the new part from an offset, notify the guest."""
        instance, wipes = self.instance, self._wipes
        # The nodes have enlarged the disk, and nobody may see the new part before.
        if wipes:
            self._save(offset_mib)
        with self.ctx.config.edit(self.ctx.owner) as edit:
            recorded = edit.snapshot.disks[self.disk.uuid]
            edit.update(mirror_records.with_size(recorded, self.target_mib))
        self.disk = self.ctx.snapshot.disks[self.disk.uuid]
        if wipes:
            part = (self._index, self.disk, offset_mib)
            node_disks.wipe(
                self.ctx, instance, [part], save=lambda _disk, mib: self._save(mib)
            )
            # A guest that knows the new size may use all of it.
            self._save(self.target_mib)
        self._notify_guest()
        # A disk that is inactive afterwards would not be copied to the end.
        is_waited_for = self._unit.op.wait_for_sync or not instance.disks_active
        if is_waited_for and self._wait_for_sync():
            self.ctx.log.warn(
                f"disk {self._index} is degraded: the other node lacks data"
            )

    def _wait_for_sync(self) -> bool:
        """Wait until a mirror is complete; return whether it stays degraded."""
        if not mirror_records.is_mirror(self.disk):
            return False
        chosen = [(self._index, self.disk)]
        return bool(mirror_states.wait_for_sync(self.ctx, self.instance, disks=chosen))

    def _save(self, offset_mib: int | None, *, is_growing: bool = False) -> None:
        state = Interrupted(self.disk.uuid, self.target_mib, offset_mib, is_growing)
        self.ctx.save_resumption(msgspec.to_builtins(state))
        self._state = state

    def _notify_guest(self) -> None:
        if not self.instance.disks_active or not self._unit.runtime_info():
            return
        wire = encode.disk(self.ctx.snapshot, self.disk, self.instance)
        result = self.ctx.rpc.call_node(
            self.instance.primary_node,
            calls.resize_disk(self._unit.encode(), wire, self.target_mib * _MIB),
        )
        self.ctx.warn_failed(
            result,
            "the running guest uses the old size until it is restarted",
        )
