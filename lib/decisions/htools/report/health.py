"""Health of a cluster: the numbers that show whether it needs balancing."""

import msgspec
import numpy as np

from ganeti.decisions.htools.model.cluster import Cluster
from ganeti.decisions.htools.n1.check import GlobalN1
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.state import node_state


class ClusterHealth(msgspec.Struct, frozen=True):
    """Numbers of a node group, or their sums over a cluster.

    Attributes:
        n1_fail: online nodes that fail N+1.
        conflict_tags: nodes where instances with the same exclusion tag are primary.
        offline_pri: instances whose primary node is offline.
        offline_sec: nodes that are offline.
        gn1_fail: nodes whose loss the group does not survive; None if not tested.
    """

    n1_fail: int
    conflict_tags: int
    offline_pri: int
    offline_sec: int
    gn1_fail: int | None

    def __add__(self, other: "ClusterHealth") -> "ClusterHealth":
        gn1 = None
        if self.gn1_fail is not None and other.gn1_fail is not None:
            gn1 = self.gn1_fail + other.gn1_fail
        return ClusterHealth(
            self.n1_fail + other.n1_fail,
            self.conflict_tags + other.conflict_tags,
            self.offline_pri + other.offline_pri,
            self.offline_sec + other.offline_sec,
            gn1,
        )

    @property
    def bad(self) -> bool:
        """Whether any number is above zero."""
        return any(msgspec.structs.astuple(self))


class GroupHealth(msgspec.Struct, frozen=True):
    """A node group: its part of the cluster, its health and score."""

    name: str
    uuid: str
    part: Cluster
    health: ClusterHealth
    score: float


def of(now: node_state.ClusterState, *, capacity_checks: bool = True) -> ClusterHealth:
    """Return the health of one node group.

    Args:
        now: the state of the group alone.
        capacity_checks: test global N+1.
    """
    conflicts = (now.pri_tags > 1).any(axis=1)
    offline = np.nonzero(now.offline)[0]
    gn1 = None
    if capacity_checks:
        gn1 = len(GlobalN1(now).failing())
    return ClusterHealth(
        n1_fail=int((now.online & now.fails_n1).sum()),
        conflict_tags=int(conflicts.sum()),
        offline_pri=sum(
            not now.instances[i].forthcoming for n in offline for i in now.primaries[n]
        ),
        offline_sec=len(offline),
        gn1_fail=gn1,
    )


def group(now: node_state.ClusterState, *, capacity_checks: bool = True) -> GroupHealth:
    """Return part, health and score of one node group."""
    cluster = now.cluster
    first = cluster.groups[0]
    return GroupHealth(
        first.name,
        first.uuid,
        now.as_cluster(),
        of(now, capacity_checks=capacity_checks),
        components.value(now),
    )
