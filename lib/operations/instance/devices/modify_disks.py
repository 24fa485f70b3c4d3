"""Disk changes of OP_INSTANCE_SET_PARAMS: computed on records, applied on nodes."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ganeti.base import errors
from ganeti.base.constants import disks as disk_constants
from ganeti.base.constants import ecodes
from ganeti.base.errors import refusal
from ganeti.model import ht, objects
from ganeti.model.objects import params
from ganeti.operations import base
from ganeti.operations.instance import capacity, common
from ganeti.operations.instance.create import reservation_terms
from ganeti.operations.instance.devices import modify_nics
from ganeti.operations.instance.devices.modify_nics import NicStep
from ganeti.operations.instance.disks import (
    disk_specs,
    mirror_records,
    mirror_states,
    node_disks,
    shared_storage,
    volumes,
)
from ganeti.protocols.rpc import calls, encode


@dataclasses.dataclass(frozen=True)
class FirstDisks:
    """How the disks of an instance without disks are made.

    Attributes:
        template: the requested one, or empty.
        secondary: uuid of the node of second copies.
        external: parameters of a provider of external storage, its name included.
        files: requested place of files, also of later disks.
    """

    template: str
    secondary: str | None
    external: Mapping[str, Any]
    files: disk_specs.FilePlace


def plan(
    ctx: base.Context,
    instance: objects.Instance,
    mods: Sequence[ht.Modification],
    first: FirstDisks,
) -> tuple[tuple[objects.Disk, ...], list[NicStep]]:
    """Return the disks after the changes, in their order, and the steps.

    Nothing is changed.

    Raises:
        OpPrereqError: a wrong value, or no such disk.
    """
    current, steps = list(ctx.snapshot.instance_disks(instance)), []
    for mod in mods:
        _check_forthcoming(instance, mod)
        if mod.op == "attach":
            template = _template(ctx, instance, current, first)
            disk = _find_detached(ctx, mod, instance, template)
            index = len(current)
            if disk in current:
                raise _refused_disk(instance, disk, "is attached twice")
        else:
            index = modify_nics.position(current, mod, instance.name, "disk")
        what = f"instance {instance.name}: disk {index}"
        if mod.op == "add":
            disk = _new(ctx, instance, mod, index, beside=current, first=first)
        if mod.op in ("add", "attach"):
            current.insert(index, disk)
            text = f"{mod.op}:size={disk.size},mode={disk.mode}"
            steps.append(NicStep(mod.op, index, disk, ((f"disk/{index}", text),)))
        elif mod.op in ("remove", "detach"):
            disk = current.pop(index)
            if mod.op == "remove" and (disk.uuid, "attach") in [
                (step.device.uuid, step.action) for step in steps
            ]:
                raise _refused_disk(instance, disk, "is attached by the same request")
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
    present = frozenset(instance.disks)
    steps = modify_nics.final_steps(steps, renumbered(current), present)
    _check_space(ctx, instance, [s.device for s in steps if s.action == "add"])
    return tuple(current), steps


def _refused_disk(
    instance: objects.Instance, disk: objects.Disk, why: str
) -> errors.OpPrereqError:
    return refusal(f"instance {instance.name}: disk {disk.uuid}: {why}")


def _check_space(
    ctx: base.Context, instance: objects.Instance, added: Sequence[objects.Disk]
) -> None:
    """Refuse new disks, which have one template, that do not fit or cannot be used."""
    if not added:
        return
    here, template = instance.primary_node, added[0].dev_type
    nodes = node_disks.nodes_of(added[0], instance)
    volumes.require_space(ctx, nodes, added, instance.name)
    wanted = sum(disk.size for disk in added)
    capacity.require_space(ctx, here, instance.name, template, wanted)
    shared_storage.check(ctx, instance, added, here)


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
        raise refusal(
            f"instance {instance.name}: wanted at most"
            f" {disk_constants.MAX_DISKS} disks, found {len(current)}"
        )
    names = [disk.name for disk in current]
    disk_specs.check_unique_names(names, instance.name, "disk")


def _template(
    ctx: base.Context,
    instance: objects.Instance,
    current: Sequence[objects.Disk],
    first: FirstDisks,
) -> str:
    """Return the template that another disk must have, ``diskless`` for any."""
    if current:
        return current[0].dev_type
    present = ctx.snapshot.disk_template(instance)
    return first.template or present if present == "diskless" else present


def _new(
    ctx: base.Context,
    instance: objects.Instance,
    mod: ht.Modification,
    index: int,
    *,
    beside: Sequence[objects.Disk],
    first: FirstDisks,
) -> objects.Disk:
    snapshot = ctx.snapshot
    template = _template(ctx, instance, beside, first)
    if template == "diskless" and not first.template:
        wanted = reservation_terms.first_template(instance)
        template = wanted or _template_of_first(snapshot)
    if template == "diskless":
        raise _needs_template(snapshot, instance)
    disk_specs.check_template(snapshot, template, instance.name)
    here = instance.primary_node
    volumes.check_exclusive(snapshot, here, template, instance.name)
    nodes = [here, *snapshot.secondary_nodes(instance)]
    if len(nodes) == 1 and first.secondary:
        nodes.append(first.secondary)
    if template in disk_constants.DTS_INT_MIRROR and len(nodes) == 1:
        raise refusal(
            f"instance {instance.name}: disk {index}: disk template {template} needs a"
            " secondary node, which its reservation lacks; reserve again with that"
            " template"
        )
    spec = disk_specs.parse(
        {**first.external, **mod.spec},
        f"instance {instance.name}: disk {index}",
        template=template,
        exclusive=params.has_exclusive_storage(snapshot, here),
    )
    must_adopt = template in disk_constants.DTS_MUST_ADOPT
    if spec.adopt and (not must_adopt or instance.forthcoming):
        raise refusal(
            f"instance {instance.name}: disk {index}: disks are adopted when an"
            " instance is created"
        )
    present = snapshot.instance_disks(instance)
    if template in disk_constants.DTS_INSTANCE_DEPENDENT_PATH and (
        present and not first.files.directory
    ):
        where = present[0].logical_id[1].rpartition("/")[0]
    else:
        where = disk_specs.directory(
            snapshot, template, instance.name, first.files.directory
        )
    made = disk_specs.records(
        ctx,
        template,
        [spec],
        nodes=nodes,
        owner=instance.uuid,
        files=disk_specs.FilePlace(where, first.files.driver, beside),
        first_index=index,
    )
    if spec.adopt:
        # Together with those of this request, of which one may be another name.
        earlier = [disk for disk in beside if disk.uuid not in snapshot.disks]
        made = (*earlier, *made)
        paths = [disk.logical_id[1] for disk in made]
        made = volumes.adopted(ctx, here, made, paths, instance.name)[-1:]
    return made[0].replace(forthcoming=instance.forthcoming)


def _with_disks(snapshot: objects.Snapshot) -> list[str]:
    """Return the enabled templates of new disks, in order."""
    enabled = snapshot.cluster.enabled_disk_templates
    return [name for name in enabled if name != "diskless"]


def _template_of_first(snapshot: objects.Snapshot) -> str:
    """Return the template of the first disk of an instance, which has one node."""
    mirrors = disk_constants.DTS_INT_MIRROR
    # A device to adopt is never chosen for somebody.
    others = (*mirrors, *disk_constants.DTS_MUST_ADOPT)
    one_node = [name for name in _with_disks(snapshot) if name not in others]
    return (one_node or ["diskless"])[0]


def _needs_template(
    snapshot: objects.Snapshot, instance: objects.Instance
) -> errors.OpPrereqError:
    """Return the error that names a command which adds a first disk."""
    enabled = _with_disks(snapshot)
    if not enabled:
        hint = "; enable one with gnt-cluster modify --enabled-disk-templates"
    else:
        hint = f": {command_for_first(enabled[0], instance)}"
    return errors.OpPrereqError(
        f"instance {instance.name}: its first disk needs a disk template{hint}",
        ecodes.ECODE_STATE,
    )


def command_for_first(template: str, instance: objects.Instance) -> str:
    """Return the command that gives an instance a first disk."""
    node = "-n NODE " if template in disk_constants.DTS_INT_MIRROR else ""
    given = "adopt=PATH" if template in disk_constants.DTS_MUST_ADOPT else "size=SIZE"
    return f"gnt-instance modify -t {template} {node}--disk add:{given} {instance.name}"


def _find_detached(
    ctx: base.Context, mod: ht.Modification, instance: objects.Instance, template: str
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
    node_disks.announce_removal(ctx, removed)
    node_disks.note_removal(ctx, instance, removed)
    # Adopted devices keep their data.
    added = [
        step.device
        for step in steps
        if step.action == "add"
        and step.device.dev_type not in disk_constants.DTS_MUST_ADOPT
    ]
    if added:
        node_disks.create_on_nodes_and_wipe(ctx, instance, added)
    with node_disks.removed_on_failure(ctx, instance, added):
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
            for node in node_disks.nodes_of(disk, instance):
                result = ctx.rpc.call_node(
                    node,
                    calls.blockdev_assemble(
                        encode.disk(
                            ctx.snapshot, disk, instance, is_peer_away=is_peer_away
                        ),
                        encode.instance(ctx.snapshot, instance),
                        node == instance.primary_node,
                        step.index,
                    ),
                )
                is_peer_away = ctx.warn_failed(
                    result, f"cannot assemble disk/{step.index}"
                )
            opened = node_disks.open_external(
                ctx, instance, [disk], instance.primary_node
            )
            if opened is not None:
                ctx.warn_failed(opened, f"cannot open disk/{step.index}")
            _settle(ctx, instance, step.index, disk, wait=wait_for_sync)
        elif step.action in ("remove", "detach"):
            node_disks.shutdown(ctx, instance, disks=[step.device], mark=False)
            if step.action == "remove":
                node_disks.remove_all(ctx, instance, [step.device])


def _settle(
    ctx: base.Context,
    instance: objects.Instance,
    index: int,
    disk: objects.Disk,
    *,
    wait: bool,
) -> None:
    """Wait for a new mirror; a degraded one is a warning, the disk can be used."""
    if not mirror_records.is_mirror(disk):
        return
    new = [(index, disk)]
    if mirror_states.wait_for_sync(ctx, instance, disks=new, once=not wait):
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
            edit.add_disk(mirror_records.with_port(edit, disk))
        elif known[disk.uuid] != disk:
            edit.update(disk)
    changed: objects.Instance = instance.replace(disks=tuple(d.uuid for d in disks))
    return changed
