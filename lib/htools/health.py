"""How healthy a cluster is: the numbers that tell whether it wants balancing."""

import dataclasses

from ganeti.htools import grid, redundancy, score, state
from ganeti.htools.model import Cluster


@dataclasses.dataclass(frozen=True, slots=True)
class Health:
    """Numbers of a node group, or their sums over a cluster.

    Attributes:
        n1_fail: nodes online that fail N+1.
        conflict_tags: nodes where instances with the same exclusion tag are primary.
        offline_pri: instances whose primary node is offline.
        offline_sec: nodes that are offline.
        gn1_fail: nodes whose loss the group does not survive; None when not tested.
    """

    n1_fail: int
    conflict_tags: int
    offline_pri: int
    offline_sec: int
    gn1_fail: int | None

    def __add__(self, other: "Health") -> "Health":
        gn1 = None
        if self.gn1_fail is not None and other.gn1_fail is not None:
            gn1 = self.gn1_fail + other.gn1_fail
        return Health(
            self.n1_fail + other.n1_fail,
            self.conflict_tags + other.conflict_tags,
            self.offline_pri + other.offline_pri,
            self.offline_sec + other.offline_sec,
            gn1,
        )

    @property
    def bad(self) -> bool:
        """Whether anything is wrong."""
        return any(dataclasses.astuple(self))


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """A node group: its own part of the cluster, its health and score."""

    name: str
    uuid: str
    part: Cluster
    health: Health
    score: float


def of(now: state.State, *, capacity_checks: bool = True) -> Health:
    """Look at one node group.

    Args:
        now: the state of the group alone.
        capacity_checks: test global N+1.
    """
    online = now.fixed.online
    conflicts = (now.tag_count > 1).any(axis=0)
    offline = [n for n in range(len(online)) if not online[n]]
    gn1 = None
    if capacity_checks:
        gn1 = len(redundancy.Capacity(_as_grid(now)).failing())
    return Health(
        n1_fail=int((online & now.failing).sum()),
        conflict_tags=int(conflicts.sum()),
        offline_pri=sum(len(now.primaries[n]) for n in offline),
        offline_sec=len(offline),
        gn1_fail=gn1,
    )


def _as_grid(now: state.State) -> grid.State:
    """Give the same state in the form that allocation works on."""
    cluster = now.cluster()
    nodes = []
    for n, node in enumerate(cluster.nodes):
        mine = [cluster.instances[i] for i in now.primaries[n]]
        used = sum(inst.memory for inst in mine if inst.uses_memory)
        missing = int(now.fixed.missing_memory[n])
        free = int(node.total_memory) - node.node_memory - used - missing
        nodes.append(dataclasses.replace(node, free_memory=free))
    return grid.State(dataclasses.replace(cluster, nodes=tuple(nodes)))


def group(now: state.State, *, capacity_checks: bool = True) -> Group:
    """Describe one node group by its state."""
    cluster = now.fixed.cluster
    found = cluster.groups[0]
    return Group(
        found.name,
        found.uuid,
        now.cluster(),
        of(now, capacity_checks=capacity_checks),
        score.of(now),
    )
