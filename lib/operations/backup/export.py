"""OP_BACKUP_EXPORT: copy the disks of an instance into an export on a node."""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import msgspec

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.constants import disks as disk_constants
from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols import export as constants
from ganeti.base.constants.protocols.os import ES_NO_SNAPSHOTS
from ganeti.base.text.units import exact_mib
from ganeti.master import locking
from ganeti.model import objects, opcodes
from ganeti.model.objects import export_info, lookup
from ganeti.operations import allocation
from ganeti.operations.backup import snapshots, zeroing
from ganeti.operations.instance import capacity, common
from ganeti.operations.instance.create import helper_machine, stored_exports
from ganeti.operations.instance.disks import disks_on_nodes as disks
from ganeti.operations.instance.move import disk_transfer
from ganeti.operations.instance.run import guest_agent, removal
from ganeti.protocols.rpc import encode

#: Administrative states in which a guest may run.
_MAY_RUN: Final = ("up",)


class Interrupted(msgspec.Struct, frozen=True):
    """The state of an export whose master daemon ended.

    Attributes:
        target: uuid of the node that stores the export.
        was_running: whether the guest ran when the export began.
        was_active: whether the disks were assembled then.
        snapshots: per disk the logical id of its snapshot; empty without snapshots.
        taken: indices of the disks whose snapshots may exist.
        is_prepared: whether everything that is copied is ready.
        progress: of the copy.
        has_helper: whether a helper machine, or its boot disk, may exist.
        is_zeroed: whether it has done its work.
        failure: why the export failed and is being undone; empty if it goes on.
    """

    target: str
    was_running: bool
    was_active: bool
    snapshots: tuple[tuple[str, str], ...] = ()
    taken: tuple[int, ...] = ()
    is_prepared: bool = False
    progress: disk_transfer.Progress = disk_transfer.Progress()
    has_helper: bool = False
    is_zeroed: bool = False
    failure: str = ""


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
    #: Where the export was interrupted.
    state: Interrupted
    #: Whether the copy has begun or was made.
    is_copied: bool = False
    _kept: tuple[str, dict[str, Any]] | None = None

    def check_arguments(self) -> None:
        """Check the parameters of the mode."""
        op = self.op
        zeroing.check_arguments(op)
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
            self.state = msgspec.convert(self.ctx.resumption, self.STATE)
            self.target = self.state.target
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
        elif level is locking.Level.NODE_RES and self._leaves_resources():
            self.locks.names[level] = []

    # Checks
    def check_prereq(self) -> None:
        """Check target, tool, state and the downtime."""
        instance, snapshot = self.instance, self.ctx.snapshot
        self.require_online_primary()
        disk_transfer.check_tool(snapshot.cluster, self.op.compress)
        self.check_target()
        self._check_nodes()
        ends = [self.primary.uuid, self.target]
        disk_transfer.require_tool(self.ctx, self.op.compress, ends, instance.name)
        template = snapshot.disk_template(instance)
        has_snapshots = template in disk_constants.DTS_SNAPSHOT_CAPABLE
        was_running = bool(self.runtime_info())
        if not was_running:
            self.require_nowhere_else("be exported")
        if not has_snapshots and was_running and self.disks_of():
            self._check_downtime(template)
        if self.op.zero_free_space:
            zeroing.check(
                self.ctx, instance, is_running=was_running, stops=self.op.shutdown
            )
        self.state = self.begin(
            target=self.target,
            was_running=was_running,
            was_active=instance.disks_active,
            snapshots=snapshots.names(self.disks_of()) if has_snapshots else (),
        )

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
        self._check_space(node)

    def _check_space(self, node: objects.Node) -> None:
        """Refuse a node without space for the disks; an OS may write less than that.

        An older export stays until the new one is complete.
        """
        wanted = sum(disk.size for disk in self.disks_of())
        free = capacity.free_file_space(self.ctx, node.uuid, _buildconf.EXPORT_DIR)
        if free is None or free >= wanted:
            return
        text = (
            f"instance {self.instance.name}: its disks have"
            f" {exact_mib(wanted)}, but"
            f" {_buildconf.EXPORT_DIR} on node {node.name} has"
            f" {exact_mib(free)} free"
        )
        if not self.instance.os:
            raise self.prereq(text, ecodes.ECODE_NORES)
        self.ctx.log.warn(text, hint="the export fails unless its OS writes less")

    def _check_nodes(self) -> None:
        """Refuse nodes of a release without exports, and a name that is taken.

        A primary node of such a release would read the disk in place of its snapshot.
        """
        name = self.instance.name
        for uuid in filter(None, dict.fromkeys((self.primary.uuid, self.target))):
            names = self.ctx.rpc.call_one("export_list", uuid).require(
                f"instance {name}: cannot list the exports of a node",
                ecodes.ECODE_ENVIRON,
            )
            if uuid == self.target and f"{name}.new" in names:
                raise self.prereq(
                    f"instance {name}: wanted no export {name}.new on node"
                    f" {common.node_name(self.ctx, uuid)}, found that of another"
                    " instance; move it elsewhere",
                    ecodes.ECODE_EXISTS,
                )

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

    def disks_of(self) -> tuple[objects.Disk, ...]:
        """Return the recorded disks."""
        return tuple(self.ctx.snapshot.instance_disks(self.instance))

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
        self.save()
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
            self.save(failure=self.state.failure or str(err) or type(err).__name__)
            self.end_programs()
            self._undo()
            raise
        return self._go_on()

    def save(self, **changes: Any) -> None:
        """Change the state and make it durable."""
        self.state = msgspec.structs.replace(self.state, **changes)
        self.ctx.save_resumption(msgspec.to_builtins(self.state))

    def _go_on(self) -> tuple[bool, list[bool]]:
        """Do all steps from the recorded state on; each of them can be repeated."""
        count = len(self.disks_of())
        self._seen()
        if self.state.failure:
            self._undo()
            raise errors.OpExecError(self.state.failure)
        try:
            if not self.state.is_prepared:
                self._prepare()
            self.is_copied = True
            self.copy()
            failed = self._end_copy()
            self.complete()
        except BaseException as err:
            self.save(failure=str(err) or type(err).__name__)
            self._undo()
            raise
        if failed is not None:
            raise failed
        if self.op.remove_instance:
            self._remove_instance()
        return True, [True] * count

    def _prepare(self) -> None:
        """Stop the guest, make snapshots, start the guest again.

        A guest that runs although it is marked down is stopped, too.
        """
        instance = self.instance
        self._end_helper()
        zeroes = self.op.zero_free_space and not self.state.is_zeroed
        if zeroes:
            # Before the guest is stopped: an image can be missing, or take its time.
            self.save(has_helper=True)
            zeroing.add_image(self.ctx, instance)
        may_run = self.state.was_running or instance.admin_state in _MAY_RUN
        if self.op.shutdown and may_run:
            self._stop()
        if not self.state.was_active:
            disks.assemble(self.ctx, instance)
        if zeroes:
            zeroing.run(self.ctx, instance, self.op)
            self.save(is_zeroed=True)
            self._end_helper()
        if self.state.snapshots:
            self.ctx.log.message("* taking snapshots of the disks")
            self._take_snapshots()
            # Without them, it stays stopped until its disks are copied.
            if self.state.snapshots and not self.op.remove_instance:
                self._start_again()
        self.save(is_prepared=True)
        # Exports of a node wait for each other: each needs space for its snapshots and
        # at its target until it ends.
        allocation.share_nodes(self.ctx)
        if self._leaves_resources():
            self.ctx.locks.release(locking.Level.NODE_RES)

    def _leaves_resources(self) -> bool:
        """Return whether other guests may start while the disks are copied.

        They must leave the memory of a guest that is stopped during the copy, and
        started after it or if the export fails.
        """
        stays_stopped = not self.state.snapshots or self.op.remove_instance
        is_stopped = self.op.shutdown and self.state.was_running and stays_stopped
        return self.state.is_prepared and not is_stopped

    def _end_helper(self) -> None:
        """End a helper machine, also one of a run that was interrupted."""
        if self.state.has_helper:
            helper_machine.end(self.ctx, self.instance)
            self.save(has_helper=False)

    def _take_snapshots(self) -> None:
        """Take a snapshot of each disk; one of these names that is left is replaced.

        The name may be that of a volume which is not a snapshot of the disk. The node
        refuses to replace it, so it must not be removed later, either.

        Raises:
            OpExecError: one could not be taken.
        """
        is_running = self.state.was_running and not self.op.shutdown
        with guest_agent.frozen(self.ctx, self.instance, is_running=is_running):
            self._take_each()

    def _take_each(self) -> None:
        pairs = zip(self.disks_of(), self.state.snapshots, strict=True)
        for index, (disk, (_group, name)) in enumerate(pairs):
            before = self.state.taken
            self.save(taken=tuple(sorted({*before, index})))
            result = snapshots.take(self.ctx, self.instance, disk, name)
            if result.failed and result.is_answered:
                self.save(taken=before)
            if ES_NO_SNAPSHOTS in (result.fail_msg or ""):
                self._read_disks_themselves(result.describe(f"disk/{index}"))
                return
            result.unwrap(
                f"instance {self.instance.name}: cannot take a snapshot of disk/{index}"
            )

    def _read_disks_themselves(self, reason: str) -> None:
        """Copy the disks of a stopped guest as they are: a provider has no snapshots.

        Raises:
            OpExecError: the guest ran, and nobody allows a stop during the copy.
        """
        op = self.op
        may_stay_stopped = op.shutdown and (op.long_sleep or op.remove_instance)
        if self.state.was_running and not may_stay_stopped:
            raise errors.OpExecError(
                f"instance {self.instance.name}: cannot be copied while it runs:"
                f" {reason}; stop it before, allow that it is stopped during the copy"
                " with --long-sleep, or add the script snapshot to the provider"
            )
        self.ctx.log.message(f"* copying the disks without snapshots: {reason}")
        self._remove_snapshots()
        self.save(snapshots=(), taken=())

    def _remove_snapshots(self) -> None:
        """Remove the snapshots that were taken."""
        made = dict(enumerate(self.sources()))
        taken = {index: made[index] for index in self.state.taken}
        snapshots.remove(self.ctx, self.instance, taken)

    def _stop(self) -> None:
        instance = self.instance
        self.ctx.log.message(f"* shutting down instance {instance.name}")
        self.ctx.rpc.call_one(
            "instance_shutdown",
            instance.primary_node,
            self.encode(),
            self.op.shutdown_timeout,
            self.op.reason,
            timeout_s=self.op.shutdown_timeout + common.STOP_GRACE_S,
        ).unwrap(f"instance {instance.name}: could not be stopped")

    def _start_again(self) -> None:
        """Start the guest if it ran before the export, and does not run."""
        instance = self.instance
        if not (self.op.shutdown and self.state.was_running):
            return
        if instance.admin_state not in _MAY_RUN or self.runtime_info():
            return
        self.ctx.log.message(f"* starting instance {instance.name}")
        self.ctx.rpc.call_one(
            "instance_start",
            instance.primary_node,
            self.encode_start(),
            False,
            self.op.reason,
        ).unwrap(f"instance {instance.name}: could not be started")

    def sources(self) -> tuple[objects.Disk, ...]:
        """Return the disks to read: the snapshots where there are any."""
        if not self.state.snapshots:
            return self.disks_of()
        return snapshots.records(self.disks_of(), self.state.snapshots)

    def copy(self) -> None:
        """Copy all disks to the target node."""
        recorded = self.disks_of()
        if self.state.progress.disk >= len(recorded):
            disk_transfer.clean_up(self.ctx, self.state.progress)
            return
        disk_transfer.copy_all(
            self.ctx,
            self._plan(recorded),
            left=self.state.progress,
            save=lambda progress: self.save(progress=progress),
        )

    def _plan(self, recorded: Sequence[objects.Disk]) -> disk_transfer.TransferPlan:
        snapshot, instance = self.ctx.snapshot, self.instance
        private = encode.private_instance(snapshot, instance)
        wires = [encode.disk(snapshot, disk, instance) for disk in self.sources()]
        unfinished = f"{_buildconf.EXPORT_DIR}/{instance.name}.new"
        read = [
            stored_exports.end_of(instance.os, wire, i) for i, wire in enumerate(wires)
        ]
        written: list[tuple[str, list[Any]]] = [
            (constants.IEIO_FILE, [f"{unfinished}/{export_info.dump_name(index)}"])
            for index in range(len(wires))
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
        if self.state.snapshots:
            self.ctx.log.message("* removing the snapshots")
            self._remove_snapshots()
        if self.op.remove_instance:
            return None
        try:
            self._start_again()
            self._deactivate()
        except errors.GenericError as err:
            return err
        return None

    def _deactivate(self) -> None:
        """Shut disks down that were assembled for the export."""
        if not self.state.was_active and not self.state.was_running:
            disks.shutdown(self.ctx, self.instance)

    def complete(self) -> None:
        """Describe the export at its node, and drop older ones at others."""
        ctx, instance = self.ctx, self.instance
        name = common.node_name(ctx, self.target)
        ctx.log.message(f"* completing the export on node {name}")
        snapshot = ctx.snapshot
        wire = encode.private_instance(snapshot, instance)
        wire["primary_node"] = self.primary.name
        wires = [encode.disk(snapshot, disk, instance) for disk in self.disks_of()]
        ctx.rpc.call_one("finalize_export", self.target, wire, wires).unwrap(
            f"instance {instance.name}: cannot complete its export"
        )
        stored_exports.drop_others(ctx, instance.name, self.target)

    def _remove_instance(self) -> None:
        """Remove the instance: its export is complete."""
        instance = self.instance
        self.ctx.log.message(f"* removing instance {instance.name}")
        removal.remove(
            self.ctx, instance, ignore_failures=self.op.ignore_remove_failures
        )

    # Failures
    def _undo(self) -> None:
        """Remove what was made, and start the guest again if it ran.

        The state stays until all is done: if the master daemon ends in between, the
        next one goes on. Each step can be repeated.
        """
        self._remove_snapshots()
        self.drop_unfinished()
        try:
            if self.state.has_helper:
                helper_machine.end(self.ctx, self.instance)
            self._start_again()
            self._deactivate()
        except errors.GenericError as err:
            self.ctx.log.warn(str(err))
        self.ctx.save_resumption(None)

    def end_programs(self) -> None:
        """End the programs of an interrupted copy; failures are logged."""
        disk_transfer.clean_up(self.ctx, self.state.progress)

    def drop_unfinished(self) -> None:
        """Remove what the target node has of the export."""
        stored_exports.drop_unfinished(self.ctx, self.instance.name, self.target)
