"""The built-in allocator's cluster, read directly from the configuration.

The result equals the cluster of a JSON request, without building the request. Records
are immutable, so values made of them are cached.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.decisions.htools.hail import request
from ganeti.decisions.htools.model.cluster import (
    MOVABLE_TEMPLATES,
    NONE,
    RUNNING,
    Cluster,
    DataError,
    Group,
    Instance,
    Node,
)
from ganeti.decisions.htools.model.json_reader import JsonPart, read_policy
from ganeti.decisions.htools.model.policy import AllocPolicy
from ganeti.master.iallocator import requests
from ganeti.model import objects
from ganeti.model.objects import params
from ganeti.protocols.rpc.answers import Guest, NodeInfo

_NO_NODES: Final[Mapping[str, int]] = {}
#: Stands for an instance until it is read.
_NONE: Final = Instance(name="", memory=0, disk=0, vcpus=0, primary=NONE)
#: Resources of nodes without a report.
_NOTHING: Final = requests.NodeResources(0, 0, 0, 0, 0, 0, 0)
_NOT_NEGATIVE: Final = (
    "total_memory",
    "reserved_memory",
    "total_disk",
    "total_cpus",
    "reserved_cpus",
)
_Running = Mapping[str, Mapping[str, Guest]]


class _Instances(NamedTuple):
    """Cached instances with their sources; replaced as a whole.

    Attributes:
        backend: default backend parameters.
        hypervisor: default hypervisor parameters, and those of operating systems.
        places: node uuid -> position.
        snapshot: the source of the values.
        values: by uuid of the instance.
    """

    backend: Mapping[str, Any]
    hypervisor: tuple[Mapping[str, Any], Mapping[str, Any]]
    places: Mapping[str, int]
    snapshot: objects.Snapshot
    values: Mapping[str, Instance]


class ClusterCache:
    """Reader of clusters with a cache; threads may share one."""

    def __init__(self) -> None:
        self._instances = _Instances({}, ({}, {}), _NO_NODES, objects.Snapshot(), {})

    def read(
        self,
        snapshot: objects.Snapshot,
        reports: Mapping[str, NodeInfo],
        running: _Running,
        *,
        static_memory: int,
    ) -> Cluster:
        """Return the cluster.

        Args:
            snapshot: the configuration.
            reports: node uuid -> payload of ``node_info``, for nodes that answered.
            running: node uuid -> {instance name: guest} of running instances.
            static_memory: MiB assumed for a KVM node itself; 0 takes the reported
                value.

        Raises:
            OpPrereqError: a node's report or a policy is invalid.
        """
        cluster = snapshot.cluster
        groups = {uuid: place for place, uuid in enumerate(snapshot.nodegroups)}
        places = {uuid: place for place, uuid in enumerate(snapshot.nodes)}
        instances = self._all(snapshot, places)
        growth = _not_yet_used(places, instances, running)
        is_kvm = cluster.enabled_hypervisors[:1] == ("kvm",)
        reader = _Nodes(snapshot, groups, static_memory if is_kvm else 0)
        try:
            out = Cluster(
                tuple(_group(snapshot, item) for item in snapshot.nodegroups.values()),
                tuple(
                    reader.read(node, reports.get(uuid), growth[place])
                    for place, (uuid, node) in enumerate(snapshot.nodes.items())
                ),
                instances,
                tuple(sorted(cluster.tags)),
                read_policy(JsonPart(cluster.ipolicy, "ipolicy", "cluster")),
            )
        except DataError as err:
            raise errors.OpPrereqError(
                f"built-in allocator: {err}", ecodes.ECODE_INVAL
            ) from err
        return out.without_moving(out.split())

    def _all(
        self, snapshot: objects.Snapshot, places: Mapping[str, int]
    ) -> tuple[Instance, ...]:
        """Return all instances; only changed ones are converted again."""
        backend = params.beparams_for(snapshot.cluster, {})
        hypervisor = (snapshot.cluster.hvparams, snapshot.cluster.os_hvp)
        old, sources = self._instances, (backend, hypervisor, places)
        if (old.backend, old.hypervisor, old.places) != sources:
            old = _Instances(*sources, objects.Snapshot(), {})
        changed = snapshot.changed_instances(old.snapshot)
        values = dict(old.values)
        if changed is None:
            changed = _changed(snapshot, old.snapshot)
            present = snapshot.instances
            # In the order of the configuration.
            values = {uuid: values.get(uuid, _NONE) for uuid in present}
        for uuid in changed:
            values[uuid] = _instance(backend, snapshot, uuid, places)
        self._instances = _Instances(*sources, snapshot, values)
        return tuple(values.values())


def _changed(snapshot: objects.Snapshot, before: objects.Snapshot) -> set[str]:
    """Return the instances that are new or differ, or whose disks do."""
    return {
        uuid
        for uuid, instance in snapshot.instances.items()
        if before.instances.get(uuid) is not instance
        or any(
            before.disks.get(disk) is not snapshot.disks[disk]
            for disk in instance.disks
        )
    }


def _place(
    snapshot: objects.Snapshot, instance: objects.Instance, places: Mapping[str, int]
) -> tuple[int, int]:
    """Return the positions of an instance's nodes."""
    others = snapshot.secondary_nodes(instance)
    return (
        places[instance.primary_node],
        places[others[0]] if others else NONE,
    )


def _instance(
    backend: Mapping[str, Any],
    snapshot: objects.Snapshot,
    uuid: str,
    places: Mapping[str, int],
) -> Instance:
    instance = snapshot.instances[uuid]
    disks = snapshot.instance_disks(instance)
    place = _place(snapshot, instance, places)
    beparams = instance.beparams
    kinds = {disk.dev_type for disk in disks}
    template = "diskless" if not kinds else kinds.pop() if len(kinds) == 1 else "mixed"
    sizes = tuple([disk.size for disk in disks])
    spindles = [disk.spindles for disk in disks if disk.spindles is not None]
    status = request.STATUS[instance.admin_state]
    migrates = status not in RUNNING or not params.shares_directories(
        snapshot, instance
    )
    return Instance(
        name=instance.name or instance.uuid,
        memory=beparams.get("maxmem", backend["maxmem"]),
        disk=requests.disk_space(template, sizes),
        vcpus=beparams.get("vcpus", backend["vcpus"]),
        primary=place[0],
        secondary=place[1],
        status=status,
        template=template,
        tags=tuple(sorted(instance.tags)),
        spindle_use=beparams.get("spindle_use", backend["spindle_use"]),
        spindles=sum(spindles) if len(spindles) == len(disks) else None,
        forthcoming=instance.forthcoming,
        disks=sizes,
        movable=template in MOVABLE_TEMPLATES and migrates,
        migrates=migrates,
    )


def _group(snapshot: objects.Snapshot, group: objects.NodeGroup) -> Group:
    policy = params.group_ipolicy(snapshot, group)
    return Group(
        name=group.name,
        uuid=group.uuid,
        alloc_policy=AllocPolicy(group.alloc_policy),
        tags=tuple(sorted(group.tags)),
        networks=tuple(sorted(group.networks)),
        policy=read_policy(JsonPart(policy, "ipolicy", f"group {group.name}")),
    )


def _not_yet_used(
    places: Mapping[str, int],
    instances: Sequence[Instance],
    running: _Running,
) -> list[int]:
    """Return per node how much more memory its running instances may take."""
    by_place: list[Mapping[str, Guest]] = [{} for _ in places]
    for uuid, instance in running.items():
        if uuid in places:
            by_place[places[uuid]] = instance
    growth = [0] * len(places)
    for item in instances:
        if item.status != "running" or item.forthcoming:
            continue
        at, wanted = item.primary, item.memory
        guest = by_place[at].get(item.name)
        used = int(guest.memory or 0) if guest else 0
        if used < wanted:
            growth[at] += wanted - used
    return growth


class _Nodes:
    """Reader of the nodes of one cluster."""

    def __init__(
        self, snapshot: objects.Snapshot, groups: Mapping[str, int], static_memory: int
    ) -> None:
        self._groups, self._static_memory = groups, static_memory
        self._params = {
            uuid: params.group_ndparams(snapshot, group)
            for uuid, group in snapshot.nodegroups.items()
        }

    def read(self, node: objects.Node, report: Any, not_yet_used: int) -> Node:
        """Return a node; a drained node or one without a report counts as offline.

        The report of a drained node is used, because its instances are still there.
        """
        filled = {**self._params[node.group], **node.ndparams}
        exclusive = bool(filled["exclusive_storage"])
        resources = requests.read_resources(node, report)
        is_silent = resources is None
        own = resources or _NOTHING
        for name in _NOT_NEGATIVE:
            if getattr(own, name) < 0:
                raise DataError(
                    f"node {node.name}: {name}: wanted a number from 0,"
                    f" found {getattr(own, name)}"
                )
        return Node(
            name=node.name,
            group=self._groups[node.group],
            total_memory=own.total_memory,
            node_memory=self._static_memory or own.reserved_memory,
            free_memory=0 if is_silent else own.free_memory - not_yet_used,
            total_disk=own.total_disk,
            free_disk=own.free_disk,
            cpus=own.total_cpus,
            offline=is_silent or node.drained,
            # Nodes do not report free spindles to the master.
            spindles=0 if exclusive else int(filled["spindle_count"]),
            tags=tuple(sorted(node.tags)),
            exclusive=exclusive,
            node_cpus=own.reserved_cpus,
        )
