"""Execution of creations: disks, records, installation, start.

The checks that build the plan of a creation belong to `create`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.instance import CREATION_INSTALLING, CREATION_INTERRUPTED
from ganeti.base.constants.protocols.os import OS_IMAGE_PARAMETER
from ganeti.master import config, locking
from ganeti.model import objects, opcodes
from ganeti.model.objects import params
from ganeti.operations import allocation, base
from ganeti.operations.instance import capacity, checks, common
from ganeti.operations.instance.create import helper_install
from ganeti.operations.instance.devices import nic_specs
from ganeti.operations.instance.disks import disks_on_nodes as disks
from ganeti.operations.instance.disks import mirror_specs, mirrors, volumes
from ganeti.protocols.rpc import encode


@dataclasses.dataclass(frozen=True)
class CreationPlan:
    """Results of the checks: the future records and their places.

    ``adopted``: name or path of what each disk takes over; empty if they are created.
    """

    instance: objects.Instance
    disks: tuple[objects.Disk, ...]
    adopted: tuple[str, ...] = ()


class Interrupted(msgspec.Struct, frozen=True):
    """The state of a creation whose master daemon ended while disks were wiped.

    Attributes:
        instance: the future record.
        disks: the records of its disks, which exist.
        disk: index of the disk that was being wiped.
        offset_mib: the part of it that is wiped.
        is_trusted: whether the node itself runs the create script of its OS.
    """

    instance: dict[str, Any]
    disks: list[dict[str, Any]]
    disk: int
    offset_mib: int
    is_trusted: bool = True


class InstanceMaking(base.LogicalUnit[opcodes.InstanceCreate]):
    """Base of units that make an instance by a plan."""

    name: str
    primary: str
    #: The other node of mirrored disks.
    secondary: str | None = None
    plan: CreationPlan
    left: Interrupted
    uuid: str
    template: str
    #: The instance that an earlier request with the same key made.
    repeated: objects.Instance | None = None
    #: Whether the node itself runs the create script of the OS, if one runs.
    is_trusted: bool = True
    #: The installation by a helper machine that an earlier master daemon began.
    installation: helper_install.Progress | None = None

    def take_over(self, uuid: str) -> None:
        """Take over an interrupted creation, with the lock of the instance alone."""
        snapshot = self.ctx.snapshot
        record = snapshot.instances.get(uuid)
        if record is None:
            raise self.prereq(
                f"instance {self.name}: was removed before the master daemon restarted",
                ecodes.ECODE_NOENT,
            )
        self.uuid, self.primary = record.uuid, record.primary_node
        made: Sequence[objects.Disk] = snapshot.instance_disks(record)
        self.plan = CreationPlan(record, tuple(made))
        self.secondary = next(iter(snapshot.secondary_nodes(record)), None)
        self.template = snapshot.disk_template(record)
        self.locks.names[locking.Level.INSTANCE] = [record.name]

    def take_over_installation(self) -> bool:
        """Take over an interrupted installation; return whether there is one."""
        left = helper_install.Progress.from_resumption(self.ctx.resumption)
        if left is None:
            return False
        self.installation = left
        self.take_over(left.installing)
        return True

    @property
    def _starts(self) -> bool:
        """Whether it is started at the end; never without an operating system."""
        return self.op.start and not self.op.no_install

    def require_memory(
        self, instance: objects.Instance, *, has_reservation: bool = False
    ) -> None:
        """Refuse if the node has too little memory for the instance."""
        snapshot = self.ctx.snapshot
        checks.require_memory(
            self.ctx,
            self.primary,
            self.name,
            params.fill_beparams(snapshot, instance)["maxmem"],
            hypervisor=instance.hypervisor,
            hv=params.fill_hvparams(snapshot, instance),
            rule=capacity.MemoryRule(has_reservation=has_reservation),
        )

    def result(self) -> list[str] | str:
        """Return the result of the opcode: the nodes."""
        nodes: list[str] = self.dry_run_result()
        return nodes

    def execute(self) -> list[str] | str:
        """Create, install, start; nothing for a repeated request."""
        if self.repeated is not None:
            return self.result()
        return self.make()

    def make(self) -> list[str] | str:
        """Create, install, start."""
        instance, made = self.plan.instance, self.plan.disks
        log, snapshot = self.ctx.log, self.ctx.snapshot
        if self.plan.adopted:
            return self._adopt_and_start()
        if made:
            log.message("* creating instance disks...")
        disks.create_all(self.ctx, instance, made)
        if snapshot.cluster.prealloc_wipe_disks:
            if made:
                log.message("* wiping instance disks...")
            disks.wipe_new(self.ctx, instance, made, save=self._save)
        return self._record_and_install()

    def _adopt_and_start(self) -> list[str] | str:
        """Take over present disks, whose content stays; nothing is installed."""
        instance, made, sources = self.plan.instance, self.plan.disks, self.plan.adopted
        self.ctx.log.message("* adopting instance disks...")
        volumes.adopt(self.ctx, instance, made, sources)
        try:
            self._commit()
        except BaseException:
            volumes.release(self.ctx, instance, made, sources)
            raise
        return self.install_and_start()

    def resume(self) -> list[str] | str:
        """Continue the wipe of the new disks or the installation; install and start."""
        if self.installation is not None:
            self.change(creation=CREATION_INSTALLING)
            return self.install_and_start()
        left, ctx = self.left, self.ctx
        instance, made = self.plan.instance, self.plan.disks
        ctx.log.message(
            f"* the master daemon was restarted; {disks.label(left.disk)} is wiped on"
            f" from {left.offset_mib} MiB"
        )
        with disks.removed_on_failure(ctx, instance, made):
            self.reserve_again()
        disks.wipe_new(
            ctx,
            instance,
            made,
            first=left.disk,
            offset_mib=left.offset_mib,
            save=self._save,
        )
        return self._record_and_install()

    def _save(self, disk: int, offset_mib: int) -> None:
        """Store the plan and the progress of the wipe.

        Private parameters of the OS are stored in the configuration alone; a creation
        with such parameters cannot be continued.
        """
        if self.plan.instance.osparams_private:
            return
        state = Interrupted(
            objects.to_dict(self.plan.instance),
            [objects.to_dict(each) for each in self.plan.disks],
            disk,
            offset_mib,
            self.is_trusted,
        )
        self.ctx.save_resumption(msgspec.to_builtins(state))

    def reserve_again(self) -> None:
        """Reserve the identifiers of the plan, which no other job may take."""
        config, owner, instance = self.ctx.config, self.ctx.owner, self.plan.instance
        for uuid in (instance.uuid, *instance.disks, *(n.uuid for n in instance.nics)):
            config.reserve(owner, "uuid", uuid)
        for disk in self.plan.disks:
            mirror_specs.reserve_again(self.ctx, disk)
        for nic in instance.nics:
            config.reserve(owner, "mac", nic.mac)
            if nic.network and nic.ip:
                config.reserve_ip(owner, nic.network, nic.ip, check=False)
        if self.op.conflicts_check:
            group = self.ctx.snapshot.nodes[self.primary].group
            nic_specs.take_addresses(self.ctx, instance, group=group)

    def _record_and_install(self) -> list[str] | str:
        """Commit the records, install, start; none of this can be continued."""
        ctx, plan = self.ctx, self.plan
        with disks.removed_on_failure(ctx, plan.instance, plan.disks):
            if ctx.snapshot.cluster.prealloc_wipe_disks:
                ctx.save_resumption(None)
            self._commit()
        return self.install_and_start()

    def install_and_start(self) -> list[str] | str:
        """Install, then start if requested; return the result."""
        try:
            self._install()
        except Exception:
            # An instance whose mirrors have no second copy is removed already.
            present = self.ctx.snapshot.instances.get(self.plan.instance.uuid)
            if present is not None and present.creation:
                self.change(creation=CREATION_INTERRUPTED)
            raise
        if self.op.start and self.op.no_install:
            self.ctx.log.info(
                "no operating system is installed, so the instance is not started"
            )
        if self._starts:
            self._start()
        return self.result()

    def _commit(self) -> None:
        self.ctx.log.message(f"adding instance {self.name} to cluster config")
        if self.plan.disks:
            self.ctx.log.message("adding disks to cluster config")
        with self.ctx.config.edit(self.ctx.owner) as edit:
            instance = self.plan.instance
            self.check_unclaimed(edit)
            if instance.hypervisor in ("kvm", "xen-hvm"):
                instance = instance.replace(network_port=edit.allocate_port())
            if self.installs:
                instance = instance.replace(creation=CREATION_INSTALLING)
            self.write(edit, instance)

    def check_unclaimed(self, edit: config.Edit) -> None:
        """Refuse addresses in a network that was connected since the checks."""
        if self.op.conflicts_check:
            group = edit.snapshot.nodes[self.primary].group
            nic_specs.check_unclaimed(edit.snapshot, self.plan.instance, group)

    def write(self, edit: config.Edit, instance: objects.Instance) -> None:
        """Write the records of the new instance and of its disks."""
        edit.add_instance(instance, mirror_specs.with_ports(edit, self.plan.disks))

    @property
    def installs(self) -> bool:
        """Whether an OS script runs, or an image is copied; never on adopted disks."""
        instance = self.plan.instance
        if self.plan.adopted:
            return False
        has_image = bool(self.os_parameters(instance).get(OS_IMAGE_PARAMETER))
        return bool(instance.os or has_image) and not self.op.no_install

    def os_parameters(self, instance: objects.Instance) -> dict[str, Any]:
        """Return all parameters for the scripts of the OS."""
        snapshot = self.ctx.snapshot
        return (
            params.fill_osparams(snapshot, instance)
            | params.fill_osparams_private(snapshot, instance)
            | (self.op.osparams_secret or {})
        )

    @property
    def runs_installer(self) -> bool:
        """Whether the create script of the OS runs."""
        return self.installs

    @property
    def instance(self) -> objects.Instance:
        """The committed record."""
        return self.ctx.snapshot.instances[self.plan.instance.uuid]

    def _install(self) -> None:
        if self.installation is not None:
            self.install_content()
            return
        if self.installs or not self._starts:
            # The disks and their space are recorded; the nodes need not be locked while
            # the copies of a mirror are made.
            allocation.release_nodes(self.ctx)
        if self.plan.disks:
            self.activate()
            self._settle()
        if self.installs:
            self.install_content()

    def activate(self) -> None:
        """Activate the disks for the first time.

        Raises:
            OpExecError: they cannot be used; the instance was removed again.
        """
        try:
            disks.assemble(self.ctx, self.instance)
        except errors.OpExecError as err:
            self.remove_again()
            raise errors.OpExecError(
                f"{err}; its disks cannot be used, so the instance was removed again"
            ) from err

    def install_content(self) -> None:
        """Have the OS script write the disks; the mark goes when it has ended."""
        # The script may run for minutes, and concerns this instance alone.
        allocation.release_nodes(self.ctx)
        outcome = self._run_installer()
        if outcome.error is not None:
            # Raises if a client had the script killed; the mark stays then.
            self.ctx.pause(0.0)
        # A script that failed has ended; one whose answer was lost may still run.
        if not (outcome.may_run if outcome.error is not None else self._starts):
            self.change(creation="")
        outcome.check()

    def _run_installer(self) -> helper_install.Outcome:
        ctx, op = self.ctx, self.op
        request = helper_install.Request(
            osparams_secret=op.osparams_secret,
            debug=op.debug_level or 0,
            reason=op.reason,
            limits=helper_install.Limits.from_request(op),
        )
        left = self.installation
        if left is not None or not self.is_trusted:
            return helper_install.Installation(
                ctx,
                self.instance,
                request,
                left or helper_install.Progress(self.uuid),
                is_continued=left is not None,
            ).run()
        ctx.log.message("* running the instance OS create scripts...")
        node = ctx.snapshot.nodes[self.primary].name
        what = f"instance {self.name}: could not install its OS on node {node}"
        return helper_install.on_node(ctx, self.instance, request, what)

    def _settle(self) -> None:
        """Wait for mirrors; an instance whose disks have no second copy is removed."""
        degraded = mirrors.wait_for_sync(
            self.ctx, self.instance, once=not self.op.wait_for_sync
        )
        if not degraded:
            return
        instance = self.instance
        self.remove_again()
        raise errors.OpExecError(
            f"instance {instance.name}: {', '.join(degraded)} is degraded and not being"
            " synchronised, so the instance was removed again"
        )

    def remove_again(self) -> None:
        """Remove the record and the disks of the new instance.

        Disks that were adopted keep their content, and get their names back.
        """
        instance, sources = self.instance, self.plan.adopted
        made = self.ctx.snapshot.instance_disks(instance)
        disks.shutdown(self.ctx, instance)
        if not sources:
            disks.note_removal(self.ctx, instance, made)
        with self.ctx.config.edit(self.ctx.owner) as edit:
            edit.remove_instance(instance.uuid)
        if sources:
            volumes.release(self.ctx, instance, made, sources)
        else:
            disks.remove_all(self.ctx, instance, made)

    def change(self, **changes: Any) -> None:
        """Change the committed record."""
        common.set_instance(self.ctx, self.plan.instance.uuid, **changes)

    def _start(self) -> None:
        if not self.ctx.locks.owned(locking.Level.NODE_RES):
            self._require_memory_again()
        # The mark reserves the memory until the guest has it.
        is_reserved = self.instance.is_reserved
        mark = {} if is_reserved else {"creation": ""}
        self.change(admin_state="up", **mark)
        self.ctx.log.message("* starting instance...")
        wire = encode.startable_instance(self.ctx.snapshot, self.instance)
        try:
            self.ctx.rpc.call_one(
                "instance_start", self.primary, wire, False, self.op.reason
            ).unwrap(f"instance {self.name}: could not be started")
        finally:
            if is_reserved:
                self.change(creation="")

    def _require_memory_again(self) -> None:
        """Check the memory that others may have used since the locks were released.

        Raises:
            OpExecError: it does not suffice, or the node does not answer.
        """
        try:
            self.require_memory(self.instance)
        except errors.OpPrereqError as err:
            self.change(creation="")
            raise errors.OpExecError(
                f"{err.args[0]}; the instance is installed, but not started"
            ) from err
