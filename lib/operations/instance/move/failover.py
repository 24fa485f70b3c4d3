"""OP_INSTANCE_FAILOVER: stop on one node, start on another."""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from ganeti.base import errors
from ganeti.decisions.repair import journal
from ganeti.model import opcodes
from ganeti.model.objects import params
from ganeti.operations.instance import common
from ganeti.operations.instance.devices import firmware
from ganeti.operations.instance.disks import disks_on_nodes as disks
from ganeti.operations.instance.disks import mirrors
from ganeti.operations.instance.move import relocation
from ganeti.operations.instance.run import waiting_copies


class Interrupted(msgspec.Struct, frozen=True):
    """The state of a failover whose master daemon ended.

    Attributes:
        source, target: uuids of the nodes.
        is_stopped: whether its disks were being shut down after the guest.
    """

    source: str
    target: str
    is_stopped: bool = False


class InstanceFailover(relocation.RelocationUnit[opcodes.InstanceFailover]):
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
    unit: "relocation.RelocationUnit[Any]", *, must_answer: bool | None = None
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


def require_complete(unit: "relocation.RelocationUnit[Any]") -> None:
    """Refuse a target that lacks data of active disks.

    Raises:
        OpPrereqError: it does, or does not say.
    """
    ctx, instance = unit.ctx, unit.instance
    if instance.disks_active:
        mirrored = mirrors.of(ctx.snapshot, instance)
        mirrors.require_complete(
            *(ctx, instance, mirrored, unit.target),
            "fail over (ignore consistency only if that data may be lost)",
            is_peer_away=unit.primary.offline,
        )


def resume(
    unit: "relocation.RelocationUnit[Any]",
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
    ctx, target = unit.ctx, common.node_name(unit.ctx, unit.target)
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
    unit: "relocation.RelocationUnit[Any]",
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
    unit.save_failover(is_stopped=is_stopped)
    source = ctx.snapshot.nodes[unit.source]
    is_promised = ignore_consistency and not journal.is_of_automaton(unit.op.reason)
    excused = source.offline or is_promised
    ctx.log.message(f"* shutting down instance on source node {source.name}")
    result = ctx.rpc.call_one(
        "instance_shutdown",
        source.uuid,
        unit.encode(),
        shutdown_timeout_s,
        unit.op.reason,
        timeout_s=shutdown_timeout_s + common.STOP_GRACE_S,
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
        firmware.save(ctx, unit.uuid, unit.source)
    unit.save_failover(is_stopped=True)
    # Before the disks, which it may have opened.
    waiting_copies.remove(unit, unit.target)
    ctx.log.message("* deactivating the instance's disks on source node")
    if not disks.shutdown(ctx, instance, ignore_primary=excused):
        raise errors.OpExecError(
            f"instance {instance.name}: its disks could not be shut down on node"
            f" {source.name}"
        )
    unit.commit_primary(unit.target)
    if instance.admin_state != "up":
        return
    _start_at_target(unit)


def _start_at_target(unit: "relocation.RelocationUnit[Any]") -> None:
    ctx, instance = unit.ctx, unit.instance
    name = ctx.snapshot.nodes[unit.target].name
    ctx.log.message(f"* activating the instance's disks on target node {name}")
    disks.assemble(ctx, instance, ignore_secondaries=True)
    ctx.log.message(f"* starting the instance on the target node {name}")
    result = ctx.rpc.call_one(
        "instance_start", unit.target, unit.encode_start(), False, unit.op.reason
    )
    if result.failed:
        disks.shutdown(ctx, unit.instance)
    result.unwrap(f"instance {instance.name}: could not be started")
