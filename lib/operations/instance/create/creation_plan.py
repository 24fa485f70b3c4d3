"""The plan of a creation: future records, and checks whether they fit."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec

from ganeti.base import errors
from ganeti.base.constants.instance import RESERVATION_LOW
from ganeti.base.constants.protocols.os import OS_IMAGE_PARAMETER
from ganeti.model import objects, opcodes
from ganeti.model.objects import params
from ganeti.operations import base
from ganeti.operations.instance import capacity, checks
from ganeti.operations.instance.create import helper_install, request_parts
from ganeti.operations.instance.devices import combinations, nic_specs
from ganeti.operations.instance.disks import shared_storage, volumes
from ganeti.operations.parameters import cloud_init, typed_params


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

    def plan(self) -> CreationPlan:
        """Return the plan of the creation."""
        return CreationPlan(
            objects.from_dict(objects.Instance, self.instance),
            tuple(objects.from_dict(objects.Disk, disk) for disk in self.disks),
        )


def starts(op: opcodes.InstanceCreate) -> bool:
    """Return whether it is started at the end; never without an operating system."""
    return op.start and not op.no_install


def installs(
    snapshot: objects.Snapshot, op: opcodes.InstanceCreate, plan: CreationPlan
) -> bool:
    """Return whether the disks get a content: from a script, an image or an instance.

    Adopted disks have one.
    """
    if op.mode != "create":
        return bool(plan.disks)
    given = request_parts.os_parameters(snapshot, op, plan.instance)
    has_system = bool(plan.instance.os or given.get(OS_IMAGE_PARAMETER))
    return has_system and not (plan.adopted or op.no_install)


def require_memory(
    ctx: base.Context, op: opcodes.InstanceCreate, instance: objects.Instance
) -> None:
    """Refuse if the node has too little memory for the instance.

    Never inside a valid reservation, unless it has a low priority and its memory was
    taken.

    Raises:
        OpPrereqError: the memory does not suffice, or the node does not answer.
    """
    snapshot, has_reservation = ctx.snapshot, False
    wanted = params.fill_beparams(snapshot, instance)["maxmem"]
    if op.commit:
        stored = snapshot.instances[instance.uuid]
        terms = stored.reservation
        is_low = terms is not None and terms.priority == RESERVATION_LOW
        reserved = params.fill_beparams(snapshot, stored)["maxmem"]
        has_reservation = wanted <= reserved and not is_low
    checks.require_memory(
        ctx,
        instance.primary_node,
        instance.name,
        wanted,
        hypervisor=instance.hypervisor,
        hv=params.fill_hvparams(snapshot, instance),
        rule=capacity.MemoryRule(has_reservation=has_reservation),
    )


def check(
    ctx: base.Context,
    op: opcodes.InstanceCreate,
    plan: CreationPlan,
    *,
    template: str,
    nodes: Sequence[str],
) -> bool:
    """Refuse a plan that the nodes cannot carry out.

    Args:
        ctx: dependencies of the opcode.
        op: the request.
        plan: the future records.
        template: of the disks, also if there is none yet.
        nodes: uuids, the primary one first.

    Returns:
        whether the node itself runs the create script of the OS.
    """
    snapshot, instance = ctx.snapshot, plan.instance
    primary = instance.primary_node
    shared_storage.check(ctx, instance, plan.disks, primary)
    cloud_init.check_instance(snapshot, instance)
    _check_policy(snapshot, op, plan, template)
    filled = params.fill_hvparams(snapshot, instance)
    checks.validate_hypervisor(ctx, [primary], instance.hypervisor, filled)
    combinations.check(ctx, None, instance, [primary], len(plan.disks))
    is_trusted = _check_os(ctx, op, plan)
    if not is_trusted:
        helper_install.check(ctx, instance.name, instance.os, instance.hypervisor)
    nic_specs.check_bridges(ctx, instance.nics, primary, instance.name)
    # Memory is for the guest, a helper machine, or the reservation.
    if starts(op) or op.forthcoming or not is_trusted:
        require_memory(ctx, op, instance)
    # Adopted disks have their space, and a reservation holds the space of a commit.
    if not (plan.adopted or op.commit):
        volumes.require_space(ctx, nodes, plan.disks, instance.name)
        size_mib = sum(disk.size for disk in plan.disks)
        capacity.require_space(ctx, primary, instance.name, template, size_mib)
    return is_trusted


def _check_policy(
    snapshot: objects.Snapshot,
    op: opcodes.InstanceCreate,
    plan: CreationPlan,
    template: str,
) -> None:
    """Refuse sizes that the policy of the node's group does not allow.

    What a reservation does not have yet is allowed.
    """
    instance = plan.instance
    group = snapshot.nodes[instance.primary_node].group
    backend = params.fill_beparams(snapshot, instance)
    typed_params.check_memory_order(backend, f"instance {instance.name}")
    if op.ignore_ipolicy:
        return
    problems = checks.policy_problems(
        snapshot,
        group,
        backend=backend,
        nic_count=len(instance.nics),
        disk_sizes=[disk.size for disk in plan.disks],
        template=template,
        is_complete=not op.forthcoming,
    )
    checks.require_policy(problems, snapshot, group, instance.name)


def _check_os(
    ctx: base.Context, op: opcodes.InstanceCreate, plan: CreationPlan
) -> bool:
    """Check the OS; return whether the node itself runs its create script."""
    snapshot, instance = ctx.snapshot, plan.instance
    is_install = op.mode == "create" and installs(snapshot, op, plan)
    if not (instance.os or is_install):
        return True
    if not (instance.os or plan.disks):
        raise errors.refusal(
            f"instance {instance.name}: OS parameter {OS_IMAGE_PARAMETER}: an image"
            " needs a disk, and the instance has none"
        )
    return checks.validate_os(
        ctx,
        [instance.primary_node],
        instance.os,
        request_parts.os_parameters(snapshot, op, instance),
        force_variant=op.force_variant,
        is_install=is_install,
    )
