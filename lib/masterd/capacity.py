"""LUXI method that tells how many more instances fit; not in Ganeti.

The nodes are asked what they have now; nothing is locked and nothing changes.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ganeti import errors, iallocator, objects
from ganeti.constants import ecodes
from ganeti.iallocator import builtin, defaults
from ganeti.masterd.calls import Later, World, method
from ganeti.objects import lookup, params


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked; sizes left out come from the instance policy.

    Attributes:
        disk_template: None for the first enabled one.
        memory, disk: in MiB.
        vcpus: of each instance.
        tiered: sizes shrink when no more fit; they start with the largest allowed.
        groups: names or uuids of the only node groups, none for all.
        limit: most instances.
        allocator: that is asked; ``.`` for the cluster's defaults in order, the
            built-in one when left out.
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
def query_capacity(world: World, wanted: Wanted) -> Later:
    """Tell how many more instances fit, where in order, and why there is no more."""
    snapshot = world.config.snapshot()
    request = build_request(snapshot, wanted)
    setting = snapshot.cluster.default_iallocator
    names = defaults.chosen(wanted.allocator or builtin.NAME, setting)
    names = names or [builtin.NAME]
    return Later(world.slow.submit(_ask, world, names, request), can_cancel=True)


def _ask(
    world: World, names: Sequence[str], request: iallocator.Capacity
) -> dict[str, Any]:
    snapshot = world.config.snapshot()
    _name, answer = iallocator.run_first(
        names, lambda name: iallocator.run(world.rpc, snapshot, name, request)
    )
    return {
        "disk_template": request.disk_template,
        "tiered": request.tiered,
        "groups": request.groups,
        "sizes": [dict(size) for size in request.sizes],
        **answer.result,
    }


def build_request(snapshot: objects.Snapshot, wanted: Wanted) -> iallocator.Capacity:
    """Return the allocator's request, with sizes of the policy where none is given.

    Raises:
        OpPrereqError: a template is not enabled, a group unknown, a size negative.
    """
    cluster = snapshot.cluster
    template = wanted.disk_template or cluster.enabled_disk_templates[0]
    if template not in cluster.enabled_disk_templates:
        enabled = ", ".join(cluster.enabled_disk_templates)
        raise _invalid(f"disk template {template}: wanted an enabled one of {enabled}")
    for name in ("memory", "disk", "vcpus", "limit"):
        value = getattr(wanted, name)
        least = 1 if name in ("memory", "vcpus") else 0
        if value is not None and value < least:
            raise _invalid(f"{name}: wanted {least} or more, found {value}")
    found = [lookup.expand_group(snapshot, name) for name in wanted.groups]
    groups = [snapshot.nodegroups[uuid] for uuid in dict.fromkeys(found)]
    policy = cluster.ipolicy
    if len(groups) == 1:
        policy = params.group_ipolicy(snapshot, groups[0])
    specs = [policy["std"]]
    if wanted.tiered:
        specs = [part["max"] for part in policy["minmax"]]
    sizes = [_size(spec, wanted) for spec in specs]
    unique = [size for at, size in enumerate(sizes) if size not in sizes[:at]]
    return iallocator.Capacity(
        disk_template=template,
        sizes=unique,
        spindle_use=int(policy["std"]["spindle-use"]),
        tiered=wanted.tiered,
        groups=[group.name for group in groups] or None,
        limit=wanted.limit,
    )


def _size(spec: dict[str, Any], wanted: Wanted) -> dict[str, int]:
    given = {"memory": wanted.memory, "disk": wanted.disk, "vcpus": wanted.vcpus}
    default = {
        "memory": spec["memory-size"],
        "disk": spec["disk-size"],
        "vcpus": spec["cpu-count"],
    }
    out = {
        key: int(default[key] if value is None else value)
        for key, value in given.items()
    }
    return out | {"spindles": int(spec["spindle-use"])}


def _invalid(text: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(f"capacity: {text}", ecodes.ECODE_INVAL)
