"""NIC changes of OP_INSTANCE_SET_PARAMS: computed on records, applied by hot-plug."""

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

from ganeti.base import errors
from ganeti.base.constants import disks, ecodes
from ganeti.base.constants.parameters import params
from ganeti.base.text import messages, units
from ganeti.model import ht, objects
from ganeti.operations import base
from ganeti.operations.instance.devices import nic_specs
from ganeti.operations.instance.disks import disk_specs


@dataclasses.dataclass(frozen=True)
class NicStep:
    """One change: its report to the user, and the device to hot-plug.

    Attributes:
        action: ``add``, ``remove`` or ``modify``.
        index: position before (remove, modify) or after (add) the change.
        device: the record after the change, or the removed one.
        report: pairs for the opcode's result.
    """

    action: str
    index: int
    device: Any
    report: tuple[tuple[str, Any], ...]


def plan(
    ctx: base.Context,
    instance: objects.Instance,
    mods: Sequence[ht.Modification],
    group: str,
) -> tuple[tuple[objects.Nic, ...], list[NicStep]]:
    """Return the NICs after the changes, and the steps; changes nothing.

    Raises:
        OpPrereqError: a wrong value, or no such NIC.
    """
    nics, steps = list(instance.nics), []
    owned = frozenset((nic.network, nic.ip) for nic in nics)
    for mod in mods:
        if mod.op in ("attach", "detach"):
            raise errors.refusal(
                f"instance {instance.name}: NICs cannot be {mod.op}ed, only added,"
                " removed and modified"
            )
        index = position(nics, mod, instance.name, "nic")
        what = f"instance {instance.name}: nic {index}"
        if mod.op == "add":
            nic = nic_specs.build(ctx, mod.spec, group=group, what=what, owned=owned)
            nics.insert(index, nic)
            steps.append(
                NicStep("add", index, nic, ((f"nic/{index}", _added(ctx, nic)),))
            )
        elif mod.op == "remove":
            nic = nics.pop(index)
            steps.append(NicStep("remove", index, nic, ((f"nic/{index}", "remove"),)))
        else:
            nic = nic_specs.change(
                ctx, nics[index], mod.spec, group=group, what=what, owned=owned
            )
            nics[index] = nic
            report = tuple(
                (f"nic.{key}/{index}", _chosen(nic, key) or value)
                for key, value in sorted(mod.spec.items())
            )
            steps.append(NicStep("modify", index, nic, report))
    if steps:
        nic_specs.check_all(nics, instance.name)
    return tuple(nics), final_steps(steps, nics, {nic.uuid for nic in instance.nics})


def final_steps(
    steps: Sequence[NicStep], devices: Sequence[Any], present: Collection[str]
) -> list[NicStep]:
    """Return what is left to do of the steps of a request.

    Devices that come and go are left out; others that come do so in the form and at the
    place which the later steps have given them.

    Args:
        steps: in the order of the request.
        devices: the records after all of them.
        present: uuids of the devices before them.
    """
    places = {device.uuid: index for index, device in enumerate(devices)}
    left = []
    for step in steps:
        place = places.get(step.device.uuid)
        if place is not None and step.action in ("add", "attach"):
            left.append(dataclasses.replace(step, index=place, device=devices[place]))
        elif place is not None or step.device.uuid in present:
            left.append(step)
    return left


def _chosen(nic: objects.Nic, key: str) -> str | None:
    """Return the address that a word such as ``pool`` or ``auto`` led to."""
    return {"ip": nic.ip, "mac": nic.mac}.get(key)


def _added(ctx: base.Context, nic: objects.Nic) -> str:
    filled = ctx.snapshot.cluster.nicparams["default"] | nic.nicparams
    network = ctx.snapshot.networks.get(nic.network or "")
    return (
        f"add:mac={nic.mac},ip={nic.ip},mode={filled['mode']},link={filled['link']}"
        f",network={network.name if network else None}"
    )


def position(
    devices: Sequence[Any], mod: ht.Modification, instance: str, kind: str
) -> int:
    """Return the index of the device that a modification names.

    Args:
        devices: records with ``name`` and ``uuid``.
        mod: ``item`` is an index (-1 is the last, or the end for add), a name, a uuid,
            or None.
        instance: for messages.
        kind: ``nic`` or ``disk``.

    Raises:
        OpPrereqError: there is no such device.
    """
    item, count = mod.item, len(devices)
    is_add = mod.op in ("add", "attach")
    if isinstance(item, str):
        number = units.integer(item)
        item = item if number is None else number
    if isinstance(item, str) and not is_add:
        for index, device in enumerate(devices):
            if item in (device.uuid, device.name):
                return index
    if item is None or item == -1:
        item = count if is_add else count - 1
    if isinstance(item, int) and 0 <= item < count + is_add:
        return item
    raise errors.OpPrereqError(
        f"instance {instance}: has no {kind} {mod.item}, it has"
        f" {messages.places(count)}",
        ecodes.ECODE_NOENT,
    )


def disk_changes(
    spec: dict[str, Any], what: str, disk: objects.Disk, *, has_data: bool = True
) -> dict[str, Any]:
    """Return typed values; refuse those that cannot change on an existing disk.

    The size of a reserved disk can change, as the disk has no data yet. The parameters
    of a provider of external storage can change; the value ``default`` removes one.

    Raises:
        OpPrereqError: another value than mode or name was given.
    """
    known = {"mode", "name"} if has_data else {"mode", "name", "size"}
    external = {}
    if disk.dev_type == "ext":
        external = {k: v for k, v in spec.items() if k not in params.IDISK}
        spec = {k: v for k, v in spec.items() if k not in external}
    unknown = sorted(set(spec) - known)
    if unknown:
        hint = (
            "; use gnt-instance grow-disk to change the size"
            if "size" in unknown
            else ""
        )
        raise errors.refusal(
            f"{what}: only mode and name can change, found {', '.join(unknown)}{hint}"
        )
    out: dict[str, Any] = {}
    if "mode" in spec:
        out["mode"] = disk_specs.check_mode(str(spec["mode"]), what)
    if "size" in spec:
        size = {"size": spec["size"]}
        out["size"] = disk_specs.parse(size, what, template="plain").size
    if "name" in spec:
        out["name"] = disk_specs.check_name(str(spec["name"]), what)
    if external:
        given = disk_specs.provider_parameters(external, what)
        kept = {k: v for k, v in (disk.params or {}).items() if k not in given}
        new = {k: v for k, v in given.items() if v != disks.VALUE_DEFAULT}
        out["params"] = {**kept, **new}
    return out
