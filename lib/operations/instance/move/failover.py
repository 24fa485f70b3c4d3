"""OP_INSTANCE_FAILOVER: stop on one node, start on another.

The target can have a guest already: one that came there in a migration, and waits for
the master. The source of the migration decides. A copy goes on only if its source says
that it has given the guest up, or has not let it run since it was stopped: otherwise
the guest may have run there and changed its disks, which the memory of the copy does
not fit. So if the source is lost, the guest is booted from its disks, and the copy is
removed.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from ganeti.base import errors
from ganeti.decisions.repair import journal
from ganeti.model import opcodes
from ganeti.model.objects import params
from ganeti.operations.instance import common
from ganeti.operations.instance.devices import firmware
from ganeti.operations.instance.disks import mirror_states, node_disks
from ganeti.operations.instance.move import move_target
from ganeti.operations.instance.run import elsewhere
from ganeti.protocols import rpc
from ganeti.protocols.rpc import calls
from ganeti.protocols.rpc.answers import Migration


def remove_waiting_copy(unit: "move_target.RelocationUnit[Any]", node: str) -> None:
    """Remove what a migration has left on a node, so that the guest can boot there.

    Never a guest that runs; the node refuses that as well. An emulator that a guest
    has left looks as if it ran, until a migration from there is finished.
    """
    if unit.instance.hypervisor not in elsewhere.LEAVE_COPIES:
        return
    ctx, wire = unit.ctx, unit.encode()
    info = elsewhere.info(ctx, unit.instance, node)
    if info.failed:
        return
    if info.payload.is_running:
        asked = ctx.rpc.call_node(node, calls.instance_get_migration_status(wire))
        if asked.failed or not asked.payload.is_completed:
            return
    removed = ctx.rpc.call_node(
        node, calls.instance_finalize_migration_dst(wire, "", False)
    )
    what = f"instance {unit.instance.name}: cannot remove its waiting copy"
    ctx.warn_failed(removed, what)


def waiting_copy_may_go_on(unit: "move_target.RelocationUnit[Any]", place: str) -> bool:
    """Return whether the only guest waits on its node, and may go on there.

    If the source has not given the guest up, the copy is removed.

    Raises:
        OpExecError: the guest may not go on; or a node does not answer.
    """
    instance, call = unit.instance, unit.ctx.rpc.call_node
    what = f"instance {instance.name}: clean-up"
    info = elsewhere.info(unit.ctx, instance, place).unwrap(what)
    if not info.is_shut_down:
        return False
    wire = unit.encode()
    answers = {
        uuid: call(uuid, calls.instance_get_migration_status(wire))
        for uuid in _sources(unit, place)
    }
    if any(_has_given_up(each) for each in answers.values()):
        return True
    node = unit.ctx.node_name(place)
    if place == instance.primary_node:
        raise errors.OpExecError(
            f"instance {instance.name}: does not run on node {node}, and no other"
            " node says that it has given it up; stop and start it with"
            " gnt-instance shutdown and startup"
        )
    # Away from the primary node, `_sources` returns the primary node alone.
    [(uuid, asked)] = answers.items()
    source = unit.ctx.node_name(uuid)
    if asked.failed:
        raise errors.OpExecError(
            f"{asked.describe(what)}, so the copy on node {node} waits; run"
            f" gnt-instance migrate --cleanup {instance.name} when node {source}"
            " answers, or, if it has died, mark it offline and use gnt-instance"
            " failover, which removes the copy and boots the instance"
        )
    call(place, calls.instance_finalize_migration_dst(wire, "", False)).unwrap(what)
    raise errors.OpExecError(
        f"instance {instance.name}: does not run on any node: node {source} has"
        f" not given it up, and does not run it any more, so its copy on node"
        f" {node} was removed; stop and start it with gnt-instance shutdown and"
        " startup"
    )


def _sources(unit: "move_target.RelocationUnit[Any]", place: str) -> list[str]:
    """Return the nodes from which a guest may have come to its place."""
    snapshot, primary = unit.ctx.snapshot, unit.instance.primary_node
    if place != primary:
        return [primary]
    # It failed over there, so the record does not have its source any more.
    nodes = snapshot.secondary_nodes(unit.instance) or snapshot.nodes
    return sorted(
        uuid for uuid in nodes if uuid != place and not snapshot.nodes[uuid].offline
    )


def _has_given_up(answer: rpc.Answer[Migration]) -> bool:
    """Return whether a node has given a guest up, or has not let it run since."""
    if answer.failed:
        return False
    return answer.payload.is_completed or answer.payload.is_stopped is True


class Interrupted(msgspec.Struct, frozen=True):
    """The state of a failover whose master daemon ended.

    Attributes:
        source, target: uuids of the nodes.
        is_stopped: whether its disks were being shut down after the guest.
    """

    source: str
    target: str
    is_stopped: bool = False


class InstanceFailover(move_target.RelocationUnit[opcodes.InstanceFailover]):
    """Unit that restarts an instance on another node, also if its own node is down."""

    HOOKS_PATH: ClassVar[str | None] = "instance-failover"

    def expand_names(self) -> None:
        """Look instance and target up; an interrupted failover has its nodes."""
        if self.ctx.resumption is None:
            super().expand_names()
            return
        left = msgspec.convert(self.ctx.resumption, Interrupted)
        self.expand_interrupted(left.source, left.target)

    def check_prereq(self) -> None:
        """Check the target; its memory only if the instance will run there."""
        instance = self.instance
        backend = params.fill_beparams(self.ctx.snapshot, instance)
        will_run = instance.admin_state == "up"
        self.check_target(
            backend["minmem"] if will_run else None,
            is_rescue=self.primary.offline or self.op.ignore_consistency,
        )
        if not self.op.ignore_consistency:
            require_complete(self)
        require_alone(self)

    def hooks_env(self) -> dict[str, Any]:
        """Return the variables of the instance and of the move."""
        return (
            super().hooks_env()
            | self.relocation_env()
            | {
                "IGNORE_CONSISTENCY": self.op.ignore_consistency,
                "SHUTDOWN_TIMEOUT": self.op.shutdown_timeout,
                "FAILOVER_CLEANUP": self.op.cleanup,
            }
        )

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return master, secondaries and target; for post hooks the old primary too."""
        secondaries = self.ctx.snapshot.secondary_nodes(self.instance)
        before = self.with_master([*secondaries, self.target])
        return before, self.with_master([*before, self.source])

    def execute(self) -> None:
        """Stop it at the source, switch the primary node, start it at the target."""
        fail_over(
            self,
            shutdown_timeout_s=self.op.shutdown_timeout,
            ignore_consistency=self.op.ignore_consistency,
        )

    def resume(self) -> None:
        """Go on where the last master daemon ended."""
        left = msgspec.convert(self.ctx.resumption, Interrupted)
        resume(
            self,
            is_stopped=left.is_stopped,
            shutdown_timeout_s=self.op.shutdown_timeout,
            ignore_consistency=self.op.ignore_consistency,
        )

    def save_failover(self, *, is_stopped: bool) -> None:
        """Store the nodes, and whether the guest is stopped."""
        state = Interrupted(self.source, self.target, is_stopped)
        self.ctx.save_resumption(msgspec.to_builtins(state))


def require_alone(
    unit: "move_target.RelocationUnit[Any]", *, must_answer: bool | None = None
) -> None:
    """Refuse an instance that runs on a third node, where nobody would stop it.

    One that runs at the target already is not started there again.

    Raises:
        OpPrereqError: it does, or in a job of an automaton: a node does not answer.
    """
    if not unit.instance.forthcoming:
        unit.require_nowhere_else(
            "be failed over", except_for=(unit.target,), must_answer=must_answer
        )


def require_complete(unit: "move_target.RelocationUnit[Any]") -> None:
    """Refuse a target that lacks data of active disks.

    Raises:
        OpPrereqError: it does, or does not say.
    """
    ctx, instance = unit.ctx, unit.instance
    if instance.disks_active:
        mirrored = mirror_states.of(ctx.snapshot, instance)
        mirror_states.require_complete(
            *(ctx, instance, mirrored, unit.target),
            "fail over (ignore consistency only if that data may be lost)",
            is_peer_away=unit.primary.offline,
        )


def resume(
    unit: "move_target.RelocationUnit[Any]",
    *,
    is_stopped: bool,
    shutdown_timeout_s: int,
    ignore_consistency: bool,
) -> None:
    """Continue a failover after a restart of the master daemon, see `fail_over`.

    Raises:
        OpPrereqError: the target lacks data, or another node runs the instance.
        OpExecError: a step failed.
    """
    ctx, target = unit.ctx, unit.ctx.node_name(unit.target)
    ctx.log.message(
        f"* the master daemon was restarted; the failover to {target} continues"
    )
    # It may have been started on another node while there was no master, whose own
    # silence is no reason to leave the instance down.
    require_alone(unit, must_answer=False)
    if unit.instance.primary_node != unit.target:
        if not (is_stopped or ignore_consistency):
            # The guest may have gone on at the source while there was no master. One
            # that was stopped has not, and its disks may be shut down at the target.
            require_complete(unit)
        fail_over(
            unit,
            is_stopped=is_stopped,
            shutdown_timeout_s=shutdown_timeout_s,
            ignore_consistency=ignore_consistency,
        )
    elif unit.instance.admin_state == "up":
        _start_at_target(unit)


def fail_over(
    unit: "move_target.RelocationUnit[Any]",
    *,
    is_stopped: bool = False,
    shutdown_timeout_s: int,
    ignore_consistency: bool,
) -> None:
    """Move an instance by stopping and starting it.

    Failures on a source node are ignored if the node is marked offline or with
    ``ignore_consistency``: an administrator has then made sure that it is down. An
    automaton has not; in its jobs ``ignore_consistency`` is about the disks alone.

    Raises:
        OpExecError: a step failed; before the primary node is switched, the only
            change is that the instance may be stopped.
    """
    ctx, instance = unit.ctx, unit.instance
    if instance.forthcoming:
        unit.commit_primary(unit.target)
        return
    # Stored before the guest stops, so that a restarted master starts it again.
    unit.save_failover(is_stopped=is_stopped)
    source = ctx.snapshot.nodes[unit.source]
    is_promised = ignore_consistency and not journal.is_of_automaton(unit.op.reason)
    excused = source.offline or is_promised
    ctx.log.message(f"* shutting down instance on source node {source.name}")
    result = common.stop_guest(
        *(ctx, unit.instance, shutdown_timeout_s, unit.op.reason), node=source.uuid
    )
    if result.failed:
        what = f"instance {instance.name}: could not be stopped"
        if not excused:
            raise errors.OpExecError(
                result.describe(what)
                + "; if the node is really down, mark it offline or ignore consistency"
            )
        ctx.log.warn(result.describe(what) + "; going on, make sure the node is down")
    else:
        # The originals are files of the source; the target gets the stored copies.
        firmware.save(ctx, unit.uuid, unit.source)
    # Stored before the disks are shut down: `require_complete` refuses inactive disks.
    unit.save_failover(is_stopped=True)
    # Before the disks, which it may have opened.
    remove_waiting_copy(unit, unit.target)
    ctx.log.message("* deactivating the instance's disks on source node")
    if not node_disks.shutdown(ctx, instance, ignore_primary=excused):
        raise errors.OpExecError(
            f"instance {instance.name}: its disks could not be shut down on node"
            f" {source.name}"
        )
    # After the shutdown and before the start: whoever starts the guest after a crash
    # uses the recorded primary node.
    unit.commit_primary(unit.target)
    if instance.admin_state != "up":
        return
    _start_at_target(unit)


def _start_at_target(unit: "move_target.RelocationUnit[Any]") -> None:
    ctx, instance = unit.ctx, unit.instance
    name = ctx.snapshot.nodes[unit.target].name
    ctx.log.message(f"* activating the instance's disks on target node {name}")
    # The secondary node is the source of this failover, which may be down.
    node_disks.assemble(ctx, instance, ignore_secondaries=True)
    ctx.log.message(f"* starting the instance on the target node {name}")
    result = common.start_guest(ctx, unit.instance, unit.op.reason)
    if result.failed:
        node_disks.shutdown(ctx, unit.instance)
    result.unwrap(f"instance {instance.name}: could not be started")
