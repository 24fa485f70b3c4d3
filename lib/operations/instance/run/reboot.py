"""OP_INSTANCE_REBOOT: restart an instance."""

from typing import Any, ClassVar

from ganeti.base import errors
from ganeti.model import opcodes
from ganeti.operations.instance import checks, common
from ganeti.operations.instance.devices import nic_specs
from ganeti.operations.instance.disks import disks_on_nodes as disks


class InstanceReboot(common.InstanceUnit[opcodes.InstanceReboot]):
    """Unit that restarts an instance (soft, hard, full) or starts a stopped one."""

    NEEDS_EXISTING: ClassVar[str] = "it cannot be rebooted"
    HOOKS_PATH: ClassVar[str | None] = "instance-reboot"

    def check_prereq(self) -> None:
        """Check node, bridges and state."""
        self.require_online_primary()
        self.require_admin_state(("up", "down"), "be rebooted")
        nic_specs.check_bridges(
            self.ctx,
            self.instance.nics,
            self.instance.primary_node,
            self.instance.name,
        )
        info = self.runtime_info()
        self.is_running = bool(info)
        # Also if it seems to run: an emulator that the guest has left looks so.
        self.require_nowhere_else("be rebooted")
        if not self.is_running or self.op.reboot_type != "soft":
            # With changed parameters it may take more memory than before.
            checks.require_unreserved(
                self.ctx,
                self.instance,
                self.instance.primary_node,
                used_mib=int(info.get("memory", 0)),
            )

    def hooks_env(self) -> dict[str, Any]:
        """Return the variables of the instance and of the reboot."""
        return super().hooks_env() | {
            "IGNORE_SECONDARIES": self.op.ignore_secondaries,
            "REBOOT_TYPE": self.op.reboot_type,
            "SHUTDOWN_TIMEOUT": self.op.shutdown_timeout,
        }

    def execute(self) -> None:
        """Mark it up, and restart or start it."""
        instance, op = self.instance, self.op
        what = f"instance {instance.name}: could not be rebooted"
        # Before the start: if the job is cut short, the watcher does the rest.
        common.set_instance(
            self.ctx, self.uuid, admin_state="up", admin_state_source="admin"
        )
        if self.is_running and op.reboot_type in ("soft", "hard"):
            disks.assemble(self.ctx, instance, ignore_secondaries=op.ignore_secondaries)
            self.ctx.rpc.call_one(
                "instance_reboot",
                instance.primary_node,
                self.encode_start(),
                op.reboot_type,
                op.shutdown_timeout,
                op.reason,
                timeout_s=op.shutdown_timeout + common.STOP_GRACE_S,
            ).unwrap(what)
        else:
            self._stop_and_start(what)

    def _stop_and_start(self, what: str) -> None:
        instance, op = self.instance, self.op
        if self.is_running:
            self.ctx.rpc.call_one(
                "instance_shutdown",
                instance.primary_node,
                self.encode(),
                op.shutdown_timeout,
                op.reason,
                timeout_s=op.shutdown_timeout + common.STOP_GRACE_S,
            ).unwrap(what)
            disks.shutdown(self.ctx, instance)
        disks.assemble(
            self.ctx, self.instance, ignore_secondaries=op.ignore_secondaries
        )
        result = self.ctx.rpc.call_one(
            "instance_start",
            instance.primary_node,
            self.encode_start(),
            False,
            op.reason,
        )
        if result.failed:
            disks.shutdown(self.ctx, self.instance)
            raise errors.OpExecError(result.describe(what))
