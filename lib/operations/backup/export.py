"""OP_BACKUP_EXPORT: copy the disks of an instance into an export on a node."""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.constants import disks, ecodes
from ganeti.base.constants.protocols import export
from ganeti.master import locking
from ganeti.model import objects, opcodes
from ganeti.model.objects import export_info, lookup
from ganeti.operations.backup import export_source, stored_exports
from ganeti.operations.backup.export_source import ExportSource, Interrupted
from ganeti.operations.instance import common
from ganeti.operations.instance.create import helper_machine
from ganeti.operations.instance.move import disk_transfer
from ganeti.operations.instance.run import remove
from ganeti.protocols.rpc import calls, encode


class BackupExport(common.InstanceUnit[opcodes.BackupExport]):
    """Unit that exports an instance to a node of the cluster.

    Disks on logical volumes are copied from snapshots, so the guest runs again, or
    keeps running, during the copy. Others have no snapshots; the guest is stopped until
    they are copied.
    """

    HOOKS_PATH: ClassVar[str | None] = "instance-export"
    LOCK_NODES: ClassVar[bool] = True
    NEEDS_EXISTING: ClassVar[str] = "there is nothing to export"
    STATE: ClassVar[type[Interrupted]] = Interrupted
    source: ExportSource
    #: Whether the copy has begun or was made.
    is_copied: bool = False
    _kept: tuple[str, dict[str, Any]] | None = None

    def check_arguments(self) -> None:
        """Check the parameters of the mode."""
        op = self.op
        export_source.check_zeroing_arguments(op)
        if op.remove_instance and not op.shutdown:
            raise self.prereq(
                f"instance {op.instance_name}: an instance that is removed after its"
                " export must be stopped before it; leave out --noshutdown"
            )
        self.check_mode()

    def check_mode(self) -> None:
        """Check the parameters of a local export."""
        if not isinstance(self.op.target_node, str):
            raise self.prereq(
                f"instance {self.op.instance_name}: wanted the name of a target node,"
                f" found {type(self.op.target_node).__name__}"
            )

    def expand_names(self) -> None:
        """Look instance and target up."""
        super().expand_names()
        if self.ctx.resumption is not None:
            state = msgspec.convert(self.ctx.resumption, self.STATE)
            self.source = ExportSource(self.ctx, self.instance, self.op, state)
            self.target = state.target
            return
        self.find_target()

    def find_target(self) -> None:
        """Look the target node up."""
        self.target = lookup.expand_node(self.ctx.snapshot, str(self.op.target_node))

    def nodes_to_lock(self) -> Sequence[str]:
        """Return the nodes of the instance and the target."""
        nodes = super().nodes_to_lock()
        return sorted({*nodes, *([self.target] if self.target else ())})

    def declare_locks(self, level: locking.Level) -> None:
        """Declare the locks of the nodes; a copy shares those of the nodes."""
        super().declare_locks(level)
        if self.ctx.resumption is None:
            return
        if level is locking.Level.NODE:
            self.locks.shared.add(level)
        elif level is locking.Level.NODE_RES and self.source.leaves_resources():
            self.locks.names[level] = []

    # Checks
    def check_prereq(self) -> None:
        """Check target, tool, state and the downtime."""
        instance, snapshot = self.instance, self.ctx.snapshot
        self.require_online_primary()
        disk_transfer.check_tool(snapshot.cluster, self.op.compress)
        self.check_target()
        stored_exports.check_nodes(self.ctx, instance, self.target)
        ends = [self.primary.uuid, self.target]
        disk_transfer.require_tool(self.ctx, self.op.compress, ends, instance.name)
        template = snapshot.disk_template(instance)
        has_snapshots = template in disks.DTS_SNAPSHOT_CAPABLE
        was_running = bool(self.runtime_info())
        if not was_running:
            self.require_nowhere_else("be exported")
        made = snapshot.instance_disks(instance)
        if not has_snapshots and was_running and made:
            self._check_downtime(template)
        if self.op.zero_free_space:
            export_source.check_zeroing(
                self.ctx, instance, is_running=was_running, stops=self.op.shutdown
            )
        state = self.begin(
            target=self.target,
            was_running=was_running,
            was_active=instance.disks_active,
            snapshots=export_source.snapshot_names(made) if has_snapshots else (),
        )
        self.source = ExportSource(self.ctx, instance, self.op, state)

    def begin(self, **values: Any) -> Interrupted:
        """Return the state before the first step."""
        return Interrupted(**values)

    def check_target(self) -> None:
        """Refuse a target node that cannot store the export."""
        node = self.ctx.snapshot.nodes[self.target]
        if node.offline or node.drained:
            state = "offline" if node.offline else "drained"
            raise self.prereq(
                f"instance {self.instance.name}: target node {node.name} is marked"
                f" {state}",
                ecodes.ECODE_STATE,
            )
        stored_exports.check_space(self.ctx, self.instance, node)

    def _check_downtime(self, template: str) -> None:
        """Refuse to copy disks that a guest writes to, and long downtimes unasked."""
        name = self.instance.name
        if not self.op.shutdown:
            raise self.prereq(
                f"instance {name}: disks of template {template} have no snapshots, so"
                " it must be stopped for the export; leave out --noshutdown",
                ecodes.ECODE_STATE,
            )
        if not (self.op.long_sleep or self.op.remove_instance):
            raise self.prereq(
                f"instance {name}: disks of template {template} have no snapshots, so"
                " it would be stopped until they are copied; allow that with"
                " --long-sleep, or stop it before",
                ecodes.ECODE_STATE,
            )

    def hooks_env(self) -> dict[str, Any]:
        """Return the variables of the instance and of the export."""
        return self._seen()[1]

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return master, primary and target, for both phases."""
        others = [self._seen()[0], *([self.target] if self.target else ())]
        nodes = self.with_master(others)
        return nodes, nodes

    def _seen(self) -> tuple[str, dict[str, Any]]:
        """Return primary node and hook variables; kept, as the export may remove both.

        They are first asked for before anything is changed.
        """
        if self._kept is None:
            env = super().hooks_env() | {
                "EXPORT_MODE": self.op.mode,
                "EXPORT_NODE": self.op.target_node,
                "EXPORT_DO_SHUTDOWN": self.op.shutdown,
                "SHUTDOWN_TIMEOUT": self.op.shutdown_timeout,
                "REMOVE_INSTANCE": self.op.remove_instance,
            }
            self._kept = (self.instance.primary_node, env)
        return self._kept

    # Execution
    def execute(self) -> tuple[bool, list[bool]]:
        """Prepare the disks, copy them, complete the export."""
        self.source.save()
        return self._go_on()

    def resume(self) -> tuple[bool, list[bool]]:
        """Continue; the programs at the nodes have gone on."""
        try:
            # Raises if a client has asked to kill the job while it waited for locks.
            self.ctx.log.message(
                "* the master daemon was restarted; the export of"
                f" {self.instance.name} continues"
            )
        except BaseException as err:
            failure = self.source.state.failure or str(err) or type(err).__name__
            self.source.save(failure=failure)
            self.end_programs()
            self._undo()
            raise
        return self._go_on()

    def _go_on(self) -> tuple[bool, list[bool]]:
        """Do all steps from the recorded state on; each of them can be repeated."""
        count = len(self.source.disks())
        self._seen()
        if self.source.state.failure:
            self._undo()
            raise errors.OpExecError(self.source.state.failure)
        try:
            if not self.source.state.is_prepared:
                self.source.prepare()
            self.is_copied = True
            self.copy()
            failed = self._end_copy()
            self.complete()
        except BaseException as err:
            self.source.save(failure=str(err) or type(err).__name__)
            self._undo()
            raise
        if failed is not None:
            raise failed
        if self.op.remove_instance:
            self.ctx.log.message(f"* removing instance {self.instance.name}")
            remove.remove_stopped(
                self.ctx,
                self.instance,
                ignore_failures=self.op.ignore_remove_failures,
            )
        return True, [True] * count

    def copy(self) -> None:
        """Copy all disks to the target node."""
        recorded = self.source.disks()
        if self.source.state.progress.disk >= len(recorded):
            disk_transfer.clean_up(self.ctx, self.source.state.progress)
            return
        disk_transfer.copy_all(
            self.ctx,
            self._plan(recorded),
            left=self.source.state.progress,
            save=lambda progress: self.source.save(progress=progress),
        )

    def _plan(self, recorded: Sequence[objects.Disk]) -> disk_transfer.TransferPlan:
        snapshot, instance = self.ctx.snapshot, self.instance
        private = encode.private_instance(snapshot, instance)
        unfinished = f"{_buildconf.EXPORT_DIR}/{instance.name}.new"
        read = stored_exports.disk_ends(snapshot, instance, self.source.sources())
        written: list[tuple[str, list[Any]]] = [
            (export.IEIO_FILE, [f"{unfinished}/{export_info.dump_name(index)}"])
            for index in range(len(read))
        ]
        plain = encode.instance(snapshot, instance)
        return disk_transfer.TransferPlan(
            instance.name,
            disk_transfer.Side(instance.primary_node, private, read),
            disk_transfer.Side(self.target, plain, written),
            [disk.size for disk in recorded],
            self.op.compress,
        )

    def _end_copy(self) -> errors.GenericError | None:
        """Remove the snapshots; start a guest that was stopped for the copy.

        Returns the failure to start it: the export is completed before it is raised.
        """
        if self.source.state.snapshots:
            self.ctx.log.message("* removing the snapshots")
            self.source.remove_snapshots()
        if self.op.remove_instance:
            return None
        try:
            self.source.start_again()
            self.source.deactivate()
        except errors.GenericError as err:
            return err
        return None

    def complete(self) -> None:
        """Describe the export at its node, and drop older ones at others."""
        ctx, instance = self.ctx, self.instance
        name = ctx.node_name(self.target)
        ctx.log.message(f"* completing the export on node {name}")
        snapshot = ctx.snapshot
        wire = encode.private_instance(snapshot, instance)
        wire["primary_node"] = self.primary.name
        wires = [encode.disk(snapshot, disk, instance) for disk in self.source.disks()]
        ctx.rpc.call_node(self.target, calls.finalize_export(wire, wires)).unwrap(
            f"instance {instance.name}: cannot complete its export"
        )
        stored_exports.drop_others(ctx, instance.name, self.target)

    # Failures
    def _undo(self) -> None:
        """Remove what was made, and start the guest again if it ran.

        The state stays until all is done: if the master daemon ends in between, the
        next one goes on. Each step can be repeated.
        """
        self.source.remove_snapshots()
        self.drop_unfinished()
        try:
            if self.source.state.has_helper:
                helper_machine.end(self.ctx, self.instance)
            self.source.start_again()
            self.source.deactivate()
        except errors.GenericError as err:
            self.ctx.log.warn(str(err))
        self.ctx.save_resumption(None)

    def end_programs(self) -> None:
        """End the programs of an interrupted copy; failures are logged."""
        disk_transfer.clean_up(self.ctx, self.source.state.progress)

    def drop_unfinished(self) -> None:
        """Remove what the target node has of the export."""
        stored_exports.drop_unfinished(self.ctx, self.instance.name, self.target)
