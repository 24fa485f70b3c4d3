"""Parameters of an instance against each other and against its nodes.

Without these checks a change is accepted, and the next start of the instance fails.
They apply whichever of two parameters changes, and to defaults of the cluster, too.
What was wrong before does not hold up other changes.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.parameters import hvparams
from ganeti.base.text import hv_syntax
from ganeti.model import objects
from ganeti.model.objects import params
from ganeti.operations import base
from ganeti.protocols.rpc import calls

_ALL: Final = hvparams.CPU_PINNING_ALL
_TOPOLOGY: Final = ("cpu_cores", "cpu_sockets", "cpu_threads")
#: Places for disks of a guest of KVM, by the beginning of the disk type: four on IDE,
#: and the targets of one SCSI bus less those of the CD drives.
_PLACES: Final = {"ide": 4, "scsi": 14}


def _problems(
    hypervisor: str, hvp: Mapping[str, Any], vcpus: int, disks: int, nics: int
) -> Iterator[str]:
    if "cpu_mask" in hvp:
        try:
            hv_syntax.masks(hypervisor, hvp["cpu_mask"] or _ALL, vcpus)
        except errors.ParseError as err:
            yield str(err)
    if hypervisor != "kvm":
        return
    topology = {name: hvp[name] for name in _TOPOLOGY if hvp.get(name)}
    product = math.prod(topology.values())
    if vcpus % product or (len(topology) == len(_TOPOLOGY) and vcpus != product):
        given = ", ".join(f"{name} {value}" for name, value in topology.items())
        yield f"{given}: do not make up the {vcpus} of backend parameter vcpus"
    kind = str(hvp.get("disk_type") or "")
    places = _PLACES.get(kind.partition("-")[0])
    if places is not None and disks > places:
        yield f"disk_type {kind}: has places for {places} disks, found {disks}"
    slots = hvparams.QEMU_PCI_SLOTS - int(hvp.get("kvm_pci_reservations") or 0)
    wanted = nics + (disks if places is None else 0)
    if wanted > slots:
        yield (
            f"kvm_pci_reservations {hvp['kvm_pci_reservations']}: leaves {slots} PCI"
            f" slots, and its disks and NICs need {wanted}"
        )


def problems(
    snapshot: objects.Snapshot, instance: objects.Instance, disks: int | None = None
) -> list[str]:
    """Return why an instance cannot start with its parameters, nothing if it can.

    Args:
        snapshot: the configuration with the defaults.
        instance: its record.
        disks: number of its disks, if it differs from the record.
    """
    return list(
        _problems(
            instance.hypervisor,
            params.fill_hvparams(snapshot, instance),
            params.fill_beparams(snapshot, instance)["vcpus"],
            len(instance.disks) if disks is None else disks,
            len(instance.nics),
        )
    )


def check(
    ctx: base.Context,
    before: objects.Instance | None,
    after: objects.Instance,
    nodes: Sequence[str],
    disks: int,
) -> None:
    """Refuse a change after which an instance cannot start.

    Args:
        ctx: dependencies of the opcode.
        before: its record, None for a new one.
        after: the future record.
        nodes: uuids of its nodes.
        disks: number of its disks after the change.

    Raises:
        OpPrereqError: names the parameters, wanted and found.
    """
    known = problems(ctx.snapshot, before) if before else []
    for problem in problems(ctx.snapshot, after, disks):
        if problem not in known:
            raise _refusal(after.name, problem)
    mask = params.fill_hvparams(ctx.snapshot, after).get("cpu_mask")
    if before is None or mask != params.fill_hvparams(ctx.snapshot, before).get(
        "cpu_mask"
    ):
        _check_nodes(ctx, after, str(mask or ""), nodes)


def _check_nodes(
    ctx: base.Context, instance: objects.Instance, mask: str, nodes: Sequence[str]
) -> None:
    parts = hv_syntax.parse_mask(mask or _ALL)
    highest = max((cpu for part in parts for cpu in part or ()), default=-1)
    if highest < 0:
        return
    hvp = params.fill_hvparams(ctx.snapshot, instance)
    for uuid in nodes:
        node = ctx.snapshot.nodes[uuid]
        if node.offline:
            continue
        info = ctx.rpc.call_node(
            uuid, calls.node_info([], [(instance.hypervisor, hvp)])
        ).require(f"cannot get the processors of {node.name}", ecodes.ECODE_ENVIRON)
        total = info.host.cpu_total
        if isinstance(total, int) and highest >= total:
            raise _refusal(
                instance.name,
                f"parameter cpu_mask {mask}: names processor {highest}, and node"
                f" {node.name} has {total}, numbered from 0",
            )


def check_defaults(old: objects.Snapshot, new: objects.Snapshot) -> None:
    """Refuse defaults with which instances that could start cannot any more.

    Raises:
        OpPrereqError: names the first of them.
    """
    for uuid, instance in sorted(old.instances.items()):
        known = problems(old, instance)
        for problem in problems(new, new.instances[uuid]):
            if problem not in known:
                raise _refusal(instance.name, problem)


def _refusal(name: str, problem: str) -> errors.OpPrereqError:
    return errors.refusal(f"instance {name}: {problem}")
