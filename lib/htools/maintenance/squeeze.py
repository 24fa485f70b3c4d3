"""Which nodes may be switched off, or must be switched on, as ``hsqueeze`` plans it."""

import enum
from collections.abc import Collection
from typing import Final

import msgspec

from ganeti.htools.balance import greedy
from ganeti.htools.model.cluster import Cluster
from ganeti.htools.rules.move_constraints import MoveOptions
from ganeti.htools.score import components
from ganeti.htools.state.instance_deltas import Bools
from ganeti.htools.state.node_state import ClusterState, derive

#: Node tags that begin so let the node be switched on when room is missing.
STANDBY_PREFIX: Final = "htools:standby:"
#: Tag of nodes that were switched off by a plan.
STANDBY_TAG: Final = "htools:standby:auto"
#: Balance as long as anything gets better.
_GOAL: Final = greedy.BalanceGoal(min_score=0.0, min_gain=0.0, min_gain_limit=0.0)


class Headroom(msgspec.Struct, frozen=True):
    """What must fit on a node besides what is there; memory in MiB."""

    memory: int
    vcpus: int
    spindles: int


class PowerAction(enum.Enum):
    """What a plan is for."""

    NOTHING = enum.auto()
    SWITCH_ON = enum.auto()
    SWITCH_OFF = enum.auto()


class SqueezePlan(msgspec.Struct, frozen=True):
    """What to do with which nodes, the moves, and the cluster after all that.

    ``SWITCH_ON`` may come without nodes: moves alone make room. ``enough`` is False
    when room is missing with all nodes too.
    """

    action: PowerAction
    nodes: tuple[int, ...]
    steps: tuple[greedy.BalanceStep, ...]
    cluster: Cluster
    enough: bool = True


def size(cluster: Cluster, factor: float) -> Headroom:
    """Multiply the standard size of the cluster's policy."""
    std = cluster.policy.std
    return Headroom(int(std.memory * factor), int(std.cpus * factor), std.spindles)


def may_go(cluster: Cluster) -> list[int]:
    """List nodes that may be switched off, those with most primaries first.

    Not the master, and no node that has data on its own disks.
    """
    there = [inst for inst in cluster.instances if not inst.forthcoming]
    bound = {
        node
        for inst in there
        for node in inst.nodes
        if inst.local or node == inst.secondary
    }
    count = [0] * len(cluster.nodes)
    for inst in there:
        count[inst.primary] += 1
    nodes = [
        n
        for n, node in enumerate(cluster.nodes)
        if not node.offline and not node.master and n not in bound
    ]
    return sorted(nodes, key=lambda n: -count[n])


def may_come(cluster: Cluster) -> list[int]:
    """List nodes that may be switched on."""
    return [
        n
        for n, node in enumerate(cluster.nodes)
        if node.offline and any(tag.startswith(STANDBY_PREFIX) for tag in node.tags)
    ]


def plan(cluster: Cluster, least: Headroom, wanted: Headroom) -> SqueezePlan:
    """Find the nodes to switch on when ``least`` does not fit on every node.

    Otherwise find the nodes to switch off so that ``wanted`` still fits on every node.
    """
    if _room(derive(cluster), least).all():
        return _condense(cluster, wanted)
    return _expand(cluster, least)


def _condense(cluster: Cluster, wanted: Headroom) -> SqueezePlan:
    off: tuple[int, ...] = ()
    best: SqueezePlan | None = None
    for node in reversed(may_go(cluster)):
        tried = (node, *off)
        left = _switched(cluster, tried, off=True)
        if all(other.offline for other in left.nodes):
            continue
        steps, after = _balanced(left)
        if _safe(after, wanted):
            off = tried
            best = SqueezePlan(PowerAction.SWITCH_OFF, off, steps, after.as_cluster())
    return best or SqueezePlan(PowerAction.NOTHING, (), (), cluster)


def _expand(cluster: Cluster, least: Headroom) -> SqueezePlan:
    standby = may_come(cluster)
    for count in range(len(standby) + 1):
        on = tuple(standby[:count])
        steps, after = _balanced(_switched(cluster, on, off=False))
        if _safe(after, least):
            return SqueezePlan(PowerAction.SWITCH_ON, on, steps, after.as_cluster())
    return SqueezePlan(
        PowerAction.SWITCH_ON, on, steps, after.as_cluster(), enough=False
    )


def _switched(cluster: Cluster, nodes: Collection[int], *, off: bool) -> Cluster:
    """Take nodes as offline or online.

    One whose size nobody knows stays offline: nothing can be planned on it.
    """
    changed = tuple(
        msgspec.structs.replace(node, offline=off)
        if n in nodes and node.total_memory > 0
        else node
        for n, node in enumerate(cluster.nodes)
    )
    return msgspec.structs.replace(cluster, nodes=changed)


def _balanced(cluster: Cluster) -> tuple[tuple[greedy.BalanceStep, ...], ClusterState]:
    state = derive(cluster)
    steps = tuple(greedy.plan(state, _GOAL, MoveOptions(), components.ideal(state)))
    return steps, state


def _safe(state: ClusterState, what: Headroom) -> bool:
    """Tell whether no primary is on a node offline and something fits everywhere."""
    return bool(state.online[state.pri].all() and _room(state, what).all())


def _room(state: ClusterState, what: Headroom) -> Bools:
    """Tell on which nodes one more instance fits that has its disks elsewhere.

    Nodes of unknown size are taken to have room: no plan depends on them.
    """
    left = state.unallocated - what.memory
    fine: Bools = (left > 0) & (state.f_mem_later - what.memory > 0)
    fine &= (left > state.r_mem) | state.fails_n1
    for used in (state.u_cpu, state.u_cpu_later):
        ratio = state.per_cpu(used + what.vcpus)
        fine &= (state.cpu_ratio < 0) | (ratio <= state.cpu_ratio)
    out: Bools = fine | (state.t_mem <= 0)
    return out
