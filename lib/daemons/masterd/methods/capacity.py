"""The LUXI method that counts how many more instances fit; an addition to Ganeti.

The nodes are queried for their free resources; nothing is locked or changed.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ganeti.base import errors
from ganeti.base.constants import disks, ecodes
from ganeti.daemons.masterd.deps import MasterDeps
from ganeti.daemons.masterd.methods.calls import Later, method
from ganeti.master import iallocator
from ganeti.master.iallocator import builtin
from ganeti.model import objects
from ganeti.model.objects import allocators, lookup, params


class CapacityRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The argument of ``QueryCapacity``; default sizes come from the instance policy.

    Attributes:
        disk_template: None for the first enabled one.
        memory, disk: in MiB.
        vcpus: of each instance.
        tiered: begin with the largest allowed size, and shrink it when no more fit.
        groups: names or uuids of the node groups to use; empty for all.
        limit: largest number of instances.
        allocator: allocator that answers; ``.`` for the cluster's defaults in order,
            the built-in one by default.
    """

    disk_template: str | None = None
    memory: int | None = None
    disk: int | None = None
    vcpus: int | None = None
    tiered: bool = False
    groups: Sequence[str] = ()
    limit: int | None = None
    allocator: str | None = None


@method("QueryCapacity")
def query_capacity(deps: MasterDeps, request: CapacityRequest) -> Later:
    """Count the instances that still fit; return placements, and why no more fit."""
    snapshot = deps.config.snapshot()
    question = build_request(snapshot, request)
    setting = snapshot.cluster.default_iallocator
    name = request.allocator or builtin.NAME
    names = allocators.chosen(name, setting, question.type)
    names = names or [builtin.NAME]
    return Later(deps.slow.submit(_ask, deps, names, question), can_cancel=True)


def _ask(
    deps: MasterDeps, names: Sequence[str], question: iallocator.Capacity
) -> dict[str, Any]:
    snapshot = deps.config.snapshot()
    _name, answer = iallocator.run_first(
        names, lambda name: iallocator.run(deps.rpc, snapshot, name, question)
    )
    return {
        "disk_template": question.disk_template,
        "tiered": question.tiered,
        "groups": question.groups,
        "sizes": [dict(size) for size in question.sizes],
        **answer.result,
    }


def build_request(
    snapshot: objects.Snapshot, request: CapacityRequest
) -> iallocator.Capacity:
    """Return the allocator's request, with default sizes from the policy.

    Raises:
        OpPrereqError: a template is not enabled, a group unknown, a size negative, or a
            disk wanted without disks.
    """
    cluster = snapshot.cluster
    template = request.disk_template or cluster.enabled_disk_templates[0]
    if template not in cluster.enabled_disk_templates:
        enabled = ", ".join(cluster.enabled_disk_templates)
        raise _invalid(
            f"disk template {template}: wanted one of the enabled templates {enabled}"
        )
    for name in ("memory", "disk", "vcpus", "limit"):
        value = getattr(request, name)
        least = 1 if name in ("memory", "vcpus") else 0
        if value is not None and value < least:
            raise _invalid(f"{name}: wanted {least} or more, found {value}")
    if template == disks.DT_DISKLESS and request.disk:
        others = [name for name in cluster.enabled_disk_templates if name != template]
        raise _invalid(
            f"disk: wanted none with disk template {template}, found {request.disk};"
            f" give another disk template, enabled are {', '.join(others) or 'none'}"
        )
    uuids = [lookup.expand_group(snapshot, name) for name in request.groups]
    groups = [snapshot.nodegroups[uuid] for uuid in dict.fromkeys(uuids)]
    policy = cluster.ipolicy
    if len(groups) == 1:
        policy = params.group_ipolicy(snapshot, groups[0])
    specs = [policy["std"]]
    if request.tiered:
        specs = [part["max"] for part in policy["minmax"]]
    sizes = [_size(spec, request, template) for spec in specs]
    unique = [size for at, size in enumerate(sizes) if size not in sizes[:at]]
    return iallocator.Capacity(
        disk_template=template,
        sizes=unique,
        spindle_use=int(policy["std"]["spindle-use"]),
        tiered=request.tiered,
        groups=[group.name for group in groups] or None,
        limit=request.limit,
    )


def _size(
    spec: dict[str, Any], request: CapacityRequest, template: str
) -> dict[str, int]:
    given = {"memory": request.memory, "disk": request.disk, "vcpus": request.vcpus}
    default = {
        "memory": spec["memory-size"],
        "disk": 0 if template == disks.DT_DISKLESS else spec["disk-size"],
        "vcpus": spec["cpu-count"],
    }
    out = {
        key: int(default[key] if value is None else value)
        for key, value in given.items()
    }
    return out | {"spindles": int(spec["spindle-use"])}


def _invalid(text: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(f"capacity: {text}", ecodes.ECODE_INVAL)
