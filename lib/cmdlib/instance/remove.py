"""OP_INSTANCE_REMOVE: remove an instance and its disks."""

from collections.abc import Sequence
from typing import Any, ClassVar

from ganeti import errors, objects, opcodes
from ganeti.cmdlib.instance import common, removal, reservation
from ganeti.constants import ecodes


class InstanceRemove(common.InstanceUnit[opcodes.InstanceRemove]):
    """Unit that stops an instance and removes its disks and its record."""

    HOOKS_PATH: ClassVar[str | None] = "instance-remove"
    LOCK_NODES: ClassVar[bool] = True
    NEEDS_EXISTING: ClassVar[str] = ""

    def check_prereq(self) -> None:
        """Keep the node list, which is not in the configuration afterwards."""
        self._check_expired()
        self.nodes = list(self.ctx.snapshot.instance_nodes(self.instance))
        self.env = super().hooks_env() | {"SHUTDOWN_TIMEOUT": self.op.shutdown_timeout}

    def _check_expired(self) -> None:
        """Refuse to release what has not expired, such as an extended reservation.

        Raises:
            OpPrereqError: it has not expired.
        """
        instance = self.instance
        now = self.ctx.clock.time()
        if self.op.if_expired and not reservation.has_expired(instance, now):
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
        result = self.ctx.rpc.call_one(
            "instance_shutdown",
            instance.primary_node,
            self.encode(),
            op.shutdown_timeout,
            op.reason,
            timeout_s=op.shutdown_timeout + common.STOP_GRACE_S,
        )
        if result.failed:
            what = f"instance {instance.name}: could not be stopped"
            if not op.ignore_failures:
                raise errors.OpExecError(result.describe(what))
            self.ctx.log.warn(result.describe(what))
        removal.remove(self.ctx, instance, ignore_failures=op.ignore_failures)

    def _release(self, instance: objects.Instance) -> None:
        """Remove the record of a forthcoming instance: nothing of it is on nodes."""
        self.ctx.log.message(f"releasing the reservation of instance {instance.name}")
        with self.ctx.config.edit(self.ctx.owner) as edit:
            edit.remove_instance(instance.uuid)
