"""Strict reader of allocator requests: the cluster data and the request. Pure.

Every error names the path of the key, the wanted and the actual value. Instances are
many: `read_instances` reads them fast if all records match the schema exactly. All
others, including some that are still valid, are left to the strict reader.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from ganeti.decisions.htools.model.cluster import (
    EXTERNAL_TEMPLATES,
    MOVABLE_TEMPLATES,
    NONE,
    RUNNING,
    STATIC_KVM_MIB,
    Cluster,
    DataError,
    Group,
    Instance,
    Node,
    lookup,
)
from ganeti.decisions.htools.model.json_reader import JsonPart, read_policy
from ganeti.decisions.htools.model.policy import DEFAULT_POLICY, AllocPolicy, Policy

#: Admin state in requests -> instance status.
STATUS: Final[dict[str, str]] = {
    "up": "running",
    "down": "ADMIN_down",
    "offline": "ADMIN_offline",
}
_Size = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class _Disk(msgspec.Struct, gc=False):
    size: _Size
    spindles: _Size | None = None


class _Nic(msgspec.Struct, gc=False):
    network: str | None = None


class _Record(msgspec.Struct, gc=False):
    nodes: tuple[str, ...]
    disk_template: str
    memory: _Size
    disk_space_total: _Size
    vcpus: _Size
    disks: tuple[_Disk, ...]
    nics: tuple[_Nic, ...] = ()
    tags: tuple[str, ...] = ()
    admin_state: Literal["up", "down", "offline"] = "up"
    spindle_use: _Size = 1
    forthcoming: bool = False
    migrates: bool = True


def read_instances(data: Any, places: Mapping[str, int]) -> list[Instance] | None:
    """Return a request's instances; None if one does not match the schema.

    Args:
        data: the decoded object of all instances.
        places: node name -> position.
    """
    try:
        records = msgspec.convert(data, dict[str, _Record])
    except msgspec.ValidationError:
        return None
    out = []
    for name, record in records.items():
        nodes = [places.get(node, NONE) for node in record.nodes]
        if not nodes or NONE in nodes or nodes[0] in nodes[1:2]:
            return None
        secondary = nodes[1] if len(nodes) > 1 else NONE
        out.append(_from_record(name, record, nodes[0], secondary))
    return out


def _from_record(name: str, record: _Record, primary: int, secondary: int) -> Instance:
    disks, template = record.disks, record.disk_template
    status = STATUS[record.admin_state]
    migrates = record.migrates or status not in RUNNING
    spindles = [disk.spindles for disk in disks if disk.spindles is not None]
    return Instance(
        name=name,
        memory=record.memory,
        disk=record.disk_space_total,
        vcpus=record.vcpus,
        primary=primary,
        secondary=secondary,
        status=status,
        template=template,
        tags=record.tags,
        spindle_use=record.spindle_use,
        spindles=sum(spindles) if len(spindles) == len(disks) else None,
        forthcoming=record.forthcoming,
        disks=tuple([disk.size for disk in disks]),
        movable=template in MOVABLE_TEMPLATES and migrates,
        migrates=migrates,
        networks=tuple([nic.network for nic in record.nics if nic.network is not None])
        if record.nics
        else (),
    )


_LIVE: Final = ("total_memory", "free_memory", "total_disk", "free_disk", "total_cpus")
_STATES: Final = tuple(STATUS)
#: Name of the source in messages.
SOURCE: Final = "request"
EVAC_MODES: Final = ("primary-only", "secondary-only", "all")


class AllocateRequest(msgspec.Struct, frozen=True):
    """Request of nodes for one new instance.

    Attributes:
        item: the instance, without nodes.
        count: number of nodes.
        group: position of the only group allowed, None for any.
        restrict_to: positions of the only nodes allowed, None for any.
    """

    item: Instance
    count: int
    group: int | None = None
    restrict_to: Sequence[int] | None = None

    def allowed(self, cluster: Cluster) -> Sequence[int] | None:
        """Return the positions of the nodes that may be used; None for all."""
        if self.group is None:
            return self.restrict_to
        members = cluster.members(self.group)
        if self.restrict_to is None:
            return members
        return [node for node in members if node in self.restrict_to]


class MultiAllocateRequest(msgspec.Struct, frozen=True):
    """Request of nodes for several new instances."""

    places: Sequence[AllocateRequest]


class RelocateRequest(msgspec.Struct, frozen=True):
    """Request of another node for an instance; ``leave`` lists excluded nodes."""

    instance: int
    leave: Sequence[int]


class AddSecondaryRequest(msgspec.Struct, frozen=True):
    """Request of a secondary node for an instance that has none."""

    instance: int


class EvacuateRequest(msgspec.Struct, frozen=True):
    """Request of other nodes for instances; the mode is one of `EVAC_MODES`."""

    instances: Sequence[int]
    mode: str


class ChangeGroupRequest(msgspec.Struct, frozen=True):
    """Request of another group for instances: one of ``groups``, or any if empty."""

    instances: Sequence[int]
    groups: Sequence[int]


class ImpossibleRequest(Exception):
    """A well-formed request that cannot be fulfilled for this kind of instance."""


AllocatorRequest = (
    AllocateRequest
    | MultiAllocateRequest
    | RelocateRequest
    | AddSecondaryRequest
    | EvacuateRequest
    | ChangeGroupRequest
)


def read_cluster(
    data: Any, *, static_memory: int = STATIC_KVM_MIB, source: str = SOURCE
) -> Cluster:
    """Return the cluster part of an allocator's input.

    Args:
        data: the decoded input.
        static_memory: MiB assumed for a KVM node itself; 0 takes the reported value.
        source: name of the data in messages.

    Raises:
        DataError: names the key, wanted and actual value.
    """
    root = JsonPart(data, "", source)
    hypervisors = root.texts("enabled_hypervisors", optional=True)
    fixed = static_memory if hypervisors[:1] == ("kvm",) else 0
    policy = None
    if root.has("ipolicy"):
        policy = read_policy(root.part("ipolicy"), may_lack_parts=True)
    groups = [
        _group(uuid, part, policy) for uuid, part in root.part("nodegroups").members()
    ]
    places = {group.uuid: place for place, group in enumerate(groups)}
    nodes = [
        _node(name, part, places, fixed) for name, part in root.part("nodes").members()
    ]
    at = {node.name: place for place, node in enumerate(nodes)}
    instances = _instances(root.part("instances"), at)
    cluster = Cluster(
        tuple(groups),
        tuple(nodes),
        tuple(instances),
        root.texts("cluster_tags"),
        policy or DEFAULT_POLICY,
    )
    return cluster.without_moving(cluster.split())


def _group(uuid: str, part: JsonPart, policy: Policy | None) -> Group:
    return Group(
        name=part.text("name"),
        uuid=uuid,
        alloc_policy=AllocPolicy(
            part.text("alloc_policy", [str(item) for item in AllocPolicy])
        ),
        tags=part.texts("tags", optional=True),
        networks=part.texts("networks", optional=True),
        policy=read_policy(part.part("ipolicy"))
        if policy is None or part.has("ipolicy")
        else policy,
    )


def _node(
    name: str, part: JsonPart, groups: Mapping[str, int], static_memory: int
) -> Node:
    group = part.text("group")
    if group not in groups:
        raise part.wrong("group", "the uuid of a node group", group)
    params = part.part_or_empty("ndparams")
    exclusive = params.flag("exclusive_storage", default=False)
    is_silent = (
        part.flag("offline", default=False)
        or not part.flag("vm_capable", default=True)
        or not any(part.has(key) for key in _LIVE)
    )
    is_drained = part.flag("drained", default=False)
    out = Node(
        name=name,
        group=groups[group],
        total_memory=0,
        node_memory=static_memory,
        free_memory=0,
        total_disk=0,
        free_disk=0,
        cpus=0,
        node_cpus=0,
        offline=True,
        spindles=0 if exclusive else params.size("spindle_count", 1),
        tags=part.texts("tags", optional=True),
        exclusive=exclusive,
    )
    if is_silent:
        return out
    # Instances stay on a drained node for a while: its numbers count.
    return _live(out, part, static_memory, offline=is_drained)


def _live(node: Node, part: JsonPart, static_memory: int, *, offline: bool) -> Node:
    spindles = part.size("total_spindles") if node.exclusive else node.spindles
    return msgspec.structs.replace(
        node,
        offline=offline,
        total_memory=part.number("total_memory", least=0),
        node_memory=static_memory or part.size("reserved_memory"),
        free_memory=int(part.number("free_memory")),
        total_disk=part.number("total_disk", least=0),
        free_disk=int(part.number("free_disk")),
        cpus=part.number("total_cpus", least=0),
        node_cpus=part.size("reserved_cpus", 1),
        spindles=spindles,
        free_spindles=part.size("free_spindles", 0),
    )


def _instances(part: JsonPart, nodes: Mapping[str, int]) -> Sequence[Instance]:
    instances = read_instances(part.data, nodes)
    if instances is not None:
        return instances
    return [
        _instance(name, item, _nodes_of(item, nodes)) for name, item in part.members()
    ]


def _instance(
    name: str, part: JsonPart, nodes: tuple[int, int] = (NONE, NONE)
) -> Instance:
    disks = part.parts("disks")
    spindles = [disk.size("spindles") for disk in disks if disk.has("spindles")]
    template = part.text("disk_template")
    nics = part.parts("nics", optional=True)
    status = "running"
    if "admin_state" in part.data:
        status = STATUS[part.text("admin_state", _STATES)]
    migrates = part.flag("migrates", default=True) or status not in RUNNING
    return Instance(
        name=name,
        memory=part.size("memory"),
        disk=part.size("disk_space_total"),
        vcpus=part.size("vcpus"),
        primary=nodes[0],
        secondary=nodes[1],
        status=status,
        template=template,
        tags=part.texts("tags", optional=True),
        spindle_use=part.size("spindle_use", 1),
        spindles=sum(spindles) if len(spindles) == len(disks) else None,
        forthcoming=part.flag("forthcoming", default=False),
        disks=tuple(disk.size("size") for disk in disks),
        movable=template in MOVABLE_TEMPLATES and migrates,
        migrates=migrates,
        networks=tuple(nic.text("network") for nic in nics if nic.has("network")),
    )


def _nodes_of(part: JsonPart, nodes: Mapping[str, int]) -> tuple[int, int]:
    """Return primary and secondary of an existing instance."""
    places = _known(part, "nodes", nodes, "node")
    if not places:
        raise part.wrong("nodes", "a primary node", [])
    secondary = places[1] if len(places) > 1 else NONE
    if secondary == places[0]:
        raise part.wrong("nodes", "different nodes", list(part.texts("nodes")))
    return places[0], secondary


def _known(part: JsonPart, key: str, places: Mapping[str, int], what: str) -> list[int]:
    """Return the positions of the names that a key lists."""
    names = part.texts(key)
    for name in names:
        if name not in places:
            raise part.wrong(key, f"known {what} names", name)
    return [places[name] for name in names]


def read_request(
    data: Any, cluster: Cluster, *, restrict_to: Sequence[str] | None = None
) -> AllocatorRequest:
    """Return the request.

    Args:
        data: the decoded input with the member ``request``.
        cluster: the cluster that the request is about.
        restrict_to: the only nodes for new instances; overrides the request's.

    Raises:
        DataError: names the key, wanted and actual value.
        ImpossibleRequest: well-formed, but the instance is not of the right kind.
    """
    part = JsonPart(data, "", SOURCE).part("request")
    reader = _RequestReader(cluster, restrict_to)
    kind = part.text("type")
    known: dict[str, Callable[[JsonPart], AllocatorRequest]] = {
        "allocate": reader.allocate,
        "multi-allocate": reader.multi_allocate,
        "relocate": reader.relocate,
        "allocate-secondary": reader.allocate_secondary,
        "node-evacuate": reader.evacuate,
        "change-group": reader.change_group,
    }
    if kind not in known:
        raise DataError(f"Invalid request type '{kind}'")
    return known[kind](part)


class _RequestReader:
    """Reader of requests about one cluster."""

    def __init__(self, cluster: Cluster, restrict_to: Sequence[str] | None) -> None:
        self.cluster, self.restrict_to = cluster, restrict_to
        self.nodes = {node.name: place for place, node in enumerate(cluster.nodes)}
        self.names = {item.name: n for n, item in enumerate(cluster.instances)}

    def allocate(self, part: JsonPart) -> AllocateRequest:
        # The name may be that of an instance whose disks are created again.
        return self._place(part, part)

    def _place(self, part: JsonPart, top: JsonPart) -> AllocateRequest:
        count = part.size("required_nodes")
        if count not in (1, 2):
            raise part.wrong("required_nodes", "1 or 2", count)
        item = _instance(part.text("name"), part)
        if (count == 2) != (item.template == "drbd"):
            wanted = 2 if item.template == "drbd" else 1
            raise part.wrong("required_nodes", f"{wanted} for {item.template}", count)
        owner = part if part.has("group_name") else top
        group = self._group(owner) if owner.has("group_name") else None
        return AllocateRequest(item, count, group, self._restriction(part, top))

    def _restriction(self, part: JsonPart, top: JsonPart) -> list[int] | None:
        if self.restrict_to is not None:
            return [self._node(name) for name in self.restrict_to]
        owner = part if part.has("restrict-to-nodes") else top
        if not owner.has("restrict-to-nodes"):
            return None
        return _known(owner, "restrict-to-nodes", self.nodes, "node")

    def _node(self, name: str) -> int:
        place = lookup(list(self.nodes), name)
        if place is None:
            raise DataError(
                f"--restrict-allocation-to: wanted known node names, found {name!r}"
            )
        return place

    def _group(self, part: JsonPart) -> int:
        return self._find_group(part, "group_name", part.text("group_name"))

    def _find_group(self, part: JsonPart, key: str, name: str) -> int:
        hits = [
            place
            for place, group in enumerate(self.cluster.groups)
            if name in (group.name, group.uuid)
        ]
        if len(hits) != 1:
            raise part.wrong(key, "the name or uuid of one node group", name)
        return hits[0]

    def multi_allocate(self, part: JsonPart) -> MultiAllocateRequest:
        places = [self._place(item, part) for item in part.parts("instances")]
        seen = set(self.names)
        for place in places:
            if place.item.name in seen:
                raise part.wrong(
                    "instances", "names of new instances, each once", place.item.name
                )
            seen.add(place.item.name)
        return MultiAllocateRequest(places)

    def _instance(self, part: JsonPart) -> int:
        name = part.text("name")
        if name not in self.names:
            raise part.wrong("name", "known instance names", name)
        return self.names[name]

    def relocate(self, part: JsonPart) -> RelocateRequest:
        index = self._instance(part)
        count = part.size("required_nodes")
        if count != 1:
            raise part.wrong("required_nodes", "1", count)
        names = part.texts("relocate_from")
        leave = _known(part, "relocate_from", self.nodes, "node")
        item = self.cluster.instances[index]
        if item.template == "drbd":
            expected = [item.secondary]
        elif item.template in EXTERNAL_TEMPLATES:
            expected = [item.primary]
        else:
            raise ImpossibleRequest("Can't relocate non-mirrored instances")
        if leave != expected:
            wanted = [self.cluster.nodes[n].name for n in expected if n >= 0]
            raise ImpossibleRequest(
                f"Unsupported request: excluded nodes wanted {wanted},"
                f" found {list(names)}"
            )
        return RelocateRequest(index, leave)

    def allocate_secondary(self, part: JsonPart) -> AddSecondaryRequest:
        index = self._instance(part)
        item = self.cluster.instances[index]
        if item.secondary != NONE:
            raise ImpossibleRequest("Instance already has a secondary")
        return AddSecondaryRequest(index)

    def evacuate(self, part: JsonPart) -> EvacuateRequest:
        return EvacuateRequest(
            self._instances(part), part.text("evac_mode", EVAC_MODES)
        )

    def _instances(self, part: JsonPart) -> list[int]:
        return _known(part, "instances", self.names, "instance")

    def change_group(self, part: JsonPart) -> ChangeGroupRequest:
        key = "target_groups"
        groups = [self._find_group(part, key, name) for name in part.texts(key)]
        return ChangeGroupRequest(self._instances(part), groups)
