"""OP_INSTANCE_CREATE: create an instance, or reserve it and create it later."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from ganeti.base import errors
from ganeti.base.constants import disks, ecodes
from ganeti.base.constants.protocols.os import OS_IMAGE_PARAMETER
from ganeti.master import locking
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup
from ganeti.operations import base
from ganeti.operations.instance import checks
from ganeti.operations.instance.create import (
    content,
    creation_plan,
    creation_steps,
    creation_unit,
    export_content,
    node_choice,
    request_parts,
    reservation_terms,
)
from ganeti.operations.instance.disks import disk_specs, mirror_records
from ganeti.operations.parameters import typed_params

#: A uuid at the beginning of a name, and the rest.
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(?=\.)")


class InstanceReserve(creation_unit.CreationUnit):
    """Unit that records a forthcoming instance on a requested or allocated node.

    All parameters are optional. Those that are given are checked as for a creation,
    except that the policy only restricts what is known yet; nothing is created on
    nodes.
    """

    def check_terms(self) -> None:
        """Check the terms, and refuse what only a creation can do."""
        op = self.op
        if op.commit:
            raise self.prereq(
                f"instance {op.instance_name}: forthcoming and commit exclude each"
                " other: reserve first, then commit"
            )
        reservation_terms.check_terms(op, f"instance {op.instance_name or '(no name)'}")
        if any(disk.get("adopt") for disk in op.disks):
            raise self.prereq("a reservation cannot adopt disks, only a creation can")
        if op.name_check and not op.instance_name:
            raise self.prereq("a reservation without a name has no name to check")

    def choose_name(self) -> None:
        """Determine the name; without one, the uuid is the name."""
        self.address = None
        self.name = ""
        if self.op.instance_name:
            super().choose_name()

    def choose_template(self) -> None:
        """Determine the name of a nameless instance, and the template of its disks."""
        self.name = self.name or self.uuid
        if self.op.disks or self.op.disk_template:
            super().choose_template()
        if not self.op.disks:
            if self.op.disk_template in disks.DTS_INT_MIRROR:
                raise self.prereq(
                    f"instance {self.name}: template {self.template} needs disks in"
                    " the reservation, as its secondary node is chosen with them"
                )
            # Without disks, the template takes no resources; the terms keep it for
            # later.
            self.template = "diskless"

    def hooks_env(self) -> dict[str, Any]:
        """Return the variables of a creation, and that this is none yet."""
        env = super().hooks_env()
        if self.repeated is not None:
            return env
        return env | {"FORTHCOMING": True, "INSTANCE_STATUS": "down"}

    def execute(self) -> str:
        """Record the instance and its disks as forthcoming; nothing if repeated.

        Returns:
            the uuid, the only certain name of a forthcoming instance.
        """
        if self.repeated is not None:
            return self.uuid
        now = self.ctx.clock.time()
        instance = self.plan.instance.replace(
            forthcoming=True, reservation=reservation_terms.terms(self.op, now)
        )
        made = tuple(disk.replace(forthcoming=True) for disk in self.plan.disks)
        self.ctx.log.message(
            f"reserving the resources of instance {self.name} on node"
            f" {self.ctx.snapshot.nodes[self.place.primary].name}"
        )
        with self.ctx.config.edit(self.ctx.owner) as edit:
            creation_steps.check_unclaimed(edit, self.op, self.plan.instance)
            # In the edit, because the defaults may have changed since the checks.
            instance = reservation_terms.pinned(edit.snapshot, instance)
            edit.add_instance(instance, mirror_records.with_ports(edit, made))
        return self.uuid


class InstanceCommit(creation_unit.CreationUnit):
    """Unit that creates an instance whose resources are reserved, and starts it.

    Name, node, disks, NICs and sizes are those of the reservation; a request may give
    the operating system and other parameters that take no resources.
    """

    def check_terms(self) -> None:
        """Refuse terms of a reservation, and allocators."""
        super().check_terms()
        op = self.op
        if not op.instance_name:
            raise self.prereq("commit: name the forthcoming instance, or give its uuid")
        if op.request_key is not None:
            raise self.prereq(
                f"instance {op.instance_name}: a request_key belongs to the request"
                " that reserves; a commit is done at most once without it"
            )
        for name, value in (("iallocator", op.iallocator), ("snode", op.snode)):
            if value:
                raise self.prereq(
                    f"instance {op.instance_name}: {name} cannot be given with commit,"
                    " the nodes are those of the reservation; move it first"
                )

    def choose_name(self) -> None:
        """Take the name as given; it may be a uuid."""
        self.name = self.op.instance_name
        self.address = None

    def expand_names(self) -> None:
        """Look the forthcoming instance up and declare its locks and its node's."""
        if self.take_over():
            return
        snapshot = self.ctx.snapshot
        self.uuid = lookup.expand_instance(snapshot, self.op.instance_name)
        reserved = snapshot.instances[self.uuid]
        self._require_complete(reserved)
        self.name = reserved.name
        if self.op.name_check:
            full, addresses = request_parts.resolve(self.ctx, self.name)
            if full != self.name:
                raise self.prereq(
                    f"instance {self.name}: resolves to {full}; rename the forthcoming"
                    " instance to that name, or do not check the name"
                )
            self.address = addresses[0]
        self.place = node_choice.NodeChoice(self.ctx, self.op, self.locks)
        if self.ctx.resumption is not None:
            self.restore_plan()
        self.locks.names[locking.Level.INSTANCE] = [self.name]
        self.place.take(reserved)
        self.place.lock()

    def _require_complete(self, reserved: objects.Instance) -> None:
        """Refuse an instance that exists, or lacks something; name all of it.

        Raises:
            OpPrereqError: it is not forthcoming, or not complete.
        """
        if not reserved.forthcoming:
            raise self.prereq(
                f"instance {reserved.name}: is not forthcoming, it exists already",
                ecodes.ECODE_EXISTS,
            )
        missing, snapshot = [], self.ctx.snapshot
        if reserved.is_nameless:
            missing.append("a name (gnt-instance rename)")
        given = request_parts.os_parameters(snapshot, self.op, self._created(reserved))
        has_image = bool(given.get(OS_IMAGE_PARAMETER))
        if not (reserved.os or self.op.os_type or self.op.no_install or has_image):
            missing.append("an operating system (--os-type)")
        template = snapshot.disk_template(reserved)
        enabled = snapshot.cluster.enabled_disk_templates
        wanted = reservation_terms.first_template(reserved) or template
        if template == "diskless" and (wanted != template or wanted not in enabled):
            missing.append("a disk (gnt-instance modify --disk add:size=...)")
        if missing:
            raise self.prereq(
                f"instance {reserved.name}: cannot be created, it lacks"
                f" {' and '.join(missing)}",
                ecodes.ECODE_STATE,
            )

    def check_prereq(self) -> None:
        """Check everything and build the records from those of the reservation."""
        snapshot, op = self.ctx.snapshot, self.op
        reserved = snapshot.instances.get(self.uuid)
        if reserved is None:
            raise self.prereq(
                f"instance {self.name}: was released while the job waited for locks",
                ecodes.ECODE_NOENT,
            )
        # Again with the locks: the reservation may have changed while the job waited.
        self._require_complete(reserved)
        if (reserved.name, reserved.primary_node) != (self.name, self.place.primary):
            raise self.prereq(
                f"instance {reserved.name}: was renamed or moved while the job waited"
                " for locks, try again",
                ecodes.ECODE_STATE,
            )
        self.template = snapshot.disk_template(reserved)
        disk_specs.check_template(snapshot, self.template, self.name)
        checks.hypervisor_enabled(snapshot, reserved.hypervisor, self.name)
        self.place.check(self.name)
        self._refuse_other_resources(reserved)
        self.check_address()
        checks.os_not_blacklisted(snapshot, op.os_type or reserved.os, self.name)
        made = tuple(
            # Remains of an attempt that failed may still be removed, by their names.
            _with_own_place(self.ctx, disk).replace(forthcoming=False)
            for disk in snapshot.instance_disks(reserved)
        )
        self.plan = creation_plan.CreationPlan(self._created(reserved), made)
        self.check_fit()

    def _created(self, reserved: objects.Instance) -> objects.Instance:
        """Return the record of the instance: that of the reservation, with changes."""
        op = self.op
        hypervisor = typed_params.hypervisor(
            reserved.hypervisor, op.hvparams, allow_default=True
        )
        backend = typed_params.backend(op.beparams, allow_default=True)
        given = {name: str(value) for name, value in op.osparams.items()}
        return reserved.replace(
            os=op.os_type or reserved.os,
            forthcoming=False,
            hvparams=typed_params.merge(reserved.hvparams, hypervisor),
            beparams=typed_params.merge(reserved.beparams, backend),
            osparams=typed_params.merge(reserved.osparams, given),
            osparams_private=typed_params.merge(
                reserved.osparams_private, op.osparams_private or {}
            ),
            tags=tuple(sorted({*reserved.tags, *op.tags})),
        )

    def _refuse_other_resources(self, reserved: objects.Instance) -> None:
        """Refuse a request that repeats resources with other values.

        Clients of Ganeti may repeat the whole request for the reservation.

        Raises:
            OpPrereqError: a value differs; names it with both values.
        """
        op, snapshot = self.op, self.ctx.snapshot
        sizes = [disk.size for disk in snapshot.instance_disks(reserved)]
        wanted: Sequence[disk_specs.DiskRequest] = ()
        if op.disks:
            wanted = disk_specs.parse_all(op.disks, self.template, self.name)
        primary = self.place.primary
        node = lookup.expand_node(snapshot, op.pnode) if op.pnode else primary
        rows: list[tuple[str, Any, Any]] = [
            ("primary node", op.pnode, snapshot.nodes[primary].name),
            ("disk template", op.disk_template, self.template),
            ("hypervisor", op.hypervisor, reserved.hypervisor),
            ("disks of MiB", [disk.size for disk in wanted], sizes),
            ("number of NICs", len(op.nics), len(reserved.nics)),
        ]
        for what, given, actual in rows:
            # A request may have the short name of the node, so nodes are compared by
            # uuid.
            is_same = node == primary if what == "primary node" else given == actual
            if given and not is_same:
                raise self.prereq(
                    f"instance {self.name}: {what}: reserved is {actual}, found"
                    f" {given} in the request; change the reservation first"
                )


def _with_own_place(ctx: base.Context, disk: objects.Disk) -> objects.Disk:
    """Return a disk with a location that no earlier attempt to create it has used."""
    *start, last = disk.logical_id
    if not isinstance(last, str):
        raise errors.ProgrammerError(f"disk {disk.uuid}: location {disk.logical_id}")
    fresh = _UUID.sub(ctx.config.reserve_uuid(ctx.owner), last, count=1)
    children = tuple(_with_own_place(ctx, child) for child in disk.children)
    return disk.replace(logical_id=(*start, fresh), children=children)


class InstanceCreate(creation_unit.CreationUnit):
    """Unit that creates an instance; requests for reservations have their own."""

    contents: ClassVar[Mapping[str, type[content.Content]]] = {
        "import": export_content.ExportContent,
        "remote-import": content.RemoteContent,
    }

    @classmethod
    def for_request(
        cls, op: opcodes.InstanceCreate
    ) -> type[base.LogicalUnit[opcodes.InstanceCreate]]:
        """Return the unit that executes a request."""
        if op.forthcoming:
            return InstanceReserve
        return InstanceCommit if op.commit else cls
