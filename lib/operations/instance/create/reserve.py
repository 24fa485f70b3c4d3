"""OP_INSTANCE_CREATE with ``forthcoming``: reserve the resources of an instance.

All parameters are optional. Those that are given are checked as for a creation, except
that the policy only restricts what is known yet; the record is written, and nothing is
created on nodes. `ganeti.operations.instance.create.commit` creates the instance later.
"""

from typing import Any

from ganeti.base.constants import disks as disk_constants
from ganeti.master import config
from ganeti.model import objects
from ganeti.model.objects import params
from ganeti.operations.instance import capacity, checks
from ganeti.operations.instance.create import create, reservation
from ganeti.operations.instance.disks import mirror_specs, volumes
from ganeti.operations.parameters import typed_params


class InstanceReserve(create.InstanceCreate):
    """Unit that records a forthcoming instance on a requested or allocated node."""

    def check_terms(self) -> None:
        """Check the terms, and refuse what only a creation can do."""
        op = self.op
        if op.commit:
            raise self.prereq(
                f"instance {op.instance_name}: forthcoming and commit exclude each"
                " other: reserve first, then commit"
            )
        reservation.check_terms(op, f"instance {op.instance_name or '(no name)'}")
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
            if self.op.disk_template in disk_constants.DTS_INT_MIRROR:
                raise self.prereq(
                    f"instance {self.name}: template {self.template} needs disks in"
                    " the reservation, as its secondary node is chosen with them"
                )
            self.template = "diskless"

    def require_os(self) -> None:
        """Do nothing: the operating system may be given later."""

    def check_policy(self, node: objects.Node) -> None:
        """Refuse sizes that the policy does not allow; what is missing is fine."""
        snapshot, instance = self.ctx.snapshot, self.plan.instance
        backend = params.fill_beparams(snapshot, instance)
        typed_params.check_memory_order(backend, f"instance {self.name}")
        if not self.op.ignore_ipolicy:
            problems = checks.policy_problems(
                snapshot,
                node.group,
                backend=backend,
                nic_count=len(instance.nics),
                disk_sizes=[disk.size for disk in self.plan.disks],
                template=self.template,
                is_complete=False,
            )
            checks.require_policy(problems, snapshot, node.group, self.name)

    @property
    def takes_memory(self) -> bool:
        """Whether it needs memory of the node at the end: always."""
        return True

    def check_space(self) -> None:
        """Refuse disks that do not fit, reserved ones considered."""
        volumes.require_space(self.ctx, self.nodes, self.plan.disks, self.name)
        size_mib = sum(disk.size for disk in self.plan.disks)
        capacity.require_space(
            self.ctx, self.primary, self.name, self.template, size_mib
        )

    def hooks_env(self) -> dict[str, Any]:
        """Return the variables of a creation, and that this is none yet."""
        env = super().hooks_env()
        if self.repeated is not None:
            return env
        return env | {"FORTHCOMING": True, "INSTANCE_STATUS": "down"}

    def result(self) -> list[str] | str:
        """Return the uuid, the only certain name of a forthcoming instance."""
        return self.uuid

    def make(self) -> list[str] | str:
        """Record the instance and its disks as forthcoming."""
        now = self.ctx.clock.time()
        instance = self.plan.instance.replace(
            forthcoming=True, reservation=reservation.terms(self.op, now)
        )
        made = tuple(disk.replace(forthcoming=True) for disk in self.plan.disks)
        self.ctx.log.message(
            f"reserving the resources of instance {self.name} on node"
            f" {self.ctx.snapshot.nodes[self.primary].name}"
        )
        with self.ctx.config.edit(self.ctx.owner) as edit:
            self.check_unclaimed(edit)
            self.write_reserved(edit, instance, made)
        return self.result()

    def write_reserved(
        self,
        edit: config.Edit,
        instance: objects.Instance,
        made: tuple[objects.Disk, ...],
    ) -> None:
        """Write the records."""
        ready = mirror_specs.with_ports(edit, made)
        edit.add_instance(reservation.pinned(edit.snapshot, instance), ready)
