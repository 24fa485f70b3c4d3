"""Base of the units of OP_INSTANCE_CREATE: names, nodes, locks, records, checks."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from ganeti.base.constants import ecodes
from ganeti.base.net import netutils
from ganeti.master import locking
from ganeti.model import objects, opcodes
from ganeti.model.objects import params
from ganeti.operations import base
from ganeti.operations.instance import checks
from ganeti.operations.instance.create import (
    content,
    creation_plan,
    creation_steps,
    helper_install,
    node_choice,
    request_parts,
    reservation_terms,
)
from ganeti.operations.instance.disks import disk_specs, volumes
from ganeti.operations.instance.show import hook_env
from ganeti.operations.parameters import typed_params


class CreationUnit(base.LogicalUnit[opcodes.InstanceCreate]):
    """Base of units that create or reserve an instance.

    The checks build a plan; `creation_steps` carries it out.
    """

    HOOKS_PATH: ClassVar[str | None] = "instance-add"
    HOOKS_TYPE: ClassVar[str | None] = "INSTANCE"

    name: str
    uuid: str
    address: str | None
    template: str
    place: node_choice.NodeChoice
    plan: creation_plan.CreationPlan
    #: The kinds of content that a request of the class may name, by mode.
    contents: ClassVar[Mapping[str, type[content.Content]]] = {}
    #: The content that is copied to the disks; None if an OS is installed.
    source: content.Content | None = None
    #: The instance that an earlier request with the same key made.
    repeated: objects.Instance | None = None
    #: Whether the node itself runs the create script of the OS, if one runs.
    is_trusted: bool = True
    #: The interrupted wipe of new disks.
    left: creation_plan.Interrupted | None = None
    #: The steps of an interrupted creation whose record exists.
    continued: creation_steps.Completion | None = None

    def check_arguments(self) -> None:
        """Check parameters that do not depend on the cluster."""
        op = self.op
        kind = self.contents.get(op.mode)
        if op.mode != "create" and kind is None:
            raise self.prereq(
                f"instance {op.instance_name}: mode {op.mode} is not offered by this"
                " release for such a request, only create and import"
            )
        self.check_terms()
        if op.ip_check and not op.name_check:
            raise self.prereq(
                f"instance {op.instance_name}: checking the address needs"
                " the name to be checked too"
            )
        if op.instance_communication:
            raise self.prereq(
                f"instance {op.instance_name}: instance communication is"
                " not offered by this release"
            )
        self.choose_name()
        request_parts.check_tags(op.tags, self.name)
        helper_install.check_arguments(op)
        given = (op.osparams, op.osparams_private, op.osparams_secret)
        typed_params.check_osparams(f"instance {self.name}", *given)
        request_parts.check_seed(op, self.name)
        if kind is not None:
            self.source = kind(self.ctx, op, self.name)
            self.source.check_arguments()

    def check_terms(self) -> None:
        """Refuse terms of a reservation, which this request is not."""
        if reservation_terms.has_terms(self.op):
            raise self.prereq(
                f"instance {self.op.instance_name}: expires, owner and"
                " reservation_priority are terms of reservations; use them with"
                " forthcoming"
            )

    def choose_name(self) -> None:
        """Determine the name, and its address if it is to be checked."""
        self.name = netutils.normalize_host_name(self.op.instance_name)
        netutils.refuse_uuid(self.name, f"instance {self.name}")
        self.address = None
        if self.op.name_check:
            self.name, addresses = request_parts.resolve(self.ctx, self.name)
            self.address = addresses[0]

    def expand_names(self) -> None:
        """Look the nodes up and declare the new instance's lock."""
        if self.take_over():
            return
        # The key is compared for the request as it came, since a repetition has nothing
        # else: an export may have changed, or may be gone, by then.
        requested = self.op
        if self.source is not None:
            self.op = self.source.complete()
        self.repeated = request_parts.find_repeated(self.ctx, requested)
        if self.repeated is not None:
            self.locks.names[locking.Level.INSTANCE] = [self.repeated.name]
            self.locks.shared.add(locking.Level.INSTANCE)
            return
        self.request = request_parts.request_of(requested)
        self.uuid = self.ctx.config.reserve_uuid(self.ctx.owner)
        self.choose_template()
        self.place = node_choice.NodeChoice(self.ctx, self.op, self.locks)
        self.place.check_request(self.name, self.template)
        # Before the job waits for locks, if it would fail after that anyway.
        self._refuse_existing()
        # Locked although it has no record: no other job may make the name.
        self.locks.add[locking.Level.INSTANCE] = [self.name]
        if self.ctx.resumption is not None:
            self.restore_plan()
        else:
            self.place.find(self.name, self.template)

    def choose_template(self) -> None:
        """Determine the disk template."""
        snapshot = self.ctx.snapshot
        enabled = snapshot.cluster.enabled_disk_templates
        self.template = self.op.disk_template or enabled[0]
        disk_specs.check_template(snapshot, self.template, self.name)

    def restore_plan(self) -> None:
        """Take over the plan of an interrupted wipe, with the locks that it held."""
        saved = self.ctx.resumption
        self.left = left = msgspec.convert(saved, creation_plan.Interrupted)
        self.plan, self.is_trusted = left.plan(), left.is_trusted
        self.place.take_planned(self.plan)

    def take_over(self) -> bool:
        """Take over a creation whose record exists; return whether there is one.

        The lock of the instance suffices.
        """
        saved, snapshot = self.ctx.resumption, self.ctx.snapshot
        installation = helper_install.Progress.from_resumption(saved)
        if installation is not None:
            uuid = installation.installing
        else:
            uuid = self.source.restore(saved) if self.source and saved else ""
        if not uuid:
            return False
        record = snapshot.instances.get(uuid)
        if record is None:
            raise self.prereq(
                f"instance {self.name}: was removed before the master daemon restarted",
                ecodes.ECODE_NOENT,
            )
        self.plan = creation_plan.CreationPlan(
            record, tuple(snapshot.instance_disks(record))
        )
        self.place = node_choice.NodeChoice(self.ctx, self.op, self.locks)
        self.place.take(record)
        self.locks.names[locking.Level.INSTANCE] = [record.name]
        self.continued = creation_steps.Completion(
            self.ctx,
            self.op,
            self.plan,
            self.source,
            installation=installation,
            # Only a copy has programs that `Completion` must end.
            is_continued=installation is None,
        )
        return True

    def _refuse_existing(self) -> None:
        if self.ctx.snapshot.uuid_of("instances", self.name) is not None:
            raise self.prereq(
                f"instance {self.name}: already exists", ecodes.ECODE_EXISTS
            )

    def check_prereq(self) -> None:
        """Check everything and build the records."""
        if self.repeated is not None:
            self._take_over_repeated(self.repeated)
            return
        # Again with the lock of the name.
        self._refuse_existing()
        self.warn_of_short_name("instances", self.name)
        snapshot, op = self.ctx.snapshot, self.op
        hypervisor = request_parts.hypervisor_of(snapshot, op)
        checks.hypervisor_enabled(snapshot, hypervisor, self.name)
        self.place.choose(self.name, self.template)
        self.place.check(self.name)
        self.check_address()
        primary = self.place.primary
        volumes.check_exclusive(snapshot, primary, self.template, self.name)
        specs = disk_specs.parse_all(
            op.disks,
            self.template,
            self.name,
            exclusive=params.has_exclusive_storage(snapshot, primary),
        )
        # An import brings its content, and a reservation may get its OS by the commit.
        if self.source is None and not op.forthcoming:
            request_parts.require_os(op, self.name)
        checks.os_not_blacklisted(snapshot, op.os_type, self.name)
        instance = request_parts.record(
            self.ctx,
            op,
            uuid=self.uuid,
            name=self.name,
            primary=primary,
            auto_ip=self.address,
            request=self.request,
        )
        directory = disk_specs.directory(
            snapshot, self.template, self.name, op.file_storage_dir
        )
        made = disk_specs.records(
            self.ctx,
            self.template,
            specs,
            nodes=self.place.nodes,
            owner=self.uuid,
            files=disk_specs.FilePlace(directory, op.file_driver),
        )
        sources = tuple(spec.adopt for spec in specs if spec.adopt)
        if sources:
            made = volumes.adopted(self.ctx, primary, made, sources, self.name)
        self.plan = creation_plan.CreationPlan(
            instance.replace(disks=tuple(d.uuid for d in made)), made, sources
        )
        self.check_fit()
        if self.source is not None:
            self.source.check(self.plan.instance, self.plan.disks)

    def check_fit(self) -> None:
        """Check the plan against policy and nodes; determine who installs the OS."""
        self.is_trusted = creation_plan.check(
            self.ctx, self.op, self.plan, template=self.template, nodes=self.place.nodes
        )

    def check_address(self) -> None:
        """Refuse an address that a machine has, if it is to be checked."""
        is_checked = self.op.ip_check and self.address
        if is_checked and self.ctx.address_answers(self.address or ""):
            raise self.prereq(
                f"instance {self.name}: its address {self.address} is in use, a"
                " machine answers there",
                ecodes.ECODE_NOTUNIQUE,
            )

    def _take_over_repeated(self, repeated: objects.Instance) -> None:
        """Take over the instance that an earlier request with the same key made."""
        instance = request_parts.repeated_instance(self.ctx, self.op, repeated)
        self.uuid = instance.uuid
        self.place = node_choice.NodeChoice(self.ctx, self.op, self.locks)
        self.place.take(instance)

    def hooks_env(self) -> dict[str, Any]:
        """Return the variables of the new instance, its creation and its content."""
        if self.repeated is not None:
            return {}
        instance_env = hook_env.instance_env(
            self.ctx.snapshot,
            self.plan.instance,
            status=creation_plan.starts(self.op),
            disks=self.plan.disks,
            is_new=True,
        )
        of_source = {} if self.source is None else self.source.hooks_env()
        return {"ADD_MODE": self.op.mode} | instance_env | of_source

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the master and the new primary node; none for a repeated request."""
        if self.repeated is not None:
            return [], []
        nodes = self.with_master(self.place.nodes)
        return nodes, nodes

    def dry_run_result(self) -> list[str]:
        """Return the chosen nodes."""
        return [self.ctx.snapshot.nodes[uuid].name for uuid in self.place.nodes]

    def execute(self) -> list[str] | str:
        """Create, install, start; nothing for a repeated request."""
        if self.repeated is None:
            self._steps.make()
            self._complete()
        return self.dry_run_result()

    def resume(self) -> list[str] | str:
        """Continue where the master daemon ended."""
        if self.repeated is not None:
            # Another job was faster while this one had no locks.
            creation_steps.remove_planned_disks(self.ctx)
            self._take_over_repeated(self.repeated)
        elif self.continued is not None:
            self.continued.resume()
        elif self.left is not None:
            self._steps.resume(self.left)
            self._complete()
        return self.dry_run_result()

    @property
    def _steps(self) -> creation_steps.CreationSteps:
        return creation_steps.CreationSteps(
            self.ctx, self.op, self.plan, is_trusted=self.is_trusted
        )

    def _complete(self) -> None:
        creation_steps.Completion(
            self.ctx, self.op, self.plan, self.source, is_trusted=self.is_trusted
        ).run()
