"""OP_INSTANCE_SHUTDOWN: stop an instance."""

from typing import Any, ClassVar

from ganeti.base import errors
from ganeti.model import opcodes
from ganeti.operations.instance import common
from ganeti.operations.instance.devices import firmware
from ganeti.operations.instance.disks import disks_on_nodes as disks
from ganeti.operations.instance.run import elsewhere


class InstanceShutdown(common.InstanceUnit[opcodes.InstanceShutdown]):
    """Unit that stops an instance, first with a shutdown request, and marks it down."""

    NEEDS_EXISTING: ClassVar[str] = "there is nothing to stop"
    HOOKS_PATH: ClassVar[str | None] = "instance-stop"

    def check_prereq(self) -> None:
        """Check state and node."""
        if not self.op.force:
            self.require_admin_state(("up", "down"), "be stopped")
        self.primary_offline = self.primary.offline
        if self.primary_offline and self.op.ignore_offline_nodes:
            self.ctx.log.warn(
                f"primary node {self.primary.name} is offline, only the"
                " recorded state changes"
            )
        else:
            self.require_online_primary()
        self._require_here()

    def _require_here(self) -> None:
        """Refuse what another node runs, which this would record as down.

        A silent node is no reason to let a guest run that its user wants stopped.
        """
        if self.op.force:
            elsewhere.warn(self.ctx, self.instance, "goes on there")
        else:
            self.require_nowhere_else("be stopped", must_answer=False)

    def hooks_env(self) -> dict[str, Any]:
        """Return the variables of the instance and the time limit."""
        return super().hooks_env() | {"TIMEOUT": self.op.timeout}

    def resume(self) -> None:
        """Do all steps again: nobody has started it since."""
        self.ctx.log.message(
            "* the master daemon was restarted; the instance is being stopped"
        )
        self._require_here()
        self.primary_offline = self.primary.offline and self.op.ignore_offline_nodes
        self.execute()

    def execute(self) -> None:
        """Mark it down, stop it, shut its disks down."""
        # All steps can be repeated, and the first may take minutes.
        self.ctx.save_resumption({})
        if not self.op.no_remember and self.instance.admin_state != "offline":
            common.set_instance(
                self.ctx,
                self.uuid,
                admin_state="down",
                admin_state_source=self.op.admin_state_source or "admin",
            )
        if self.primary_offline:
            return
        instance = self.instance
        self.ctx.rpc.call_one(
            "instance_shutdown",
            instance.primary_node,
            self.encode(),
            self.op.timeout,
            self.op.reason,
            timeout_s=self.op.timeout + common.STOP_GRACE_S,
        ).unwrap(f"instance {instance.name}: could not be stopped")
        firmware.save(self.ctx, self.uuid, instance.primary_node)
        if not disks.shutdown(self.ctx, instance):
            raise errors.OpExecError(
                f"instance {instance.name}: is stopped, but not all of its disks could"
                " be shut down"
            )
