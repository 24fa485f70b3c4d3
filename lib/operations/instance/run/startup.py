"""OP_INSTANCE_STARTUP: start an instance."""

from typing import Any, ClassVar

from ganeti.base.constants import ecodes
from ganeti.model import opcodes
from ganeti.model.objects import params
from ganeti.operations.instance import capacity, checks, common
from ganeti.operations.instance.devices import nic_specs
from ganeti.operations.instance.disks import disks_on_nodes as disks
from ganeti.operations.instance.disks import mirrors
from ganeti.operations.parameters import typed_params


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
                mirrors.require_right_side(self.ctx, instance)
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
        return bool(self.info) and self.info.get("state") != 1

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
            self.ctx.rpc.call_one(
                "instance_shutdown",
                instance.primary_node,
                self.encode(),
                self.op.shutdown_timeout,
                self.op.reason,
            ).unwrap(f"instance {instance.name}: cannot clean up after its shutdown")
        disks.assemble(self.ctx, instance, ignore_secondaries=self.op.force)
        result = self.ctx.rpc.call_one(
            "instance_start",
            instance.primary_node,
            self.encode_start(hvparams=self.hv_override, beparams=self.backend),
            self.op.startup_paused,
            self.op.reason,
        )
        if result.failed:
            disks.shutdown(self.ctx, self.instance)
        result.unwrap(f"instance {instance.name}: could not be started")
