"""OP_INSTANCE_MIGRATE: move a running instance without stopping it."""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.model import opcodes
from ganeti.model.objects import params
from ganeti.operations.instance import common
from ganeti.operations.instance.disks import mirror_states
from ganeti.operations.instance.move import failover, migration_steps, move_target
from ganeti.operations.instance.run import elsewhere
from ganeti.protocols.rpc import calls

_VERSION_LENGTH: Final = 50
#: Seconds for the clean shutdown of a guest that fails over instead.
_SHUTDOWN_S: Final = 120
_STOP_AND_START: Final = "stop and start it with gnt-instance shutdown and startup"
_FAIL_OVER: Final = "start it on another one with gnt-instance failover"


class InstanceMigrate(move_target.RelocationUnit[opcodes.InstanceMigrate]):
    """Unit that migrates an instance, may fall back to failover, or cleans up."""

    HOOKS_PATH: ClassVar[str | None] = "instance-migrate"
    #: Where the migration was interrupted.
    left: migration_steps.Interrupted | None = None
    #: MiB to which the memory is shrunk before; None if it stays.
    balloon_to: int | None = None

    def expand_names(self) -> None:
        """Look instance and target up; an interrupted migration has its nodes."""
        if self.ctx.resumption is None:
            super().expand_names()
            return
        self.left = msgspec.convert(self.ctx.resumption, migration_steps.Interrupted)
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
        # The clean-up asks all nodes for the guest: the record may name the wrong node.
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
        # `check_target` takes the memory of a forthcoming instance from its parameters.
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
        # A guest that was shrunk before has less memory than its record.
        current = int(self.runtime_info().memory or backend["maxmem"])
        mirrored = mirror_states.of(self.ctx.snapshot, instance)
        target = self.target
        mirror_states.require_complete(self.ctx, instance, mirrored, target, "migrate")
        low = backend["minmem"] if self.op.allow_runtime_changes else current
        free = self.check_target(low)
        self.balloon_to = free if free is not None and free < current else None
        asked = self.ctx.rpc.call_node(
            self.source, calls.instance_migratable(self.encode())
        )
        what = f"instance {instance.name}: cannot migrate"
        if asked.failed and self.op.allow_failover:
            self.ctx.log.info(f"{asked.describe(what)}; failing over")
            self.is_failover = True
            failover.require_alone(self)
            return
        asked.require(what, ecodes.ECODE_STATE)
        self._compare_versions(filled)

    def _compare_versions(self, filled: dict[str, Any]) -> None:
        spec = [(self.instance.hypervisor, filled)]
        versions = {}
        for node in (self.source, self.target):
            info = self.ctx.rpc.call_node(node, calls.node_info([], spec)).require(
                "cannot compare hypervisor versions", ecodes.ECODE_ENVIRON
            )
            versions[node] = info.host.hv_version
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
                # The checks of a clean-up, or of a reservation, end before they set it.
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
            CleanUp(self).run()
        elif self.is_failover:
            failover.fail_over(
                self, shutdown_timeout_s=_SHUTDOWN_S, ignore_consistency=False
            )
        else:
            self.ctx.log.message(f"Migrating instance {self.instance.name}")
            self._migration().run()

    def resume(self) -> None:
        """Continue where the last master daemon ended; the emulators have gone on."""
        left = self.left
        if left is None:
            raise errors.ProgrammerError("a migration without a state was resumed")
        phases = migration_steps.Phase
        if left.phase in (phases.FAILOVER, phases.STOPPED):
            failover.resume(
                self,
                is_stopped=left.phase == phases.STOPPED,
                shutdown_timeout_s=_SHUTDOWN_S,
                ignore_consistency=False,
            )
            return
        self._migration().resume(left.phase)

    def save_failover(self, *, is_stopped: bool) -> None:
        """Store that it has become a failover."""
        phases = migration_steps.Phase
        phase = phases.STOPPED if is_stopped else phases.FAILOVER
        migration_steps.save(self, phase, is_live=self.is_live)

    def _migration(self) -> migration_steps.MigrationSteps:
        return migration_steps.MigrationSteps(
            self, is_live=self.is_live, balloon_to=self.balloon_to
        )


class CleanUp(common.InstanceWork):
    """The clean-up after a migration: finds the guest, and ends what is left."""

    def __init__(self, unit: InstanceMigrate) -> None:
        super().__init__(unit.ctx, unit.instance)
        self._unit = unit
        self._disks = migration_steps.MigratedDisks(unit)

    def run(self) -> None:
        """Find the node that runs the instance and record it."""
        instance, snapshot = self.instance, self.ctx.snapshot
        places = self._find_places()
        others = [uuid for uuid in places if uuid != instance.primary_node]
        # The primary node and one other: both ends of a migration that goes on.
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
            way = _FAIL_OVER if self._unit.primary.offline else _STOP_AND_START
            raise errors.OpExecError(
                f"instance {instance.name}: does not run on any node; {way}"
            )
        [place] = places
        is_waiting = failover.waiting_copy_may_go_on(self._unit, place)
        if is_waiting:
            # Before the record names the node: it may not go on there.
            self._take_over(place)
        if place == instance.primary_node:
            self.ctx.log.message(
                "* instance confirmed to be running on its primary node"
            )
        else:
            name = snapshot.nodes[place].name
            self._unit.source, self._unit.target = instance.primary_node, place
            self.ctx.log.message(f"* instance running on node {name}, updating config")
            self._unit.commit_primary(place)
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
                self._disks.open_alone(node, what)
            else:
                self._disks.free(node, what)
        self._disks.make_primary(place, what)

    def _find_places(self) -> list[str]:
        """Return the nodes that have the guest, or a copy of it.

        Raises:
            OpExecError: a node does not answer, and no other node runs the guest.
        """
        instance, snapshot = self.instance, self.ctx.snapshot
        what = "cannot find out where the instance runs"
        online = [uuid for uuid, node in snapshot.nodes.items() if not node.offline]
        results = self.ctx.rpc.call_nodes(
            online, calls.instance_list(*migration_steps.hypervisors_of(self._unit))
        )
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
        # If a node is silent here, exactly one other node runs the guest; see above.
        for result in silent:
            self.ctx.log.warn(
                f"{result.describe(what)}; it runs on node"
                f" {self.ctx.node_name(places[0])}"
            )
        return places

    def _take_over(self, node: str) -> None:
        self.ctx.rpc.call_node(
            node, calls.instance_finalize_migration_dst(self._unit.encode(), "", True)
        ).unwrap(f"instance {self.instance.name}: cannot finish its migration")

    def _forget_at_source(self) -> None:
        """Let the node that the guest has left start it again one day."""
        if self.ctx.snapshot.nodes[self._unit.source].offline:
            return
        left = self.ctx.rpc.call_node(
            self._unit.source,
            calls.instance_finalize_migration_src(self._unit.encode(), True, True),
        )
        what = f"instance {self.instance.name}: clean-up"
        self.ctx.warn_failed(left, what)

    def _end_interrupted(self, other: str) -> None:
        """Finish or abort a migration whose job was interrupted.

        The emulators continue without the job. The nodes refuse to stop a guest that
        runs at the target, and to resume a guest that has left the source.
        """
        name = self.ctx.snapshot.nodes[other].name
        self.ctx.log.message(f"* the instance is being migrated to node {name}")
        self._unit.source, self._unit.target = self.instance.primary_node, other
        migration = migration_steps.MigrationSteps(
            self._unit, is_live=True, work="interrupted migration"
        )
        wire = self._unit.encode()
        try:
            migration.wait(wire, "")
        except errors.OpExecError as err:
            # The target may have the only copy; else the abort has freed it.
            if migration.is_undecided:
                raise
            self.ctx.log.message(f"* {err}; it stays on its primary node")
            return
        migration.finish(wire, "")
