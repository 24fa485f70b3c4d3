"""Steps of a creation: disks and records, then content and start.

`creation_plan` has the plan, `creation_unit` the phases.
"""

from typing import Any

import msgspec

from ganeti.base import errors
from ganeti.base.constants.instance import CREATION_INSTALLING, CREATION_INTERRUPTED
from ganeti.master import config, locking
from ganeti.model import objects, opcodes
from ganeti.operations import allocation, base
from ganeti.operations.instance import common
from ganeti.operations.instance.create import content, creation_plan, helper_install
from ganeti.operations.instance.devices import nic_specs
from ganeti.operations.instance.disks import (
    mirror_records,
    mirror_states,
    node_disks,
    volumes,
)
from ganeti.protocols.rpc import calls, encode


def check_unclaimed(
    edit: config.Edit, op: opcodes.InstanceCreate, instance: objects.Instance
) -> None:
    """Refuse addresses in a network that was connected since the checks."""
    if op.conflicts_check:
        group = edit.snapshot.nodes[instance.primary_node].group
        nic_specs.check_unclaimed(edit.snapshot, instance, group)


def remove_planned_disks(ctx: base.Context) -> None:
    """Remove the new disks of an interrupted wipe, which no record will name."""
    plan = msgspec.convert(ctx.resumption, creation_plan.Interrupted).plan()
    recorded = ctx.snapshot.disks
    # A disk with a record is in use.
    made = [disk for disk in plan.disks if disk.uuid not in recorded]
    node_disks.shutdown(ctx, plan.instance, disks=made, mark=False)
    node_disks.remove_all(ctx, plan.instance, made)
    ctx.save_resumption(None)


class CreationSteps:
    """Steps until the commit; only disks exist then, and a failed step removes them."""

    def __init__(
        self,
        ctx: base.Context,
        op: opcodes.InstanceCreate,
        plan: creation_plan.CreationPlan,
        *,
        is_trusted: bool,
    ) -> None:
        self.ctx, self.op, self.plan = ctx, op, plan
        self._is_trusted = is_trusted

    def make(self) -> None:
        """Create and wipe the disks, or take them over; commit the records."""
        instance, made = self.plan.instance, self.plan.disks
        log, snapshot = self.ctx.log, self.ctx.snapshot
        if self.plan.adopted:
            self._adopt()
            return
        if made:
            log.message("* creating instance disks...")
        node_disks.create_all(self.ctx, instance, made)
        if snapshot.cluster.prealloc_wipe_disks:
            if made:
                log.message("* wiping instance disks...")
            # Before the record, without which no guest can read what others left there.
            node_disks.wipe_new(self.ctx, instance, made, save=self._save)
        self._record()

    def _adopt(self) -> None:
        """Take over present disks, whose content stays."""
        instance, made, sources = self.plan.instance, self.plan.disks, self.plan.adopted
        self.ctx.log.message("* adopting instance disks...")
        volumes.adopt(self.ctx, instance, made, sources)
        try:
            self._commit()
        except BaseException:
            # Without a record, a volume with its new name looks like a forgotten one.
            volumes.release(self.ctx, instance, made, sources)
            raise

    def resume(self, left: creation_plan.Interrupted) -> None:
        """Continue the wipe of the new disks; commit the records."""
        ctx, instance, made = self.ctx, self.plan.instance, self.plan.disks
        ctx.log.message(
            f"* the master daemon was restarted; {node_disks.label(left.disk)} is wiped"
            f" on from {left.offset_mib} MiB"
        )
        with node_disks.removed_on_failure(ctx, instance, made):
            self._reserve_again()
        node_disks.wipe_new(
            ctx,
            instance,
            made,
            first=left.disk,
            offset_mib=left.offset_mib,
            save=self._save,
        )
        self._record()

    def _save(self, disk: int, offset_mib: int) -> None:
        """Store the plan and the progress of the wipe.

        Private parameters of the OS are stored in the configuration alone; a creation
        with such parameters cannot be continued.
        """
        if self.plan.instance.osparams_private:
            return
        state = creation_plan.Interrupted(
            objects.to_dict(self.plan.instance),
            [objects.to_dict(each) for each in self.plan.disks],
            disk,
            offset_mib,
            self._is_trusted,
        )
        self.ctx.save_resumption(msgspec.to_builtins(state))

    def _reserve_again(self) -> None:
        """Reserve the identifiers of the plan, which no other job may take."""
        if self.op.commit:
            return  # The record of the reservation has them.
        config, owner, instance = self.ctx.config, self.ctx.owner, self.plan.instance
        for uuid in (instance.uuid, *instance.disks, *(n.uuid for n in instance.nics)):
            config.reserve(owner, "uuid", uuid)
        for disk in self.plan.disks:
            mirror_records.reserve_again(self.ctx, disk)
        for nic in instance.nics:
            config.reserve(owner, "mac", nic.mac)
            if nic.network and nic.ip:
                # The checks have accepted it; only another instance may have it since
                # then.
                config.reserve_ip(owner, nic.network, nic.ip, check=False)
        if self.op.conflicts_check:
            group = self.ctx.snapshot.nodes[instance.primary_node].group
            nic_specs.take_addresses(self.ctx, instance, group=group)

    def _record(self) -> None:
        """Commit the records; what follows is continued in other ways."""
        ctx, plan = self.ctx, self.plan
        with node_disks.removed_on_failure(ctx, plan.instance, plan.disks):
            if ctx.snapshot.cluster.prealloc_wipe_disks:
                # Before the commit: a wipe that is continued after it would destroy
                # content. If the master ends in between, the notes remove the disks.
                ctx.save_resumption(None)
            self._commit()

    def _commit(self) -> None:
        instance, log = self.plan.instance, self.ctx.log
        log.message(f"adding instance {instance.name} to cluster config")
        if self.plan.disks:
            log.message("adding disks to cluster config")
        with self.ctx.config.edit(self.ctx.owner) as edit:
            check_unclaimed(edit, self.op, instance)
            if instance.hypervisor in ("kvm", "xen-hvm"):
                instance = instance.replace(network_port=edit.allocate_port())
            if creation_plan.installs(self.ctx.snapshot, self.op, self.plan):
                instance = instance.replace(creation=CREATION_INSTALLING)
            write = edit.create_reserved if self.op.commit else edit.add_instance
            write(instance, mirror_records.with_ports(edit, self.plan.disks))


class _ScriptLostError(errors.OpExecError):
    """The answer of an OS script was lost; the script may still run."""


class Completion(common.InstanceWork):
    """Activation of the disks, their content, and the start of a new instance.

    If the disks cannot be activated, or a content cannot be copied, the instance is
    removed again. If an OS script fails, the instance stays, stopped. While the script
    or the copy runs, the record has a mark, so a creation that ends in between, with
    its master daemon, its node or by a request, does not look like a stopped instance.
    """

    def __init__(
        self,
        ctx: base.Context,
        op: opcodes.InstanceCreate,
        plan: creation_plan.CreationPlan,
        source: content.Content | None,
        *,
        is_trusted: bool = True,
        installation: helper_install.Progress | None = None,
        is_continued: bool = False,
    ) -> None:
        """Make the steps.

        Args:
            ctx: dependencies of the opcode.
            op: the request.
            plan: its instance has its record.
            source: what the disks are a copy of; None if an OS is installed.
            is_trusted: whether the node itself runs the create script of the OS.
            installation: the installation by a helper machine that an earlier master
                daemon began.
            is_continued: whether programs of an interrupted copy may write to the
                disks.
        """
        super().__init__(ctx, plan.instance)
        self.op, self.plan, self.source = op, plan, source
        self._is_trusted = is_trusted
        self._installation = installation
        self._may_be_written = is_continued

    def resume(self) -> None:
        """Continue the installation or the copy; start if requested."""
        self._change(creation=CREATION_INSTALLING)
        if self._installation is not None:
            self.run()
            return
        try:
            self._announce_again()
            self._activate()
            self.run()
        finally:
            self._end_left_copy()

    def _announce_again(self) -> None:
        """Log that it continues; remove the instance if the job is killed."""
        try:
            self.ctx.log.message(
                f"* the master daemon was restarted; the import of {self.instance.name}"
                " continues"
            )
        except BaseException:
            self._remove_again()
            raise

    def run(self) -> None:
        """Install or copy the content, then start if requested."""
        try:
            self._install()
        except Exception:
            # An instance whose mirrors have no second copy is removed already.
            present = self.ctx.snapshot.instances.get(self.plan.instance.uuid)
            if present is not None and present.creation:
                self._change(creation=CREATION_INTERRUPTED)
            raise
        if self.op.start and self.op.no_install:
            self.ctx.log.info(
                "no operating system is installed, so the instance is not started"
            )
        if creation_plan.starts(self.op):
            self._start()

    def _install(self) -> None:
        if self._installation is not None:
            self._fill()
            return
        op, plan = self.op, self.plan
        installs = creation_plan.installs(self.ctx.snapshot, op, plan)
        if installs or not creation_plan.starts(op):
            # The disks and their space are recorded; the nodes need not be locked while
            # the copies of a mirror are made.
            allocation.release_nodes(self.ctx)
        if plan.disks:
            self._activate()
            self._settle()
        if installs:
            self._fill()

    def _fill(self) -> None:
        # It may take hours, and concerns this instance and its content alone.
        allocation.release_nodes(self.ctx)
        if self.source is None:
            self._install_os()
        else:
            self._copy(self.source)

    def _activate(self) -> None:
        """Activate the disks for the first time.

        Raises:
            OpExecError: they cannot be used; the instance was removed again.
        """
        try:
            node_disks.assemble(self.ctx, self.instance)
        except errors.OpExecError as err:
            self._remove_again()
            raise errors.OpExecError(
                f"{err}; its disks cannot be used, so the instance was removed again"
            ) from err

    def _install_os(self) -> None:
        """Have the OS script write the disks; the mark goes when it has ended."""
        outcome = self._run_installer()
        if outcome.error is not None:
            # Raises if a client had the script killed; the mark stays then.
            self.ctx.pause(0.0)
        # A script that failed has ended; one whose answer was lost may still run.
        is_failure, starts = outcome.error is not None, creation_plan.starts(self.op)
        if not (outcome.may_run if is_failure else starts):
            self._change(creation="")
        outcome.check()

    def _run_installer(self) -> helper_install.Outcome:
        ctx, op = self.ctx, self.op
        request = helper_install.Request(
            osparams_secret=op.osparams_secret,
            debug=op.debug_level or 0,
            reason=op.reason,
            limits=helper_install.Limits.from_request(op),
        )
        left = self._installation
        if left is not None or not self._is_trusted:
            return helper_install.Installation(
                ctx,
                self.instance,
                request,
                left or helper_install.Progress(self.instance.uuid),
                is_continued=left is not None,
            ).run()
        ctx.log.message("* running the instance OS create scripts...")
        node = ctx.snapshot.nodes[self.instance.primary_node].name
        what = f"{self.what}: could not install its OS on node {node}"
        return helper_install.on_node(ctx, self.instance, request, what)

    def _copy(self, source: content.Content) -> None:
        """Copy the content; remove the instance if that fails, or the job is killed."""
        # From here on, the copy itself ends its programs; see `content.Content.copy`.
        self._may_be_written = False
        try:
            source.copy(self.instance)
            self._adapt(source)
        except _ScriptLostError as err:
            raise errors.OpExecError(*err.args) from err
        except BaseException:
            self.ctx.save_resumption(None)
            try:
                # Raises if a client asks to kill the job now.
                self.ctx.log.message("* removing the new instance again")
            finally:
                self._remove_again()
            raise
        # First: a restarted master must not continue an instance that is being removed.
        self.ctx.save_resumption(None)
        self._change(creation="")

    def _adapt(self, source: content.Content) -> None:
        """Have the OS adapt the content to the name of the instance.

        Raises:
            _ScriptLostError: the script may still run, so the instance must be neither
                started nor removed.
        """
        if not self.instance.os:
            return
        self.ctx.log.message("* running the instance OS rename script...")
        secret = self.op.osparams_secret
        wire = encode.private_instance(
            self.ctx.snapshot, self.instance, osparams_secret=secret
        )
        result = self.ctx.rpc.call_node(
            self.instance.primary_node,
            calls.instance_run_rename(wire, source.old_name, self.op.debug_level or 0),
        )
        what = "the OS rename script failed"
        if result.is_lost:
            raise _ScriptLostError(result.describe(f"{self.what}: {what}"))
        if result.failed:
            # Raises if a client had the script killed.
            self.ctx.pause(0.0)
        self.ctx.warn_failed(result, what)

    def _end_left_copy(self) -> None:
        """End the copy of an interrupted run if this one has not continued it."""
        if self._may_be_written and self.source is not None:
            self._may_be_written = False
            self.source.end_copy(self.instance)

    def _settle(self) -> None:
        """Wait for mirrors; an instance whose disks have no second copy is removed."""
        degraded = mirror_states.wait_for_sync(
            self.ctx, self.instance, once=not self.op.wait_for_sync
        )
        if not degraded:
            return
        instance = self.instance
        self._remove_again()
        raise errors.OpExecError(
            f"instance {instance.name}: {', '.join(degraded)} is degraded and not being"
            " synchronised, so the instance was removed again"
        )

    def _remove_again(self) -> None:
        """Remove the record and the disks of the new instance.

        Disks that were adopted keep their content, and get their names back.
        """
        self._end_left_copy()
        instance, sources = self.instance, self.plan.adopted
        made = self.ctx.snapshot.instance_disks(instance)
        node_disks.shutdown(self.ctx, instance)
        # Before the record goes: if this is cut short then, the next master removes the
        # disks of the note. Adopted volumes get none, as their content stays.
        if not sources:
            node_disks.note_removal(self.ctx, instance, made)
        with self.ctx.config.edit(self.ctx.owner) as edit:
            edit.remove_instance(instance.uuid)
        if sources:
            volumes.release(self.ctx, instance, made, sources)
        else:
            node_disks.remove_all(self.ctx, instance, made)

    def _change(self, **changes: Any) -> None:
        """Change the committed record."""
        common.set_instance(self.ctx, self.plan.instance.uuid, **changes)

    def _start(self) -> None:
        if not self.ctx.locks.owned(locking.Level.NODE_RES):
            self._require_memory_again()
        # The mark reserves the memory until the guest has it.
        is_reserved = self.instance.is_reserved
        mark = {} if is_reserved else {"creation": ""}
        self._change(admin_state="up", **mark)
        self.ctx.log.message("* starting instance...")
        try:
            common.start_guest(self.ctx, self.instance, self.op.reason).unwrap(
                f"{self.what}: could not be started"
            )
        finally:
            if is_reserved:
                self._change(creation="")

    def _require_memory_again(self) -> None:
        """Check the memory that others may have used since the locks were released.

        Raises:
            OpExecError: it does not suffice, or the node does not answer.
        """
        try:
            creation_plan.require_memory(self.ctx, self.op, self.instance)
        except errors.OpPrereqError as err:
            self._change(creation="")
            raise errors.OpExecError(
                f"{err.args[0]}; the instance is installed, but not started"
            ) from err
