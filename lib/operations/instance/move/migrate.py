"""OP_INSTANCE_MIGRATE: move a running instance without stopping it."""

import enum
import threading
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.model import opcodes
from ganeti.model.objects import params
from ganeti.operations import progress
from ganeti.operations.instance import common
from ganeti.operations.instance.devices import firmware
from ganeti.operations.instance.disks import disks_on_nodes as disks
from ganeti.operations.instance.disks import mirror_specs, mirrors
from ganeti.operations.instance.move import failover, relocation
from ganeti.operations.instance.run import elsewhere, waiting_copies
from ganeti.protocols import rpc
from ganeti.protocols.rpc import encode

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
_VERSION_LENGTH: Final = 50
#: Seconds for the clean shutdown of a guest that fails over instead.
_SHUTDOWN_S: Final = 120
_STOP_AND_START: Final = "stop and start it with gnt-instance shutdown and startup"
_FAIL_OVER: Final = "start it on another one with gnt-instance failover"
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


class InstanceMigrate(relocation.RelocationUnit[opcodes.InstanceMigrate]):
    """Unit that migrates an instance, may fall back to failover, or cleans up."""

    HOOKS_PATH: ClassVar[str | None] = "instance-migrate"
    #: Where the migration was interrupted.
    left: Interrupted | None = None
    #: Whether a failed migration has left a copy at the target.
    is_undecided = False
    #: Whether the guest has gone on at the target.
    has_gone_on = False

    def expand_names(self) -> None:
        """Look instance and target up; an interrupted migration has its nodes."""
        if self.ctx.resumption is None:
            super().expand_names()
            return
        self.left = msgspec.convert(self.ctx.resumption, Interrupted)
        self.expand_interrupted(self.left.source, self.left.target)
        self.is_live = self.left.is_live

    def check_arguments(self) -> None:
        """Refuse ``mode`` together with its older form ``live``."""
        if self.op.live is not None and self.op.mode is not None:
            raise self.prereq("give only mode, not live, which is its older form")

    def check_prereq(self) -> None:
        """Check instance, target and hypervisors."""
        self.is_failover = False
        instance, snapshot = self.instance, self.ctx.snapshot
        if instance.forthcoming:
            self._check_forthcoming()
            return
        if self.op.cleanup:
            return
        if not self.op.allow_failover:
            self.require_online_primary()
        backend = params.fill_beparams(snapshot, instance)
        filled = params.fill_hvparams(snapshot, instance)
        self.is_live = self._wants_live(filled)
        if backend["always_failover"]:
            self.ctx.log.info("the instance is always failed over, never migrated")
            self._use_failover(backend["minmem"])
            return
        if self.primary.offline:
            self.ctx.log.info("the primary node is marked offline, failing over")
            self._use_failover(backend["minmem"])
            return
        if not self.runtime_info():
            if not self.op.allow_failover:
                self.require_nowhere_else("be migrated", must_answer=False)
                raise errors.OpPrereqError(
                    f"instance {instance.name}: is not running, only failover can move"
                    " it",
                    ecodes.ECODE_STATE,
                )
            self.ctx.log.info("the instance is not running, failing over")
            self._use_failover(backend["minmem"])
            return
        self._check_running(backend, filled)

    def _check_forthcoming(self) -> None:
        """Use failover, if it is allowed, for an instance that cannot run yet."""
        if self.op.cleanup or not self.op.allow_failover:
            raise common.not_created(self.instance.name, "only failover can move it")
        self.ctx.log.info("the instance is forthcoming, failing over")
        self._use_failover(0)

    def _use_failover(self, memory_mib: int) -> None:
        self.is_failover = True
        will_run = self.instance.admin_state == "up"
        self.check_target(
            memory_mib if will_run else None, is_rescue=self.primary.offline
        )
        if not self.instance.forthcoming:
            # A migration cannot ignore consistency.
            failover.require_complete(self)
            failover.require_alone(self)

    def _wants_live(self, filled: dict[str, Any]) -> bool:
        if self.op.live is not None:
            return self.op.live
        mode = self.op.mode or filled.get("migration_mode", "live")
        return bool(mode == "live")

    def _check_running(self, backend: dict[str, Any], filled: dict[str, Any]) -> None:
        instance = self.instance
        current = int(self.runtime_info().get("memory", backend["maxmem"]))
        mirrored = mirrors.of(self.ctx.snapshot, instance)
        target = self.target
        mirrors.require_complete(self.ctx, instance, mirrored, target, "migrate")
        low = backend["minmem"] if self.op.allow_runtime_changes else current
        free = self.check_target(low)
        self.balloon_to = free if free is not None and free < current else None
        asked = self.ctx.rpc.call_one("instance_migratable", self.source, self.encode())
        what = f"instance {instance.name}: cannot migrate"
        if asked.failed and self.op.allow_failover:
            self.ctx.log.info(f"{asked.describe(what)}; failing over")
            self.is_failover = True
            failover.require_alone(self)
            return
        asked.require(what, ecodes.ECODE_STATE)
        self._compare_versions(filled)

    def _compare_versions(self, filled: dict[str, Any]) -> None:
        spec = [[self.instance.hypervisor, filled]]
        versions = {}
        for node in (self.source, self.target):
            payload = self.ctx.rpc.call_one("node_info", node, [], spec).require(
                "cannot compare hypervisor versions", ecodes.ECODE_ENVIRON
            )
            versions[node] = payload[2][0].get("hv_version")
        old, new = versions[self.source], versions[self.target]
        if old != new:
            text = (
                f"instance {self.instance.name}: hypervisor versions differ:"
                f" {self._version_text(self.source, old)},"
                f" {self._version_text(self.target, new)}"
            )
            if not self.op.ignore_hvversions:
                raise errors.OpPrereqError(text, ecodes.ECODE_STATE)
            self.ctx.log.warn(text)

    def _version_text(self, node: str, version: object) -> str:
        """Return a node's version of the hypervisor as text, as it reports it."""
        name = self.ctx.snapshot.nodes[node].name
        if version is None:
            hypervisor = self.instance.hypervisor
            return f"none on node {name} (is the program of {hypervisor} installed?)"
        numbers = version if isinstance(version, list) else [version]
        return f"{'.'.join(map(str, numbers))[:_VERSION_LENGTH]} on node {name}"

    def hooks_env(self) -> dict[str, Any]:
        """Return the variables of the instance and of the move."""
        return (
            super().hooks_env()
            | self.relocation_env()
            | {
                "MIGRATE_LIVE": getattr(self, "is_live", True),
                "MIGRATE_CLEANUP": self.op.cleanup,
                "ALLOW_RUNTIME_CHANGES": self.op.allow_runtime_changes,
            }
        )

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return master, source, secondaries and target, for both phases."""
        secondaries = self.ctx.snapshot.secondary_nodes(self.instance)
        nodes = self.with_master([self.source, *secondaries, self.target])
        return nodes, nodes

    def execute(self) -> None:
        """Migrate, fail over, or clean up."""
        if self.op.cleanup:
            self._clean_up()
        elif self.is_failover:
            failover.fail_over(
                self, shutdown_timeout_s=_SHUTDOWN_S, ignore_consistency=False
            )
        else:
            self.ctx.log.message(f"Migrating instance {self.instance.name}")
            self._migrate()

    def resume(self) -> None:
        """Continue where the last master daemon ended; the emulators have gone on."""
        left = self.left
        if left is None:
            raise errors.ProgrammerError("a migration without a state was resumed")
        if left.phase in (Phase.FAILOVER, Phase.STOPPED):
            failover.resume(
                self,
                is_stopped=left.phase == Phase.STOPPED,
                shutdown_timeout_s=_SHUTDOWN_S,
                ignore_consistency=False,
            )
            return
        ctx, what = self.ctx, f"instance {self.instance.name}: migration"
        ctx.log.message(
            f"* the master daemon was restarted; the migration to"
            f" {common.node_name(ctx, self.target)} continues"
        )
        wire = self.encode()
        if left.phase == Phase.FINISH:
            self._finish(wire, "", what)
        elif left.phase == Phase.PREPARE:
            self._start_over(wire, at_source=False)
        elif self._has_begun(wire, what) or left.phase == Phase.TRANSFER:
            self._wait(wire, "", what)
            self._finish(wire, "", what)
        else:
            self._start_over(wire, at_source=True)

    def _has_begun(self, wire: dict[str, Any], what: str) -> bool:
        """Return whether the source sends the guest, or has sent it.

        Raises:
            OpExecError: the source does not answer.
        """
        answer = self.ctx.rpc.call_one(
            "instance_get_migration_status", self.source, wire
        )
        if answer.failed:
            name = common.node_name(self.ctx, self.target)
            raise errors.OpExecError(
                f"{answer.describe(what)}; the master daemon was restarted while the"
                f" instance moved to {name}, and it may run on either node: run"
                f" gnt-instance migrate --cleanup {self.instance.name}"
            )
        return (answer.payload or {}).get("status") in ("active", "completed")

    def _start_over(self, wire: dict[str, Any], *, at_source: bool) -> None:
        """Undo a preparation after which nothing was sent, and migrate."""
        undecided = self._abort(wire, "", at_source=at_source)
        if undecided:
            raise errors.OpExecError(
                f"instance {self.instance.name}: the master daemon was restarted while"
                f" it moved; {undecided}"
            )
        self.balloon_to = None
        self._migrate()

    def _reached(self, phase: Phase) -> None:
        """Store a point from which a restarted master can continue."""
        state = Interrupted(phase, self.source, self.target, self.is_live)
        self.ctx.save_resumption(msgspec.to_builtins(state))

    def save_failover(self, *, is_stopped: bool) -> None:
        """Store that it has become a failover."""
        self._reached(Phase.STOPPED if is_stopped else Phase.FAILOVER)

    def _migrate(self) -> None:
        instance, call = self.instance, self.ctx.rpc.call_one
        what = f"instance {instance.name}: migration"
        wire = self.encode()
        if self.balloon_to is not None:
            self.ctx.log.message(f"* shrinking the memory to {self.balloon_to} MiB")
            call("instance_balloon_memory", self.source, wire, self.balloon_to).unwrap(
                what
            )
        info = call("migration_info", self.source, wire).unwrap(what)
        self._reached(Phase.PREPARE)
        try:
            self._assemble_at_target(wire, what)
        except errors.OpExecError as err:
            self._free_disks(self.target, what)
            raise self._failed(str(err)) from err
        address = self.ctx.snapshot.nodes[self.target].secondary_ip
        self.ctx.log.message(
            f"* preparing {self.ctx.snapshot.nodes[self.target].name} to accept the"
            " instance"
        )
        accepted = call(
            "accept_instance", self.target, self.encode_start(), info, address
        )
        if accepted.failed:
            if not accepted.deposed:
                self._abort(wire, info, at_source=False)
            raise self._failed(accepted.describe(f"{what} failed"))
        self.ctx.log.message(
            f"* migrating instance to {self.ctx.snapshot.nodes[self.target].name}"
        )
        name = self.ctx.snapshot.cluster.cluster_name
        self._reached(Phase.BEGIN)
        begun = call("instance_migrate", self.source, name, wire, address, self.is_live)
        if begun.failed:
            self._give_up(begun, wire, info, begun.describe(f"{what} failed"))
        else:
            self._reached(Phase.TRANSFER)
            self._wait(wire, info, what)
        self._finish(wire, info, what)

    def _assemble_at_target(self, wire: dict[str, Any], what: str) -> None:
        self._set_primaries(what, both=True)
        self._open(self.source, exclusive=False, what=what)
        for index, disk in enumerate(self.ctx.snapshot.instance_disks(self.instance)):
            disk_wire = encode.disk(self.ctx.snapshot, disk, self.instance)
            self.ctx.rpc.call_one(
                "blockdev_assemble", self.target, disk_wire, wire, True, index
            ).unwrap(what)
        self._open(self.target, exclusive=False, what=what)

    def _open(self, node: str, *, exclusive: bool, what: str) -> None:
        """Allow writing to external storage on one node, alone or with the other.

        Raises:
            OpExecError: the node refused.
        """
        chosen = self.ctx.snapshot.instance_disks(self.instance)
        opened = disks.open_external(
            self.ctx, self.instance, chosen, node, exclusive=exclusive
        )
        if opened is not None:
            opened.unwrap(f"{what}: cannot open its disks")

    def _wait(self, wire: dict[str, Any], info: Any, what: str) -> None:
        ctx = self.ctx
        pause, last = threading.Event(), ctx.clock.monotonic()
        wait_s, heard = FIRST_POLL_S, ctx.clock.monotonic()
        shown: progress.Progress | None = None
        while True:
            result = ctx.rpc.call_one(
                "instance_get_migration_status", self.source, wire
            )
            status = result.payload or {}
            if not result.failed:
                heard = ctx.clock.monotonic()
            elif _may_answer(result) and ctx.clock.monotonic() < heard + SILENCE_S:
                ctx.clock.wait(pause, POLL_S)
                continue
            if result.failed or status.get("status") in ("failed", "cancelled"):
                text = f"{what} failed: {_reason(result, status)}"
                self._give_up(result, wire, info, text)
                return
            if status.get("status") == "completed":
                # The guest stands still until it goes on at the target.
                self._let_go_on(wire, info, what)
                ctx.log.message("* memory transfer complete")
                return
            if status.get("postcopy_status"):
                self._let_go_on(wire, info, what)
            if status.get("total_ram"):
                total_mib = float(status["total_ram"]) / _MIB
                shown = shown or progress.Progress(ctx, "memory transfer", total_mib)
                shown.at(_share(status) * total_mib / 100)
            now = ctx.clock.monotonic()
            if now - last >= REPORT_S and status.get("total_ram"):
                ctx.log.message(f"* memory transfer progress: {_share(status):.2f} %")
                last = now
            is_near = _is_near_end(status, wire)
            ctx.clock.wait(pause, FIRST_POLL_S if is_near else wait_s)
            wait_s = min(POLL_S, wait_s * 2)

    def _finish(self, wire: dict[str, Any], info: Any, what: str) -> None:
        ctx = self.ctx
        # The source has noted that the guest has left: it is not started there before
        # the new primary node is recorded.
        self._let_go_on(wire, info, what)
        self._reached(Phase.FINISH)
        self.commit_primary(self.target)
        left = ctx.rpc.call_one(
            *("instance_finalize_migration_src", self.source, self.encode()),
            *(True, self.is_live),
        )
        if left.failed:
            source, target = (
                common.node_name(ctx, uuid) for uuid in (self.source, self.target)
            )
            ctx.log.warn(
                f"{left.describe(what)}; the guest runs on node {target}, which is its"
                f" primary node now; when node {source} answers, run gnt-instance"
                f" migrate --cleanup {self.instance.name} to remove the rest there"
            )
        firmware.save(ctx, self.uuid, self.target)
        self._free_disks(self.source, what)
        ctx.log.message("* done")

    def _let_go_on(self, wire: dict[str, Any], info: Any, what: str) -> None:
        """Let the guest go on at the target, which its source has left to it.

        Raises:
            OpExecError: it does not go on there, or the target does not say so.
        """
        ctx, begun = self.ctx, self.ctx.clock.monotonic()
        while not self.has_gone_on:
            arrived = ctx.rpc.call_one(
                "instance_finalize_migration_dst", self.target, wire, info, True
            )
            self.has_gone_on = not arrived.failed
            if not arrived.failed:
                return
            is_early = ctx.clock.monotonic() < begun + SILENCE_S
            if _may_answer(arrived) and is_early:
                ctx.clock.wait(threading.Event(), POLL_S)
                continue
            self.is_undecided = True
            source, target = (
                common.node_name(ctx, uuid) for uuid in (self.source, self.target)
            )
            raise errors.OpExecError(
                f"{arrived.describe(what)}; node {source} has given the guest up, which"
                f" may wait on node {target}: run gnt-instance migrate --cleanup"
                f" {self.instance.name}"
            )

    def _free_disks(self, node: str, what: str) -> None:
        """Give the disks up on the node that the guest is not on; mirrors stay."""
        ctx, instance = self.ctx, self.instance
        for disk in ctx.snapshot.instance_disks(instance):
            wire = encode.disk(ctx.snapshot, disk, instance)
            if mirror_specs.is_mirror(disk):
                name = instance.name
                result = ctx.rpc.call_one("blockdev_close", node, name, [wire])
            else:
                result = ctx.rpc.call_one("blockdev_shutdown", node, wire)
            common.warn_failed(ctx, result, f"{what}: cannot free {disk.iv_name}")
        self._open_alone(node, what)
        try:
            self._set_primaries(what, both=False)
        except errors.OpExecError as err:
            ctx.log.warn(
                f"{err}; both nodes may be primary until gnt-instance migrate --cleanup"
                f" {instance.name}"
            )

    def _open_alone(self, freed: str, what: str) -> None:
        """Allow the node on which the guest stays to write alone; it writes already."""
        stays = self.target if freed == self.source else self.source
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
            disk for _index, disk in mirrors.of(self.ctx.snapshot, self.instance)
        ]
        if not mirrored:
            return
        wires = [encode.disk(self.ctx.snapshot, d, self.instance) for d in mirrored]
        nodes = sorted({node for disk in mirrored for node in disk.nodes})
        answers = self.ctx.rpc.call("drbd_attach_net", nodes, [wires, both])
        for answer in answers.values():
            answer.unwrap(f"{what}: cannot change the connection of its disks")

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
        asked = self.ctx.rpc.call_one(
            "instance_get_migration_status", self.source, wire
        )
        if asked.failed or (asked.payload or {}).get("status") != "completed":
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
            kept = ctx.rpc.call_one(
                *("instance_finalize_migration_src", self.source, wire),
                *(False, self.is_live),
            )
            if kept.failed and self._may_have_copy():
                return (
                    f"{kept.describe(what)}; node"
                    f" {common.node_name(ctx, self.target)} keeps what it has of the"
                    f" guest: run gnt-instance migrate --cleanup {name}"
                )
            common.warn_failed(ctx, kept, what)
        result = ctx.rpc.call_one(
            "instance_finalize_migration_dst", self.target, wire, info, False
        )
        common.warn_failed(ctx, result, what)
        self._free_disks(self.target, what)
        return None

    def _may_have_copy(self) -> bool:
        """Return whether the target has something of the guest, or does not answer.

        An incomplete copy ends by itself if the emulator of its source has ended, for
        example because its user has shut the guest down.
        """
        clock, never = self.ctx.clock, threading.Event()
        end = clock.monotonic() + ENDING_S
        while True:
            result = self.ctx.rpc.call_one(
                "instance_list", self.target, *self._hypervisors()
            )
            if result.failed or self.instance.name not in result.payload:
                return result.failed
            if clock.monotonic() >= end:
                return True
            clock.wait(never, POLL_S)

    def _hypervisors(self) -> tuple[list[str], dict[str, Any]]:
        """Return the arguments of ``instance_list``."""
        hv = self.instance.hypervisor
        return [hv], {hv: self.ctx.snapshot.cluster.hvparams.get(hv, {})}

    def _failed(self, text: str) -> errors.OpExecError:
        """Return the error of a migration, with the place of the guest after it."""
        return errors.OpExecError(f"{text}; {self._where()}")

    def _where(self) -> str:
        """Return where the guest runs now, and the command if it does not run."""
        instance, snapshot = self.instance, self.ctx.snapshot
        runs_on, silent = [], []
        for uuid in (self.source, self.target):
            result = self.ctx.rpc.call_one("instance_list", uuid, *self._hypervisors())
            if result.failed:
                silent.append(snapshot.nodes[uuid].name)
            elif instance.name in result.payload:
                runs_on.append(snapshot.nodes[uuid].name)
        source = snapshot.nodes[self.source].name
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

    def _clean_up(self) -> None:
        """Find the node that runs the instance and record it."""
        instance, snapshot = self.instance, self.ctx.snapshot
        places = self._find_places()
        others = [uuid for uuid in places if uuid != instance.primary_node]
        if len(others) == 1 and len(places) > 1:
            self._end_interrupted(others[0])
            return
        if len(places) > 1:
            where = ", ".join(sorted(snapshot.nodes[uuid].name for uuid in places))
            raise errors.OpExecError(
                f"instance {instance.name}: is running on more than one node: {where};"
                " stop it on all but one by hand, then try again"
            )
        if not places:
            way = _FAIL_OVER if self.primary.offline else _STOP_AND_START
            raise errors.OpExecError(
                f"instance {instance.name}: does not run on any node; {way}"
            )
        [place] = places
        is_waiting = waiting_copies.may_go_on(self, place)
        if is_waiting:
            # Before the record names the node: it may not go on there.
            self._take_over(place)
        if place == instance.primary_node:
            self.ctx.log.message(
                "* instance confirmed to be running on its primary node"
            )
        else:
            name = snapshot.nodes[place].name
            self.source, self.target = instance.primary_node, place
            self.ctx.log.message(f"* instance running on node {name}, updating config")
            self.commit_primary(place)
            self._forget_at_source()
        if not is_waiting:
            # It may run there before the target was asked to finish the migration.
            self._take_over(place)
        left = set(self.ctx.snapshot.secondary_nodes(self.instance))
        # Without copies the node that it has left has the storage attached.
        left |= {instance.primary_node} - {place}
        what = f"instance {instance.name}: clean-up"
        for node in sorted(left):
            if snapshot.nodes[node].offline:
                self._open_alone(node, what)
            else:
                self._free_disks(node, what)
        self._make_primary(place, what)

    def _find_places(self) -> list[str]:
        """Return the nodes that have the guest, or a copy of it.

        Raises:
            OpExecError: a node does not answer, and no other node runs the guest.
        """
        instance, snapshot = self.instance, self.ctx.snapshot
        what = "cannot find out where the instance runs"
        online = [uuid for uuid, node in snapshot.nodes.items() if not node.offline]
        results = self.ctx.rpc.call("instance_list", online, list(self._hypervisors()))
        silent = [each for each in results.values() if each.failed and not each.offline]
        places = [
            uuid
            for uuid, result in results.items()
            if not result.failed and instance.name in result.payload
        ]
        # A guest goes on at the target after the source, which may be dead, has given
        # it up: so it runs there alone.
        if not (
            len(places) == 1
            and places != [instance.primary_node]
            and elsewhere.runs_at(self.ctx, instance, places[0])
        ):
            for result in silent:
                result.unwrap(what)
        for result in silent:
            self.ctx.log.warn(
                f"{result.describe(what)}; it runs on node"
                f" {common.node_name(self.ctx, places[0])}"
            )
        return places

    def _take_over(self, node: str) -> None:
        self.ctx.rpc.call_one(
            "instance_finalize_migration_dst", node, self.encode(), "", True
        ).unwrap(f"instance {self.instance.name}: cannot finish its migration")

    def _make_primary(self, node: str, what: str) -> None:
        """Let mirrored disks be primary where the guest is, even if nobody uses them.

        Raises:
            OpExecError: the node refused.
        """
        wire = self.encode()
        for index, disk in mirrors.of(self.ctx.snapshot, self.instance):
            disk_wire = encode.disk(self.ctx.snapshot, disk, self.instance)
            self.ctx.rpc.call_one(
                "blockdev_assemble", node, disk_wire, wire, True, index
            ).unwrap(f"{what}: cannot make disk {index} primary")

    def _forget_at_source(self) -> None:
        """Let the node that the guest has left start it again one day."""
        if self.ctx.snapshot.nodes[self.source].offline:
            return
        left = self.ctx.rpc.call_one(
            *("instance_finalize_migration_src", self.source, self.encode()),
            *(True, True),
        )
        what = f"instance {self.instance.name}: clean-up"
        common.warn_failed(self.ctx, left, what)

    def _end_interrupted(self, other: str) -> None:
        """Finish or abort a migration whose job was interrupted.

        The emulators continue without the job. The nodes refuse to stop a guest that
        runs at the target, and to resume a guest that has left the source.
        """
        name = self.ctx.snapshot.nodes[other].name
        self.ctx.log.message(f"* the instance is being migrated to node {name}")
        self.source, self.target = self.instance.primary_node, other
        self.is_live = True
        what = f"instance {self.instance.name}: interrupted migration"
        wire = self.encode()
        try:
            self._wait(wire, "", what)
        except errors.OpExecError as err:
            if self.is_undecided:
                raise
            self.ctx.log.message(f"* {err}; it stays on its primary node")
            return
        self._finish(wire, "", what)


def _may_answer(failure: rpc.Result) -> bool:
    """Return whether a node that does not answer may do so soon."""
    return failure.is_silent or failure.is_lost


def _is_near_end(status: dict[str, Any], wire: dict[str, Any]) -> bool:
    """Return whether a transfer ends in a few seconds, so that each poll counts."""
    bandwidth = wire["hvparams"].get("migration_bandwidth")
    left = status.get("remaining_ram")
    return bool(bandwidth and left is not None and left <= NEAR_S * bandwidth * _MIB)


def _reason(result: Any, status: dict[str, Any]) -> str:
    """Return why a migration failed; texts of nodes are bounded."""
    if result.failed:
        return str(result.fail_msg)
    if status.get("status") == "cancelled":
        return "it was canceled on the source node"
    reason = status.get("error")
    return reason[:_REASON_LENGTH] if isinstance(reason, str) and reason else _NO_REASON


def _share(status: dict[str, Any]) -> float:
    """Return the transferred part of the memory in per cent.

    More than the memory may have been sent, because the guest continues to write.
    """
    total, left = float(status["total_ram"]), status.get("remaining_ram")
    done: float = (status.get("transferred_ram") or 0) if left is None else total - left
    return min(100.0, 100.0 * done / total)
