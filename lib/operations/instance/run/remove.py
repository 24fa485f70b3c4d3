"""OP_INSTANCE_REMOVE: remove an instance and its disks."""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.master import locking
from ganeti.model import objects, opcodes
from ganeti.operations import base
from ganeti.operations.instance import common
from ganeti.operations.instance.create import reservation_terms
from ganeti.operations.instance.disks import node_disks


def remove_stopped(
    ctx: base.Context, instance: objects.Instance, *, ignore_failures: bool
) -> None:
    """Remove the disks and the record of an instance that is stopped.

    Raises:
        OpExecError: a disk could not be removed, and failures are not ignored.
    """
    attached = ctx.snapshot.instance_disks(instance)
    if not node_disks.remove_all(ctx, instance, attached):
        if not ignore_failures:
            raise errors.OpExecError(
                f"instance {instance.name}: not all of its disks could be removed"
            )
        ctx.log.warn(
            "not all disks could be removed, going on because failures are ignored"
        )
    with ctx.config.edit(ctx.owner) as edit:
        edit.remove_instance(instance.uuid)


class Interrupted(msgspec.Struct, frozen=True):
    """The state of a removal whose master daemon ended.

    Attributes:
        uuid: of the instance.
        nodes: uuids of its nodes.
        env: hook variables from before the removal.
    """

    uuid: str
    nodes: list[str]
    env: dict[str, Any]


class InstanceRemove(common.InstanceUnit[opcodes.InstanceRemove]):
    """Unit that stops an instance and removes its disks and its record."""

    HOOKS_PATH: ClassVar[str | None] = "instance-remove"
    LOCK_NODES: ClassVar[bool] = True
    NEEDS_EXISTING: ClassVar[str] = ""

    def expand_names(self) -> None:
        """Look the instance up; an interrupted removal may have removed its record."""
        if self.ctx.resumption is None:
            super().expand_names()
            return
        left = msgspec.convert(self.ctx.resumption, Interrupted)
        self.uuid, self.env = left.uuid, left.env
        present = self.ctx.snapshot.nodes
        self.nodes = [node for node in left.nodes if node in present]
        if not self._is_gone:
            super().expand_names()

    @property
    def _is_gone(self) -> bool:
        return self.uuid not in self.ctx.snapshot.instances

    def declare_locks(self, level: locking.Level) -> None:
        """Declare the nodes of an instance that is there."""
        if not self._is_gone:
            super().declare_locks(level)

    def check_prereq(self) -> None:
        """Keep the node list, which is not in the configuration afterwards."""
        self._check_expired()
        if not self.instance.forthcoming:
            self.require_nowhere_else("be removed")
        self.nodes = list(self.ctx.snapshot.instance_nodes(self.instance))
        self.env = super().hooks_env() | {"SHUTDOWN_TIMEOUT": self.op.shutdown_timeout}

    def _check_expired(self) -> None:
        """Refuse to release what has not expired, such as an extended reservation.

        Raises:
            OpPrereqError: it has not expired.
        """
        instance = self.instance
        now = self.ctx.clock.time()
        if self.op.if_expired and not reservation_terms.has_expired(instance, now):
            raise self.prereq(
                f"instance {instance.name}: is not a reservation that has expired, so"
                " it stays",
                ecodes.ECODE_STATE,
            )

    def hooks_env(self) -> dict[str, Any]:
        """Return the variables of the instance before the removal."""
        return self.env

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the master; for post hooks the instance's nodes too."""
        return self.with_master(()), self.with_master(self.nodes)

    def execute(self) -> None:
        """Stop it, remove its disks, remove its record."""
        instance, op = self.instance, self.op
        if instance.forthcoming:
            self._release(instance)
            return
        # Without some of its disks, nobody may start it again.
        state = Interrupted(self.uuid, self.nodes, self.env)
        self.ctx.save_resumption(msgspec.to_builtins(state))
        result = common.stop_guest(self.ctx, instance, op.shutdown_timeout, op.reason)
        if result.failed:
            what = f"instance {instance.name}: could not be stopped"
            if not op.ignore_failures:
                raise errors.OpExecError(result.describe(what))
            self.ctx.log.warn(result.describe(what))
        remove_stopped(self.ctx, instance, ignore_failures=op.ignore_failures)

    def resume(self) -> None:
        """Do all steps again, unless the last one was done."""
        self.ctx.log.message("* the master daemon was restarted; the removal goes on")
        if not self._is_gone:
            self.execute()

    def _release(self, instance: objects.Instance) -> None:
        """Remove the record of a forthcoming instance: nothing of it is on nodes."""
        self.ctx.log.message(f"releasing the reservation of instance {instance.name}")
        with self.ctx.config.edit(self.ctx.owner) as edit:
            edit.remove_instance(instance.uuid)
