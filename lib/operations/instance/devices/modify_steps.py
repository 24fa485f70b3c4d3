"""Steps of OP_INSTANCE_SET_PARAMS, and the state from which they are continued.

The state is stored before the first act on a node, so that an interrupted change of
devices is either completed or undone. One commit records the whole change: if the
records have it, the rest is done, else everything is undone.
"""

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.master.jqueue.effects import Canceled
from ganeti.model import objects, opcodes
from ganeti.operations import base
from ganeti.operations.instance import common
from ganeti.operations.instance.devices import (
    hotplug,
    modify_disks,
    modify_nics,
    modify_reserved,
    nic_specs,
)
from ganeti.operations.instance.disks import (
    convert_mirror,
    convert_template,
    node_disks,
)
from ganeti.protocols.rpc import calls, encode

#: Fields that a change of an instance or of its existing disks may concern, besides the
#: devices. Private parameters are not in stored states, not even in a digest.
_FIELDS: Final = (
    *("hvparams", "beparams", "os", "osparams", "admin_state", "admin_state_source"),
    "primary_node",
)
_DISK_FIELDS: Final = ("uuid", "mode", "name", "params")
#: Fields of the record that a change may concern.
_CHANGEABLE: Final = (
    *("nics", "hvparams", "beparams", "os", "osparams", "osparams_private"),
    *("admin_state", "admin_state_source"),
)


class SavedStep(msgspec.Struct, frozen=True):
    """A `NicStep` without its report, as JSON types."""

    action: str
    index: int
    disk: objects.Disk | None = None
    nic: objects.Nic | None = None

    def step(self) -> modify_nics.NicStep:
        """Return the step."""
        return modify_nics.NicStep(self.action, self.index, self.disk or self.nic, ())


class Interrupted(msgspec.Struct, frozen=True, kw_only=True):
    """A change of devices.

    Attributes:
        disks: uuids of the disks after the change, in order.
        nics: the NICs after the change.
        before: the NICs before it.
        disk_steps, nic_steps: the changes.
        is_live: whether the running guest gets them, too.
        report: the result of the opcode without the rows of the guest's devices.
        conversion: of the disks, begun after the devices were changed.
        digest: of the other values after the change; empty if the devices themselves
            differ from those before it.
        serial_no: the least one of the record of the instance after the change.
    """

    disks: tuple[str, ...]
    nics: tuple[objects.Nic, ...]
    before: tuple[objects.Nic, ...]
    disk_steps: tuple[SavedStep, ...]
    nic_steps: tuple[SavedStep, ...]
    is_live: bool
    report: tuple[tuple[str, Any], ...]
    conversion: convert_mirror.Work | None = None
    digest: str = ""
    serial_no: int = 0

    def is_recorded(
        self, instance: objects.Instance, disks: Sequence[objects.Disk]
    ) -> bool:
        """Return whether the records of the instance and its disks have the change."""
        return (
            (instance.disks, instance.nics) == (self.disks, self.nics)
            and self.digest in ("", digest(instance, disks))
            and instance.serial_no >= self.serial_no
        )


def digest(instance: objects.Instance, disks: Sequence[objects.Disk]) -> str:
    """Return a digest of the values that a change may concern besides the devices."""
    values = (
        [getattr(instance, name) for name in _FIELDS],
        [[getattr(disk, name) for name in _DISK_FIELDS] for disk in disks],
    )
    return hashlib.sha256(msgspec.json.encode(values, order="sorted")).hexdigest()


def evidence(
    before: objects.Instance, after: objects.Instance, disks: Sequence[objects.Disk]
) -> tuple[str, int]:
    """Return the digest and the serial number by which a change is found recorded.

    Args:
        before: the record of the instance before the change.
        after: the record after it, with its disks and its primary node.
        disks: the records of the disks after the change, in order.
    """
    if (before.disks, before.nics) != (after.disks, after.nics):
        return "", 0
    is_private = before.osparams_private != after.osparams_private
    return digest(after, disks), before.serial_no + is_private


def saved(
    disk_steps: Sequence[modify_nics.NicStep], nic_steps: Sequence[modify_nics.NicStep]
) -> tuple[tuple[SavedStep, ...], tuple[SavedStep, ...]]:
    """Return the steps of disks and those of NICs in the form to be stored."""
    return (
        tuple(SavedStep(s.action, s.index, disk=s.device) for s in disk_steps),
        tuple(SavedStep(s.action, s.index, nic=s.device) for s in nic_steps),
    )


@dataclasses.dataclass
class Changes:
    """Results of the checks: the future record, devices, and lines of the result."""

    after: objects.Instance
    disks: tuple[objects.Disk, ...]
    disk_steps: list[modify_nics.NicStep]
    nic_steps: list[modify_nics.NicStep]
    report: list[tuple[str, Any]]


def converts(op: opcodes.InstanceSetParams) -> bool:
    """Return whether a template is wanted for existing disks, not for new ones."""
    return bool(op.disk_template) and not op.disks


class ModificationSteps(common.InstanceWork):
    """Steps that carry a change out; one commit records it."""

    def __init__(
        self,
        ctx: base.Context,
        instance: objects.Instance,
        op: opcodes.InstanceSetParams,
        changes: Changes,
        *,
        live: Sequence[hotplug.Change],
        new_primary: str | None,
        secondary: str | None,
    ) -> None:
        super().__init__(ctx, instance)
        self.op, self.changes, self.live = op, changes, live
        self.new_primary, self.secondary = new_primary, secondary
        self._is_continued = False

    def execute(self) -> list[tuple[str, Any]]:
        """Change nodes and record; return the changes."""
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

    def resume(self, left: Interrupted) -> list[tuple[str, Any]]:
        """Complete a change that was recorded; undo one that was not.

        Raises:
            OpExecError: it was undone.
        """
        instance, ctx = self.instance, self.ctx
        if left.conversion is not None:
            self._resume_conversion(left.conversion)
            return self.changes.report
        if left.is_recorded(instance, ctx.snapshot.instance_disks(instance)):
            self._is_continued = True
            return self._complete()
        ctx.log.message(
            "* the master daemon was restarted before the change was recorded;"
            " undoing it"
        )
        steps = self.changes.disk_steps
        added = [step.device for step in steps if step.action == "add"]
        if added:
            node_disks.shutdown(ctx, instance, disks=added, mark=False)
            node_disks.remove_all(ctx, instance, added)
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
        if self._is_continued:
            self.ctx.log.message(
                "* the master daemon was restarted; the change of devices continues"
            )
        modify_disks.apply_after_commit(
            self.ctx,
            self.instance,
            changes.disk_steps,
            wait_for_sync=self.op.wait_for_sync,
        )
        if self.op.disk_template and converts(self.op):
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
        state = Interrupted(
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
        if converts(self.op):
            return
        if not changes.disk_steps and not self.live:
            return
        disk_steps, nic_steps = saved(changes.disk_steps, changes.nic_steps)
        after = changes.after.replace(
            disks=tuple(disk.uuid for disk in changes.disks),
            primary_node=self.new_primary or instance.primary_node,
        )
        digest, serial_no = evidence(instance, after, changes.disks)
        state = Interrupted(
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
            node_disks.remove_all(ctx, instance, between)
            return
        convert_mirror.Conversion(ctx, instance, work).resume()
        if wanted not in (work.target, None):
            # New disks that were begun are noted, and are removed after this job.
            raise errors.OpExecError(
                f"instance {instance.name}: the master daemon was restarted during the"
                f" conversion; the disks are {work.target}, with all data; repeat"
                " the command"
            )

    def _prepare_and_commit(self) -> None:
        if self.op.runtime_mem is not None:
            self.ctx.rpc.call_node(
                self.instance.primary_node,
                calls.instance_balloon_memory(
                    encode.instance(self.ctx.snapshot, self.instance),
                    self.op.runtime_mem,
                ),
            ).unwrap(f"instance {self.instance.name}: cannot change its memory")
        with modify_disks.applied_before_commit(
            self.ctx, self.instance, self.changes.disk_steps
        ):
            self._commit()

    def _check_unclaimed(self, snapshot: objects.Snapshot) -> None:
        """Refuse addresses in a network that was connected since the checks."""
        if self.op.conflicts_check:
            current = snapshot.instances[self._uuid]
            group = snapshot.nodes[current.primary_node].group
            nic_specs.check_unclaimed(snapshot, self.changes.after, group, current.nics)

    def commit_reserved(self) -> None:
        """Record the change of a forthcoming instance, which nodes do not have."""
        changes, node = self.changes, self.new_primary or self.instance.primary_node
        with self.ctx.config.edit(self.ctx.owner) as edit:
            self._check_unclaimed(edit.snapshot)
            modify_reserved.write(edit, changes.after, changes.disks, node)

    def _commit(self) -> None:
        changes = self.changes
        with self.ctx.config.edit(self.ctx.owner) as edit:
            self._check_unclaimed(edit.snapshot)
            current = edit.snapshot.instances[self._uuid]
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
                edit.set_primary_node(self._uuid, self.new_primary)
