"""Allocator requests: the cluster data for an allocator, and the request itself.

Pure: a snapshot and the nodes' reports in, JSON types out. Sizes are in MiB.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from ganeti.base.constants import disks as disk_constants
from ganeti.model import objects
from ganeti.model.objects import params
from ganeti.protocols.rpc.answers import NO_GUEST, Guest, NodeInfo

#: Space of DRBD's metadata per disk.
DRBD_META_MIB: Final = 128


@dataclasses.dataclass(frozen=True, slots=True)
class NodeResources:
    """A node's report; names as in requests.

    ``free_memory`` is unused now; running instances may still grow into it.
    """

    total_memory: int
    reserved_memory: int
    free_memory: int
    total_disk: int
    free_disk: int
    total_cpus: int
    reserved_cpus: int


def read_resources(node: objects.Node, report: NodeInfo | None) -> NodeResources | None:
    """Return the resources that a node reports; None if it does not count."""
    if node.offline or not node.vm_capable or report is None:
        return None
    host, space = report.host, report.space
    return NodeResources(
        total_memory=int(host.memory_total or 0),
        reserved_memory=int(host.memory_dom0 or 0),
        free_memory=int(host.memory_free or 0),
        total_disk=int(space.storage_size or 0),
        free_disk=int(space.storage_free or 0),
        total_cpus=int(host.cpu_total or 0),
        reserved_cpus=int(host.cpu_dom0 or 0),
    )


def disk_space(template: str, sizes_mib: Sequence[int]) -> int:
    """Return the space that an instance's disks take on a node."""
    if template == "diskless":
        return 0
    extra = DRBD_META_MIB if template == "drbd" else 0
    return sum(sizes_mib) + extra * len(sizes_mib)


_IALLOCATOR_VERSION: Final = 2


@dataclasses.dataclass(frozen=True)
class Allocate:
    """Request of nodes for a new instance; the answer is node names, primary first.

    Attributes:
        restrict_to: the only nodes that may be used; None means all.
    """

    type: ClassVar[str] = "allocate"
    name: str
    disk_template: str
    tags: Sequence[str]
    os: str
    vcpus: int
    memory: int
    spindle_use: int
    disks: Sequence[Mapping[str, Any]]
    nics: Sequence[Mapping[Any, Any]]
    hypervisor: str
    group_name: str | None = None
    restrict_to: Sequence[str] | None = None

    @property
    def required_nodes(self) -> int:
        """Number of nodes that the template needs."""
        return 2 if self.disk_template == "drbd" else 1

    def to_dict(self) -> dict[str, Any]:
        """Return the request object."""
        out: dict[str, Any] = {
            "type": self.type,
            "name": self.name,
            "disk_template": self.disk_template,
            "group_name": self.group_name,
            "tags": list(self.tags),
            "os": self.os,
            "vcpus": self.vcpus,
            "memory": self.memory,
            "spindle_use": self.spindle_use,
            "disks": [
                dict(disk, type=disk.get("type", self.disk_template))
                for disk in self.disks
            ],
            "disk_space_total": disk_space(
                self.disk_template, [int(disk["size"]) for disk in self.disks]
            ),
            "nics": [dict(nic) for nic in self.nics],
            "required_nodes": self.required_nodes,
            "hypervisor": self.hypervisor,
        }
        if self.restrict_to is not None:
            out["restrict-to-nodes"] = list(self.restrict_to)
        return out


@dataclasses.dataclass(frozen=True)
class MultiAllocate:
    """Request of nodes for several new instances at once."""

    type: ClassVar[str] = "multi-allocate"
    instances: Sequence[Allocate]

    def to_dict(self) -> dict[str, Any]:
        """Return the request object."""
        parts = [item.to_dict() for item in self.instances]
        for part in parts:
            del part["type"]
        return {"type": self.type, "instances": parts}


@dataclasses.dataclass(frozen=True)
class Relocate:
    """Request of one other node for an instance.

    Attributes:
        name: name of the instance.
        relocate_from: names of the nodes to leave.
        disk_space_total: space of the instance's disks.
    """

    type: ClassVar[str] = "relocate"
    name: str
    relocate_from: Sequence[str]
    disk_space_total: int

    def to_dict(self) -> dict[str, Any]:
        """Return the request object."""
        return {
            "type": self.type,
            "name": self.name,
            "disk_space_total": self.disk_space_total,
            "required_nodes": 1,
            "relocate_from": list(self.relocate_from),
        }


def relocate(snapshot: objects.Snapshot, instance: objects.Instance) -> Relocate:
    """Return the request of another node; with DRBD, of another secondary node."""
    template = snapshot.disk_template(instance)
    left = [instance.primary_node]
    if template in disk_constants.DTS_INT_MIRROR:
        left = list(snapshot.secondary_nodes(instance))
    sizes = [disk.size for disk in snapshot.instance_disks(instance)]
    return Relocate(
        instance.name,
        [snapshot.nodes[uuid].name for uuid in left],
        disk_space(template, sizes),
    )


@dataclasses.dataclass(frozen=True)
class AllocateSecondary:
    """Request of a second node for an instance that has one. The answer is its name."""

    type: ClassVar[str] = "allocate-secondary"
    name: str

    def to_dict(self) -> dict[str, Any]:
        """Return the request object."""
        return {"type": self.type, "name": self.name}


@dataclasses.dataclass(frozen=True)
class NodeEvacuate:
    """Request of jobs that move instances off their nodes; ``mode`` selects the nodes.

    Ignoring soft errors is an option of the allocator, not part of the request.
    """

    type: ClassVar[str] = "node-evacuate"
    instances: Sequence[str]
    mode: str
    ignore_soft_errors: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the request object."""
        return {
            "type": self.type,
            "instances": list(self.instances),
            "evac_mode": self.mode,
        }


@dataclasses.dataclass(frozen=True)
class ChangeGroup:
    """Request of jobs that move instances to other groups; to any if none is named."""

    type: ClassVar[str] = "change-group"
    instances: Sequence[str]
    target_groups: Sequence[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the request object."""
        return {
            "type": self.type,
            "instances": list(self.instances),
            "target_groups": list(self.target_groups),
        }


@dataclasses.dataclass(frozen=True)
class Capacity:
    """Request of the number of instances that fit, with their nodes; not in Ganeti.

    Attributes:
        disk_template: of all instances, with one disk each.
        sizes: ``memory`` and ``disk`` in MiB, ``vcpus``, ``spindles``; more than one
            only if they shrink.
        spindle_use: spindle use of each instance.
        tiered: sizes shrink when no more instances fit.
        groups: names of the only node groups; None means all.
        limit: most instances; None for no limit.
    """

    type: ClassVar[str] = "capacity"
    disk_template: str
    sizes: Sequence[Mapping[str, int]]
    spindle_use: int = 1
    tiered: bool = False
    groups: Sequence[str] | None = None
    limit: int | None = None

    @property
    def required_nodes(self) -> int:
        """Number of nodes that the template needs."""
        return 2 if self.disk_template == "drbd" else 1

    def to_dict(self) -> dict[str, Any]:
        """Return the request object."""
        return {
            "type": self.type,
            "disk_template": self.disk_template,
            "required_nodes": self.required_nodes,
            "sizes": [dict(size) for size in self.sizes],
            "disk_extra": DRBD_META_MIB if self.disk_template == "drbd" else 0,
            "spindle_use": self.spindle_use,
            "tiered": self.tiered,
            "groups": None if self.groups is None else list(self.groups),
            "limit": self.limit,
        }


@dataclasses.dataclass(frozen=True)
class Balance:
    """Request of moves that balance the cluster.

    Attributes:
        max_moves: most moves.
        group_name: the only group; None for all.
        evacuate: move only instances with an offline or drained node.
        disk_moves: disks may be copied.
        search: where no single move helps, search for pairs of moves that do.
    """

    type: ClassVar[str] = "balance"
    max_moves: int
    group_name: str | None = None
    evacuate: bool = False
    disk_moves: bool = True
    search: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the request object."""
        return {
            "type": self.type,
            "max_moves": self.max_moves,
            "group_name": self.group_name,
            "evacuate": self.evacuate,
            "disk_moves": self.disk_moves,
            "search": self.search,
        }


Request = (
    Allocate
    | MultiAllocate
    | Relocate
    | AllocateSecondary
    | NodeEvacuate
    | ChangeGroup
    | Capacity
    | Balance
)


def build(
    snapshot: objects.Snapshot,
    request: Request,
    reports: Mapping[str, NodeInfo],
    running: Mapping[str, Mapping[str, Guest]],
) -> dict[str, Any]:
    """Return the complete input of an allocator.

    Args:
        snapshot: the cluster.
        request: the request.
        reports: node uuid -> its state, for nodes that answered.
        running: node uuid -> {instance name: guest} of running instances.
    """
    cluster = snapshot.cluster
    filled = _Filled(
        params.beparams_for(cluster, {}), params.nicparams_for(cluster, {})
    )
    names = {uuid: node.name for uuid, node in snapshot.nodes.items()}
    return {
        "version": _IALLOCATOR_VERSION,
        "cluster_name": cluster.cluster_name,
        "cluster_tags": sorted(cluster.tags),
        "enabled_hypervisors": list(cluster.enabled_hypervisors),
        "ipolicy": cluster.ipolicy,
        "nodegroups": {
            uuid: _group(snapshot, group) for uuid, group in snapshot.nodegroups.items()
        },
        "nodes": {
            node.name: _node(snapshot, node)
            | _live(snapshot, filled, node, reports.get(uuid), running.get(uuid, {}))
            for uuid, node in snapshot.nodes.items()
        },
        "instances": {
            instance.name or instance.uuid: _instance(snapshot, filled, names, instance)
            for instance in snapshot.instances.values()
        },
        "request": request.to_dict(),
    }


class _Filled(NamedTuple):
    """Default parameters of instances and of their NICs."""

    backend: Mapping[str, Any]
    nic: Mapping[str, Any]


def _group(snapshot: objects.Snapshot, group: objects.NodeGroup) -> dict[str, Any]:
    return {
        "name": group.name,
        "alloc_policy": group.alloc_policy,
        "networks": sorted(group.networks),
        "tags": sorted(group.tags),
        "ipolicy": params.group_ipolicy(snapshot, group),
    }


def _node(snapshot: objects.Snapshot, node: objects.Node) -> dict[str, Any]:
    return {
        "tags": sorted(node.tags),
        "primary_ip": node.primary_ip,
        "secondary_ip": node.secondary_ip,
        "offline": node.offline,
        "drained": node.drained,
        "master_candidate": node.master_candidate,
        "master_capable": node.master_capable,
        "vm_capable": node.vm_capable,
        "group": node.group,
        "ndparams": params.fill_ndparams(snapshot, node),
        "hv_state": node.hv_state_static,
    }


def _live(
    snapshot: objects.Snapshot,
    filled: _Filled,
    node: objects.Node,
    report: NodeInfo | None,
    running: Mapping[str, Guest],
) -> dict[str, Any]:
    """Return the resources that a node reports; empty without a usable report."""
    resources = read_resources(node, report)
    if resources is None:
        return {}
    instances, default = snapshot.instances, filled.backend["maxmem"]
    primaries = [
        (item, item.beparams.get("maxmem", default))
        for uuid in snapshot.primary_instances(node.uuid)
        for item in (instances[uuid],)
    ]
    free = resources.free_memory
    for item, maxmem in primaries:
        if item.admin_state == "up" and not item.forthcoming:
            used = int(running.get(item.name, NO_GUEST).memory or 0)
            free -= max(0, maxmem - used)
    return {
        "total_memory": resources.total_memory,
        "reserved_memory": resources.reserved_memory,
        "free_memory": free,
        "total_disk": resources.total_disk,
        "free_disk": resources.free_disk,
        "total_spindles": 0,
        "free_spindles": 0,
        "total_cpus": resources.total_cpus,
        "reserved_cpus": resources.reserved_cpus,
        "i_pri_memory": sum(maxmem for _item, maxmem in primaries),
        "i_pri_up_memory": sum(
            maxmem for item, maxmem in primaries if item.admin_state == "up"
        ),
    }


def _instance(
    snapshot: objects.Snapshot,
    filled: _Filled,
    names: Mapping[str, str],
    instance: objects.Instance,
) -> dict[str, Any]:
    backend = {**filled.backend, **instance.beparams}
    disks = snapshot.instance_disks(instance)
    template = snapshot.disk_template(instance)
    out: dict[str, Any] = {
        "tags": sorted(instance.tags),
        "admin_state": instance.admin_state,
        "vcpus": backend["vcpus"],
        "memory": backend["maxmem"],
        "spindle_use": backend["spindle_use"],
        "os": instance.os,
        "nodes": [
            names[uuid]
            for uuid in (instance.primary_node, *snapshot.secondary_nodes(instance))
        ],
        "nics": [_nic(filled, nic) for nic in instance.nics],
        "disks": [
            {
                "size": disk.size,
                "mode": disk.mode,
                "spindles": disk.spindles,
                "type": disk.dev_type,
            }
            for disk in disks
        ],
        "disk_template": template,
        "disks_active": instance.disks_active,
        "hypervisor": instance.hypervisor,
        "disk_space_total": disk_space(template, [disk.size for disk in disks]),
    }
    if instance.forthcoming:
        out["forthcoming"] = True
    if params.shares_directories(snapshot, instance):
        out["migrates"] = False
    return out


def _nic(filled: _Filled, nic: objects.Nic) -> dict[str, Any]:
    mode = nic.nicparams.get("mode", filled.nic["mode"])
    link = nic.nicparams.get("link", filled.nic["link"])
    out = {"mac": nic.mac, "ip": nic.ip, "mode": mode, "link": link}
    if mode == "bridged":
        out["bridge"] = link
    return out
