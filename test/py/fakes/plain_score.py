"""The cluster score once more, written down plainly: loops, no arrays, no shortcuts.

Tests compare each component of the real score, each shortcut to it and each bound of it
with this, node by node, so that a wrong digit has a name. Everything here follows from
the cluster as it was loaded and from where its instances are; nothing of ``ganeti`` but
the records is used.
"""

import dataclasses
import math

from ganeti.decisions.htools.model.cluster import Cluster

#: Name and weight of each component, as published.
WEIGHT = {
    "free_mem_cv": 0.5,
    "free_disk_cv": 0.5,
    "n1_cnt": 1.0,
    "reserved_mem_cv": 1.0,
    "offline_all_cnt": 4.0,
    "offline_pri_cnt": 16.0,
    "vcpu_ratio_cv": 0.5,
    "cpu_load_cv": 1.0,
    "mem_load_cv": 1.0,
    "disk_load_cv": 1.0,
    "net_load_cv": 1.0,
    "pri_tags_score": 2.0,
    "spindles_cv": 0.5,
    "free_mem_cv_forth": 0.5,
    "free_disk_cv_forth": 0.5,
    "vcpu_ratio_cv_forth": 0.5,
    "spindles_cv_forth": 0.5,
    "location_score": 1.0,
    "location_exclusion_score": 1.0,
    "reserved_mem_rtotal": 0.25,
}
#: Components that are the standard deviation of a value of each node.
DEVIATIONS = tuple(name for name in WEIGHT if "_cv" in name)


@dataclasses.dataclass
class _Amounts:
    """Resources of a node, and their use by the instances on it."""

    used_memory: float = 0.0
    all_memory: float = 0.0
    disk: float = 0.0
    all_disk: float = 0.0
    spindles: float = 0.0
    all_spindles: float = 0.0
    spindle_use: float = 0.0
    all_spindle_use: float = 0.0
    vcpus: float = 0.0
    all_vcpus: float = 0.0
    load: list[float] = dataclasses.field(default_factory=lambda: [0.0] * 4)
    kept_for: dict[int, float] = dataclasses.field(default_factory=dict)
    present: int = 0
    present_primaries: int = 0
    location: int = 0
    tags: dict[str, int] = dataclasses.field(default_factory=dict)
    present_tags: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def reserved(self) -> float:
        return max(self.kept_for.values(), default=0.0)


class PlainScore:
    """The score of a cluster for any places of its instances.

    The spindles of all instances must be known.
    """

    def __init__(self, cluster: Cluster) -> None:
        """Remember what nodes reported with the instances where they are."""
        self.cluster = cluster
        self.start = self._amounts(
            [item.primary for item in cluster.instances],
            [item.secondary for item in cluster.instances],
        )

    def _prefixes(self, kind: str, end: str = "") -> tuple[str, ...]:
        start = f"htools:{kind}:"
        tags = [tag for tag in self.cluster.tags if tag.startswith(start)]
        return tuple(tag.removeprefix(start) + end for tag in tags)

    def _amounts(self, primary: list[int], secondary: list[int]) -> list[_Amounts]:
        out = [_Amounts() for _ in self.cluster.nodes]
        for index, item in enumerate(self.cluster.instances):
            first, second = primary[index], secondary[index]
            here = not item.forthcoming
            for node in (out[first], out[second]) if second >= 0 else (out[first],):
                if item.local:
                    node.all_disk += item.disk
                    node.all_spindles += item.spindles or 0
                    node.all_spindle_use += item.spindle_use
                    node.disk += item.disk * here
                    node.spindles += (item.spindles or 0) * here
                    node.spindle_use += item.spindle_use * here
                node.present += here
                node.load[2] += item.utilisation[2] * here
            self._count_primary(out[first], index, (first, second))
            if second >= 0 and here and item.reserved_memory:
                kept = out[second].kept_for
                kept[first] = kept.get(first, 0.0) + item.memory
        return out

    def _count_primary(self, node: _Amounts, index: int, pair: tuple[int, int]) -> None:
        item = self.cluster.instances[index]
        here = not item.forthcoming
        node.all_memory += item.memory
        node.all_vcpus += item.vcpus * item.online
        exclusion = self._prefixes("iextags")
        for tag in item.tags:
            if exclusion and tag.startswith(exclusion):
                node.tags[tag] = node.tags.get(tag, 0) + 1
                node.present_tags[tag] = node.present_tags.get(tag, 0) + here
        if not here:
            return
        node.used_memory += item.memory * item.uses_memory
        node.vcpus += item.vcpus * item.online
        node.present_primaries += 1
        for at in (0, 1, 3):
            node.load[at] += item.utilisation[at]
        desired = self._prefixes("desiredlocation")
        wanted = {tag for tag in item.tags if desired and tag.startswith(desired)}
        mine = self._locations(pair[0])
        other = self._locations(pair[1]) if pair[1] >= 0 else set()
        node.location += len(wanted - mine) + len(mine & other)

    def _locations(self, node: int) -> set[str]:
        prefixes = self._prefixes("nlocation", ":")
        tags = self.cluster.nodes[node].tags
        return {tag for tag in tags if prefixes and tag.startswith(prefixes)}

    def values(
        self, primary: list[int], secondary: list[int]
    ) -> list[dict[str, float]]:
        """Return the value of each node for each component that has one per node."""
        amounts = self._amounts(primary, secondary)
        return [self._node(at, now) for at, now in enumerate(amounts)]

    def _node(self, at: int, now: _Amounts) -> dict[str, float]:
        node, start = self.cluster.nodes[at], self.start[at]
        policy = self.cluster.groups[node.group].policy
        # Memory that is gone at load though no instance has it stays gone.
        whole = int(node.total_memory) - node.node_memory
        missing = max(0.0, whole - start.used_memory - node.free_memory)
        free = whole - now.used_memory - missing
        free_all = node.free_memory + start.used_memory - now.all_memory
        disk = node.free_disk + start.disk
        spindles = node.free_spindles + start.spindles
        speed = node.cpu_speed
        largest = policy.spindle_ratio * node.spindles

        def disk_part(taken: float, taken_spindles: float) -> float:
            if node.exclusive:
                return (spindles - taken_spindles) / node.spindles
            return _part(disk - taken, node.total_disk, 1.0)

        uses = (0.0, 0.0)
        if not node.exclusive:
            uses = now.spindle_use, now.all_spindle_use
        reserved = _part(now.reserved, node.total_memory)
        repeated = sum(count - 1 for count in now.tags.values())
        return {
            "free_mem_cv": _part(free, node.total_memory),
            "free_disk_cv": disk_part(now.disk, now.spindles),
            "n1_cnt": float(now.present * (free <= now.reserved)),
            "reserved_mem_cv": reserved,
            "offline_all_cnt": float(now.present),
            "offline_pri_cnt": float(now.present_primaries),
            "vcpu_ratio_cv": _part(node.node_cpus + now.vcpus, node.cpus) / speed,
            "cpu_load_cv": node.other_load + now.load[0],
            "mem_load_cv": now.load[1],
            "disk_load_cv": now.load[2],
            "net_load_cv": now.load[3],
            "pri_tags_score": float(repeated),
            "spindles_cv": _part(uses[0], largest),
            "free_mem_cv_forth": _part(free_all, node.total_memory),
            "free_disk_cv_forth": disk_part(now.all_disk, now.all_spindles),
            "vcpu_ratio_cv_forth": _part(node.node_cpus + now.all_vcpus, node.cpus)
            / speed,
            "spindles_cv_forth": _part(uses[1], largest),
            "location_score": float(now.location),
            "reserved_mem_rtotal": reserved,
        }

    def components(self, primary: list[int], secondary: list[int]) -> dict[str, float]:
        """Return the value of each component."""
        rows = self.values(primary, secondary)
        nodes = self.cluster.nodes
        up = [row for row, node in zip(rows, nodes, strict=True) if not node.offline]
        down = [row for row, node in zip(rows, nodes, strict=True) if node.offline]
        if not up:
            return dict.fromkeys(WEIGHT, 0.0)
        out = {}
        for name in WEIGHT:
            if name in DEVIATIONS:
                out[name] = _deviation([row[name] for row in up])
            elif name == "location_exclusion_score":
                out[name] = self._repeated_pairs(primary, secondary)
            else:
                where = down if name.startswith("offline") else up
                out[name] = math.fsum(row[name] for row in where)
        return out

    def _repeated_pairs(self, primary: list[int], secondary: list[int]) -> float:
        counts: dict[tuple[str, str], int] = {}
        for at, now in enumerate(self._amounts(primary, secondary)):
            if self.cluster.nodes[at].offline:
                continue
            for place in self._locations(at):
                for tag, count in now.present_tags.items():
                    pair = place, tag
                    counts[pair] = counts.get(pair, 0) + count
        return float(sum(max(0, count - 1) for count in counts.values()))


def _part(some: float, whole: float, without: float = 0.0) -> float:
    return some / whole if whole else without


def _deviation(values: list[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))
