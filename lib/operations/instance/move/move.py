"""OP_INSTANCE_MOVE: copy an instance that is on one node to another node."""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols import export
from ganeti.master import locking
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup, params
from ganeti.operations import allocation, base
from ganeti.operations.instance import capacity, checks, common
from ganeti.operations.instance.devices import firmware, nic_specs
from ganeti.operations.instance.disks import node_disks, volumes
from ganeti.operations.instance.move import disk_transfer, move_target
from ganeti.protocols.rpc import calls, encode

#: Templates whose disks are only on the primary node and can be created on any.
COPYABLE: Final = ("plain", "file")


class Interrupted(msgspec.Struct, frozen=True):
    """The state of a move whose master daemon ended; uuids of the nodes."""

    source: str
    target: str
    progress: disk_transfer.Progress


class InstanceMove(common.InstanceUnit[opcodes.InstanceMove]):
    """Unit that copies the disks of an instance to a node that becomes its primary."""

    HOOKS_PATH: ClassVar[str | None] = "instance-move"
    LOCK_NODES = True
    NEEDS_EXISTING = ""
    #: Where the move was interrupted.
    left: Interrupted | None = None

    def expand_names(self) -> None:
        """Look instance and target up."""
        super().expand_names()
        self.target = lookup.expand_node(self.ctx.snapshot, self.op.target_node)
        self.source = self.instance.primary_node

        if self.ctx.resumption is not None:
            self.left = msgspec.convert(self.ctx.resumption, Interrupted)
            self.source, self.target = self.left.source, self.left.target

    def nodes_to_lock(self) -> Sequence[str]:
        """Return source and target."""
        if self.left is not None:
            return sorted({self.source, self.target})
        return sorted({self.instance.primary_node, self.target})

    def declare_locks(self, level: locking.Level) -> None:
        """Declare the locks of the nodes; a copy shares those of the nodes."""
        super().declare_locks(level)
        if self.left is not None and level is locking.Level.NODE:
            self.locks.shared.add(level)

    def check_prereq(self) -> None:
        """Check template, target, policy, memory and tool."""
        instance, snapshot = self.instance, self.ctx.snapshot
        # Determined again: it can change until the instance is locked.
        self.source = instance.primary_node
        template = snapshot.disk_template(instance)
        if instance.forthcoming:
            self._check_forthcoming(template)
            return
        if template not in COPYABLE:
            raise self.prereq(
                f"instance {instance.name}: disk template {template} cannot be copied"
                f" to another node, only {' and '.join(COPYABLE)}",
                ecodes.ECODE_STATE,
            )
        if self.target == self.source:
            raise self.prereq(
                f"instance {instance.name}: is already on node {self.primary.name}",
                ecodes.ECODE_STATE,
            )
        disk_transfer.check_tool(snapshot.cluster, self.op.compress)
        self.require_online_primary()
        node = checks.node_takes_instances(snapshot, self.target, instance.name)
        if not self.op.ignore_ipolicy:
            self._check_policy(node)
        if node.group != self.primary.group:
            nic_specs.check_connections(snapshot, instance, node.group)
        nic_specs.check_bridges(self.ctx, instance.nics, self.target, instance.name)
        if template == "file":
            size_mib = sum(disk.size for disk in snapshot.instance_disks(instance))
            capacity.require_space(
                self.ctx, self.target, instance.name, template, size_mib
            )
        volumes.check_exclusive(snapshot, self.target, template, instance.name)
        moved = snapshot.instance_disks(instance)
        volumes.require_space(self.ctx, [self.target], moved, instance.name)
        ends = [self.source, self.target]
        disk_transfer.require_tool(self.ctx, self.op.compress, ends, instance.name)
        if instance.admin_state == "up":
            checks.require_memory(
                self.ctx,
                self.target,
                instance.name,
                params.fill_beparams(snapshot, instance)["maxmem"],
                hypervisor=instance.hypervisor,
                hv=params.fill_hvparams(snapshot, instance),
            )

    def _check_forthcoming(self, template: str) -> None:
        """Check the target of a forthcoming instance, which has nothing to copy."""
        instance, snapshot = self.instance, self.ctx.snapshot
        if template == "drbd":
            raise self.prereq(
                f"instance {instance.name}: disk template {template} cannot be moved,"
                " use failover",
                ecodes.ECODE_STATE,
            )
        if self.target == self.source:
            raise self.prereq(
                f"instance {instance.name}: is already on node {self.primary.name}",
                ecodes.ECODE_STATE,
            )
        node = checks.node_takes_instances(snapshot, self.target, instance.name)
        if not self.op.ignore_ipolicy:
            self._check_policy(node)
        nic_specs.check_bridges(self.ctx, instance.nics, self.target, instance.name)
        move_target.check_reserved_target(self.ctx, instance, self.target)

    def _check_policy(self, node: objects.Node) -> None:
        instance, snapshot = self.instance, self.ctx.snapshot
        problems = checks.problems_of(snapshot, instance, node.group)
        checks.require_policy(problems, snapshot, node.group, instance.name)

    def hooks_env(self) -> dict[str, Any]:
        """Return the variables of the instance and of the move."""
        return super().hooks_env() | {
            "TARGET_NODE": self.ctx.snapshot.nodes[self.target].name,
            "SHUTDOWN_TIMEOUT": self.op.shutdown_timeout,
        }

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return master, source and target, for both phases."""
        nodes = self.with_master([self.source, self.target])
        return nodes, nodes

    def execute(self) -> None:
        """Stop, copy, switch, remove the old disks, start."""
        ctx, instance = self.ctx, self.instance
        if instance.forthcoming:
            move_target.move_reserved(ctx, instance, self.target)
            return
        # First, because a guest that does not stop leaves nothing else to undo.
        self._stop()
        try:
            self._deactivate()
            name = ctx.node_name(self.target)
            ctx.log.message(f"* creating disks on target node {name}")
            # It names the target, as disks are made on the primary node of their owner.
            moved = instance.replace(primary_node=self.target)
            recorded = ctx.snapshot.instance_disks(instance)
            new = [_at(disk, self.target) for disk in recorded]
            node_disks.create_all(ctx, moved, new)
        except BaseException:
            self._start_again()
            raise
        # The space is taken; other jobs may read the nodes during the copy.
        allocation.share_nodes(ctx)
        self._copy_and_switch(disk_transfer.Progress())

    def resume(self) -> None:
        """Continue the copy; the programs at the nodes have gone on."""
        left = self.left
        if left is None:
            raise errors.ProgrammerError("a move without a state was resumed")
        self._copy_and_switch(left.progress)

    def _announce_again(self) -> None:
        if self.left is not None:
            self.ctx.log.message(
                "* the master daemon was restarted; the move to"
                f" {self.ctx.node_name(self.target)} continues"
            )

    def _save(self, progress: disk_transfer.Progress) -> None:
        state = Interrupted(self.source, self.target, progress)
        self.ctx.save_resumption(msgspec.to_builtins(state))

    def _copy_and_switch(self, progress: disk_transfer.Progress) -> None:
        """Copy the disks, switch, remove the old disks, start.

        Each step can be repeated: the records may name the target already.
        """
        ctx = self.ctx
        instance = self.instance.replace(primary_node=self.source)
        moved = self.instance.replace(primary_node=self.target)
        recorded = ctx.snapshot.instance_disks(instance)
        copied = [_at(disk, self.source) for disk in recorded]
        new = [_at(disk, self.target) for disk in recorded]
        if progress.disk < len(new):
            try:
                self._copy(instance, moved, copied, new, progress)
            except BaseException:
                self._undo(moved, new)
                raise
        elif self.left is not None:
            # All data is at the target: from here on, nothing is undone.
            self._announce_again()
            disk_transfer.clean_up(ctx, progress)
            self._shut(moved, new)
            if self.instance.primary_node == self.source:
                self._shut(instance, copied)
        # One commit, so that the disks and the instance never name different nodes.
        with ctx.config.edit(ctx.owner) as edit:
            for disk in new:
                if disk != edit.snapshot.disks[disk.uuid]:
                    edit.update(disk)
            edit.set_primary_node(self.uuid, self.target)
        ctx.log.message(f"* removing the old disks on {ctx.node_name(self.source)}")
        # Only after the commit: until then, these are the recorded disks.
        if not node_disks.remove_all(ctx, instance, copied):
            ctx.log.warn("some old disks could not be removed, remove them by hand")
        if self.instance.admin_state == "up":
            ctx.log.message(f"* starting the instance on {self.primary.name}")
            self._start()

    def _undo(self, moved: objects.Instance, new: Sequence[objects.Disk]) -> None:
        """Remove everything at the target, and restart the instance at the source."""
        # Without the new disks, the next master daemon must not go on.
        self.ctx.save_resumption(None)
        try:
            # Raises if a client asks to kill the job now.
            self.ctx.log.message("* removing the new disks")
        finally:
            try:
                self._shut(moved, new)
                node_disks.remove_all(self.ctx, moved, new)
            finally:
                self._start_again()

    def _start_again(self) -> None:
        """Restart the instance at the source; a failure is a warning."""
        if self.instance.admin_state != "up":
            return
        try:
            # Raises if a client asks to kill the job now.
            self.ctx.log.message(
                f"* starting the instance again on {self.primary.name}"
            )
        finally:
            try:
                self._start()
            except errors.GenericError as err:
                self.ctx.log.warn(str(err))

    def _stop(self) -> None:
        ctx, instance = self.ctx, self.instance
        ctx.log.message(f"* shutting down instance on source node {self.primary.name}")
        result = common.stop_guest(
            *(ctx, instance, self.op.shutdown_timeout, self.op.reason), node=self.source
        )
        what = f"instance {instance.name}: could not be stopped"
        if result.failed and not self.op.ignore_consistency:
            raise errors.OpExecError(result.describe(what))
        ctx.warn_failed(result, what)

    def _deactivate(self) -> None:
        """Save the firmware's state, and shut the disks at the source down."""
        ctx, instance = self.ctx, self.instance
        firmware.save(ctx, instance.uuid, self.source)
        if not node_disks.shutdown(ctx, instance):
            raise errors.OpExecError(
                f"instance {instance.name}: its disks could not be shut down on node"
                f" {self.primary.name}"
            )

    def _copy(
        self,
        instance: objects.Instance,
        moved: objects.Instance,
        old: Sequence[objects.Disk],
        new: Sequence[objects.Disk],
        progress: disk_transfer.Progress,
    ) -> None:
        try:
            self._announce_again()
            self._assemble(instance, old)
            self._assemble(moved, new)
        except BaseException:
            # The programs of an interrupted run write to the new disks.
            disk_transfer.clean_up(self.ctx, progress)
            self._shut(instance, old)
            raise
        try:
            plan = disk_transfer.TransferPlan(
                instance.name,
                _side(self.ctx, instance, old),
                _side(self.ctx, moved, new),
                [disk.size for disk in new],
                self.op.compress,
            )
            disk_transfer.copy_all(self.ctx, plan, left=progress, save=self._save)
            self._shut(moved, new)
        finally:
            self._shut(instance, old)

    def _assemble(
        self, instance: objects.Instance, chosen: Sequence[objects.Disk]
    ) -> None:
        wire = encode.instance(self.ctx.snapshot, instance)
        for index, disk in enumerate(chosen):
            self.ctx.rpc.call_node(
                instance.primary_node,
                calls.blockdev_assemble(
                    encode.disk(self.ctx.snapshot, disk, instance), wire, True, index
                ),
            ).unwrap(f"instance {instance.name}: cannot assemble disk/{index}")

    def _shut(self, instance: objects.Instance, chosen: Sequence[objects.Disk]) -> None:
        node_disks.shutdown(
            self.ctx, instance, disks=chosen, ignore_primary=True, mark=False
        )

    def _start(self) -> None:
        """Start the instance on its recorded node."""
        node_disks.assemble(self.ctx, self.instance)
        result = common.start_guest(self.ctx, self.instance, self.op.reason)
        if result.failed:
            node_disks.shutdown(self.ctx, self.instance)
        result.unwrap(f"instance {self.instance.name}: could not be started")


def _at(disk: objects.Disk, node: str) -> objects.Disk:
    """Return the record of a disk when it is on a node."""
    return disk.replace(nodes=(node,)) if disk.nodes else disk


def _side(
    ctx: base.Context, instance: objects.Instance, chosen: Sequence[objects.Disk]
) -> disk_transfer.Side:
    snapshot = ctx.snapshot
    return disk_transfer.Side(
        instance.primary_node,
        encode.instance(snapshot, instance),
        [
            (export.IEIO_RAW_DISK, [encode.disk(snapshot, disk, instance)])
            for disk in chosen
        ],
    )
