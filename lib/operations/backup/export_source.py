"""The source of an export: a guest that is stopped or frozen, disks with snapshots."""

import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols.os import ES_NO_SNAPSHOTS
from ganeti.master import locking
from ganeti.model import objects, opcodes
from ganeti.operations import allocation, base
from ganeti.operations.instance import common
from ganeti.operations.instance.create import helper_machine
from ganeti.operations.instance.disks import node_disks
from ganeti.operations.instance.move import disk_transfer, transfer_watch
from ganeti.operations.instance.run import guest_agent
from ganeti.protocols.rpc import calls, encode

# Zeroing of the free space of disks before an export, by a helper machine.
#
# The helper machine has the disks of the stopped instance after its own, and writes
# zeros to what their file systems do not use.

#: Seconds that a helper machine gets besides those for the disks: to boot and to end.
FIXED_S: Final = 300
#: Seconds that it gets per MiB of the disks.
PER_MIB_S: Final = 0.05
_WORK: Final = "zeroing the free space of its disks"


def check_zeroing_arguments(op: opcodes.BackupExport) -> None:
    """Refuse time limits that are wrong, or without a helper machine.

    Raises:
        OpPrereqError: names the option, wanted and found.
    """
    for option, value in (
        ("zeroing_timeout_fixed", op.zeroing_timeout_fixed),
        ("zeroing_timeout_per_mib", op.zeroing_timeout_per_mib),
    ):
        if value is None:
            continue
        what = f"instance {op.instance_name}: --{option.replace('_', '-')}"
        if not op.zero_free_space:
            raise errors.refusal(f"{what}: needs --zero-free-space")
        if not (math.isfinite(value) and 0 <= value <= helper_machine.MAX_S):
            raise errors.refusal(
                f"{what}: wanted 0 to {helper_machine.MAX_S:g} seconds, found {value:g}"
            )


def zeroing_limit_s(op: opcodes.BackupExport, size_mib: int) -> float:
    """Return the seconds that the helper machine may run for disks of a size."""
    fixed, per_mib = op.zeroing_timeout_fixed, op.zeroing_timeout_per_mib
    total = (FIXED_S if fixed is None else fixed) + size_mib * (
        PER_MIB_S if per_mib is None else per_mib
    )
    return min(float(total), helper_machine.MAX_S)


def check_zeroing(
    ctx: base.Context, instance: objects.Instance, *, is_running: bool, stops: bool
) -> None:
    """Refuse an instance whose disks cannot be given to a helper machine.

    Args:
        ctx: dependencies of the opcode.
        instance: the instance.
        is_running: whether its guest runs.
        stops: whether the guest is stopped for the export.

    Raises:
        OpPrereqError: names what is missing, and who can mend it.
    """
    what = f"instance {instance.name}: {_WORK}"
    helper_machine.require_image(
        what,
        ctx.snapshot.cluster.zeroing_image,
        instance.hypervisor,
        option="gnt-cluster modify --zeroing-image",
        parameter="an image",
    )
    if is_running:
        if not stops:
            raise errors.OpPrereqError(
                f"{what} needs it to be stopped; leave out --noshutdown",
                ecodes.ECODE_STATE,
            )
        return
    helper_machine.require_memory(ctx, instance)


def _zero_disks(
    ctx: base.Context, instance: objects.Instance, op: opcodes.BackupExport
) -> None:
    """Let the helper machine work until it powers itself off.

    Raises:
        OpExecError: it could not be started, or did not end in time.
    """
    size_mib = sum(disk.size for disk in ctx.snapshot.instance_disks(instance))
    limit = zeroing_limit_s(op, size_mib)
    what = f"instance {instance.name}: {_WORK}"
    ctx.log.message(
        f"* zeroing the free space of the disks ({size_mib} MiB, at most {limit:.0f} s)"
    )
    begun = ctx.clock.monotonic()
    ctx.rpc.call_node(
        instance.primary_node,
        calls.helper_start(helper_machine.wire(ctx, instance), False, op.reason),
    ).unwrap(f"{what}: the helper machine could not be started")
    watch = helper_machine.Watch(ctx, instance, what)
    reported = begun
    while watch.is_running():
        now = ctx.clock.monotonic()
        if now - begun >= limit:
            raise errors.OpExecError(
                f"{what}: the helper machine did not power itself off in {limit:.0f} s;"
                " allow more time with --zeroing-timeout-fixed, or look at its console"
            )
        if now - reported >= transfer_watch.REPORT_S:
            reported = now
            ctx.log.message(f" - the helper machine runs for {now - begun:.0f} s")
        ctx.clock.wait(threading.Event(), helper_machine.POLL_S)
    ctx.log.message(f" - zeroed in {ctx.clock.monotonic() - begun:.0f} s")


# Snapshots of disks, beside the disks of the instance.

_SUFFIX: Final = ".snap"

Names = tuple[tuple[str, str], ...]


def snapshot_names(disks: Sequence[objects.Disk]) -> Names:
    """Return volume group, or provider, and name of the snapshot of each disk."""
    places = (_volume(disk).logical_id[:2] for disk in disks)
    return tuple((group, f"{name}{_SUFFIX}") for group, name in places)


def _volume(disk: objects.Disk) -> objects.Disk:
    """Return the volume with the data of a disk."""
    return disk.children[0] if disk.children else disk


def _snapshot_records(
    disks: Sequence[objects.Disk], made: Names
) -> tuple[objects.Disk, ...]:
    """Return records of snapshots, disks like those they are of; never stored."""
    return tuple(
        objects.Disk(
            dev_type=_volume(disk).dev_type,
            logical_id=place,
            size=disk.size,
            uuid=disk.uuid,
            serial_no=1,
            iv_name=disk.iv_name,
            params=_volume(disk).params,
        )
        for disk, place in zip(disks, made, strict=True)
    )


def _remover(snapshot: objects.Disk) -> str:
    """Return what removes a snapshot by hand."""
    if snapshot.dev_type == "ext":
        return f"the tools of its storage, provider {snapshot.logical_id[0]}"
    return "lvremove"


def _remove_snapshots(
    ctx: base.Context, instance: objects.Instance, made: Mapping[int, objects.Disk]
) -> None:
    """Remove snapshots, by index of their disk; a missing one is no failure."""
    for index, disk in made.items():
        result = ctx.rpc.call_node(
            instance.primary_node,
            calls.blockdev_remove(encode.disk(ctx.snapshot, disk, instance)),
        )
        what = (
            f"cannot remove the snapshot {'/'.join(map(str, disk.logical_id))} of"
            f" disk/{index}; remove it with {_remover(disk)}"
        )
        ctx.warn_failed(result, what)


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


class ExportSource(common.InstanceWork):
    """The guest and the disks that an export reads, and what was done with them.

    Attributes:
        state: where the export was interrupted; `save` makes changes durable.
    """

    def __init__(
        self,
        ctx: base.Context,
        instance: objects.Instance,
        op: opcodes.BackupExport,
        state: Interrupted,
    ) -> None:
        super().__init__(ctx, instance)
        self._op, self.state = op, state

    def save(self, **changes: Any) -> None:
        """Change the state and make it durable."""
        self.state = msgspec.structs.replace(self.state, **changes)
        self.ctx.save_resumption(msgspec.to_builtins(self.state))

    def disks(self) -> tuple[objects.Disk, ...]:
        """Return the recorded disks."""
        return self.ctx.snapshot.instance_disks(self.instance)

    def sources(self) -> tuple[objects.Disk, ...]:
        """Return the disks to read: the snapshots where there are any."""
        if not self.state.snapshots:
            return self.disks()
        return _snapshot_records(self.disks(), self.state.snapshots)

    def prepare(self) -> None:
        """Stop the guest, make snapshots, start the guest again.

        A guest that runs although it is marked down is stopped, too.
        """
        instance = self.instance
        self.end_helper()
        zeroes = self._op.zero_free_space and not self.state.is_zeroed
        if zeroes:
            # Before the guest is stopped: an image can be missing, or take its time.
            self.save(has_helper=True)
            helper_machine.add_image(
                self.ctx,
                instance,
                self.ctx.snapshot.cluster.zeroing_image,
                f"instance {instance.name}: cannot zero the free space of its disks",
            )
        may_run = self.state.was_running or instance.admin_state in _MAY_RUN
        if self._op.shutdown and may_run:
            self._stop()
        if not self.state.was_active:
            node_disks.assemble(self.ctx, instance)
        if zeroes:
            _zero_disks(self.ctx, instance, self._op)
            self.save(is_zeroed=True)
            self.end_helper()
        if self.state.snapshots:
            self.ctx.log.message("* taking snapshots of the disks")
            self._take_snapshots()
            # Without them, it stays stopped until its disks are copied.
            if self.state.snapshots and not self._op.remove_instance:
                self.start_again()
        self.save(is_prepared=True)
        # Exports of a node wait for each other: each needs space for its snapshots and
        # at its target until it ends.
        allocation.share_nodes(self.ctx)
        if self.leaves_resources():
            self.ctx.locks.release(locking.Level.NODE_RES)

    def leaves_resources(self) -> bool:
        """Return whether other guests may start while the disks are copied.

        They must leave the memory of a guest that is stopped during the copy, and
        started after it or if the export fails.
        """
        stays_stopped = not self.state.snapshots or self._op.remove_instance
        is_stopped = self._op.shutdown and self.state.was_running and stays_stopped
        return self.state.is_prepared and not is_stopped

    def end_helper(self) -> None:
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
        is_running = self.state.was_running and not self._op.shutdown
        with guest_agent.frozen(self.ctx, self.instance, is_running=is_running):
            self._take_each()

    def _take_each(self) -> None:
        pairs = zip(self.disks(), self.state.snapshots, strict=True)
        for index, (disk, (_group, name)) in enumerate(pairs):
            before = self.state.taken
            self.save(taken=tuple(sorted({*before, index})))
            wire = encode.disk(self.ctx.snapshot, disk, self.instance)
            result = self.ctx.rpc.call_node(
                self.instance.primary_node, calls.blockdev_snapshot(wire, name, None)
            )
            if result.failed and (result.is_answered or result.is_rejected):
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
        op = self._op
        may_stay_stopped = op.shutdown and (op.long_sleep or op.remove_instance)
        if self.state.was_running and not may_stay_stopped:
            raise errors.OpExecError(
                f"instance {self.instance.name}: cannot be copied while it runs:"
                f" {reason}; stop it before, allow that it is stopped during the copy"
                " with --long-sleep, or add the script snapshot to the provider"
            )
        self.ctx.log.message(f"* copying the disks without snapshots: {reason}")
        self.remove_snapshots()
        self.save(snapshots=(), taken=())

    def remove_snapshots(self) -> None:
        """Remove the snapshots that were taken."""
        made = dict(enumerate(self.sources()))
        taken = {index: made[index] for index in self.state.taken}
        _remove_snapshots(self.ctx, self.instance, taken)

    def _stop(self) -> None:
        op, instance = self._op, self.instance
        self.ctx.log.message(f"* shutting down instance {instance.name}")
        common.stop_guest(self.ctx, instance, op.shutdown_timeout, op.reason).unwrap(
            f"instance {instance.name}: could not be stopped"
        )

    def start_again(self) -> None:
        """Start the guest if it ran before the export, and does not run."""
        ctx, instance = self.ctx, self.instance
        if not (self._op.shutdown and self.state.was_running):
            return
        if instance.admin_state not in _MAY_RUN or common.query_runtime(ctx, instance):
            return
        ctx.log.message(f"* starting instance {instance.name}")
        common.start_guest(ctx, instance, self._op.reason).unwrap(
            f"instance {instance.name}: could not be started"
        )

    def deactivate(self) -> None:
        """Shut disks down that were assembled for the export."""
        if not self.state.was_active and not self.state.was_running:
            node_disks.shutdown(self.ctx, self.instance)
