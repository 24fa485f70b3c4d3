"""Moves of forthcoming instances: only their records change, nothing is copied."""

from collections.abc import Sequence

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.master import iallocator
from ganeti.model import objects
from ganeti.model.objects import lookup, params
from ganeti.operations import allocation, base
from ganeti.operations.instance import capacity, checks
from ganeti.operations.instance.disks import volumes


def check_target(
    ctx: base.Context,
    instance: objects.Instance,
    target: str,
    *,
    after: objects.Instance | None = None,
) -> None:
    """Refuse a node whose resources do not suffice, reservations considered.

    Args:
        ctx: dependencies of the opcode.
        instance: the forthcoming instance.
        target: uuid of the node.
        after: the record after the change, if more than the node changes.

    Raises:
        OpPrereqError: its memory or space does not suffice, or it does not answer.
    """
    snapshot, future = ctx.snapshot, after or instance
    checks.require_memory(
        ctx,
        target,
        instance.name,
        params.fill_beparams(snapshot, future)["maxmem"],
        hypervisor=instance.hypervisor,
        hv=params.fill_hvparams(snapshot, future),
    )
    disks = snapshot.instance_disks(instance)
    volumes.require_space(ctx, [target], disks, instance.name)
    if snapshot.disk_template(instance) == "file":
        size_mib = sum(disk.size for disk in snapshot.instance_disks(instance))
        capacity.require_space(ctx, target, instance.name, "file", size_mib)


def choose_target(
    ctx: base.Context,
    instance: objects.Instance,
    allocator: str | None,
    *,
    explain: bool = False,
    groups: Sequence[str] = (),
) -> str:
    """Return the uuid of the node that the allocator would choose now.

    The node is in the instance's group, or in the first of the given groups that has
    place.

    Unlike an existing instance, a forthcoming one of any disk template can move.

    Raises:
        OpPrereqError: there is no allocator, or none found a node.
    """
    snapshot, what = ctx.snapshot, f"instance {instance.name}"
    backend = params.fill_beparams(snapshot, instance)
    group, *others = groups or [snapshot.nodes[instance.primary_node].group]
    request = iallocator.Allocate(
        name=instance.name,
        disk_template=snapshot.disk_template(instance),
        tags=sorted(instance.tags),
        os=instance.os,
        vcpus=backend["vcpus"],
        memory=backend["maxmem"],
        spindle_use=backend["spindle_use"],
        disks=[
            {"size": disk.size, "mode": disk.mode}
            for disk in snapshot.instance_disks(instance)
        ],
        nics=[{"mac": nic.mac, "ip": nic.ip} for nic in instance.nics],
        hypervisor=instance.hypervisor,
        group_name=snapshot.nodegroups[group].name,
        restrict_to=sorted(
            node.name
            for node in snapshot.nodes.values()
            if node.uuid != instance.primary_node
        ),
    )
    try:
        (name,) = allocation.ask(
            ctx,
            allocation.names(snapshot, allocator, what, request.type),
            request,
            what,
            replaced=instance.uuid,
            explain=explain,
        )
    except errors.OpPrereqError as err:
        if not others or err.args[1:] != (ecodes.ECODE_NORES,):
            raise
        ctx.log.info(f"{what}: no place in group {request.group_name}")
        return choose_target(ctx, instance, allocator, explain=explain, groups=others)
    return lookup.expand_node(snapshot, name)


def move(ctx: base.Context, instance: objects.Instance, target: str) -> None:
    """Record another node."""
    ctx.log.message(
        f"moving the reservation of instance {instance.name} to node"
        f" {ctx.snapshot.nodes[target].name}"
    )
    with ctx.config.edit(ctx.owner) as edit:
        edit.move_reserved(instance.uuid, target)
