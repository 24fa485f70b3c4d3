"""Checks that several instance units share; none of them changes anything."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti import errors, objects
from ganeti.cmdlib import base, typed_params
from ganeti.constants import ecodes
from ganeti.objects import params

_SPEC_OF: Final = {
    "memory-size": "memory in MiB",
    "cpu-count": "virtual CPUs",
    "disk-count": "disks",
    "nic-count": "NICs",
    "spindle-use": "spindles used",
}


def node_takes_instances(
    snapshot: objects.Snapshot, uuid: str, instance: str
) -> objects.Node:
    """Return a node; refuse one that may not take instances.

    Raises:
        OpPrereqError: it is offline, drained, or not vm_capable.
    """
    node = snapshot.nodes[uuid]
    problems = (
        (node.offline, "is marked offline"),
        (node.drained, "is marked drained"),
        (not node.vm_capable, "is not vm_capable"),
    )
    for broken, text in problems:
        if broken:
            raise errors.OpPrereqError(
                f"instance {instance}: node {node.name} {text}", ecodes.ECODE_STATE
            )
    return node


def policy_problems(
    snapshot: objects.Snapshot,
    group: str,
    *,
    backend: Mapping[str, Any],
    nic_count: int,
    disk_sizes: Sequence[int],
    template: str,
) -> list[str]:
    """Return the violations of a group's policy by an instance, empty for none."""
    policy = params.group_ipolicy(snapshot, snapshot.nodegroups[group])
    problems_found = []
    if template not in policy["disk-templates"]:
        problems_found.append(
            f"disk template {template} is not allowed, only"
            f" {', '.join(policy['disk-templates'])} (see --ipolicy-disk-templates)"
        )
    values = {
        "memory-size": backend["maxmem"],
        "cpu-count": backend["vcpus"],
        "spindle-use": backend["spindle_use"],
        "nic-count": nic_count,
    }
    if template != "diskless":
        values["disk-count"] = len(disk_sizes)
    fits: list[list[str]] = [
        _outside(limits, values, disk_sizes if template != "diskless" else ())
        for limits in policy["minmax"]
    ]
    if fits and all(fits):
        closest = min(len(problems) for problems in fits)
        problems_found += next(
            problems for problems in fits if len(problems) == closest
        )
    return problems_found


def _outside(
    limits: Mapping[str, Mapping[str, int]],
    values: Mapping[str, int],
    disk_sizes: Sequence[int],
) -> list[str]:
    low, high = limits["min"], limits["max"]
    problems = [
        f"{_SPEC_OF[key]}: {value} is not within {low[key]} and {high[key]}"
        for key, value in values.items()
        if not low[key] <= value <= high[key]
    ]
    problems += [
        f"disk {index}: {size} MiB is not within {low['disk-size']} and"
        f" {high['disk-size']} MiB"
        for index, size in enumerate(disk_sizes)
        if not low["disk-size"] <= size <= high["disk-size"]
    ]
    return problems


def problems_of(
    snapshot: objects.Snapshot,
    instance: objects.Instance,
    group: str,
    *,
    disk_sizes: Sequence[int] | None = None,
) -> list[str]:
    """Return the violations of a group's policy by a recorded instance.

    Args:
        snapshot: the configuration.
        instance: its record.
        group: uuid of its current or another group.
        disk_sizes: in MiB, in place of the recorded ones.
    """
    if disk_sizes is None:
        disk_sizes = [disk.size for disk in snapshot.instance_disks(instance)]
    return policy_problems(
        snapshot,
        group,
        backend=params.fill_beparams(snapshot, instance),
        nic_count=len(instance.nics),
        disk_sizes=disk_sizes,
        template=snapshot.disk_template(instance),
    )


def require_policy(
    problems: Sequence[str],
    snapshot: objects.Snapshot,
    group: str,
    instance: str,
) -> None:
    """Refuse an instance that violates its group's policy.

    Raises:
        OpPrereqError: it does; lists every violation.
    """
    if problems:
        name = snapshot.nodegroups[group].name
        raise errors.OpPrereqError(
            f"instance {instance}: violates the policy of node group {name}:"
            f" {'; '.join(problems)}",
            ecodes.ECODE_INVAL,
        )


def free_memory_mib(
    ctx: base.Context, node: str, hypervisor: str, hv: Mapping[str, Any]
) -> int:
    """Return the free memory of a node.

    Raises:
        OpPrereqError: the node does not answer or does not report it.
    """
    name = ctx.snapshot.nodes[node].name
    payload = ctx.rpc.call_one("node_info", node, [], [[hypervisor, dict(hv)]]).require(
        f"cannot get the free memory of node {name}", ecodes.ECODE_ENVIRON
    )
    free = payload[2][0].get("memory_free") if payload[2] else None
    if not isinstance(free, int):
        raise errors.OpPrereqError(
            f"node {name}: wanted its free memory, found {free!r}", ecodes.ECODE_ENVIRON
        )
    return free


def require_memory(
    ctx: base.Context,
    node: str,
    instance: str,
    wanted_mib: int,
    *,
    hypervisor: str,
    hv: Mapping[str, Any],
) -> int:
    """Refuse if a node has too little memory; return its free memory.

    Raises:
        OpPrereqError: it has; contains wanted and free memory.
    """
    free = free_memory_mib(ctx, node, hypervisor, hv)
    if wanted_mib > free:
        raise errors.OpPrereqError(
            f"instance {instance}: needs {wanted_mib} MiB on node"
            f" {ctx.snapshot.nodes[node].name}, which has {free} MiB free",
            ecodes.ECODE_NORES,
        )
    return free


def validate_hypervisor(
    ctx: base.Context, nodes: Sequence[str], hypervisor: str, filled: Mapping[str, Any]
) -> None:
    """Have nodes check hypervisor parameters; offline nodes are skipped.

    Raises:
        OpPrereqError: a node refused them.
    """
    typed_params.check_hypervisor_syntax(hypervisor, filled)
    results = ctx.rpc.call(
        "hypervisor_validate_params", nodes, [hypervisor, dict(filled)]
    )
    for result in results.values():
        if not result.offline:
            result.require(f"hypervisor {hypervisor} parameters", ecodes.ECODE_INVAL)


def os_not_blacklisted(
    snapshot: objects.Snapshot, os_name: str | None, instance: str
) -> None:
    """Refuse an operating system that is blacklisted, with or without its variant.

    Raises:
        OpPrereqError: it is blacklisted.
    """
    if os_name is None:
        return
    for name in (os_name, os_name.partition("+")[0]):
        if name in snapshot.cluster.blacklisted_os:
            raise errors.OpPrereqError(
                f"instance {instance}: OS {name} is blacklisted", ecodes.ECODE_INVAL
            )


def validate_os(
    ctx: base.Context,
    nodes: Sequence[str],
    os_name: str,
    os_params: Mapping[str, Any],
    *,
    force_variant: bool,
) -> None:
    """Have nodes check an OS definition and its parameters.

    Raises:
        OpPrereqError: a node does not have the OS or refused the parameters.
    """
    results = ctx.rpc.call(
        "os_validate",
        nodes,
        [True, os_name, ["parameters"], dict(os_params), force_variant],
    )
    for result in results.values():
        if not result.offline:
            result.require(f"OS {os_name}", ecodes.ECODE_INVAL)


def hypervisor_enabled(snapshot: objects.Snapshot, name: str, instance: str) -> None:
    """Refuse a hypervisor that the cluster has not enabled."""
    enabled = snapshot.cluster.enabled_hypervisors
    if name not in enabled:
        raise errors.OpPrereqError(
            f"instance {instance}: hypervisor {name} is not enabled in this cluster;"
            f" enabled are {', '.join(enabled)}",
            ecodes.ECODE_STATE,
        )
