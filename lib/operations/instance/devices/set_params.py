"""OP_INSTANCE_SET_PARAMS: change an instance."""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import disks
from ganeti.master import iallocator, locking
from ganeti.model import ht, objects, opcodes
from ganeti.model.objects import lookup
from ganeti.operations import allocation
from ganeti.operations.instance import common
from ganeti.operations.instance.create import reservation_terms
from ganeti.operations.instance.devices import (
    hotplug,
    modify_disks,
    modify_nics,
    modify_params,
    modify_reserved,
    modify_steps,
    nic_specs,
)
from ganeti.operations.instance.disks import (
    convert_mirror,
    convert_template,
    disk_specs,
)
from ganeti.operations.instance.show import hook_env
from ganeti.operations.parameters import cloud_init, typed_params

#: Changes after which somebody else may use the disk, or nobody.
_TAKING: Final = ("remove", "detach")


class InstanceSetParams(common.InstanceUnit[opcodes.InstanceSetParams]):
    """Unit that changes parameters, devices, states; hot-plugs devices if possible."""

    HOOKS_PATH: ClassVar[str | None] = "instance-modify"
    LOCK_NODES: ClassVar[bool] = True
    NEEDS_EXISTING: ClassVar[str] = ""
    #: The change that was interrupted.
    left: modify_steps.Interrupted | None = None
    #: Changes of devices that the running guest gets, too.
    live: Sequence[hotplug.Change] = ()

    def check_arguments(self) -> None:
        """Check the request alone."""
        op = self.op
        changes = (
            *(op.nics, op.disks, op.disk_template, op.hvparams, op.beparams),
            *(op.os_name, op.osparams, op.osparams_private, op.runtime_mem, op.pnode),
            *(op.offline is not None, op.instance_communication is not None),
            reservation_terms.has_terms(op),
        )
        if not any(changes):
            raise self.prereq("no changes submitted")
        if op.instance_communication is not None:
            raise self.prereq("instance communication is not offered by this release")
        what = f"instance {op.instance_name}"
        self.nic_mods = ht.parse_mods(op.nics, ht.NicSpec, f"{what}: nics")
        self.disk_mods = ht.parse_mods(op.disks, ht.DiskSpec, f"{what}: disks")
        self._check_second_node(what)
        if op.ext_params and op.disk_template != "ext":
            raise self.prereq(
                f"{what}: parameters of a provider go with the disk template ext"
            )
        self.backend = typed_params.backend(op.beparams, allow_default=True)
        typed_params.check_osparams(what, op.osparams, op.osparams_private)
        cloud_init.check(op.osparams, what)
        cloud_init.check(op.osparams_private, what)

    def _check_second_node(self, what: str) -> None:
        op = self.op
        given = [name for name in (op.remote_node, op.iallocator) if name]
        if given and op.disk_template not in disks.DTS_INT_MIRROR:
            raise self.prereq(
                f"{what}: a secondary node or an allocator goes with the disk template"
                f" {' or '.join(disks.DTS_INT_MIRROR)}"
            )
        if len(given) > 1:
            raise self.prereq(
                f"{what}: give either a secondary node or an allocator, not both"
            )

    def expand_names(self) -> None:
        """Look the new primary and secondary nodes up."""
        super().expand_names()
        self.new_primary = None
        self.secondary = None
        if self.op.remote_node:
            self.secondary = lookup.expand_node(self.ctx.snapshot, self.op.remote_node)
        elif self._needs_allocator:
            self.allocators = allocation.names(
                self.ctx.snapshot,
                self.op.iallocator,
                f"instance {self.instance.name}",
                iallocator.AllocateSecondary.type,
            )
        if self.op.pnode:
            self.new_primary = lookup.expand_node(self.ctx.snapshot, self.op.pnode)
        if self.ctx.resumption is not None:
            self._take_over(
                msgspec.convert(self.ctx.resumption, modify_steps.Interrupted)
            )

    @property
    def _needs_allocator(self) -> bool:
        """Whether an allocator chooses the node of second copies."""
        mirrors = disks.DTS_INT_MIRROR
        instance = self.instance
        return (
            self.op.disk_template in mirrors
            and not self.op.remote_node
            and not instance.forthcoming
            and self.ctx.snapshot.disk_template(instance) not in mirrors
            and self.ctx.resumption is None
        )

    def declare_locks(self, level: locking.Level) -> None:
        """Declare all nodes if an allocator chooses, else the affected ones."""
        if self._needs_allocator:
            allocation.lock_all_nodes(self.locks)
        else:
            super().declare_locks(level)

    def nodes_to_lock(self) -> Sequence[str]:
        """Return the instance's nodes and the new ones."""
        extra = {node for node in (self.new_primary, self.secondary) if node}
        return sorted({*super().nodes_to_lock(), *extra, *self._converted_nodes()})

    def _converted_nodes(self) -> Sequence[str]:
        """Return the nodes of an interrupted conversion, or of changed disks."""
        if self.left is None:
            return ()
        if self.left.conversion is not None:
            nodes = convert_mirror.nodes(self.left.conversion)
        else:
            steps = self.left.disk_steps
            nodes = [node for step in steps if step.disk for node in step.disk.nodes]
        return [node for node in nodes if node in self.ctx.snapshot.nodes]

    def check_prereq(self) -> None:
        """Compute the instance after the change and check it."""
        instance = self.instance
        modify_reserved.refuse(self.op, instance)
        changes = modify_steps.Changes(instance, (), [], [], [])
        self.changes = changes
        changes.after, changes.nic_steps = self._plan_nics(instance)
        changes.disks, changes.disk_steps = modify_disks.plan(
            self.ctx, instance, self.disk_mods, self._first_disks()
        )
        planned = modify_params.ParameterPlan(
            self, changes, self.backend, self.new_primary
        )
        planned.add()
        if instance.forthcoming:
            self._plan_reserved()
        planned.check_policy()
        if instance.forthcoming:
            self._report_devices()
            return
        if self.op.disk_template and modify_steps.converts(self.op):
            self.require_online_primary()
            self.require_stopped("change its disk template")
            if self._needs_allocator:
                self.secondary = self._choose_secondary()
            convert_template.check(
                self.ctx,
                instance,
                self.op.disk_template,
                external=self.op.ext_params,
                secondary=self.secondary,
            )
            changes.report.append(("disk_template", self.op.disk_template))
        self._report_devices()
        devices = hotplug.changes(instance, changes.disk_steps, changes.nic_steps)
        is_running = bool(devices and not self.primary.offline and self.runtime_info())
        if not is_running and any(
            step.action in _TAKING for step in changes.disk_steps
        ):
            self.require_nowhere_else("lose disks")
        if is_running:
            can_plug = hotplug.check(
                self.ctx,
                instance,
                devices,
                hotplug=self.op.hotplug,
                force=self.op.force,
            )
            self.live = devices if can_plug else []

    def _choose_secondary(self) -> str:
        """Have an allocator choose the node of second copies; keep its locks."""
        instance = self.instance
        name = allocation.ask(
            self.ctx,
            self.allocators,
            iallocator.AllocateSecondary(instance.name),
            f"instance {instance.name}",
            explain=bool(self.op.dry_run),
        )
        chosen = lookup.expand_node(self.ctx.snapshot, name)
        allocation.keep_only(self.ctx, sorted({*self.nodes_to_lock(), chosen}))
        return chosen

    def _report_devices(self) -> None:
        changes = self.changes
        for step in (*changes.disk_steps, *changes.nic_steps):
            changes.report.extend(step.report)

    def _first_disks(self) -> modify_disks.FirstDisks:
        """Return how new disks are made; choose the node of second copies."""
        op, instance = self.op, self.instance
        if op.disk_template and self.disk_mods:
            if instance.disks:
                raise self.prereq(
                    f"instance {instance.name}: disk changes and a new template exclude"
                    " each other, as it has disks; give one after the other"
                )
            if self._needs_allocator:
                self.secondary = self._choose_secondary()
            if self.secondary:
                convert_mirror.check_to_mirror(self.ctx, instance, self.secondary, ())
            self.changes.report.append(("disk_template", op.disk_template))
        elif op.disk_template not in (None, "diskless") and not (
            instance.disks or instance.forthcoming
        ):
            raise self.prereq(
                f"instance {instance.name}: has no disks to convert; add one with"
                f" {modify_disks.command_for_first(op.disk_template, instance)}"
            )
        return modify_disks.FirstDisks(
            op.disk_template or "",
            self.secondary,
            op.ext_params,
            disk_specs.FilePlace(op.file_storage_dir or "", op.file_driver),
        )

    def _plan_reserved(self) -> None:
        """Plan the terms and the template of a forthcoming instance; check its node."""
        op, changes, instance = self.op, self.changes, self.instance
        terms = reservation_terms.terms(op, self.ctx.clock.time(), instance.reservation)
        changes.after = changes.after.replace(reservation=terms)
        changes.report += [
            (name, value)
            for name, value in (
                ("expires", None if op.expires is None else terms.expires),
                ("owner", op.owner),
                ("reservation_priority", op.reservation_priority),
            )
            if value is not None
        ]
        if op.disk_template and modify_steps.converts(self.op):
            changes.disks = modify_reserved.converted(
                self.ctx, op, instance, changes.disks
            )
            changes.report.append(("disk_template", op.disk_template))
        modify_reserved.check_capacity(
            self.ctx,
            instance,
            changes.after,
            changes.disks,
            self.new_primary or instance.primary_node,
        )

    def _plan_nics(
        self, instance: objects.Instance
    ) -> tuple[objects.Instance, list[modify_nics.NicStep]]:
        nics, steps = modify_nics.plan(
            self.ctx, instance, self.nic_mods, self.primary.group
        )
        if steps and not self.primary.offline:
            nic_specs.check_bridges(
                self.ctx, nics, instance.primary_node, instance.name
            )
        changed = instance.replace(nics=nics)
        if self.op.conflicts_check:
            nic_specs.take_addresses(
                self.ctx, changed, group=self.primary.group, before=instance.nics
            )
        return changed, steps

    def hooks_env(self) -> dict[str, Any]:
        """Return the variables of the instance after the change."""
        extra: dict[str, Any] = {}
        if self.op.disk_template:
            extra["NEW_DISK_TEMPLATE"] = self.op.disk_template
        if self.op.runtime_mem:
            extra["RUNTIME_MEMORY"] = self.op.runtime_mem
        changed = self.instance.replace(
            nics=self.changes.after.nics, beparams=self.changes.after.beparams
        )
        return hook_env.instance_env(self.ctx.snapshot, changed) | extra

    def _take_over(self, left: modify_steps.Interrupted) -> None:
        """Set everything as the checks of the interrupted run had set it."""
        disk_steps = [saved.step() for saved in left.disk_steps]
        nic_steps = [saved.step() for saved in left.nic_steps]
        self.left = left
        self.changes = modify_steps.Changes(
            self.instance, (), disk_steps, nic_steps, list(left.report)
        )
        before = self.instance.replace(nics=left.before)
        devices = hotplug.changes(before, disk_steps, nic_steps)
        self.live = devices if left.is_live else []

    @property
    def _steps(self) -> modify_steps.ModificationSteps:
        return modify_steps.ModificationSteps(
            self.ctx,
            self.instance,
            self.op,
            self.changes,
            live=self.live,
            new_primary=self.new_primary,
            secondary=self.secondary,
        )

    def execute(self) -> list[tuple[str, Any]]:
        """Change nodes and record; return the changes."""
        if self.instance.forthcoming:
            self._steps.commit_reserved()
            return self.changes.report
        return self._steps.execute()

    def resume(self) -> list[tuple[str, Any]]:
        """Complete a change that was recorded; undo one that was not."""
        if self.left is None:
            raise errors.ProgrammerError("a change without a state was resumed")
        return self._steps.resume(self.left)
