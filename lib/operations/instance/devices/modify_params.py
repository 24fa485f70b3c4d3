"""Parameters and states of OP_INSTANCE_SET_PARAMS: checked, and added to the change."""

from collections.abc import Mapping
from typing import Any

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.model import opcodes
from ganeti.model.objects import params
from ganeti.operations.instance import capacity, checks, common
from ganeti.operations.instance.devices import combinations, modify_steps, nic_specs
from ganeti.operations.parameters import cloud_init, typed_params


class ParameterPlan:
    """The requested parameters and states of one instance."""

    def __init__(
        self,
        unit: common.InstanceUnit[opcodes.InstanceSetParams],
        changes: modify_steps.Changes,
        backend: Mapping[str, Any],
        new_primary: str | None,
    ) -> None:
        self._unit, self._changes = unit, changes
        self._op, self._ctx = unit.op, unit.ctx
        self._instance, self._primary = unit.instance, unit.primary
        self._backend, self._new_primary = backend, new_primary

    def add(self) -> None:
        """Check them, and add them to the change."""
        self._plan_hypervisor()
        self._plan_backend()
        self._check_combinations()
        self._plan_os()
        self._plan_state()

    def _plan_hypervisor(self) -> None:
        if not self._op.hvparams:
            return
        changes, instance = self._changes, self._instance
        given = typed_params.hypervisor(
            instance.hypervisor, self._op.hvparams, allow_default=True
        )
        changes.after = changes.after.replace(
            hvparams=typed_params.merge(instance.hvparams, given)
        )
        filled = params.fill_hvparams(self._ctx.snapshot, changes.after)
        checks.validate_hypervisor(
            self._ctx, [instance.primary_node], instance.hypervisor, filled
        )
        changes.report += [(f"hv/{name}", given[name]) for name in sorted(given)]

    def _plan_backend(self) -> None:
        if not self._backend:
            return
        changes, instance = self._changes, self._instance
        changes.after = changes.after.replace(
            beparams=typed_params.merge(instance.beparams, self._backend)
        )
        filled = params.fill_beparams(self._ctx.snapshot, changes.after)
        typed_params.check_memory_order(filled, f"instance {instance.name}")
        before = params.fill_beparams(self._ctx.snapshot, instance)
        grows = filled["maxmem"] > before["maxmem"] and not self._op.force
        if grows and not instance.forthcoming:
            self._check_memory(filled["minmem"])
        changes.report += [
            (f"be/{name}", self._backend[name]) for name in sorted(self._backend)
        ]

    def _check_memory(self, wanted_mib: int) -> None:
        if self._primary.offline:
            self._ctx.log.warn("the primary node is offline, its memory is not checked")
            return
        instance = self._instance
        used = int(self._unit.runtime_info().memory or 0)
        free = checks.free_memory_mib(
            self._ctx,
            instance.primary_node,
            instance.hypervisor,
            params.fill_hvparams(self._ctx.snapshot, instance),
        )
        free -= capacity.memory(
            self._ctx.snapshot, instance.primary_node, besides=instance.name
        ).mib
        if wanted_mib > used + free:
            raise errors.OpPrereqError(
                f"instance {instance.name}: node {self._primary.name} could not start"
                f" it with {wanted_mib} MiB, it has {used + free} MiB; use force to"
                " change it anyway",
                ecodes.ECODE_NORES,
            )

    def _check_combinations(self) -> None:
        changes, instance = self._changes, self._instance
        snapshot = self._ctx.snapshot
        primary = self._new_primary or instance.primary_node
        nodes = sorted({primary, *snapshot.secondary_nodes(instance)})
        combinations.check(
            self._ctx, instance, changes.after, nodes, len(changes.disks)
        )

    def _plan_os(self) -> None:
        op, changes, instance = self._op, self._changes, self._instance
        if op.os_name:
            changes.after = changes.after.replace(os=op.os_name)
            changes.report.append(("os", op.os_name))
        if op.osparams:
            given = {name: str(value) for name, value in op.osparams.items()}
            changes.after = changes.after.replace(
                osparams=typed_params.merge(instance.osparams, given)
            )
            changes.report += [(f"os/{name}", given[name]) for name in sorted(given)]
        if op.osparams_private:
            merged = typed_params.merge(instance.osparams_private, op.osparams_private)
            changes.after = changes.after.replace(osparams_private=merged)
            changes.report += [
                (f"os_private/{name}", "<redacted>") for name in op.osparams_private
            ]
        touched = op.os_name or op.osparams or op.osparams_private
        if touched:
            cloud_init.check_instance(self._ctx.snapshot, changes.after)
        if touched and changes.after.os and not (op.force and self._primary.offline):
            checks.validate_os(
                self._ctx,
                [instance.primary_node],
                changes.after.os,
                params.fill_osparams(self._ctx.snapshot, changes.after),
                force_variant=op.force_variant or op.force,
            )

    def _plan_state(self) -> None:
        op, changes, instance = self._op, self._changes, self._instance
        if op.offline or (op.offline is False and instance.admin_state == "up"):
            self._unit.require_stopped(
                f"be marked {'offline' if op.offline else 'online'}"
            )
        # A stopped instance that is not offline is online already.
        if op.offline is not None and (op.offline or instance.admin_state == "offline"):
            state = "offline" if op.offline else "down"
            changes.after = changes.after.replace(
                admin_state=state, admin_state_source="admin"
            )
            if state != instance.admin_state:
                changes.report.append(("admin_state", state))
        if self._new_primary:
            if not (op.force or instance.forthcoming):
                self._unit.require_stopped("get another primary node")
            node = checks.node_takes_instances(
                self._ctx.snapshot, self._new_primary, instance.name
            )
            if node.group != self._primary.group:
                nic_specs.check_connections(
                    self._ctx.snapshot, changes.after, node.group
                )
            changes.report.append(
                ("primary node", self._ctx.snapshot.nodes[self._new_primary].name)
            )
        if op.runtime_mem is not None:
            self._plan_runtime_memory(op.runtime_mem)

    def _plan_runtime_memory(self, wanted_mib: int) -> None:
        instance = self._instance
        self._unit.require_online_primary()
        info = self._unit.runtime_info()
        if not info:
            raise self._unit.prereq(
                f"instance {instance.name}: is not running, its memory cannot change",
                ecodes.ECODE_STATE,
            )
        filled = params.fill_beparams(self._ctx.snapshot, self._changes.after)
        in_range = filled["minmem"] <= wanted_mib <= filled["maxmem"]
        if not in_range and not self._op.force:
            raise self._unit.prereq(
                f"instance {instance.name}: {wanted_mib} MiB is not within"
                f" {filled['minmem']} and {filled['maxmem']} MiB; use force to change"
                " it anyway"
            )
        more = wanted_mib - int(info.memory or 0)
        if more > 0:
            checks.require_memory(
                self._ctx,
                instance.primary_node,
                instance.name,
                more,
                hypervisor=instance.hypervisor,
                hv=params.fill_hvparams(self._ctx.snapshot, instance),
            )
        self._changes.report.append(("runtime_memory", wanted_mib))

    def check_policy(self) -> None:
        """Refuse what the policy of the node's group does not allow."""
        if self._op.ignore_ipolicy:
            return
        snapshot, after = self._ctx.snapshot, self._changes.after
        is_forthcoming = self._instance.forthcoming
        converted = self._op.disk_template
        touches = self._backend or self._op.nics or self._op.disks
        if not (touches or converted):
            return
        template = converted or snapshot.disk_template(self._instance)
        if self._changes.disks and (template == "diskless" or is_forthcoming):
            template = self._changes.disks[0].dev_type
        problems = checks.policy_problems(
            snapshot,
            self._primary.group,
            backend=params.fill_beparams(snapshot, after),
            nic_count=len(after.nics),
            disk_sizes=[disk.size for disk in self._changes.disks],
            template=template,
            is_complete=not is_forthcoming,
        )
        if not touches and not is_forthcoming:
            # A conversion is not refused for sizes that it leaves as they are.
            group = self._primary.group
            before = checks.problems_of(snapshot, self._instance, group)
            problems = [text for text in problems if text not in before]
        if self._op.force:
            for text in problems:
                self._ctx.log.warn(f"policy violation: {text}")
        else:
            checks.require_policy(problems, snapshot, self._primary.group, after.name)
