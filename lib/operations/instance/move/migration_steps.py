"""Steps of a migration: the disks on both nodes, the transfer, and its end."""

import enum
import threading
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.operations import progress
from ganeti.operations.instance import common
from ganeti.operations.instance.devices import firmware
from ganeti.operations.instance.disks import mirror_records, mirror_states, node_disks
from ganeti.operations.instance.move import move_target
from ganeti.protocols import rpc
from ganeti.protocols.rpc import calls, encode
from ganeti.protocols.rpc.answers import Migration

#: Seconds between two polls of the progress, and between two progress lines.
POLL_S: Final = 1.0
FIRST_POLL_S: Final = 0.1
REPORT_S: Final = 10.0
#: Seconds before the end of a transfer from which it is polled often.
NEAR_S: Final = 4.0
#: Seconds that the source may be silent, for example while its node daemon restarts.
SILENCE_S: Final = 15.0
#: Seconds that an emulator at the target takes to end after the one at the source.
ENDING_S: Final = 3.0
_MIB: Final = 1024 * 1024
#: Longest reason of an emulator that is shown, characters.
_REASON_LENGTH: Final = 500
_NO_REASON: Final = "QEMU gives no reason; see its log on both nodes"


class Phase(enum.StrEnum):
    """The point of a migration that a restarted master continues from."""

    #: The target is being prepared; nothing is sent.
    PREPARE = "prepare"
    #: The source is being asked to send.
    BEGIN = "begin"
    #: The source has begun to send.
    TRANSFER = "transfer"
    #: The guest has gone on at the target.
    FINISH = "finish"
    #: The guest is stopped, and started at the target, instead of a migration.
    FAILOVER = "failover"
    #: The same; the guest is stopped, its disks are being shut down.
    STOPPED = "stopped"


class Interrupted(msgspec.Struct, frozen=True):
    """The state of a migration whose master daemon ended; uuids of the nodes."""

    phase: Phase
    source: str
    target: str
    is_live: bool


class MigratedDisks(common.InstanceWork):
    """Disks of an instance that is on its source or on its target."""

    def __init__(self, unit: "move_target.RelocationUnit[Any]") -> None:
        super().__init__(unit.ctx, unit.instance)
        self._unit = unit

    def assemble_at_target(self, wire: dict[str, Any], what: str) -> None:
        """Assemble them at the target, beside the source."""
        # DRBD refuses a second primary node until both nodes allow it.
        self._set_primaries(what, both=True)
        # The start of the guest has opened its disks for the source alone.
        self._open(self._unit.source, exclusive=False, what=what)
        for index, disk in enumerate(self.ctx.snapshot.instance_disks(self.instance)):
            disk_wire = encode.disk(self.ctx.snapshot, disk, self.instance)
            self.ctx.rpc.call_node(
                self._unit.target, calls.blockdev_assemble(disk_wire, wire, True, index)
            ).unwrap(what)
        self._open(self._unit.target, exclusive=False, what=what)

    def _open(self, node: str, *, exclusive: bool, what: str) -> None:
        """Allow writing to external storage on one node, alone or with the other.

        Raises:
            OpExecError: the node refused.
        """
        chosen = self.ctx.snapshot.instance_disks(self.instance)
        opened = node_disks.open_external(
            self.ctx, self.instance, chosen, node, exclusive=exclusive
        )
        if opened is not None:
            opened.unwrap(f"{what}: cannot open its disks")

    def free(self, node: str, what: str) -> None:
        """Give the disks up on the node that the guest is not on; mirrors stay."""
        ctx, instance = self.ctx, self.instance
        for disk in ctx.snapshot.instance_disks(instance):
            wire = encode.disk(ctx.snapshot, disk, instance)
            if mirror_records.is_mirror(disk):
                name = instance.name
                result = ctx.rpc.call_node(node, calls.blockdev_close(name, [wire]))
            else:
                result = ctx.rpc.call_node(node, calls.blockdev_shutdown(wire))
            ctx.warn_failed(result, f"{what}: cannot free {disk.iv_name}")
        self.open_alone(node, what)
        try:
            self._set_primaries(what, both=False)
        except errors.OpExecError as err:
            ctx.log.warn(
                f"{err}; both nodes may be primary until gnt-instance migrate --cleanup"
                f" {instance.name}"
            )

    def open_alone(self, freed: str, what: str) -> None:
        """Allow the node on which the guest stays to write alone; it writes already."""
        stays = self._unit.target if freed == self._unit.source else self._unit.source
        try:
            self._open(stays, exclusive=True, what=what)
        except errors.OpExecError as err:
            self.ctx.log.warn(str(err))

    def _set_primaries(self, what: str, *, both: bool) -> None:
        """Allow both nodes of mirrored disks to be primary, or one of them again.

        Raises:
            OpExecError: a node refused.
        """
        mirrored = [
            disk for _index, disk in mirror_states.of(self.ctx.snapshot, self.instance)
        ]
        if not mirrored:
            return
        wires = [encode.disk(self.ctx.snapshot, d, self.instance) for d in mirrored]
        nodes = sorted({node for disk in mirrored for node in disk.nodes})
        answers = self.ctx.rpc.call_nodes(nodes, calls.drbd_attach_net(wires, both))
        for answer in answers.values():
            answer.unwrap(f"{what}: cannot change the connection of its disks")

    def make_primary(self, node: str, what: str) -> None:
        """Let mirrored disks be primary where the guest is, even if nobody uses them.

        Raises:
            OpExecError: the node refused.
        """
        wire = self._unit.encode()
        for index, disk in mirror_states.of(self.ctx.snapshot, self.instance):
            disk_wire = encode.disk(self.ctx.snapshot, disk, self.instance)
            self.ctx.rpc.call_node(
                node, calls.blockdev_assemble(disk_wire, wire, True, index)
            ).unwrap(f"{what}: cannot make disk {index} primary")


class MigrationSteps(common.InstanceWork):
    """The migration of a running guest from its source to its target."""

    def __init__(
        self,
        unit: "move_target.RelocationUnit[Any]",
        *,
        is_live: bool,
        balloon_to: int | None = None,
        work: str = "migration",
    ) -> None:
        """Prepare the steps.

        Args:
            unit: has the instance, its source and its target.
            is_live: whether the guest goes on during the transfer.
            balloon_to: MiB to which its memory is shrunk before; None if it stays.
            work: what it is called in messages.
        """
        super().__init__(unit.ctx, unit.instance)
        self._unit = unit
        self._source, self._target = unit.source, unit.target
        self._is_live, self._balloon_to = is_live, balloon_to
        self._what = f"{self.what}: {work}"
        self.disks = MigratedDisks(unit)
        #: Whether it failed and has left a copy at the target.
        self.is_undecided = False
        #: Whether the guest has gone on at the target.
        self._has_gone_on = False

    def _reached(self, phase: Phase) -> None:
        save(self._unit, phase, is_live=self._is_live)

    def resume(self, phase: Phase) -> None:
        """Continue after a restart of the master; the emulators have gone on."""
        ctx = self.ctx
        ctx.log.message(
            f"* the master daemon was restarted; the migration to"
            f" {ctx.node_name(self._target)} continues"
        )
        wire = self._unit.encode()
        if phase == Phase.FINISH:
            self.finish(wire, "")
        elif phase == Phase.PREPARE:
            # Nothing is sent in this phase, so the source has nothing to take back.
            self._start_over(wire, at_source=False)
        # The source may have begun although the master ended before its answer.
        elif self._has_begun(wire) or phase == Phase.TRANSFER:
            self.wait(wire, "")
            self.finish(wire, "")
        else:
            self._start_over(wire, at_source=True)

    def _has_begun(self, wire: dict[str, Any]) -> bool:
        """Return whether the source sends the guest, or has sent it.

        Raises:
            OpExecError: the source does not answer.
        """
        answer = self.ctx.rpc.call_node(
            self._source, calls.instance_get_migration_status(wire)
        )
        if answer.failed:
            name = self.ctx.node_name(self._target)
            raise errors.OpExecError(
                f"{answer.describe(self._what)}; the master daemon was restarted while"
                f" the instance moved to {name}, and it may run on either node: run"
                f" gnt-instance migrate --cleanup {self.instance.name}"
            )
        return answer.payload.status in ("active", "completed")

    def _start_over(self, wire: dict[str, Any], *, at_source: bool) -> None:
        """Undo a preparation after which nothing was sent, and migrate."""
        undecided = self._abort(wire, "", at_source=at_source)
        if undecided:
            raise errors.OpExecError(
                f"instance {self.instance.name}: the master daemon was restarted while"
                f" it moved; {undecided}"
            )
        # The memory is shrunk before the first phase is stored, so not again here.
        self._balloon_to = None
        self.run()

    def run(self) -> None:
        """Migrate the guest; an error says where it is."""
        call = self.ctx.rpc.call_node
        what = self._what
        wire = self._unit.encode()
        if self._balloon_to is not None:
            self.ctx.log.message(f"* shrinking the memory to {self._balloon_to} MiB")
            call(
                self._source, calls.instance_balloon_memory(wire, self._balloon_to)
            ).unwrap(what)
        info = call(self._source, calls.migration_info(wire)).unwrap(what)
        # From here on, disks may be open at the target, and an emulator may wait there.
        self._reached(Phase.PREPARE)
        try:
            self.disks.assemble_at_target(wire, what)
        except errors.OpExecError as err:
            self.disks.free(self._target, what)
            raise self._failed(str(err)) from err
        address = self.ctx.snapshot.nodes[self._target].secondary_ip
        self.ctx.log.message(
            f"* preparing {self.ctx.snapshot.nodes[self._target].name} to accept the"
            " instance"
        )
        accepted = call(
            self._target,
            calls.accept_instance(self._unit.encode_start(), info, address),
        )
        if accepted.failed:
            # A new master may go on with this migration; see `_give_up`.
            if not accepted.deposed:
                self._abort(wire, info, at_source=False)
            raise self._failed(accepted.describe(f"{what} failed"))
        self.ctx.log.message(
            f"* migrating instance to {self.ctx.snapshot.nodes[self._target].name}"
        )
        name = self.ctx.snapshot.cluster.cluster_name
        # Stored before the call, so that a restarted master asks the source.
        self._reached(Phase.BEGIN)
        begun = call(
            self._source, calls.instance_migrate(name, wire, address, self._is_live)
        )
        if begun.failed:
            # This returns only if the guest has left after all.
            self._give_up(begun, wire, info, begun.describe(f"{what} failed"))
        else:
            self._reached(Phase.TRANSFER)
            self.wait(wire, info)
        self.finish(wire, info)

    def wait(self, wire: dict[str, Any], info: Any) -> None:
        """Wait until the guest has left the source, and let it go on at the target."""
        ctx = self.ctx
        pause, last = threading.Event(), ctx.clock.monotonic()
        wait_s, heard = FIRST_POLL_S, ctx.clock.monotonic()
        shown: progress.Progress | None = None
        while True:
            result = ctx.rpc.call_node(
                self._source, calls.instance_get_migration_status(wire)
            )
            status = Migration() if result.failed else result.payload
            if not result.failed:
                heard = ctx.clock.monotonic()
            elif _may_answer(result) and ctx.clock.monotonic() < heard + SILENCE_S:
                ctx.clock.wait(pause, POLL_S)
                continue
            if result.failed or status.status in ("failed", "cancelled"):
                text = f"{self._what} failed: {_reason(result, status)}"
                self._give_up(result, wire, info, text)
                return
            if status.is_completed:
                # The guest stands still until it goes on at the target.
                self._let_go_on(wire, info)
                ctx.log.message("* memory transfer complete")
                return
            # In postcopy, the guest runs at the target before its memory is complete.
            if status.postcopy_status:
                self._let_go_on(wire, info)
            if status.total_ram:
                total_mib = status.total_ram / _MIB
                shown = shown or progress.Progress(ctx, "memory transfer", total_mib)
                shown.at(_share(status) * total_mib / 100)
            now = ctx.clock.monotonic()
            if now - last >= REPORT_S and status.total_ram:
                ctx.log.message(f"* memory transfer progress: {_share(status):.2f} %")
                last = now
            # After the transfer the guest stands still until this loop looks again.
            is_near = _is_near_end(status, wire)
            ctx.clock.wait(pause, FIRST_POLL_S if is_near else wait_s)
            wait_s = min(POLL_S, wait_s * 2)

    def finish(self, wire: dict[str, Any], info: Any) -> None:
        """Record the new primary node, and free the source."""
        ctx = self.ctx
        # The source has noted that the guest has left: it is not started there before
        # the new primary node is recorded.
        self._let_go_on(wire, info)
        self._reached(Phase.FINISH)
        self._unit.commit_primary(self._target)
        left = ctx.rpc.call_node(
            self._source,
            calls.instance_finalize_migration_src(
                self._unit.encode(), True, self._is_live
            ),
        )
        if left.failed:
            source, target = (
                ctx.node_name(uuid) for uuid in (self._source, self._target)
            )
            ctx.log.warn(
                f"{left.describe(self._what)}; the guest runs on node {target}, which"
                f" is its primary node now; when node {source} answers, run"
                f" gnt-instance migrate --cleanup {self.instance.name} to remove the"
                " rest there"
            )
        firmware.save(ctx, self._uuid, self._target)
        self.disks.free(self._source, self._what)
        ctx.log.message("* done")

    def _let_go_on(self, wire: dict[str, Any], info: Any) -> None:
        """Let the guest go on at the target, which its source has left to it.

        Raises:
            OpExecError: it does not go on there, or the target does not say so.
        """
        ctx, begun = self.ctx, self.ctx.clock.monotonic()
        while not self._has_gone_on:
            arrived = ctx.rpc.call_node(
                self._target, calls.instance_finalize_migration_dst(wire, info, True)
            )
            self._has_gone_on = not arrived.failed
            if not arrived.failed:
                return
            is_early = ctx.clock.monotonic() < begun + SILENCE_S
            if _may_answer(arrived) and is_early:
                ctx.clock.wait(threading.Event(), POLL_S)
                continue
            self.is_undecided = True
            source, target = (
                ctx.node_name(uuid) for uuid in (self._source, self._target)
            )
            raise errors.OpExecError(
                f"{arrived.describe(self._what)}; node {source} has given the guest up,"
                f" which may wait on node {target}: run gnt-instance migrate --cleanup"
                f" {self.instance.name}"
            )

    def _give_up(
        self, result: rpc.Result, wire: dict[str, Any], info: Any, text: str
    ) -> None:
        """Abort after a failed call; return if the guest has left before that.

        Not if the node refused the call as another master took over: that one goes on
        with the migration. The other node may not know it yet, and would end the
        emulator that waits for the guest.

        Raises:
            OpExecError: the migration failed; has the text and the guest's place.
        """
        if result.deposed:
            raise self._failed(text)
        undecided = self._abort(wire, info, at_source=True)
        if undecided is None:
            raise self._failed(text)
        # The transfer may have ended before the abort: only the source knows the order.
        asked = self.ctx.rpc.call_node(
            self._source, calls.instance_get_migration_status(wire)
        )
        if asked.failed or not asked.payload.is_completed:
            self.is_undecided = True
            raise errors.OpExecError(f"{text}; {undecided}")
        self.ctx.log.message(
            f"* {text}; but the guest has left, so the migration is finished"
        )

    def _abort(self, wire: dict[str, Any], info: Any, *, at_source: bool) -> str | None:
        """Undo a migration, unless the target may have the only copy of the guest.

        The source comes first: it alone knows whether it has given the guest up, and
        lets it go on. Only then may the target end what it has.

        Returns:
            The reason why the target keeps its copy, with the command that ends this;
            None if it has none any more.
        """
        ctx, name = self.ctx, self.instance.name
        what = f"instance {name}: cannot abort the migration"
        if at_source:
            kept = ctx.rpc.call_node(
                self._source,
                calls.instance_finalize_migration_src(wire, False, self._is_live),
            )
            if kept.failed and _may_have_copy(self._unit):
                return (
                    f"{kept.describe(what)}; node"
                    f" {ctx.node_name(self._target)} keeps what it has of the"
                    f" guest: run gnt-instance migrate --cleanup {name}"
                )
            ctx.warn_failed(kept, what)
        result = ctx.rpc.call_node(
            self._target, calls.instance_finalize_migration_dst(wire, info, False)
        )
        ctx.warn_failed(result, what)
        self.disks.free(self._target, what)
        return None

    def _failed(self, text: str) -> errors.OpExecError:
        """Return the error of a migration, with the place of the guest after it."""
        return errors.OpExecError(f"{text}; {_place_of_guest(self._unit)}")


def save(
    unit: "move_target.RelocationUnit[Any]", phase: Phase, *, is_live: bool
) -> None:
    """Store a point from which a restarted master can continue."""
    state = Interrupted(phase, unit.source, unit.target, is_live)
    unit.ctx.save_resumption(msgspec.to_builtins(state))


def hypervisors_of(
    unit: "move_target.RelocationUnit[Any]",
) -> tuple[list[str], dict[str, Any]]:
    """Return the arguments of ``instance_list``."""
    hv = unit.instance.hypervisor
    return [hv], {hv: unit.ctx.snapshot.cluster.hvparams.get(hv, {})}


def _may_have_copy(unit: "move_target.RelocationUnit[Any]") -> bool:
    """Return whether the target has something of the guest, or does not answer.

    An incomplete copy ends by itself if the emulator of its source has ended, for
    example because its user has shut the guest down.
    """
    clock, never = unit.ctx.clock, threading.Event()
    end = clock.monotonic() + ENDING_S
    while True:
        result = unit.ctx.rpc.call_node(
            unit.target, calls.instance_list(*hypervisors_of(unit))
        )
        if result.failed or unit.instance.name not in result.payload:
            # A node that does not answer may have a copy.
            return result.failed
        if clock.monotonic() >= end:
            return True
        clock.wait(never, POLL_S)


def _place_of_guest(unit: "move_target.RelocationUnit[Any]") -> str:
    """Return where the guest runs now, and the command if it does not run."""
    instance, snapshot = unit.instance, unit.ctx.snapshot
    runs_on, silent = [], []
    for uuid in (unit.source, unit.target):
        result = unit.ctx.rpc.call_node(
            uuid, calls.instance_list(*hypervisors_of(unit))
        )
        if result.failed:
            silent.append(snapshot.nodes[uuid].name)
        elif instance.name in result.payload:
            runs_on.append(snapshot.nodes[uuid].name)
    source = snapshot.nodes[unit.source].name
    if runs_on == [source] and not silent:
        return f"the guest runs on node {source} as before"
    parts = [f"the guest runs on node {name}" for name in runs_on]
    parts += [f"node {name} does not report its guests" for name in silent]
    if not parts:
        return (
            "the guest runs on neither node, start it with gnt-instance startup"
            f" {instance.name}"
        )
    cleanup = f"gnt-instance migrate --cleanup {instance.name}"
    return f"{' and '.join(parts)}; then run {cleanup}"


def _may_answer(failure: rpc.Result) -> bool:
    """Return whether a node that does not answer may do so soon."""
    return failure.is_silent or failure.is_lost


def _is_near_end(status: Migration, wire: dict[str, Any]) -> bool:
    """Return whether a transfer ends in a few seconds, so that each poll counts."""
    bandwidth = wire["hvparams"].get("migration_bandwidth")
    left = status.remaining_ram
    return bool(bandwidth and left is not None and left <= NEAR_S * bandwidth * _MIB)


def _reason(result: rpc.Result, status: Migration) -> str:
    """Return why a migration failed; texts of nodes are bounded."""
    if result.failed:
        return str(result.fail_msg)
    if status.status == "cancelled":
        return "it was canceled on the source node"
    reason = status.error
    return reason[:_REASON_LENGTH] if isinstance(reason, str) and reason else _NO_REASON


def _share(status: Migration) -> float:
    """Return the transferred part of the memory in per cent.

    More than the memory may have been sent, because the guest continues to write.
    """
    total, left = status.total_ram or 1, status.remaining_ram
    done = (status.transferred_ram or 0) if left is None else total - left
    return min(100.0, 100.0 * done / total)
