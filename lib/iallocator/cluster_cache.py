"""The cluster as the built-in allocator takes it, straight from the configuration.

The same cluster comes out as from a request in JSON types, without making one: records
do not change, so that what was made of them once is kept for the next time.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti import errors, objects
from ganeti.constants import ecodes
from ganeti.htools.hail import instance_records
from ganeti.htools.model.cluster import (
    MOVABLE_TEMPLATES,
    NONE,
    Cluster,
    DataError,
    Group,
    Instance,
    Node,
)
from ganeti.htools.model.json_reader import JsonPart
from ganeti.htools.model.policy import AllocPolicy
from ganeti.htools.model.policy_reader import read_policy
from ganeti.iallocator import node_resources
from ganeti.objects import params

_NO_NODES: Final[Mapping[str, int]] = {}
#: Means of nodes without a report, which take no cpu for themselves that is known.
_NOTHING: Final = node_resources.NodeResources(0, 0, 0, 0, 0, 0, 0)
_NOT_NEGATIVE: Final = (
    "total_memory",
    "reserved_memory",
    "total_disk",
    "total_cpus",
    "reserved_cpus",
)
_Running = Mapping[str, Mapping[str, Mapping[str, Any]]]


class _Instances(NamedTuple):
    """What was made of instances, and of what; all of it replaced at once.

    Attributes:
        backend: parameters of instances that say nothing else.
        places: node uuid -> position.
        made: instance uuid -> its record, its disks' records, the result.
    """

    backend: Mapping[str, Any]
    places: Mapping[str, int]
    made: Mapping[str, tuple[objects.Instance, Sequence[objects.Disk], Instance]]


class ClusterCache:
    """Reads clusters, and knows what it has read; threads may share one."""

    def __init__(self) -> None:
        self._instances = _Instances({}, _NO_NODES, {})

    def read(
        self,
        snapshot: objects.Snapshot,
        reports: Mapping[str, Any],
        running: _Running,
        *,
        static_memory: int,
    ) -> Cluster:
        """Return the cluster.

        Args:
            snapshot: the configuration.
            reports: node uuid -> payload of ``node_info``, for nodes that answered.
            running: node uuid -> {instance name: {memory, ...}}, what runs there.
            static_memory: MiB taken as used by a KVM node itself; 0 for what it
                reports.

        Raises:
            OpPrereqError: a node's report or a policy makes no sense.
        """
        cluster = snapshot.cluster
        groups = {uuid: place for place, uuid in enumerate(snapshot.nodegroups)}
        places = {uuid: place for place, uuid in enumerate(snapshot.nodes)}
        instances = self._all(snapshot, places)
        less = _not_yet_used(places, instances, running)
        is_kvm = cluster.enabled_hypervisors[:1] == ("kvm",)
        reader = _Nodes(snapshot, groups, static_memory if is_kvm else 0)
        try:
            out = Cluster(
                tuple(_group(snapshot, item) for item in snapshot.nodegroups.values()),
                tuple(
                    reader.read(node, reports.get(uuid), less[place])
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
        """Return all instances; those that changed are made again."""
        backend = params.beparams_for(snapshot.cluster, {})
        old = self._instances
        fits = old.backend == backend and old.places == places
        known = old.made if fits else {}
        made = {}
        disks = snapshot.disks
        for uuid, instance in snapshot.instances.items():
            own_disks = [disks[disk] for disk in instance.disks]
            cached = known.get(uuid)
            # Disks are nearly always the same objects, which lists compare first.
            if cached is None or cached[0] is not instance or cached[1] != own_disks:
                place = _place(snapshot, instance, places)
                new = _instance(backend, instance, own_disks, place)
                cached = instance, own_disks, new
            made[uuid] = cached
        self._instances = _Instances(backend, places, made)
        return tuple([cached[2] for cached in made.values()])


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
    instance: objects.Instance,
    disks: Sequence[objects.Disk],
    place: tuple[int, int],
) -> Instance:
    beparams = instance.beparams
    kinds = {disk.dev_type for disk in disks}
    template = "diskless" if not kinds else kinds.pop() if len(kinds) == 1 else "mixed"
    sizes = tuple([disk.size for disk in disks])
    spindles = [disk.spindles for disk in disks if disk.spindles is not None]
    return Instance(
        name=instance.name or instance.uuid,
        memory=beparams.get("maxmem", backend["maxmem"]),
        disk=node_resources.disk_space(template, sizes),
        vcpus=beparams.get("vcpus", backend["vcpus"]),
        primary=place[0],
        secondary=place[1],
        status=instance_records.STATUS[instance.admin_state],
        template=template,
        tags=tuple(sorted(instance.tags)),
        spindle_use=beparams.get("spindle_use", backend["spindle_use"]),
        spindles=sum(spindles) if len(spindles) == len(disks) else None,
        forthcoming=instance.forthcoming,
        disks=sizes,
        movable=template in MOVABLE_TEMPLATES,
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
    """Return by node how much more its running instances may still take."""
    by_place: list[Mapping[str, Mapping[str, Any]]] = [{} for _ in places]
    for uuid, instance in running.items():
        if uuid in places:
            by_place[places[uuid]] = instance
    less = [0] * len(places)
    for item in instances:
        if item.status != "running" or item.forthcoming:
            continue
        at, name = item.primary, item.name
        used = int(by_place[at][name].get("memory", 0)) if name in by_place[at] else 0
        if used < item.memory:
            less[at] += item.memory - used
    return less


class _Nodes:
    """Reads nodes of one cluster."""

    def __init__(
        self, snapshot: objects.Snapshot, groups: Mapping[str, int], static_memory: int
    ) -> None:
        self._groups, self._static_memory = groups, static_memory
        self._params = {
            uuid: params.group_ndparams(snapshot, group)
            for uuid, group in snapshot.nodegroups.items()
        }

    def read(self, node: objects.Node, report: Any, not_yet_used: int) -> Node:
        """Return a node; one that is drained or did not report counts as offline.

        What a drained one reports counts, as its instances are still there.
        """
        filled = {**self._params[node.group], **node.ndparams}
        exclusive = bool(filled["exclusive_storage"])
        resources = node_resources.read(node, report)
        is_silent = resources is None
        mine = resources or _NOTHING
        for name in _NOT_NEGATIVE:
            if getattr(mine, name) < 0:
                raise DataError(
                    f"node {node.name}: {name}: wanted a number from 0,"
                    f" found {getattr(mine, name)}"
                )
        return Node(
            name=node.name,
            group=self._groups[node.group],
            total_memory=mine.total_memory,
            node_memory=self._static_memory or mine.reserved_memory,
            free_memory=0 if is_silent else mine.free_memory - not_yet_used,
            total_disk=mine.total_disk,
            free_disk=mine.free_disk,
            cpus=mine.total_cpus,
            offline=is_silent or node.drained,
            # Nodes do not report free spindles to the master.
            spindles=0 if exclusive else int(filled["spindle_count"]),
            tags=tuple(sorted(node.tags)),
            exclusive=exclusive,
            node_cpus=mine.reserved_cpus,
        )
