"""What follows from a cluster: memory in use, reserved and left, and so on.

A ``State`` is derived from a ``Cluster`` and changes as instances are put on nodes and
taken off them; nothing here judges whether that is allowed (``rules``) or good
(``score``). Copies are cheap. Memory and disk are in MiB.
"""

import dataclasses
import enum
from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from ganeti.htools import tags
from ganeti.htools.model import NONE, Cluster, Instance

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Row(enum.IntEnum):
    """Rows of the table of amounts; the second half counts forthcoming instances."""

    MEMORY = 0  # memory left (unallocated)
    DISK = 1  # free disk
    CPU = 2  # virtual cpus in use
    LOAD_CPU = 3
    LOAD_MEMORY = 4
    LOAD_DISK = 5
    LOAD_NET = 6
    SPINDLES = 7  # spindle use of instances
    FREE_SPINDLES = 8
    ALL_MEMORY = 9
    ALL_DISK = 10
    ALL_CPU = 11
    ALL_SPINDLES = 12
    ALL_FREE_SPINDLES = 13


#: Number of rows.
ROWS: Final = len(Row)
_FIRST_ALL: Final = Row.ALL_MEMORY


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Changes to what nodes accept, given on the command line.

    ``max_cpu`` replaces the policies' ratio; ``min_disk`` is the part of the disk to
    keep free.
    """

    max_cpu: float | None = None
    min_disk: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    """What moves do not change: arrays over nodes and over instances.

    ``as_primary`` and ``as_secondary`` (rows x instances) are added to a node's amounts
    when it gets an instance; ``counted`` (rows x nodes) says which rows a node keeps.
    """

    cluster: Cluster
    tags: tags.TagRules
    online: Bools
    total_memory: Floats
    total_disk: Floats
    cpus: Floats
    cpu_speed: Floats
    low_disk: Floats
    cpu_ratio: Floats
    high_spindles: Floats
    spindle_count: Floats
    exclusive: Bools
    missing_memory: Ints
    counted: Floats
    as_primary: Floats
    as_secondary: Floats
    reserved: Ints
    local: Bools
    drbd: Bools
    unknown_spindles: Bools
    forthcoming: Bools


@dataclasses.dataclass(slots=True)
class State:
    """Where instances are and what that means for nodes.

    ``amounts`` is rows x nodes; ``peers[n, p]`` is memory that node ``n`` must keep for
    secondaries whose primary is ``p``; ``reserved`` the largest of a row; ``failing``
    tells nodes without room for it; ``count`` is primaries and secondaries without
    forthcoming ones; ``primaries`` and ``secondaries`` list them, newest first;
    ``tag_count`` is exclusion tags x nodes; ``common`` is, per instance, the number of
    location tags its nodes share.
    """

    fixed: Fixed
    primary: Ints
    secondary: Ints
    amounts: Floats
    peers: Ints
    reserved: Ints
    failing: Bools
    count_primary: Ints
    count_secondary: Ints
    primaries: list[list[int]]
    secondaries: list[list[int]]
    tag_count: Ints
    common: Ints

    def copy(self) -> "State":
        """Copy everything that moves change."""
        return State(
            fixed=self.fixed,
            primary=self.primary.copy(),
            secondary=self.secondary.copy(),
            amounts=self.amounts.copy(),
            peers=self.peers.copy(),
            reserved=self.reserved.copy(),
            failing=self.failing.copy(),
            count_primary=self.count_primary.copy(),
            count_secondary=self.count_secondary.copy(),
            primaries=[list(found) for found in self.primaries],
            secondaries=[list(found) for found in self.secondaries],
            tag_count=self.tag_count.copy(),
            common=self.common.copy(),
        )

    def add_primary(self, inst: int, node: int) -> None:
        """Make a node the primary of an instance that has none."""
        fixed = self.fixed
        self.primary[inst] = node
        self.amounts[:, node] += fixed.counted[:, node] * fixed.as_primary[:, inst]
        self.tag_count[:, node] += fixed.tags.exclusion[:, inst]
        self.primaries[node].insert(0, inst)
        if not fixed.forthcoming[inst]:
            self.count_primary[node] += 1
            self._judge(node)

    def remove_primary(self, inst: int) -> None:
        """Take an instance off its primary node."""
        fixed, node = self.fixed, int(self.primary[inst])
        self.primary[inst] = NONE
        self.amounts[:, node] -= fixed.counted[:, node] * fixed.as_primary[:, inst]
        self.tag_count[:, node] -= fixed.tags.exclusion[:, inst]
        self.primaries[node].remove(inst)
        if not fixed.forthcoming[inst]:
            self.count_primary[node] -= 1
            self._judge(node)

    def add_secondary(self, inst: int, node: int, peer: int) -> None:
        """Make a node the secondary of an instance whose primary is ``peer``."""
        fixed = self.fixed
        self.secondary[inst] = node
        self.amounts[:, node] += fixed.counted[:, node] * fixed.as_secondary[:, inst]
        self.secondaries[node].insert(0, inst)
        if not fixed.forthcoming[inst]:
            self.count_secondary[node] += 1
            self.peers[node, peer] += fixed.reserved[inst]
            self.reserved[node] = max(self.reserved[node], self.peers[node, peer])
            self._judge(node)

    def remove_secondary(self, inst: int, peer: int) -> None:
        """Take an instance whose primary is ``peer`` off its secondary node."""
        fixed, node = self.fixed, int(self.secondary[inst])
        self.secondary[inst] = NONE
        self.amounts[:, node] -= fixed.counted[:, node] * fixed.as_secondary[:, inst]
        self.secondaries[node].remove(inst)
        if not fixed.forthcoming[inst]:
            self.count_secondary[node] -= 1
            self.peers[node, peer] -= fixed.reserved[inst]
            self.reserved[node] = self.peers[node].max()
            self._judge(node)

    def place(self, inst: int, primary: int, secondary: int) -> None:
        """Put an instance on other nodes, from wherever it is."""
        before = (int(self.primary[inst]), int(self.secondary[inst]))
        if before[1] != NONE:
            self.remove_secondary(inst, before[0])
        self.remove_primary(inst)
        self.add_primary(inst, primary)
        if secondary != NONE:
            self.add_secondary(inst, secondary, primary)

    def locate(self, inst: int) -> None:
        """Count anew the location tags that an instance's nodes share."""
        self.common[inst] = shared_tags(
            self.fixed, int(self.primary[inst]), int(self.secondary[inst])
        )

    def _judge(self, node: int) -> None:
        self.failing[node] = self.amounts[Row.MEMORY, node] <= self.reserved[node]

    def cluster(self) -> Cluster:
        """Give the cluster with the instances where they are now."""
        source = self.fixed.cluster
        nodes = tuple(
            dataclasses.replace(node, free_disk=int(free))
            for node, free in zip(source.nodes, self.amounts[Row.DISK], strict=True)
        )
        instances = tuple(
            dataclasses.replace(inst, primary=int(pri), secondary=int(sec))
            for inst, pri, sec in zip(
                source.instances, self.primary, self.secondary, strict=True
            )
        )
        return dataclasses.replace(source, nodes=nodes, instances=instances)


def shared_tags(fixed: Fixed, primary: int, secondary: int) -> int:
    """Count the location tags two nodes share; 0 without a secondary."""
    if secondary == NONE:
        return 0
    location = fixed.tags.location
    return int(np.count_nonzero(location[:, primary] & location[:, secondary]))


def derive(
    cluster: Cluster, limits: Limits | None = None, exclusion: Iterable[str] = ()
) -> State:
    """Work out the state of a cluster as loaded.

    ``exclusion`` lists tag prefixes given besides those in the cluster's tags.
    """
    fixed = _fixed(cluster, limits or Limits(), tags.read(cluster, exclusion))
    nodes, instances = cluster.nodes, cluster.instances
    count = len(nodes)
    state = State(
        fixed=fixed,
        primary=np.full(len(instances), NONE, dtype=np.int64),
        secondary=np.full(len(instances), NONE, dtype=np.int64),
        amounts=_empty_amounts(cluster, fixed),
        peers=np.zeros((count, count), dtype=np.int64),
        reserved=np.zeros(count, dtype=np.int64),
        failing=np.zeros(count, dtype=np.bool_),
        count_primary=np.zeros(count, dtype=np.int64),
        count_secondary=np.zeros(count, dtype=np.int64),
        primaries=[[] for _ in nodes],
        secondaries=[[] for _ in nodes],
        tag_count=np.zeros((len(fixed.tags.names), count), dtype=np.int64),
        common=np.zeros(len(instances), dtype=np.int64),
    )
    for index, inst in enumerate(instances):
        state.add_primary(index, inst.primary)
        if inst.secondary != NONE:
            state.add_secondary(index, inst.secondary, inst.primary)
        if len(fixed.tags.location):
            state.locate(index)
    _restore_loaded(cluster, fixed, state.amounts)
    state.failing[:] = state.amounts[Row.MEMORY] <= state.reserved
    return state


def _fixed(cluster: Cluster, limits: Limits, rules: tags.TagRules) -> Fixed:
    nodes, instances = cluster.nodes, cluster.instances
    policies = [cluster.policy_of(k) for k in range(len(nodes))]
    total_disk = np.array([node.total_disk for node in nodes], dtype=np.float64)
    ratios = [
        policy.vcpu_ratio if limits.max_cpu is None else limits.max_cpu
        for policy in policies
    ]
    exclusive = np.array([node.exclusive for node in nodes], dtype=np.bool_)
    spindles = [float(node.spindles) for node in nodes]
    as_primary, as_secondary = _effects(instances)
    counted = np.ones((ROWS, len(nodes)))
    counted[[Row.SPINDLES, Row.ALL_SPINDLES]] = ~exclusive
    counted[[Row.FREE_SPINDLES, Row.ALL_FREE_SPINDLES]] = exclusive
    used = np.zeros(len(nodes), dtype=np.int64)
    for inst in instances:
        used[inst.primary] += inst.memory if inst.uses_memory else 0
    recorded = [
        int(node.total_memory) - node.node_memory - int(taken)
        for node, taken in zip(nodes, used, strict=True)
    ]
    return Fixed(
        cluster=cluster,
        tags=rules,
        online=np.array([not node.offline for node in nodes], dtype=np.bool_),
        total_memory=np.array([node.total_memory for node in nodes], dtype=np.float64),
        total_disk=total_disk,
        cpus=np.array([node.cpus for node in nodes], dtype=np.float64),
        cpu_speed=np.array([node.cpu_speed for node in nodes], dtype=np.float64),
        low_disk=np.floor(limits.min_disk * total_disk),
        cpu_ratio=np.array(ratios, dtype=np.float64),
        high_spindles=np.array(
            [p.spindle_ratio * s for p, s in zip(policies, spindles, strict=True)],
            dtype=np.float64,
        ),
        spindle_count=np.array(spindles, dtype=np.float64),
        exclusive=exclusive,
        missing_memory=np.array(
            [
                free - node.free_memory
                for free, node in zip(recorded, nodes, strict=True)
            ],
            dtype=np.int64,
        ),
        counted=counted,
        as_primary=as_primary,
        as_secondary=as_secondary,
        reserved=np.array([i.reserved_memory for i in instances], dtype=np.int64),
        local=np.array([i.local for i in instances], dtype=np.bool_),
        drbd=np.array([i.template == "drbd" for i in instances], dtype=np.bool_),
        unknown_spindles=np.array(
            [i.spindles is None for i in instances], dtype=np.bool_
        ),
        forthcoming=np.array([i.forthcoming for i in instances], dtype=np.bool_),
    )


def _effects(instances: tuple[Instance, ...]) -> tuple[Floats, Floats]:
    """Give what a node's amounts gain with each instance, as primary and secondary."""
    as_primary = np.zeros((ROWS, len(instances)))
    as_secondary = np.zeros((ROWS, len(instances)))
    for k, inst in enumerate(instances):
        disk = inst.disk if inst.local else 0
        use = inst.spindle_use if inst.local else 0
        free = inst.spindles or 0 if inst.local else 0
        cpu = inst.vcpus if inst.online else 0
        as_primary[_FIRST_ALL:, k] = (-inst.memory, -disk, cpu, use, -free)
        as_secondary[_FIRST_ALL:, k] = (0, -disk, 0, use, -free)
        if inst.forthcoming:
            continue
        memory = inst.memory if inst.uses_memory else 0
        load = inst.utilisation
        as_primary[:_FIRST_ALL, k] = (-memory, -disk, cpu, *load, use, -free)
        as_secondary[:_FIRST_ALL, k] = (0, -disk, 0, 0, 0, load[2], 0, use, -free)
    return as_primary, as_secondary


def _empty_amounts(cluster: Cluster, fixed: Fixed) -> Floats:
    """Give the amounts of nodes before instances are put on them."""
    amounts = np.zeros((ROWS, len(cluster.nodes)))
    for k, node in enumerate(cluster.nodes):
        own = int(node.total_memory) - node.node_memory
        amounts[Row.MEMORY, k] = own - max(0, int(fixed.missing_memory[k]))
        amounts[[Row.CPU, Row.ALL_CPU], k] = node.node_cpus
        amounts[Row.LOAD_CPU, k] = node.other_load
    return amounts


def _restore_loaded(cluster: Cluster, fixed: Fixed, amounts: Floats) -> None:
    """Set what nodes report themselves: disk and spindles, and all-memory.

    Reported numbers count instances already, except what does not exist yet or, for
    memory, does not run.
    """
    for k, node in enumerate(cluster.nodes):
        spindles = node.free_spindles if node.exclusive else 0
        amounts[[Row.DISK, Row.ALL_DISK], k] = node.free_disk
        amounts[[Row.FREE_SPINDLES, Row.ALL_FREE_SPINDLES], k] = spindles
        amounts[Row.ALL_MEMORY, k] = node.free_memory
    for index, inst in enumerate(cluster.instances):
        if not inst.uses_memory:
            amounts[Row.ALL_MEMORY, inst.primary] -= inst.memory
        if inst.forthcoming:
            for place in inst.nodes:
                rows = [Row.ALL_DISK, Row.ALL_FREE_SPINDLES]
                amounts[rows, place] += (
                    fixed.counted[rows, place] * fixed.as_secondary[rows, index]
                )
