"""Plans of ``hsqueeze``: nodes that may be switched off or must be switched on.

Source: the manual page of ``hsqueeze``.
"""

import enum
from collections.abc import Collection
from typing import Final

import msgspec

from ganeti.decisions.htools.balance import greedy
from ganeti.decisions.htools.model.cluster import Cluster
from ganeti.decisions.htools.rules.move_constraints import MoveOptions
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.state.amounts import Flags
from ganeti.decisions.htools.state.node_state import ClusterState, derive

#: Prefix of node tags that allow switching the node on when capacity is missing.
STANDBY_PREFIX: Final = "htools:standby:"
#: Tag of nodes that were switched off by a plan.
STANDBY_TAG: Final = "htools:standby:auto"
#: Balance as long as the score improves.
_GOAL: Final = greedy.BalanceGoal(min_score=0.0, min_gain=0.0, min_gain_limit=0.0)


class Headroom(msgspec.Struct, frozen=True):
    """Resources that must stay free on each node; memory in MiB."""

    memory: int
    vcpus: int
    spindles: int


class PowerAction(enum.Enum):
    """Action of a plan."""

    NOTHING = enum.auto()
    SWITCH_ON = enum.auto()
    SWITCH_OFF = enum.auto()


class SqueezePlan(msgspec.Struct, frozen=True):
    """The action and its nodes, the moves, and the cluster afterwards.

    ``SWITCH_ON`` may have no nodes: moves alone make room. ``enough`` is False if
    capacity is missing even with all nodes.
    """

    action: PowerAction
    nodes: tuple[int, ...]
    steps: tuple[greedy.BalanceStep, ...]
    cluster: Cluster
    enough: bool = True


def size(cluster: Cluster, factor: float) -> Headroom:
    """Return the standard size of the cluster's policy times a factor."""
    std = cluster.policy.std
    return Headroom(int(std.memory * factor), int(std.cpus * factor), std.spindles)


def removable(cluster: Cluster) -> list[int]:
    """Return nodes that may be switched off, those with most primaries first.

    Neither the master nor a node with data on its own disks may be switched off.
    """
    existing = [inst for inst in cluster.instances if not inst.forthcoming]
    bound = {
        node
        for inst in existing
        for node in inst.nodes
        if inst.local or node == inst.secondary
    }
    count = [0] * len(cluster.nodes)
    for inst in existing:
        count[inst.primary] += 1
    nodes = [
        n
        for n, node in enumerate(cluster.nodes)
        if not node.offline and not node.master and n not in bound
    ]
    return sorted(nodes, key=lambda n: -count[n])


def standby(cluster: Cluster) -> list[int]:
    """Return nodes that may be switched on."""
    return [
        n
        for n, node in enumerate(cluster.nodes)
        if node.offline and any(tag.startswith(STANDBY_PREFIX) for tag in node.tags)
    ]


def plan(cluster: Cluster, least: Headroom, wanted: Headroom) -> SqueezePlan:
    """Plan which nodes to switch on if ``least`` does not fit on every node.

    Otherwise plan which nodes to switch off so that ``wanted`` still fits on every
    node.
    """
    if _room(derive(cluster), least).all():
        return _condense(cluster, wanted)
    return _expand(cluster, least)


def _condense(cluster: Cluster, wanted: Headroom) -> SqueezePlan:
    off: tuple[int, ...] = ()
    best: SqueezePlan | None = None
    for node in reversed(removable(cluster)):
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
    candidates = standby(cluster)
    for count in range(len(candidates) + 1):
        on = tuple(candidates[:count])
        steps, after = _balanced(_switched(cluster, on, off=False))
        if _safe(after, least):
            return SqueezePlan(PowerAction.SWITCH_ON, on, steps, after.as_cluster())
    return SqueezePlan(
        PowerAction.SWITCH_ON, on, steps, after.as_cluster(), enough=False
    )


def _switched(cluster: Cluster, nodes: Collection[int], *, off: bool) -> Cluster:
    """Return the cluster with some nodes offline or online.

    A node of unknown size stays offline: nothing can be planned on it.
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


def _safe(state: ClusterState, headroom: Headroom) -> bool:
    """Return whether no primary is on an offline node and the headroom fits on all."""
    return bool(state.online[state.pri].all() and _room(state, headroom).all())


def _room(state: ClusterState, headroom: Headroom) -> Flags:
    """Return on which nodes an instance of this size without local disks fits.

    Nodes of unknown size count as fitting: no plan depends on them.
    """
    left = state.unallocated - headroom.memory
    fine: Flags = (left > 0) & (state.f_mem_later - headroom.memory > 0)
    fine &= (left > state.r_mem) | state.fails_n1
    for used in (state.u_cpu, state.u_cpu_later):
        ratio = state.per_cpu(used + headroom.vcpus)
        fine &= (state.cpu_ratio < 0) | (ratio <= state.cpu_ratio)
    out: Flags = fine | (state.t_mem <= 0)
    return out
