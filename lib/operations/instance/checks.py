"""Checks that several instance units share; none of them changes anything."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols import os
from ganeti.base.text import messages
from ganeti.base.text.units import exact_mib
from ganeti.model import objects
from ganeti.model.objects import cloud_init, params
from ganeti.operations import base
from ganeti.operations.instance import capacity
from ganeti.operations.parameters import typed_params
from ganeti.protocols.rpc import calls
from ganeti.protocols.rpc.procedure import Result

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
    is_complete: bool = True,
) -> list[str]:
    """Return the violations of a group's policy by an instance, empty for none.

    Unless it is complete, as a reservation may not be, missing disks and NICs violate
    nothing.
    """
    policy = params.group_ipolicy(snapshot, snapshot.nodegroups[group])
    problems_found = []
    lacks_disks = not is_complete and not disk_sizes
    if not lacks_disks and template not in policy["disk-templates"]:
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
    if not is_complete and not nic_count:
        del values["nic-count"]
    if template != "diskless" and not lacks_disks:
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
        f"disk {index}: {exact_mib(size)} is not within"
        f" {exact_mib(low['disk-size'])} and {exact_mib(high['disk-size'])}"
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
        raise errors.refusal(
            f"instance {instance}: violates the policy of node group {name}:"
            f" {'; '.join(problems)}"
        )


def free_memory_mib(
    ctx: base.Context, node: str, hypervisor: str, hv: Mapping[str, Any]
) -> int:
    """Return the free memory of a node.

    Raises:
        OpPrereqError: the node does not answer or does not report it.
    """
    name = ctx.snapshot.nodes[node].name
    info = ctx.rpc.call_node(
        node, calls.node_info([], [(hypervisor, dict(hv))])
    ).require(f"cannot get the free memory of node {name}", ecodes.ECODE_ENVIRON)
    free = info.host.memory_free
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
    rule: capacity.MemoryRule = capacity.PLAIN_RULE,
) -> int:
    """Refuse if a node has too little memory; return what the instance may take.

    Memory that reservations of other instances hold does not count as free.

    Args:
        ctx: dependencies of the opcode.
        node: uuid of the node.
        instance: name of the instance.
        wanted_mib: memory without which it cannot start.
        hypervisor: its hypervisor.
        hv: parameters of the hypervisor.
        rule: how reservations of other instances count.

    Raises:
        OpPrereqError: the memory does not suffice; contains wanted and free memory.
    """
    free = free_memory_mib(ctx, node, hypervisor, hv)
    snapshot, name = ctx.snapshot, ctx.snapshot.nodes[node].name
    held = capacity.memory(
        snapshot, node, besides=instance, only_forthcoming=rule.has_reservation
    )
    least = capacity.memory(snapshot, node, besides=instance, but_low=True)

    def needed(reserved: capacity.Held) -> int:
        return max(wanted_mib, rule.most_mib) if reserved.mib else wanted_mib

    if needed(held) <= free - held.mib:
        return free - held.mib
    if rule.ignore_low and needed(least) <= free - least.mib:
        taken = sorted(set(held.names) - set(least.names))
        ctx.log.warn(
            f"instance {instance}: takes memory of node {name} that reservations of"
            f" low priority hold: {messages.some(taken)}"
        )
        return free - least.mib
    raise errors.OpPrereqError(
        f"instance {instance}: needs {exact_mib(needed(held))} on node {name}, which"
        f" has {exact_mib(free)} free{held.text()}",
        ecodes.ECODE_NORES,
    )


def require_unreserved(
    ctx: base.Context, instance: objects.Instance, node: str, *, used_mib: int
) -> None:
    """Refuse a start that would take memory that reservations hold.

    For operations that start an instance whatever memory is free: nothing is checked,
    and the node is not asked, while nothing is reserved there.

    Args:
        ctx: dependencies of the opcode.
        instance: the instance.
        node: uuid of the node on which it starts.
        used_mib: memory that it has there already.

    Raises:
        OpPrereqError: it would.
    """
    if not capacity.memory(ctx.snapshot, node, besides=instance.name).mib:
        return
    require_memory(
        ctx,
        node,
        instance.name,
        params.fill_beparams(ctx.snapshot, instance)["maxmem"] - used_mib,
        hypervisor=instance.hypervisor,
        hv=params.fill_hvparams(ctx.snapshot, instance),
    )


def validate_hypervisor(
    ctx: base.Context, nodes: Sequence[str], hypervisor: str, filled: Mapping[str, Any]
) -> None:
    """Have nodes check hypervisor parameters; offline nodes are skipped.

    Raises:
        OpPrereqError: a node refused them.
    """
    typed_params.check_hypervisor_syntax(hypervisor, filled)
    results = ctx.rpc.call_nodes(
        nodes, calls.hypervisor_validate_params(hypervisor, dict(filled))
    )
    for result in results.values():
        if not result.offline:
            result.require(f"hypervisor {hypervisor} parameters", _refusal(result))


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
            raise errors.refusal(f"instance {instance}: OS {name} is blacklisted")


def validate_os(
    ctx: base.Context,
    nodes: Sequence[str],
    os_name: str,
    os_params: Mapping[str, Any],
    *,
    force_variant: bool,
    is_install: bool = False,
) -> bool:
    """Have nodes check an OS definition and its parameters.

    Returns:
        false if its installer will run, and a node does not trust it.

    Args:
        ctx: the unit's.
        nodes: uuids.
        os_name: with its variant.
        os_params: all values.
        force_variant: accept a variant that the OS does not declare.
        is_install: whether its create script will run.

    Raises:
        OpPrereqError: a node does not have the OS, or refused the parameters.
    """
    wanted = [os.OS_VALIDATE_PARAMETERS]
    if is_install:
        wanted.append(os.OS_VALIDATE_INSTALL)
    results = ctx.rpc.call_nodes(
        nodes,
        calls.os_validate(
            True,
            os_name,
            wanted,
            cloud_init.without_parameters(os_params),
            force_variant,
        ),
    )
    is_trusted = True
    for result in results.values():
        if not result.offline:
            answer = result.require(f"OS {os_name}", _refusal(result))
            is_trusted = is_trusted and answer is not False
    return is_trusted or not is_install


def _refusal(result: Result) -> str:
    """Return the class of a failed check: a silent node refuses nothing."""
    return ecodes.ECODE_ENVIRON if result.is_silent else ecodes.ECODE_INVAL


def hypervisor_enabled(snapshot: objects.Snapshot, name: str, instance: str) -> None:
    """Refuse a hypervisor that the cluster has not enabled."""
    enabled = snapshot.cluster.enabled_hypervisors
    if name not in enabled:
        raise errors.OpPrereqError(
            f"instance {instance}: hypervisor {name} is not enabled in this cluster;"
            f" enabled are {', '.join(enabled)}",
            ecodes.ECODE_STATE,
        )
