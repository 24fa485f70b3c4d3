"""Values that describe a cluster to the placement tools.

All values are as loaded. Derived numbers (memory in use, score) are in
``state.node_state`` and ``score.components``. Nodes, instances and groups are
identified by their position.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from ganeti.decisions.htools.model.policy import DEFAULT_POLICY, AllocPolicy, Policy

#: Templates whose space is part of the node's disk.
LOCAL_TEMPLATES: Final = frozenset({"drbd", "plain"})
#: Templates that balancing may move.
MOVABLE_TEMPLATES: Final = frozenset(
    {"drbd", "blockdev", "sharedfile", "gluster", "rbd", "ext"}
)
#: Templates whose disks every node of the group reaches.
EXTERNAL_TEMPLATES: Final = frozenset(
    {"diskless", "sharedfile", "blockdev", "rbd", "ext", "gluster"}
)
#: States in which an instance runs.
RUNNING: Final = frozenset({"running", "ERROR_up"})
#: All states of an instance.
STATES: Final = (
    "running",
    "ADMIN_down",
    "ADMIN_offline",
    "ERROR_up",
    "ERROR_down",
    "ERROR_nodedown",
    "ERROR_nodeoffline",
    "ERROR_wrongnode",
    "USER_down",
)
#: States in which an instance takes memory of its node.
USING_MEMORY: Final = frozenset(
    {"running", "ERROR_up", "ERROR_nodedown", "ERROR_nodeoffline", "ERROR_wrongnode"}
)
#: Position that stands for "no node".
NONE: Final = -1
#: Memory in MiB taken as used by a KVM node itself.
STATIC_KVM_MIB: Final = 4096


class DataError(Exception):
    """Malformed input; the text names place, field and value."""


class Group(msgspec.Struct, frozen=True):
    """A node group."""

    name: str
    uuid: str
    alloc_policy: AllocPolicy = AllocPolicy.PREFERRED
    tags: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    policy: Policy = DEFAULT_POLICY

    def connects(self, item: "Instance") -> bool:
        """Return whether the group has all networks of an instance."""
        return all(name in self.networks for name in item.networks)


class Node(msgspec.Struct, frozen=True):
    """A node with the numbers that it reports; memory and disk in MiB.

    ``other_load`` is the load of its CPUs that no instance causes.
    """

    name: str
    group: int
    total_memory: float
    node_memory: int
    free_memory: int
    total_disk: float
    free_disk: int
    cpus: float
    offline: bool = False
    master: bool = False
    spindles: int = 1
    tags: tuple[str, ...] = ()
    exclusive: bool = False
    free_spindles: int = 0
    node_cpus: int = 1
    cpu_speed: float = 1.0
    other_load: float = 0.0


class Instance(msgspec.Struct, frozen=True, gc=False):
    """An instance; ``spindles`` is None when the number of one of its disks is unknown.

    Not a dataclass: ``msgspec.structs.replace`` makes changed copies.
    ``utilisation`` is the share of a node that the instance uses: CPU, memory, disk,
    network. Without ``migrates`` it runs and cannot migrate live.
    """

    name: str
    memory: int
    disk: int
    vcpus: int
    primary: int
    secondary: int = NONE
    status: str = "running"
    auto_balance: bool = True
    template: str = "drbd"
    tags: tuple[str, ...] = ()
    spindle_use: int = 1
    spindles: int | None = None
    forthcoming: bool = False
    disks: tuple[int, ...] = ()
    utilisation: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0)
    movable: bool = True
    networks: tuple[str, ...] = ()
    migrates: bool = True

    @property
    def running(self) -> bool:
        """Whether the instance runs now."""
        return self.status in RUNNING

    @property
    def online(self) -> bool:
        """Whether the instance is not marked offline."""
        return self.status != "ADMIN_offline"

    @property
    def uses_memory(self) -> bool:
        """Whether the instance uses memory on its primary node now."""
        return not self.forthcoming and self.status in USING_MEMORY

    @property
    def reserved_memory(self) -> int:
        """Memory its secondary node must keep free, in MiB."""
        return self.memory if self.online and self.auto_balance else 0

    @property
    def known_spindles(self) -> int:
        """Number of its spindles, 0 if it is unknown."""
        return self.spindles or 0

    @property
    def local(self) -> bool:
        """Whether its disks take space on its nodes."""
        return self.template in LOCAL_TEMPLATES

    @property
    def nodes(self) -> tuple[int, ...]:
        """Positions of its nodes, primary first."""
        both = (self.primary, self.secondary)
        return tuple(node for node in both if node != NONE)


class Cluster(msgspec.Struct, frozen=True):
    """All data about a cluster; positions are indices of these tuples."""

    groups: tuple[Group, ...]
    nodes: tuple[Node, ...]
    instances: tuple[Instance, ...]
    tags: tuple[str, ...] = ()
    policy: Policy = DEFAULT_POLICY
    #: Groups without nodes, which decisions leave out and saved data keep.
    empty_groups: tuple[Group, ...] = ()
    #: Position printed for the first node, instance and group (1 when simulated).
    first_index: int = 0
    #: Positions printed for nodes and instances of a part of a cluster: first its own,
    #: then those of ``secondary_only`` and of their primaries.
    node_numbers: tuple[int, ...] = ()
    instance_numbers: tuple[int, ...] = ()
    #: Instances of which only the secondary is in this part of a cluster. The positions
    #: of their primaries follow the last node.
    secondary_only: tuple[Instance, ...] = ()

    def node_number(self, node: int) -> int:
        """Return the position that is printed for a node."""
        return (self.node_numbers[node] if self.node_numbers else node) + (
            self.first_index
        )

    def instance_number(self, inst: int) -> int:
        """Return the position that is printed for an instance."""
        return (self.instance_numbers[inst] if self.instance_numbers else inst) + (
            self.first_index
        )

    def policy_of(self, node: int) -> Policy:
        """Return the policy of a node's group."""
        return self.groups[self.nodes[node].group].policy

    def members(self, group: int) -> list[int]:
        """List positions of the nodes of a group."""
        return [n for n, node in enumerate(self.nodes) if node.group == group]

    def without_empty_groups(self) -> "Cluster":
        """Return the cluster without groups that have no nodes.

        A cluster without nodes keeps its groups.
        """
        used = sorted({node.group for node in self.nodes})
        if not used or len(used) == len(self.groups):
            return self
        place = {old: new for new, old in enumerate(used)}
        return msgspec.structs.replace(
            self,
            groups=tuple(self.groups[old] for old in used),
            empty_groups=tuple(
                group for old, group in enumerate(self.groups) if old not in used
            ),
            nodes=tuple(
                msgspec.structs.replace(node, group=place[node.group])
                for node in self.nodes
            ),
        )

    def split(self) -> tuple[int, ...]:
        """List positions of instances whose nodes are in two groups."""
        group = [node.group for node in self.nodes]
        return tuple(
            i
            for i, instance in enumerate(self.instances)
            if NONE not in (instance.primary, instance.secondary)
            and group[instance.primary] != group[instance.secondary]
        )

    def without_moving(self, kept: Iterable[int]) -> "Cluster":
        """Return the cluster with the instances at some positions not movable."""
        staying = frozenset(kept)
        if not staying:
            return self
        return msgspec.structs.replace(
            self,
            instances=tuple(
                msgspec.structs.replace(item, movable=False)
                if place in staying
                else item
                for place, item in enumerate(self.instances)
            ),
        )

    def only_group(self, group: int) -> "Cluster":
        """Return one group: its nodes, and the instances with their primary there.

        A secondary in another group is dropped, and its instance cannot move. An
        instance whose primary is in another group goes to ``secondary_only``.
        """
        kept = self.members(group)
        place = {old: new for new, old in enumerate(kept)}
        split = [n for n in self.split() if self.instances[n].secondary in place]
        secondary_only = [self.instances[n] for n in split]
        outside = sorted({item.primary for item in secondary_only})
        away = {old: len(kept) + new for new, old in enumerate(outside)}
        place[NONE] = NONE
        nodes = tuple(msgspec.structs.replace(self.nodes[n], group=0) for n in kept)
        here = [i for i, inst in enumerate(self.instances) if inst.primary in place]
        instances = tuple(
            msgspec.structs.replace(
                inst,
                primary=place[inst.primary],
                secondary=place.get(inst.secondary, NONE),
                movable=inst.movable and inst.secondary in place,
            )
            for inst in map(self.instances.__getitem__, here)
        )
        return msgspec.structs.replace(
            self,
            groups=(self.groups[group],),
            nodes=nodes,
            instances=instances,
            node_numbers=(*kept, *outside),
            instance_numbers=(*here, *split),
            secondary_only=tuple(
                msgspec.structs.replace(
                    item, primary=away[item.primary], secondary=place[item.secondary]
                )
                for item in secondary_only
            ),
        )

    def common_suffix(self) -> str:
        """Return the longest suffix, starting with a dot, that all names share."""
        names = [node.name for node in self.nodes]
        return common_suffix([*names, *(inst.name for inst in self.instances)])


def common_suffix(names: Iterable[str]) -> str:
    """Return the longest suffix, starting with a dot, that all names share."""
    parts = iter(names)
    first = next(parts, None)
    if first is None:
        return ""
    common = first
    for name in parts:
        while common and not name.endswith(common):
            common = common[1:]
    ends = [common[k:] for k, char in enumerate(common) if char == "."]
    return ends[0] if ends else ""


def lookup(names: Iterable[str], wanted: str) -> int | None:
    """Return the position of a name: the same, or the only one it is a prefix of.

    The prefix ends before a dot.
    """
    listed = list(names)
    if wanted in listed:
        return listed.index(wanted)
    hits = [k for k, name in enumerate(listed) if name.startswith(f"{wanted}.")]
    return hits[0] if len(hits) == 1 else None
