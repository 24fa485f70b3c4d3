"""CPU and memory utilisation from monitoring daemons, applied to a cluster.

A collector's data is used only if every node that is not offline reported it.
"""

import math
from collections.abc import Mapping
from typing import Any, Final, TypeGuard

import msgspec

from ganeti.decisions.htools.model.cluster import Cluster, DataError, Instance
from ganeti.decisions.htools.model.json_reader import JsonPart

#: Collector of the average load of a node's CPUs.
CPU: Final = "cpu-avg-load"
#: Collector of the same per Xen domain.
XEN: Final = "xen-cpu-avg-load"
#: Collector of the resident memory of each KVM process.
RSS: Final = "kvm-inst-rss"

#: Data of one collector by node name.
Reports = Mapping[str, Any]


def from_file(data: Any, collector: str, source: str) -> dict[str, Any]:
    """Return a collector's data in saved answers: a list of {node, reports}.

    Raises:
        DataError: the data is not such a list.
    """
    if not isinstance(data, list):
        raise DataError(f"{source}: wanted a list of nodes, found {data!r:.80}")
    by_node = {}
    for number, item in enumerate(data):
        entry = JsonPart(item, f"[{number}]", source)
        for report in entry.parts("reports"):
            if report.text("name") == collector:
                by_node[entry.text("node")] = report.data.get("data")
    return by_node


def missing(cluster: Cluster, reports: Reports, collector: str) -> list[str]:
    """List the nodes that are not offline and have no usable data."""
    read = _total if collector == CPU else _domains
    return [
        node.name
        for node in cluster.nodes
        if not node.offline and read(reports.get(node.name)) is None
    ]


def unreported(cluster: Cluster, reports: Reports) -> list[str]:
    """List running instances whose load no node reports; ignores offline nodes."""
    reported: set[str] = set()
    for data in reports.values():
        reported.update(_domains(data) or {})
    return [
        inst.name
        for inst in cluster.instances
        if inst.running
        and not inst.forthcoming
        and not cluster.nodes[inst.primary].offline
        and inst.name not in reported
    ]


def apply(cluster: Cluster, reports: Reports, collector: str) -> Cluster:
    """Set the CPU utilisation of instances and the other load of nodes.

    ``reports`` has the data of every node that is not offline (see `missing`).
    """
    if collector == XEN:
        loads: dict[str, float] = {}
        for node in cluster.nodes:
            loads.update(_domains(reports.get(node.name)) or {})
        return _with_loads(cluster, loads)
    totals = {node.name: _total(reports.get(node.name)) for node in cluster.nodes}
    used = [float(node.node_cpus) for node in cluster.nodes]
    for inst in cluster.instances:
        if inst.online and not inst.forthcoming:
            used[inst.primary] += inst.vcpus
    loads = {}
    others = [totals[node.name] or 0.0 for node in cluster.nodes]
    for inst in cluster.instances:
        total = totals[cluster.nodes[inst.primary].name]
        if total is None:
            continue
        each = total / used[inst.primary] if used[inst.primary] else 0.0
        loads[inst.name] = each * inst.vcpus
        others[inst.primary] -= 0 if inst.forthcoming else loads[inst.name]
    nodes = tuple(
        msgspec.structs.replace(node, other_load=other)
        for node, other in zip(cluster.nodes, others, strict=True)
    )
    return _with_loads(msgspec.structs.replace(cluster, nodes=nodes), loads)


def apply_memory(cluster: Cluster, reports: Reports, weight: float) -> Cluster:
    """Set the memory utilisation of instances to their resident memory.

    An instance of average size gets ``weight``, so the unit of the reports does not
    matter. ``reports`` has the data of every node that is not
    offline (see `missing`).
    """
    sizes: dict[str, float] = {}
    for node in cluster.nodes:
        sizes.update(_domains(reports.get(node.name)) or {})
    known = [sizes[inst.name] for inst in cluster.instances if inst.name in sizes]
    whole = sum(known)
    if not whole:
        return cluster
    each = weight * len(known) / whole
    instances = tuple(
        msgspec.structs.replace(
            inst, utilisation=_memory(inst, each * sizes[inst.name])
        )
        if inst.name in sizes
        else inst
        for inst in cluster.instances
    )
    return msgspec.structs.replace(cluster, instances=instances)


def _memory(inst: Instance, value: float) -> tuple[float, float, float, float]:
    cpu, _memory, disk, net = inst.utilisation
    return cpu, value, disk, net


def _with_loads(cluster: Cluster, loads: Mapping[str, float]) -> Cluster:
    instances = tuple(
        msgspec.structs.replace(
            inst, utilisation=(loads[inst.name], *inst.utilisation[1:])
        )
        if inst.name in loads
        else inst
        for inst in cluster.instances
    )
    return msgspec.structs.replace(cluster, instances=instances)


def _total(data: Any) -> float | None:
    """Return the load of all CPUs of a node, None if it is not reported."""
    value = data.get("cpu_total") if isinstance(data, Mapping) else None
    return float(value) if _is_load(value) else None


def _domains(data: Any) -> dict[str, float] | None:
    """Return the load of each domain, None if it is not reported."""
    if not isinstance(data, Mapping) or not all(map(_is_load, data.values())):
        return None
    return {str(name): float(value) for name, value in data.items()}


def _is_load(value: Any) -> TypeGuard[float]:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value >= 0
