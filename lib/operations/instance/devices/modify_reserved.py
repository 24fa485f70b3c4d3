"""Changes of forthcoming instances by OP_INSTANCE_SET_PARAMS: records alone.

What `ganeti.operations.instance.devices.set_params` plans holds for them too; here are
the parts that differ: terms, the check of what the change takes from its node, and
templates.
"""

from collections.abc import Sequence

from ganeti.base import errors
from ganeti.base.constants import disks as disk_constants
from ganeti.base.constants import ecodes
from ganeti.master import config
from ganeti.model import objects, opcodes
from ganeti.model.objects import params
from ganeti.operations import base
from ganeti.operations.instance import capacity, checks
from ganeti.operations.instance.create import reservation_terms
from ganeti.operations.instance.disks import disk_specs, volumes


def refuse(op: opcodes.InstanceSetParams, instance: objects.Instance) -> None:
    """Refuse changes that do not apply to the instance.

    Raises:
        OpPrereqError: terms of a reservation for an existing instance, or changes of a
            guest for a forthcoming one.
    """
    what = f"instance {instance.name}"
    if not instance.forthcoming:
        if reservation_terms.has_terms(op):
            raise errors.OpPrereqError(
                f"{what}: is not forthcoming, so it has no terms of a reservation:"
                " expires, owner, reservation_priority",
                ecodes.ECODE_STATE,
            )
        return
    reservation_terms.check_terms(op, what)
    for name, value in (("offline", op.offline), ("runtime_mem", op.runtime_mem)):
        if value is not None:
            raise errors.OpPrereqError(
                f"{what}: is forthcoming, so {name} cannot change; create it first,"
                " with gnt-instance add --commit",
                ecodes.ECODE_STATE,
            )


def check_capacity(
    ctx: base.Context,
    before: objects.Instance,
    after: objects.Instance,
    disks: Sequence[objects.Disk],
    node: str,
) -> None:
    """Refuse a change that takes more than is free beside other reservations.

    Not even with ``force``: another reservation could not be created then.

    Args:
        ctx: dependencies of the opcode.
        before: the present record.
        after: the future record.
        disks: the future disks.
        node: uuid of the future node.

    Raises:
        OpPrereqError: memory or space does not suffice.
    """
    snapshot = ctx.snapshot
    memory = [
        int(params.fill_beparams(snapshot, record)["maxmem"])
        for record in (before, after)
    ]
    moves = node != before.primary_node
    if moves or memory[1] > memory[0]:
        checks.require_memory(
            ctx,
            node,
            before.name,
            memory[1],
            hypervisor=before.hypervisor,
            hv=params.fill_hvparams(snapshot, after),
        )
    sizes_before = sum(disk.size for disk in snapshot.instance_disks(before))
    if moves or sum(disk.size for disk in disks) > sizes_before:
        volumes.require_space(ctx, [node], disks, before.name)
    present = {disk.uuid: disk for disk in snapshot.instance_disks(before)}
    for template in sorted({disk.dev_type for disk in disks}):
        sizes = [disk.size for disk in disks if disk.dev_type == template]
        old = [disk.size for disk in present.values() if disk.dev_type == template]
        if moves or sum(sizes) > sum(old):
            capacity.require_space(ctx, node, before.name, template, sum(sizes))


def converted(
    ctx: base.Context,
    op: opcodes.InstanceSetParams,
    instance: objects.Instance,
    disks: Sequence[objects.Disk],
) -> tuple[objects.Disk, ...]:
    """Return the disks with another template; they have no data to copy.

    Raises:
        OpPrereqError: the template is not enabled, or is ``diskless``.
    """
    template = op.disk_template or ""
    disk_specs.check_template(ctx.snapshot, template, instance.name)
    if template == "diskless" and disks:
        raise errors.refusal(
            f"instance {instance.name}: cannot be converted to diskless, it has"
            f" {len(disks)} disks; remove them"
        )
    where = disk_specs.directory(
        ctx.snapshot, template, instance.name, op.file_storage_dir
    )
    nodes = [instance.primary_node, *ctx.snapshot.secondary_nodes(instance)]
    if template in disk_constants.DTS_INT_MIRROR and len(nodes) == 1:
        raise errors.refusal(
            f"instance {instance.name}: disk template {template} needs a secondary"
            " node, which its reservation lacks; reserve again with that template"
        )
    external = disk_specs.external_fields(
        op.ext_params, f"instance {instance.name}", template=template
    )
    made = disk_specs.records(
        ctx,
        template,
        [disk_specs.DiskRequest.like(disk, external) for disk in disks],
        nodes=nodes,
        owner=instance.uuid,
        files=disk_specs.FilePlace(where, op.file_driver),
    )
    return tuple(disk.replace(forthcoming=True) for disk in made)


def write(
    edit: config.Edit,
    after: objects.Instance,
    disks: Sequence[objects.Disk],
    node: str,
) -> None:
    """Write the future records.

    Args:
        edit: the edit.
        after: the future record, with the present node and disks.
        disks: the future disks, in order.
        node: uuid of the future node.
    """
    known = edit.snapshot.disks
    gone = [uuid for uuid in after.disks if uuid not in {disk.uuid for disk in disks}]
    for index, disk in enumerate(disks):
        named = disk.replace(iv_name=f"disk/{index}")
        if disk.uuid not in known:
            edit.add_disk(named)
        elif known[disk.uuid] != named:
            edit.update(named)
    pinned = reservation_terms.pinned(edit.snapshot, after)
    edit.update(pinned.replace(disks=tuple(disk.uuid for disk in disks)))
    for uuid in gone:
        edit.remove_disk(uuid)
    if node != after.primary_node:
        edit.move_reserved(after.uuid, node)
