"""OP_INSTANCE_STARTUP, OP_INSTANCE_SHUTDOWN and OP_INSTANCE_REBOOT."""

from typing import Any, ClassVar

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.model import opcodes
from ganeti.model.objects import params
from ganeti.operations.instance import capacity, checks, common
from ganeti.operations.instance.devices import firmware, nic_specs
from ganeti.operations.instance.disks import mirror_states, node_disks
from ganeti.operations.instance.run import elsewhere
from ganeti.operations.parameters import typed_params
from ganeti.protocols.rpc import calls


class InstanceStartup(common.InstanceUnit[opcodes.InstanceStartup]):
    """Unit that starts an instance on its primary node and marks it up."""

    NEEDS_EXISTING: ClassVar[str] = "it cannot be started"
    HOOKS_PATH: ClassVar[str | None] = "instance-start"
    LOCK_PRIMARY_RES: ClassVar[bool] = True

    def check_arguments(self) -> None:
        """Check the parameters that are valid for this start only."""
        self.backend = typed_params.backend(self.op.beparams)

    def check_prereq(self) -> None:
        """Check state, parameters and the node's resources."""
        instance, snapshot = self.instance, self.ctx.snapshot
        self.require_admin_state(("up", "down"), "be started")
        self.hv_override = typed_params.hypervisor(
            instance.hypervisor, self.op.hvparams
        )
        filled = params.fill_hvparams(snapshot, instance) | self.hv_override
        typed_params.check_hypervisor_syntax(instance.hypervisor, filled)
        self.primary_offline = self.primary.offline
        if self.primary_offline and self.op.ignore_offline_nodes:
            self.ctx.log.warn(
                f"primary node {self.primary.name} is offline, only the"
                " recorded state changes"
            )
            return
        self.require_online_primary()
        if self.hv_override:
            checks.validate_hypervisor(
                self.ctx, [instance.primary_node], instance.hypervisor, filled
            )
        nic_specs.check_bridges(
            self.ctx, instance.nics, instance.primary_node, instance.name
        )
        self.info = self.runtime_info()
        self._refuse_helper()
        if not self._is_running():
            # A node that a guest has left in a migration does not start it, so a silent
            # node is no reason to leave the instance down.
            self.require_nowhere_else("be started", must_answer=False)
            if not self.op.force:
                self._require_finished()
                mirror_states.require_right_side(self.ctx, instance)
            backend = params.fill_beparams(snapshot, instance) | self.backend
            checks.require_memory(
                self.ctx,
                instance.primary_node,
                instance.name,
                backend["minmem"],
                hypervisor=instance.hypervisor,
                hv=filled,
                rule=capacity.MemoryRule(most_mib=backend["maxmem"]),
            )

    def _require_finished(self) -> None:
        name = self.instance.name
        if self.instance.is_half_renamed:
            raise self.prereq(
                f"instance {name}: the rename script of its operating system did not"
                " finish, and may still write to its disks; run it again with"
                f" gnt-instance rename {name} {name}, or start the instance as it is"
                " with --force",
                ecodes.ECODE_STATE,
            )
        if self.instance.is_unfinished:
            raise self.prereq(
                f"instance {self.instance.name}: its installation did not finish, and a"
                " script of its operating system may still write to its disks; install"
                " it again with gnt-instance reinstall, remove it, or start it as it is"
                " with --force",
                ecodes.ECODE_STATE,
            )

    def _refuse_helper(self) -> None:
        """Refuse to take a helper machine that nobody could end for the instance."""
        instance = self.instance
        is_down = instance.admin_state == "down"
        has_helper = instance.is_unfinished and not instance.is_half_renamed
        if has_helper and is_down and self._is_running():
            raise self.prereq(
                f"instance {instance.name}: its installation did not finish, and its"
                " helper machine may still run under its name; end that with"
                " gnt-instance shutdown, then reinstall or start the instance",
                ecodes.ECODE_STATE,
            )

    def _warn_unfinished(self) -> None:
        name = self.instance.name
        text = (
            f"instance {name}: its installation did not finish, so its operating system"
            " may be incomplete; if the guest does not work, reinstall it"
        )
        if self.instance.is_half_renamed:
            text = (
                f"instance {name}: the rename script of its operating system did not"
                " finish, so the guest may have its former name"
            )
        self.ctx.log.warn(text)

    def _is_running(self) -> bool:
        # State 1: a guest that shut itself down and waits for its clean-up.
        return self.info.is_running

    def hooks_env(self) -> dict[str, Any]:
        """Return the variables of the instance and the force flag."""
        return super().hooks_env() | {"FORCE": self.op.force}

    def execute(self) -> None:
        """Mark it up, assemble its disks, start it."""
        if self.instance.is_unfinished:
            self._warn_unfinished()
            common.set_instance(self.ctx, self.uuid, creation="")
        # With the mark of the disks, where these are assembled next: one commit.
        is_next = not (self.primary_offline or self.info)
        if not self.op.no_remember:
            common.set_instance(
                self.ctx,
                self.uuid,
                admin_state="up",
                admin_state_source="admin",
                **({"disks_active": True} if is_next else {}),
            )
        if self.primary_offline:
            return
        instance = self.instance
        if self._is_running():
            self.ctx.log.info(f"instance {instance.name} is running already")
            return
        if self.info:
            self.ctx.rpc.call_node(
                instance.primary_node,
                calls.instance_shutdown(
                    self.encode(), self.op.shutdown_timeout, self.op.reason
                ),
            ).unwrap(f"instance {instance.name}: cannot clean up after its shutdown")
        node_disks.assemble(self.ctx, instance, ignore_secondaries=self.op.force)
        result = self.ctx.rpc.call_node(
            instance.primary_node,
            calls.instance_start(
                self.encode_start(hvparams=self.hv_override, beparams=self.backend),
                self.op.startup_paused,
                self.op.reason,
            ),
        )
        if result.failed:
            node_disks.shutdown(self.ctx, self.instance)
        result.unwrap(f"instance {instance.name}: could not be started")


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
        common.stop_guest(self.ctx, instance, self.op.timeout, self.op.reason).unwrap(
            f"instance {instance.name}: could not be stopped"
        )
        firmware.save(self.ctx, self.uuid, instance.primary_node)
        if not node_disks.shutdown(self.ctx, instance):
            raise errors.OpExecError(
                f"instance {instance.name}: is stopped, but not all of its disks could"
                " be shut down"
            )


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
                used_mib=int(info.memory or 0),
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
            node_disks.assemble(
                self.ctx, instance, ignore_secondaries=op.ignore_secondaries
            )
            self.ctx.rpc.call_node(
                instance.primary_node,
                calls.instance_reboot(
                    self.encode_start(), op.reboot_type, op.shutdown_timeout, op.reason
                ),
                timeout_s=op.shutdown_timeout + common.STOP_GRACE_S,
            ).unwrap(what)
        else:
            self._stop_and_start(what)

    def _stop_and_start(self, what: str) -> None:
        instance, op = self.instance, self.op
        if self.is_running:
            common.stop_guest(
                self.ctx, instance, op.shutdown_timeout, op.reason
            ).unwrap(what)
            node_disks.shutdown(self.ctx, instance)
        node_disks.assemble(
            self.ctx, self.instance, ignore_secondaries=op.ignore_secondaries
        )
        result = common.start_guest(self.ctx, self.instance, op.reason)
        if result.failed:
            node_disks.shutdown(self.ctx, self.instance)
            raise errors.OpExecError(result.describe(what))
