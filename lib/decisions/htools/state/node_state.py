"""A simulated cluster: one array per number, one element per node.

Loading, adding and removing instances keep all numbers exact.
`htools.rules.constraints` decides whether an instance may be added,
`htools.score.components` computes the score of the result.
"""

import copy
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from ganeti.decisions.htools.model.cluster import NONE, Cluster, Instance
from ganeti.decisions.htools.state import amounts
from ganeti.decisions.htools.state.aggregate import InstanceColumns, columns_of
from ganeti.decisions.htools.state.amounts import ROWS, Flags, Floats, Ints, NodeRows

_EXCLUSION: Final = "htools:iextags:"
_LOCATION: Final = "htools:nlocation:"
_DESIRED: Final = "htools:desiredlocation:"
_MIGRATION: Final = "htools:migration:"
_ALLOW: Final = "htools:allowmigration:"


class CapacityLimits(msgspec.Struct, frozen=True):
    """Limits of nodes that are given on the command line.

    ``max_cpu`` replaces the policies' ratio of virtual to physical CPUs; ``min_disk``
    is the fraction of the disk to keep free.
    """

    max_cpu: float | None = None
    min_disk: float = 0.0


class ClusterState(NodeRows):
    """Numbers of all nodes; positions are those of the cluster's tuples.

    Attributes:
        cluster: the source of the state.
        size: number of nodes.
        keepers: rows x nodes, 1.0 where the node keeps the row, else 0.0.
        pri, sec: node of each instance, -1 for none.
        primaries, secondaries: instances of each node, newest first.
        peers: [secondary node, primary node] -> memory reserved for failovers; primary
            nodes of ``Cluster.secondary_only`` follow all others.
        pri_tags: [node, exclusion tag] -> number of primaries.
        present_tags: the same without forthcoming instances.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        new_instances: Sequence[Instance] = (),
        min_disk: float = 0.0,
        max_cpu: float | None = None,
        exclusion: Sequence[str] = (),
    ) -> None:
        """Load a cluster.

        Args:
            cluster: groups, nodes and instances.
            new_instances: instances that will be added; their tags are included.
            min_disk: fraction of the disk to keep free.
            max_cpu: overrides the policies' limit of virtual per physical CPU.
            exclusion: further prefixes of exclusion tags.
        """
        self.cluster = cluster
        self.size = len(cluster.nodes)
        self.instances = list(cluster.instances)
        self.pri = [item.primary for item in self.instances]
        self.sec = [item.secondary for item in self.instances]
        outside = {item.primary for item in cluster.secondary_only}
        self.peers: Floats = np.zeros((self.size, self.size + len(outside)))
        self.use(np.zeros((len(ROWS), self.size)))
        self._fixed(min_disk, max_cpu)
        self._tags([*self.instances, *new_instances], exclusion)
        self._load()

    def _fixed(self, min_disk: float, max_cpu: float | None) -> None:
        cluster = self.cluster
        nodes = cluster.nodes
        policies = [cluster.groups[node.group].policy for node in nodes]
        self.group = np.array([node.group for node in nodes], np.int64)
        self.offline = np.array([node.offline for node in nodes], bool)
        self.online = ~self.offline
        self.exclusive = np.array([node.exclusive for node in nodes], bool)
        self.t_mem = _floats(node.total_memory for node in nodes)
        self.n_mem = _floats(node.node_memory for node in nodes)
        self.t_dsk = _floats(node.total_disk for node in nodes)
        self.t_cpu = _floats(node.cpus for node in nodes)
        self.speed = _floats(node.cpu_speed for node in nodes)
        self.spindle_count = _floats(node.spindles for node in nodes)
        self.cpu_ratio = _floats(
            policy.vcpu_ratio if max_cpu is None else max_cpu for policy in policies
        )
        self.keepers = amounts.keepers(self.exclusive)
        #: id of an instance -> the instance, and its ``amounts.of_item``.
        self._amounts: dict[int, tuple[Instance, Floats]] = {}
        self.lo_dsk = np.floor(min_disk * self.t_dsk)
        self.hi_cpu = np.floor(self.cpu_ratio * self.t_cpu)
        self.hi_spin = self.spindle_count * _floats(
            policy.spindle_ratio for policy in policies
        )

    def _tags(self, instances: Sequence[Instance], exclusion: Sequence[str]) -> None:
        tags = self.cluster.tags
        prefixes = (*exclusion, *_cut(tags, _EXCLUSION))
        names = {
            tag
            for item in instances
            for tag in item.tags
            if prefixes and tag.startswith(prefixes)
        }
        self.exclusion_tags = sorted(names)
        self._tag_at = {tag: n for n, tag in enumerate(self.exclusion_tags)}
        self.use_tags(np.zeros((2, self.size, len(names)), np.int64))
        self._desired = tuple(_cut(tags, _DESIRED))
        self._node_locations(tuple(f"{word}:" for word in _cut(tags, _LOCATION)))
        self._node_migrations(tags)

    def use_tags(self, counts: Ints) -> None:
        """Take [all or present, node, exclusion tag] as the counts of primaries."""
        self._tags_of = counts
        self.pri_tags, self.present_tags = counts
        self._repeated: Floats = np.zeros(self.size)
        #: Nodes of which it is not known how often tags are repeated.
        self._unclear = set(range(self.size))

    def _node_locations(self, prefixes: tuple[str, ...]) -> None:
        nodes = self.cluster.nodes
        self.places = [
            frozenset(tag for tag in node.tags if prefixes and tag.startswith(prefixes))
            for node in nodes
        ]
        self._lacking: dict[frozenset[str], Ints] = {}
        names = sorted(frozenset().union(*self.places))
        self._has_places = bool(names or self._desired)
        self.node_places = np.array(
            [[name in own_places for name in names] for own_places in self.places],
            np.int64,
        ).reshape(self.size, len(names))
        #: Location tags that two nodes have in common.
        self.common_places = (
            self.node_places @ self.node_places.T
            if names
            else np.zeros((self.size, self.size), np.int64)
        )

    def _node_migrations(self, tags: Sequence[str]) -> None:
        prefixes = tuple(f"{word}:" for word in _cut(tags, _MIGRATION))
        sends = [
            frozenset(tag for tag in node.tags if prefixes and tag.startswith(prefixes))
            for node in self.cluster.nodes
        ]
        #: [from, to]: whether an instance may migrate; None if always.
        self.may_migrate: Flags | None = None
        if not any(sends):
            return
        allowed = [
            tuple(word.split("::", 1)) for word in _cut(tags, _ALLOW) if "::" in word
        ]
        takes = [
            own_places | {source for source, target in allowed if target in own_places}
            for own_places in sends
        ]
        self.may_migrate = np.array([[one <= two for two in takes] for one in sends])

    def _load(self) -> None:
        nodes = self.cluster.nodes
        reported = _floats(node.free_memory for node in nodes)
        free_disk = _floats(node.free_disk for node in nodes)
        self.f_dsk[:] = free_disk
        self.f_dsk_later[:] = free_disk
        self.f_mem_later[:] = reported
        spindles = _floats(
            node.free_spindles if node.exclusive else 0 for node in nodes
        )
        self.f_spin[:] = spindles
        self.f_spin_later[:] = spindles
        self.u_cpu[:] = _floats(node.node_cpus for node in nodes)
        self.u_cpu_later[:] = self.u_cpu
        self.load_cpu[:] = _floats(node.other_load for node in nodes)
        self._load_instances()
        self.r_mem[:] = self.peers.max(axis=1) if self.size else 0
        recorded = np.trunc(self.t_mem) - self.n_mem - self.i_mem
        #: Memory in use that belongs to no instance.
        self.x_mem = recorded - reported
        self.unallocated[:] = recorded - np.maximum(0, self.x_mem)

    def _load_instances(self) -> None:
        columns = columns_of(self.instances)
        columns.count(self, self.exclusive)
        columns.count_peers(self.peers)
        self.primaries, self.secondaries = columns.by_node(self.size)
        if self.cluster.secondary_only:
            secondary_only = InstanceColumns(self.cluster.secondary_only)
            secondary_only.count_peers(self.peers)
            secondary_only.without_primary().count(self, self.exclusive)
        if not (self._tag_at or self._has_places):
            return
        for item in self.instances:
            node = item.primary
            if node < 0:
                continue
            for tag in self.tag_places(item):
                self._tags_of[: 1 if item.forthcoming else 2, node, tag] += 1
            if not item.forthcoming:
                self.location[node] += self.location_at(item, node, item.secondary)

    # Copies
    def copy(self, *, same_peers: bool = False) -> "ClusterState":
        """Return an independent state with the same numbers.

        With ``same_peers`` both share ``peers``, the largest table: for copies that
        only change instances without a secondary.
        """
        out = copy.copy(self)
        out.use(self.rows.copy())
        out.instances = list(self.instances)
        out.pri, out.sec = list(self.pri), list(self.sec)
        out.primaries = [list(items) for items in self.primaries]
        out.secondaries = [list(items) for items in self.secondaries]
        out.peers = self.peers if same_peers else self.peers.copy()
        out.use_tags(self._tags_of.copy())
        return out

    def mark(self, index: int, nodes: Sequence[int]) -> Any:
        """Return a mark for `restore`, which undoes changes of an instance on nodes."""
        places = list(nodes)
        return (
            index,
            places,
            self.rows[:, places],
            self.peers[places],
            self._tags_of[:, places],
            [list(self.primaries[node]) for node in places],
            [list(self.secondaries[node]) for node in places],
            (self.pri[index], self.sec[index]),
        )

    def restore(self, mark: Any) -> None:
        """Undo everything since a mark, on the marked nodes."""
        index, places, rows, peers, tags, primaries, secondaries, pair = mark
        self.rows[:, places] = rows
        self.peers[places] = peers
        self._tags_of[:, places] = tags
        self._unclear.update(places)
        for place, own_places, second in zip(
            places, primaries, secondaries, strict=True
        ):
            self.primaries[place] = own_places
            self.secondaries[place] = second
        self.pri[index], self.sec[index] = pair

    def as_cluster(self) -> Cluster:
        """Return the present state as a cluster; free memory stays as reported."""
        nodes = tuple(
            msgspec.structs.replace(
                node,
                free_disk=int(free),
                # An unknown number of spindles in use makes the free number -1.
                free_spindles=max(0, int(spindles))
                if node.exclusive
                else node.free_spindles,
            )
            for node, free, spindles in zip(
                self.cluster.nodes, self.f_dsk, self.f_spin, strict=True
            )
        )
        instances = tuple(
            msgspec.structs.replace(item, primary=pri, secondary=sec)
            for item, pri, sec in zip(self.instances, self.pri, self.sec, strict=True)
        )
        return msgspec.structs.replace(self.cluster, nodes=nodes, instances=instances)

    # Instances
    def new(self, item: Instance) -> int:
        """Add an instance without nodes and return its position."""
        self.instances.append(item)
        self.pri.append(-1)
        self.sec.append(-1)
        return len(self.instances) - 1

    def forget(self, index: int) -> None:
        """Drop the newest instance, which has no nodes."""
        if index != len(self.instances) - 1 or self.pri[index] >= 0:
            raise ValueError(f"instance {index}: not the newest, or it has nodes")
        del self.instances[index], self.pri[index], self.sec[index]

    def place(self, index: int, primary: int, secondary: int = -1) -> None:
        """Put an instance without nodes onto nodes."""
        self.pri[index], self.sec[index] = primary, secondary
        self._change_primary(index, primary, 1)
        if secondary >= 0:
            self._change_secondary(index, secondary, 1)

    def remove(self, index: int) -> None:
        """Take an instance off its nodes."""
        self._change_primary(index, self.pri[index], -1)
        if self.sec[index] >= 0:
            self._change_secondary(index, self.sec[index], -1)
        self.pri[index] = self.sec[index] = -1

    def _change_primary(self, index: int, node: int, sign: int) -> None:
        self._count_primary(index, node, sign)
        self._change_rows(self.instances[index], node, sign, secondary=False)

    def _change_secondary(self, index: int, node: int, sign: int) -> None:
        item = self.instances[index]
        _put(self.secondaries[node], index, sign)
        self._change_rows(item, node, sign, secondary=True)
        if not item.forthcoming and item.reserved_memory:
            self.peers[node, self.pri[index]] += sign * item.memory
            self.r_mem[node] = self.peers[node].max()

    def _change_rows(
        self, item: Instance, node: int, sign: int, *, secondary: bool
    ) -> None:
        known = self._amounts.get(id(item))
        if known is None:
            # Keeping the record keeps its id unique.
            known = self._amounts[id(item)] = item, amounts.of_item(item)
        self.rows[:, node] += sign * known[1][int(secondary)] * self.keepers[:, node]
        if sign > 0 and item.spindles is None and item.local and self.exclusive[node]:
            self.f_spin_later[node] = -1
            if not item.forthcoming:
                self.f_spin[node] = -1

    def _count_primary(self, index: int, node: int, sign: int) -> None:
        item = self.instances[index]
        _put(self.primaries[node], index, sign)
        for tag in self.tag_places(item):
            self._tags_of[: 1 if item.forthcoming else 2, node, tag] += sign
            self._unclear.add(node)
        if item.forthcoming:
            return
        self.location[node] += sign * self.location_at(item, node, self.sec[index])

    # Read by checks and scores
    def tag_places(self, item: Instance) -> list[int]:
        """Return the positions of an instance's exclusion tags."""
        if not self._tag_at:
            return []
        return [self._tag_at[tag] for tag in item.tags if tag in self._tag_at]

    def repeated_tags(self) -> Floats:
        """Return per node how many exclusion tags repeat among its primaries."""
        if self._unclear:
            nodes = sorted(self._unclear)
            repeated = np.maximum(self.pri_tags[nodes] - 1, 0).sum(axis=1)
            self._repeated[nodes] = repeated
            self._unclear.clear()
        return self._repeated.copy()

    def shared_tags(self, item: Instance) -> Floats:
        """Return per node the most primaries that share a tag of an instance."""
        places = self.tag_places(item)
        if not places:
            return np.zeros(self.size)
        return np.asarray(self.pri_tags[:, places].max(axis=1), np.float64)

    def location_at(self, item: Instance, node: int, secondary: int) -> int:
        """Return what an instance adds to the location score of its primary."""
        if not self._has_places:
            return 0
        return int(self.wanted_places(item)[node]) + (
            int(self.common_places[node, secondary]) if secondary >= 0 else 0
        )

    def desired_tags(self, item: Instance) -> frozenset[str]:
        """Return the location tags that an instance desires of its primary."""
        if not self._desired:
            return frozenset()
        return frozenset(tag for tag in item.tags if tag.startswith(self._desired))

    def lacking(self, wanted: frozenset[str]) -> Ints:
        """Return how many of some location tags each node lacks; do not modify it."""
        if wanted not in self._lacking:
            counts = [len(wanted - own_places) for own_places in self.places]
            self._lacking[wanted] = np.array(counts, np.int64)
        return self._lacking[wanted]

    def wanted_places(self, item: Instance) -> Ints:
        """Return how many of an instance's desired location tags each node lacks."""
        return self.lacking(self.desired_tags(item))

    def per_cpu(self, used: Floats) -> Floats:
        """Return virtual per physical CPUs; infinity without physical CPUs."""
        out: Floats = np.divide(
            used, self.t_cpu, out=np.full(self.size, np.inf), where=self.t_cpu != 0
        )
        return out

    def spindles_after(self, free: Floats, item: Instance) -> Floats:
        """Return the free spindles of each node with an instance's disks."""
        if item.spindles is None:
            return np.full(self.size, -1.0)
        return np.asarray(free - item.spindles)

    @property
    def fails_n1(self) -> Flags:
        """Flags of the nodes that lack the memory for failovers to them."""
        return self.unallocated <= self.r_mem

    def failover_memory(self) -> tuple[Floats, Flags]:
        """Return [primary, secondary] -> memory of failovers, and whether any exist."""
        memory = np.zeros((self.size, self.size))
        exists = np.zeros((self.size, self.size), bool)
        pairs = np.array([self.pri, self.sec], np.intp)
        items = self.instances
        present = np.array([not item.forthcoming for item in items], bool)
        there = np.nonzero((pairs >= 0).all(axis=0) & present)[0]
        pri, sec = pairs[:, there]
        exists[pri, sec] = True
        used = [items[n].memory if items[n].uses_memory else 0 for n in there.tolist()]
        np.add.at(memory, (pri, sec), used)
        return memory, exists


def derive(
    cluster: Cluster,
    limits: CapacityLimits | None = None,
    exclusion: Iterable[str] = (),
) -> ClusterState:
    """Load a cluster with the limits of the command line.

    ``exclusion`` lists prefixes of exclusion tags, in addition to the cluster's tags.
    """
    limits_used = limits or CapacityLimits()
    return ClusterState(
        cluster,
        min_disk=limits_used.min_disk,
        max_cpu=limits_used.max_cpu,
        exclusion=[f"{prefix}:" for prefix in exclusion],
    )


def _put(items: list[int], index: int, sign: int) -> None:
    if sign > 0:
        items.insert(0, index)
    else:
        items.remove(index)


def _cut(tags: Sequence[str], prefix: str) -> list[str]:
    """Return the rest of each tag that starts with a prefix, if not empty."""
    values = [tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix)]
    return [word for word in values if word]


def _floats(values: Any) -> Floats:
    out = np.array(list(values), np.float64)
    if not np.isfinite(out).all():
        bad = out[~np.isfinite(out)].tolist()
        raise ValueError(f"node numbers: wanted finite numbers, found {bad}")
    return out


def of_group(
    now: ClusterState, group: int, new_instances: Sequence[Instance]
) -> tuple[ClusterState, Sequence[int]]:
    """Return one group's part of a state, and the positions of its nodes.

    Args:
        now: the state; instances placed since its cluster was loaded are included.
        group: position.
        new_instances: instances that may be added.
    """
    cluster = now.cluster
    members = cluster.members(group)
    positions = {node: at for at, node in enumerate(members)}
    state = ClusterState(cluster.only_group(group), new_instances=new_instances)
    for index in range(len(cluster.instances), len(now.instances)):
        if now.pri[index] in positions:
            secondary = positions.get(now.sec[index], NONE)
            new = state.new(now.instances[index])
            state.place(new, positions[now.pri[index]], secondary)
    return state, members
