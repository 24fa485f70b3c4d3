"""OP_INSTANCE_SET_PARAMS: change an instance."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import disks as disk_constants
from ganeti.base.constants import ecodes
from ganeti.master import iallocator, locking
from ganeti.master.jqueue.executor import Canceled
from ganeti.model import ht, objects, opcodes
from ganeti.model.objects import lookup, params
from ganeti.operations import allocation
from ganeti.operations.instance import capacity, checks, common
from ganeti.operations.instance.create import reservation
from ganeti.operations.instance.devices import (
    combinations,
    hotplug,
    modify_disks,
    modify_nics,
    modify_reserved,
    modify_state,
    nic_specs,
)
from ganeti.operations.instance.disks import (
    convert_mirror,
    convert_template,
    disk_specs,
)
from ganeti.operations.instance.disks import disks_on_nodes as disks
from ganeti.operations.instance.show import hook_env
from ganeti.operations.parameters import cloud_init, typed_params

#: Fields of the record that a change may concern.
_CHANGEABLE: Final = (
    *("nics", "hvparams", "beparams", "os", "osparams", "osparams_private"),
    *("admin_state", "admin_state_source"),
)

#: Changes after which somebody else may use the disk, or nobody.
_TAKING: Final = ("remove", "detach")


@dataclasses.dataclass
class _Changes:
    """Results of the checks: the future record, devices, and lines of the result."""

    after: objects.Instance
    disks: tuple[objects.Disk, ...]
    disk_steps: list[modify_nics.NicStep]
    nic_steps: list[modify_nics.NicStep]
    report: list[tuple[str, Any]]


class InstanceSetParams(common.InstanceUnit[opcodes.InstanceSetParams]):
    """Unit that changes parameters, devices, states; hot-plugs devices if possible."""

    HOOKS_PATH: ClassVar[str | None] = "instance-modify"
    LOCK_NODES: ClassVar[bool] = True
    NEEDS_EXISTING: ClassVar[str] = ""
    #: The change that was interrupted.
    left: modify_state.Interrupted | None = None

    def check_arguments(self) -> None:
        """Check the request alone."""
        op = self.op
        changes = (
            op.nics,
            op.disks,
            op.disk_template,
            op.hvparams,
            op.beparams,
            op.os_name,
            op.osparams,
            op.offline is not None,
            op.runtime_mem,
            op.pnode,
            op.osparams_private,
            op.instance_communication is not None,
            reservation.has_terms(op),
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
        if given and op.disk_template not in disk_constants.DTS_INT_MIRROR:
            raise self.prereq(
                f"{what}: a secondary node or an allocator goes with the disk template"
                f" {' or '.join(disk_constants.DTS_INT_MIRROR)}"
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
                msgspec.convert(self.ctx.resumption, modify_state.Interrupted)
            )

    @property
    def _needs_allocator(self) -> bool:
        """Whether an allocator chooses the node of second copies."""
        mirrors = disk_constants.DTS_INT_MIRROR
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
        changes = _Changes(instance, (), [], [], [])
        self.changes = changes
        changes.after, changes.nic_steps = self._plan_nics(instance)
        changes.disks, changes.disk_steps = modify_disks.plan(
            self.ctx, instance, self.disk_mods, self._first_disks()
        )
        self._plan_hypervisor()
        self._plan_backend()
        self._check_combinations()
        self._plan_os()
        self._plan_state()
        if instance.forthcoming:
            self._plan_reserved()
        self._check_policy()
        if instance.forthcoming:
            self._report_devices()
            return
        if self.op.disk_template and self._converts:
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
        self.live: list[hotplug.Change] = []
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

    @property
    def _converts(self) -> bool:
        """Whether a template is wanted for existing disks, not for new ones."""
        return bool(self.op.disk_template) and not self.disk_mods

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
        terms = reservation.terms(op, self.ctx.clock.time(), instance.reservation)
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
        if op.disk_template and self._converts:
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

    def _plan_hypervisor(self) -> None:
        if not self.op.hvparams:
            return
        changes, instance = self.changes, self.instance
        given = typed_params.hypervisor(
            instance.hypervisor, self.op.hvparams, allow_default=True
        )
        changes.after = changes.after.replace(
            hvparams=typed_params.merge(instance.hvparams, given)
        )
        filled = params.fill_hvparams(self.ctx.snapshot, changes.after)
        checks.validate_hypervisor(
            self.ctx, [instance.primary_node], instance.hypervisor, filled
        )
        changes.report += [(f"hv/{name}", given[name]) for name in sorted(given)]

    def _check_combinations(self) -> None:
        changes, instance = self.changes, self.instance
        snapshot = self.ctx.snapshot
        primary = self.new_primary or instance.primary_node
        nodes = sorted({primary, *snapshot.secondary_nodes(instance)})
        combinations.check(self.ctx, instance, changes.after, nodes, len(changes.disks))

    def _plan_backend(self) -> None:
        if not self.backend:
            return
        changes, instance = self.changes, self.instance
        changes.after = changes.after.replace(
            beparams=typed_params.merge(instance.beparams, self.backend)
        )
        filled = params.fill_beparams(self.ctx.snapshot, changes.after)
        typed_params.check_memory_order(filled, f"instance {instance.name}")
        before = params.fill_beparams(self.ctx.snapshot, instance)
        grows = filled["maxmem"] > before["maxmem"] and not self.op.force
        if grows and not instance.forthcoming:
            self._check_memory(filled["minmem"])
        changes.report += [
            (f"be/{name}", self.backend[name]) for name in sorted(self.backend)
        ]

    def _check_memory(self, wanted_mib: int) -> None:
        if self.primary.offline:
            self.ctx.log.warn("the primary node is offline, its memory is not checked")
            return
        instance = self.instance
        used = int(self.runtime_info().get("memory", 0))
        free = checks.free_memory_mib(
            self.ctx,
            instance.primary_node,
            instance.hypervisor,
            params.fill_hvparams(self.ctx.snapshot, instance),
        )
        free -= capacity.memory(
            self.ctx.snapshot, instance.primary_node, besides=instance.name
        ).mib
        if wanted_mib > used + free:
            raise errors.OpPrereqError(
                f"instance {instance.name}: node {self.primary.name} could not start it"
                f" with {wanted_mib} MiB, it has {used + free} MiB; use force to"
                " change it anyway",
                ecodes.ECODE_NORES,
            )

    def _plan_os(self) -> None:
        op, changes, instance = self.op, self.changes, self.instance
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
            cloud_init.check_instance(self.ctx.snapshot, changes.after)
        if touched and changes.after.os and not (op.force and self.primary.offline):
            checks.validate_os(
                self.ctx,
                [instance.primary_node],
                changes.after.os,
                params.fill_osparams(self.ctx.snapshot, changes.after),
                force_variant=op.force_variant or op.force,
            )

    def _plan_state(self) -> None:
        op, changes, instance = self.op, self.changes, self.instance
        if op.offline or (op.offline is False and instance.admin_state == "up"):
            self.require_stopped(f"be marked {'offline' if op.offline else 'online'}")
        # A stopped instance that is not offline is online already.
        if op.offline is not None and (op.offline or instance.admin_state == "offline"):
            state = "offline" if op.offline else "down"
            changes.after = changes.after.replace(
                admin_state=state, admin_state_source="admin"
            )
            if state != instance.admin_state:
                changes.report.append(("admin_state", state))
        if self.new_primary:
            if not (op.force or instance.forthcoming):
                self.require_stopped("get another primary node")
            node = checks.node_takes_instances(
                self.ctx.snapshot, self.new_primary, instance.name
            )
            if node.group != self.primary.group:
                nic_specs.check_connections(
                    self.ctx.snapshot, changes.after, node.group
                )
            changes.report.append(
                ("primary node", self.ctx.snapshot.nodes[self.new_primary].name)
            )
        if op.runtime_mem is not None:
            self._plan_runtime_memory(op.runtime_mem)

    def _plan_runtime_memory(self, wanted_mib: int) -> None:
        instance = self.instance
        self.require_online_primary()
        info = self.runtime_info()
        if not info:
            raise self.prereq(
                f"instance {instance.name}: is not running, its memory cannot change",
                ecodes.ECODE_STATE,
            )
        filled = params.fill_beparams(self.ctx.snapshot, self.changes.after)
        in_range = filled["minmem"] <= wanted_mib <= filled["maxmem"]
        if not in_range and not self.op.force:
            raise self.prereq(
                f"instance {instance.name}: {wanted_mib} MiB is not within"
                f" {filled['minmem']} and {filled['maxmem']} MiB; use force to change"
                " it anyway"
            )
        more = wanted_mib - int(info["memory"])
        if more > 0:
            checks.require_memory(
                self.ctx,
                instance.primary_node,
                instance.name,
                more,
                hypervisor=instance.hypervisor,
                hv=params.fill_hvparams(self.ctx.snapshot, instance),
            )
        self.changes.report.append(("runtime_memory", wanted_mib))

    def _check_policy(self) -> None:
        if self.op.ignore_ipolicy:
            return
        snapshot, after = self.ctx.snapshot, self.changes.after
        is_forthcoming = self.instance.forthcoming
        converted = self.op.disk_template
        touches = self.backend or self.nic_mods or self.disk_mods
        if not (touches or converted):
            return
        template = converted or snapshot.disk_template(self.instance)
        if self.changes.disks and (template == "diskless" or is_forthcoming):
            template = self.changes.disks[0].dev_type
        problems = checks.policy_problems(
            snapshot,
            self.primary.group,
            backend=params.fill_beparams(snapshot, after),
            nic_count=len(after.nics),
            disk_sizes=[disk.size for disk in self.changes.disks],
            template=template,
            is_complete=not is_forthcoming,
        )
        if not touches and not is_forthcoming:
            # A conversion is not refused for sizes that it leaves as they are.
            group = self.primary.group
            before = checks.problems_of(snapshot, self.instance, group)
            problems = [text for text in problems if text not in before]
        if self.op.force:
            for text in problems:
                self.ctx.log.warn(f"policy violation: {text}")
        else:
            checks.require_policy(problems, snapshot, self.primary.group, after.name)

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

    def execute(self) -> list[tuple[str, Any]]:
        """Change nodes and record; return the changes."""
        if self.instance.forthcoming:
            self._commit_reserved()
            return self.changes.report
        self._save()
        released = hotplug.Released(self.ctx, self.instance)
        released.release(self.live)
        try:
            self._prepare_and_commit()
        except errors.GenericError as err:
            if not errors.is_outcome_unknown(err):
                released.undo()
            raise
        return self._complete()

    def _complete(self) -> list[tuple[str, Any]]:
        """Finish; name what the running guest lacks if a client kills the job before.

        The record has the devices then, and no later job plugs them.
        """
        before = len(self.changes.report)
        try:
            return self._finish()
        except Canceled:
            rows = dict(self.changes.report[before:])
            lacking = [
                change.label
                for change in self.live
                if change.is_addition and change.label not in rows
            ]
            if lacking:
                self.ctx.log.warn(
                    f"the change is recorded, but the running guest may lack"
                    f" {', '.join(lacking)} until gnt-instance reboot"
                    f" {self.instance.name}"
                )
            raise

    def _finish(self) -> list[tuple[str, Any]]:
        """Do what follows the commit, which can be repeated; return the changes."""
        changes, report = self.changes, self.changes.report
        if self.left is not None:
            self.ctx.log.message(
                "* the master daemon was restarted; the change of devices continues"
            )
        modify_disks.apply_after_commit(
            self.ctx,
            self.instance,
            changes.disk_steps,
            wait_for_sync=self.op.wait_for_sync,
        )
        if self.op.disk_template and self._converts:
            self._convert(self.op.disk_template)
        for row in hotplug.add(self.ctx, self.instance, self.live):
            report.append(row)
        return report

    def _convert(self, target: str) -> None:
        """Convert the disks, by plain ones if needed."""
        source = self.ctx.snapshot.disk_template(self.instance)
        first, *others = convert_template.steps(source, target)
        self._convert_once(first)
        for step in others:
            try:
                self._convert_once(step)
            except errors.GenericError as err:
                raise errors.OpExecError(
                    f"instance {self.instance.name}: its disks were converted from"
                    f" {source} to {first}, but not to {step}: {err}; they have all"
                    " content, convert them again to"
                    f" {step} once that is mended"
                ) from err

    def _convert_once(self, target: str) -> None:
        """Convert the disks; a mirror is undone or completed after an interruption."""
        instance = self.instance
        source = self.ctx.snapshot.disk_template(instance)
        if not convert_mirror.is_possible(source, target):
            convert_template.execute(
                self.ctx,
                instance,
                target,
                external=self.op.ext_params if target != "plain" else {},
                file_driver=self.op.file_driver,
                file_storage_dir=self.op.file_storage_dir,
            )
            return
        if self.secondary is not None:
            work = convert_mirror.to_mirror(
                self.ctx, instance, self.secondary, waits=self.op.wait_for_sync
            )
        else:
            work = convert_mirror.to_plain(self.ctx, instance)
        convert_mirror.Conversion(self.ctx, instance, work).run(self._save_conversion)

    def _save_conversion(self, work: convert_mirror.Work) -> None:
        """Store a conversion for a restart of the master daemon."""
        instance = self.instance
        state = modify_state.Interrupted(
            disks=instance.disks,
            nics=instance.nics,
            before=instance.nics,
            disk_steps=(),
            nic_steps=(),
            is_live=False,
            report=tuple(self.changes.report),
            conversion=work,
        )
        self.ctx.save_resumption(msgspec.to_builtins(state))

    def _save(self) -> None:
        """Store what the next master daemon needs if this one ends in the change.

        A copy of disks is not continued.
        """
        changes, instance = self.changes, self.instance
        if self._converts:
            return
        if not changes.disk_steps and not self.live:
            return
        disk_steps, nic_steps = modify_state.saved(
            changes.disk_steps, changes.nic_steps
        )
        after = changes.after.replace(
            disks=tuple(disk.uuid for disk in changes.disks),
            primary_node=self.new_primary or instance.primary_node,
        )
        digest, serial_no = modify_state.evidence(instance, after, changes.disks)
        state = modify_state.Interrupted(
            disks=after.disks,
            nics=after.nics,
            before=instance.nics,
            disk_steps=disk_steps,
            nic_steps=nic_steps,
            is_live=bool(self.live),
            report=tuple(changes.report),
            digest=digest,
            serial_no=serial_no,
        )
        self.ctx.save_resumption(msgspec.to_builtins(state))

    def _take_over(self, left: modify_state.Interrupted) -> None:
        """Set everything as the checks of the interrupted run had set it."""
        disk_steps = [saved.step() for saved in left.disk_steps]
        nic_steps = [saved.step() for saved in left.nic_steps]
        self.left = left
        self.changes = _Changes(
            self.instance, (), disk_steps, nic_steps, list(left.report)
        )
        before = self.instance.replace(nics=left.before)
        devices = hotplug.changes(before, disk_steps, nic_steps)
        self.live = devices if left.is_live else []

    def _resume_conversion(self, work: convert_mirror.Work) -> None:
        """Complete a conversion that was recorded; undo one that was not.

        Raises:
            OpExecError: it was undone, or its second part was.
        """
        ctx, instance, wanted = self.ctx, self.instance, self.op.disk_template
        if wanted not in (work.target, None) and wanted == ctx.snapshot.disk_template(
            instance
        ):
            # Only the plain disks in between are left.
            between = [objects.from_dict(objects.Disk, item) for item in work.new]
            disks.remove_all(ctx, instance, between)
            return
        convert_mirror.Conversion(ctx, instance, work).resume()
        if wanted not in (work.target, None):
            # New disks that were begun are noted, and are removed after this job.
            raise errors.OpExecError(
                f"instance {instance.name}: the master daemon was restarted during the"
                f" conversion; the disks are {work.target}, with all data; repeat"
                " the command"
            )

    def resume(self) -> list[tuple[str, Any]]:
        """Complete a change that was recorded; undo one that was not.

        Raises:
            OpExecError: it was undone.
        """
        instance, ctx = self.instance, self.ctx
        if self.left is None:
            raise errors.ProgrammerError("a change without a state was resumed")
        if self.left.conversion is not None:
            self._resume_conversion(self.left.conversion)
            return self.changes.report
        if self.left.is_recorded(instance, ctx.snapshot.instance_disks(instance)):
            return self._complete()
        ctx.log.message(
            "* the master daemon was restarted before the change was recorded;"
            " undoing it"
        )
        steps = self.changes.disk_steps
        added = [step.device for step in steps if step.action == "add"]
        if added:
            disks.shutdown(ctx, instance, disks=added, mark=False)
            disks.remove_all(ctx, instance, added)
        released = hotplug.Released(ctx, instance)
        released.assume(self.live)
        text = (
            f"instance {instance.name}: the master daemon was restarted during the"
            " change; the devices are as before, repeat the command"
        )
        if lacking := released.undo():
            text += (
                f"; but the running guest lacks {', '.join(lacking)} until"
                f" gnt-instance reboot {instance.name}"
            )
        raise errors.OpExecError(text)

    def _prepare_and_commit(self) -> None:
        if self.op.runtime_mem is not None:
            self.ctx.rpc.call_one(
                "instance_balloon_memory",
                self.instance.primary_node,
                self.encode(),
                self.op.runtime_mem,
            ).unwrap(f"instance {self.instance.name}: cannot change its memory")
        with modify_disks.applied_before_commit(
            self.ctx, self.instance, self.changes.disk_steps
        ):
            self._commit()

    def _check_unclaimed(self, snapshot: objects.Snapshot) -> None:
        """Refuse addresses in a network that was connected since the checks."""
        if self.op.conflicts_check:
            current = snapshot.instances[self.uuid]
            group = snapshot.nodes[current.primary_node].group
            nic_specs.check_unclaimed(snapshot, self.changes.after, group, current.nics)

    def _commit_reserved(self) -> None:
        changes, node = self.changes, self.new_primary or self.instance.primary_node
        with self.ctx.config.edit(self.ctx.owner) as edit:
            self._check_unclaimed(edit.snapshot)
            modify_reserved.write(edit, changes.after, changes.disks, node)

    def _commit(self) -> None:
        changes = self.changes
        with self.ctx.config.edit(self.ctx.owner) as edit:
            self._check_unclaimed(edit.snapshot)
            current = edit.snapshot.instances[self.uuid]
            after = current.replace(
                **{name: getattr(changes.after, name) for name in _CHANGEABLE}
            )
            if changes.disk_steps:
                after = modify_disks.commit(edit, after, changes.disks)
            if after != current:
                edit.update(after)
            removed = [s.device for s in changes.disk_steps if s.action == "remove"]
            for disk in removed:
                edit.remove_disk(disk.uuid)
            if self.new_primary:
                edit.set_primary_node(self.uuid, self.new_primary)
