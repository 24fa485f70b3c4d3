"""Disk changes of OP_INSTANCE_SET_PARAMS: computed on records, applied on nodes."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ganeti import errors, ht, objects
from ganeti.cmdlib import base
from ganeti.cmdlib.instance import (
    capacity,
    common,
    disk_specs,
    disks,
    mirror_specs,
    mirrors,
    modify_nics,
    reservation,
    shared_storage,
    volumes,
)
from ganeti.cmdlib.instance.modify_nics import NicStep
from ganeti.constants import disks as disk_constants
from ganeti.constants import ecodes
from ganeti.objects import params
from ganeti.rpc import encode


def plan(
    ctx: base.Context,
    instance: objects.Instance,
    mods: Sequence[ht.Modification],
    *,
    file_driver: str | None,
    file_storage_dir: str | None,
) -> tuple[tuple[objects.Disk, ...], list[NicStep]]:
    """Return the disks after the changes, and the steps; changes nothing.

    Raises:
        OpPrereqError: a wrong value, or no such disk.
    """
    current, steps = list(ctx.snapshot.instance_disks(instance)), []
    for mod in mods:
        _check_forthcoming(instance, mod)
        if mod.op == "attach":
            index, disk = len(current), _find_detached(ctx, mod, instance)
        else:
            index = modify_nics.position(current, mod, instance.name, "disk")
        what = f"instance {instance.name}: disk {index}"
        if mod.op == "add":
            disk = _new(
                ctx,
                instance,
                mod,
                index,
                file_driver=file_driver,
                file_storage_dir=file_storage_dir,
            )
        if mod.op in ("add", "attach"):
            current.insert(index, disk)
            text = f"{mod.op}:size={disk.size},mode={disk.mode}"
            steps.append(NicStep(mod.op, index, disk, ((f"disk/{index}", text),)))
        elif mod.op in ("remove", "detach"):
            disk = current.pop(index)
            steps.append(NicStep(mod.op, index, disk, ((f"disk/{index}", mod.op),)))
        else:
            changes = modify_nics.disk_changes(
                mod.spec, what, current[index], has_data=not instance.forthcoming
            )
            report = _report(index, current[index], changes)
            disk = current[index] = current[index].replace(**changes)
            if "params" in changes and not instance.forthcoming:
                shared_storage.check(ctx, instance, [disk], instance.primary_node)
            steps.append(NicStep("modify", index, disk, report))
    _check_result(instance, current)
    return tuple(current), steps


def _report(
    index: int, old: objects.Disk, changes: Mapping[str, Any]
) -> tuple[tuple[str, Any], ...]:
    """Return the lines about a changed disk; of parameters those that changed."""
    lines = [(k, value) for k, value in changes.items() if k != "params"]
    if "params" in changes:
        before, after = old.params or {}, changes["params"]
        lines += [
            (name, after.get(name, disk_constants.VALUE_DEFAULT))
            for name in sorted({*before, *after})
            if before.get(name) != after.get(name)
        ]
    return tuple((f"disk.{name}/{index}", value) for name, value in lines)


def _check_forthcoming(instance: objects.Instance, mod: ht.Modification) -> None:
    """Refuse to attach or detach a disk of an instance without existing disks."""
    if instance.forthcoming and mod.op in ("attach", "detach"):
        raise common.not_created(instance.name, f"no disk can be {mod.op}ed")


def _check_result(instance: objects.Instance, current: Sequence[objects.Disk]) -> None:
    if len(current) > disk_constants.MAX_DISKS:
        raise errors.OpPrereqError(
            f"instance {instance.name}: wanted at most"
            f" {disk_constants.MAX_DISKS} disks, found {len(current)}",
            ecodes.ECODE_INVAL,
        )
    names = [disk.name for disk in current]
    disk_specs.check_unique_names(names, instance.name, "disk")


def _new(
    ctx: base.Context,
    instance: objects.Instance,
    mod: ht.Modification,
    index: int,
    *,
    file_driver: str | None,
    file_storage_dir: str | None,
) -> objects.Disk:
    snapshot = ctx.snapshot
    template = snapshot.disk_template(instance)
    if template == "diskless":
        wanted = reservation.first_template(instance)
        template = wanted or _template_of_first(snapshot)
        if template == "diskless":
            raise errors.OpPrereqError(
                f"instance {instance.name}: no disk can be added, as its disk template"
                " is diskless; choose another one with --disk-template",
                ecodes.ECODE_STATE,
            )
    disk_specs.check_template(snapshot, template, instance.name)
    here = instance.primary_node
    volumes.check_exclusive(snapshot, here, template, instance.name)
    spec = disk_specs.parse(
        mod.spec,
        f"instance {instance.name}: disk {index}",
        template=template,
        exclusive=params.has_exclusive_storage(snapshot, here),
    )
    if spec.adopt:
        raise errors.OpPrereqError(
            f"instance {instance.name}: disk {index}: disks are adopted when an"
            " instance is created",
            ecodes.ECODE_INVAL,
        )
    present = snapshot.instance_disks(instance)
    if template in disk_constants.DTS_INSTANCE_DEPENDENT_PATH and (
        present and not file_storage_dir
    ):
        where = present[0].logical_id[1].rpartition("/")[0]
    else:
        where = disk_specs.directory(
            snapshot, template, instance.name, file_storage_dir
        )
    (disk,) = disk_specs.records(
        ctx,
        template,
        [spec],
        nodes=[here, *snapshot.secondary_nodes(instance)],
        owner=instance.uuid,
        files=disk_specs.FilePlace(where, file_driver),
        first_index=index,
    )
    volumes.require_space(ctx, disks.nodes_of(disk, instance), [disk], instance.name)
    capacity.require_space(ctx, here, instance.name, template, disk.size)
    shared_storage.check(ctx, instance, [disk], here)
    return disk.replace(forthcoming=instance.forthcoming)


def _template_of_first(snapshot: objects.Snapshot) -> str:
    """Return the template of the first disk of an instance, which has one node."""
    enabled = snapshot.cluster.enabled_disk_templates
    one_node = [name for name in enabled if name not in disk_constants.DTS_INT_MIRROR]
    return (one_node or ["diskless"])[0]


def _find_detached(
    ctx: base.Context, mod: ht.Modification, instance: objects.Instance
) -> objects.Disk:
    identifier = mod.spec.get("uuid") or mod.spec.get("name") or mod.item
    snapshot = ctx.snapshot
    for disk in snapshot.disks.values():
        if identifier in (disk.uuid, disk.name):
            owner = snapshot.disk_owner(disk.uuid)
            if owner is not None:
                name = snapshot.instances[owner].name
                raise errors.OpPrereqError(
                    f"disk {identifier}: is attached to instance {name}",
                    ecodes.ECODE_STATE,
                )
            template = snapshot.disk_template(instance)
            here = instance.primary_node
            if template not in ("diskless", disk.dev_type) or (
                disk.nodes and here not in disk.nodes
            ):
                raise errors.OpPrereqError(
                    f"instance {instance.name}: disk {identifier} has another disk"
                    " template or is on another node",
                    ecodes.ECODE_STATE,
                )
            return disk
    raise errors.OpPrereqError(f"disk {identifier}: not found", ecodes.ECODE_NOENT)


@contextlib.contextmanager
def applied_before_commit(
    ctx: base.Context, instance: objects.Instance, steps: Sequence[NicStep]
) -> Iterator[None]:
    """Create added disks on the nodes; remove them if the block, a commit, fails.

    Removed ones are noted, in case a node cannot remove them after the commit.

    Raises:
        OpExecError: a disk could not be created; nothing remains.
    """
    removed = [step.device for step in steps if step.action == "remove"]
    disks.announce_removal(ctx, removed)
    disks.note_removal(ctx, instance, removed)
    added = [step.device for step in steps if step.action == "add"]
    if added:
        disks.create_on_nodes_and_wipe(ctx, instance, added)
    with disks.removed_on_failure(ctx, instance, added):
        yield


def apply_after_commit(
    ctx: base.Context,
    instance: objects.Instance,
    steps: Sequence[NicStep],
    *,
    wait_for_sync: bool = True,
) -> None:
    """Assemble added disks if the others are active; remove removed ones."""
    for step in steps:
        if step.action in ("add", "attach") and instance.disks_active:
            # The commit has completed the record.
            disk = ctx.snapshot.disks[step.device.uuid]
            is_peer_away = False
            for node in disks.nodes_of(disk, instance):
                result = ctx.rpc.call_one(
                    "blockdev_assemble",
                    node,
                    encode.disk(
                        ctx.snapshot, disk, instance, is_peer_away=is_peer_away
                    ),
                    encode.instance(ctx.snapshot, instance),
                    node == instance.primary_node,
                    step.index,
                )
                is_peer_away = common.warn_failed(
                    ctx, result, f"cannot assemble disk/{step.index}"
                )
            opened = disks.open_external(ctx, instance, [disk], instance.primary_node)
            if opened is not None:
                common.warn_failed(ctx, opened, f"cannot open disk/{step.index}")
            _settle(ctx, instance, step.index, disk, wait=wait_for_sync)
        elif step.action in ("remove", "detach"):
            disks.shutdown(ctx, instance, disks=[step.device], mark=False)
            if step.action == "remove":
                disks.remove_all(ctx, instance, [step.device])


def _settle(
    ctx: base.Context,
    instance: objects.Instance,
    index: int,
    disk: objects.Disk,
    *,
    wait: bool,
) -> None:
    """Wait for a new mirror; a degraded one is a warning, the disk can be used."""
    if not mirror_specs.is_mirror(disk):
        return
    new = [(index, disk)]
    if mirrors.wait_for_sync(ctx, instance, disks=new, once=not wait):
        ctx.log.warn(f"disk/{index} is degraded: the other node has no copy of it")


def renumbered(kept: Sequence[objects.Disk]) -> list[objects.Disk]:
    """Return disks with names that follow their positions."""
    return [
        disk if disk.iv_name == f"disk/{i}" else disk.replace(iv_name=f"disk/{i}")
        for i, disk in enumerate(kept)
    ]


def commit(
    edit: Any, instance: objects.Instance, disks: Sequence[objects.Disk]
) -> objects.Instance:
    """Write disk records and return the instance with its new list of disks.

    Args:
        edit: an open `config.Edit`.
        instance: the current record.
        disks: the disks after the change, in order.
    """
    known = edit.snapshot.disks
    for disk in renumbered(disks):
        if disk.uuid not in known:
            edit.add_disk(mirror_specs.with_port(edit, disk))
        elif known[disk.uuid] != disk:
            edit.update(disk)
    changed: objects.Instance = instance.replace(disks=tuple(d.uuid for d in disks))
    return changed
