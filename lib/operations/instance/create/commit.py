"""OP_INSTANCE_CREATE with ``commit``: create a forthcoming instance.

Name, node, disks, NICs and sizes are those of the reservation; a request may give the
operating system and other parameters that take no resources. The rest is a creation.
"""

import re
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.instance import RESERVATION_LOW
from ganeti.base.constants.protocols.os import OS_IMAGE_PARAMETER
from ganeti.master import config, locking
from ganeti.model import objects
from ganeti.model.objects import lookup, params
from ganeti.operations import base
from ganeti.operations.instance import checks
from ganeti.operations.instance.create import (
    create,
    create_request,
    making,
    reservation,
)
from ganeti.operations.instance.disks import disk_specs, mirror_specs
from ganeti.operations.parameters import typed_params

#: A uuid at the beginning of a name, and the rest.
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(?=\.)")


class InstanceCommit(create.InstanceCreate):
    """Unit that creates an instance whose resources are reserved, and starts it."""

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
        if self.take_over_installation():
            return
        snapshot = self.ctx.snapshot
        self.uuid = lookup.expand_instance(snapshot, self.op.instance_name)
        reserved = snapshot.instances[self.uuid]
        self._require_complete(reserved)
        self.name = reserved.name
        if self.op.name_check:
            full, addresses = create_request.resolve(self.ctx, self.name)
            if full != self.name:
                raise self.prereq(
                    f"instance {self.name}: resolves to {full}; rename the forthcoming"
                    " instance to that name, or do not check the name"
                )
            self.address = addresses[0]
        if self.ctx.resumption is not None:
            self.restore_plan()
        self.locks.names[locking.Level.INSTANCE] = [self.name]
        self.primary = reserved.primary_node
        self.secondary = next(iter(snapshot.secondary_nodes(reserved)), None)
        self.lock_nodes()

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
        missing = []
        if reserved.is_nameless:
            missing.append("a name (gnt-instance rename)")
        given = self.os_parameters(self._created(reserved))
        has_image = bool(given.get(OS_IMAGE_PARAMETER))
        if not (reserved.os or self.op.os_type or self.op.no_install or has_image):
            missing.append("an operating system (--os-type)")
        template = self.ctx.snapshot.disk_template(reserved)
        enabled = self.ctx.snapshot.cluster.enabled_disk_templates
        wanted = reservation.first_template(reserved) or template
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
        self._require_complete(reserved)
        if (reserved.name, reserved.primary_node) != (self.name, self.primary):
            raise self.prereq(
                f"instance {reserved.name}: was renamed or moved while the job waited"
                " for locks, try again",
                ecodes.ECODE_STATE,
            )
        self.template = snapshot.disk_template(reserved)
        disk_specs.check_template(snapshot, self.template, self.name)
        checks.hypervisor_enabled(snapshot, reserved.hypervisor, self.name)
        node = self.check_nodes()
        self._refuse_other_resources(reserved)
        self.check_address()
        checks.os_not_blacklisted(snapshot, op.os_type or reserved.os, self.name)
        made = tuple(
            _with_own_place(self.ctx, disk).replace(forthcoming=False)
            for disk in snapshot.instance_disks(reserved)
        )
        self.plan = making.CreationPlan(self._created(reserved), made)
        self.check_fit(node)

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
        wanted = (
            disk_specs.parse_all(op.disks, self.template, self.name)
            if (op.disks)
            else []
        )
        node = lookup.expand_node(snapshot, op.pnode) if op.pnode else self.primary
        rows: list[tuple[str, Any, Any]] = [
            ("primary node", op.pnode, snapshot.nodes[self.primary].name),
            ("disk template", op.disk_template, self.template),
            ("hypervisor", op.hypervisor, reserved.hypervisor),
            ("disks of MiB", [disk.size for disk in wanted], sizes),
            ("number of NICs", len(op.nics), len(reserved.nics)),
        ]
        for what, given, actual in rows:
            is_same = (
                node == self.primary if what == "primary node" else given == actual
            )
            if given and not is_same:
                raise self.prereq(
                    f"instance {self.name}: {what}: reserved is {actual}, found"
                    f" {given} in the request; change the reservation first"
                )

    def require_memory(
        self, instance: objects.Instance, *, has_reservation: bool = False
    ) -> None:
        """Refuse if the node has too little memory.

        Never inside a valid reservation, unless it has a low priority and its memory
        was taken.
        """
        del has_reservation
        stored = self.ctx.snapshot.instances[self.uuid]
        reserved = params.fill_beparams(self.ctx.snapshot, stored)["maxmem"]
        wanted = params.fill_beparams(self.ctx.snapshot, instance)["maxmem"]
        terms = stored.reservation
        is_low = terms is not None and terms.priority == RESERVATION_LOW
        super().require_memory(
            instance, has_reservation=wanted <= reserved and not is_low
        )

    def check_space(self) -> None:
        """Do nothing: the space is reserved."""

    def write(self, edit: config.Edit, instance: objects.Instance) -> None:
        """Replace the records of the forthcoming instance."""
        ready = mirror_specs.with_ports(edit, self.plan.disks)
        edit.create_reserved(instance, ready)

    def reserve_again(self) -> None:
        """Do nothing: the record has all identifiers."""


def _with_own_place(ctx: base.Context, disk: objects.Disk) -> objects.Disk:
    """Return a disk with a location that no earlier attempt to create it has used."""
    *start, last = disk.logical_id
    if not isinstance(last, str):
        raise errors.ProgrammerError(f"disk {disk.uuid}: location {disk.logical_id}")
    fresh = _UUID.sub(ctx.config.reserve_uuid(ctx.owner), last, count=1)
    children = tuple(_with_own_place(ctx, child) for child in disk.children)
    return disk.replace(logical_id=(*start, fresh), children=children)
