"""Reasons against putting an instance on nodes.

Computed only if an allocation failed or an explanation was requested.
``alloc.allocate`` selects the best nodes and does not need it.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from ganeti.decisions.htools.model.cluster import NONE, Instance
from ganeti.decisions.htools.model.policy import AllocPolicy
from ganeti.decisions.htools.n1.check import GlobalN1
from ganeti.decisions.htools.rules import constraints
from ganeti.decisions.htools.rules.reasons import Reason
from ganeti.decisions.htools.state.node_state import ClusterState

_MORE: Final = "more than"
_RELATIONS: Final = {">": _MORE, ">=": "at least", "<=": "at most"}
#: Rules about the amount left with the instance -> the amount that it needs.
_LEFT: Final = {
    "free memory": "memory",
    "memory for failovers": "memory",
    "free memory with reservations": "memory",
    "free disk": "disk",
    "disk kept free": "disk",
    "free disk with reservations": "disk",
    "free spindles": "spindles",
}
_MIB: Final = ("memory", "disk size", "free disk", "disk kept")
#: Most pairs of nodes that are simulated to find one that passes the N+1 test.
_MOST_TRIALS: Final = 64


_REDUNDANCY: Final = "room elsewhere for the instances of any node that is lost"
#: Most nodes that a reason names.
_NAMED: Final = 3
ReasonsByNode = dict[int, list[Reason]]


class PlacementCase(msgspec.Struct, frozen=True):
    """A state without the instance, the instance, and the nodes to check."""

    state: ClusterState
    item: Instance
    nodes: Sequence[int]


def against(
    state: ClusterState,
    item: Instance,
    candidates: Sequence[int],
    count: int,
    *,
    capacity: GlobalN1 | None = None,
    any_group: bool = True,
    force: bool = False,
) -> list[Reason]:
    """Return the reasons against each node, in the order of ``candidates``.

    A node that can take the instance has none.

    Args:
        state: without the instance.
        item: the instance.
        candidates: the nodes to check.
        count: number of nodes, 1 or 2.
        capacity: the N+1 test; None for none.
        any_group: no group was requested, so allocation policies apply.
        force: ignore soft rules of primaries.
    """
    by_node: dict[int, list[Reason]] = {node: [] for node in candidates}
    for node in candidates:
        before = _outside(state, item, node, any_group=any_group)
        by_node[node] += before or of_policy(state, item, node)
    inside = [n for n in candidates if not any(is_outside(r) for r in by_node[n])]
    case = PlacementCase(state, item, inside)
    add_refusals(
        case, by_node, constraints.primary(state, item, strict=not force), "primary"
    )
    if count > 1:
        rows = constraints.secondary(state, item, np.zeros(state.size))
        add_refusals(case, by_node, rows, "secondary")
    _combined(case, by_node, count, capacity)
    return [reason for node in candidates for reason in by_node[node]]


def _outside(
    state: ClusterState, item: Instance, node: int, *, any_group: bool
) -> list[Reason]:
    """Return why a node is excluded before any check; empty if it is not."""
    record = state.cluster.nodes[node]
    group = state.cluster.groups[record.group]

    def reason(kind: str, check: str, wanted: str, actual: str) -> list[Reason]:
        return [Reason(record.name, "primary", kind, check, "", wanted, actual)]

    if state.offline[node]:
        wanted = "online and not drained"
        return reason("FailState", "state", wanted, "offline or drained")
    if any_group and group.alloc_policy == AllocPolicy.UNALLOCABLE:
        wanted = "preferred or last_resort"
        return reason("FailGroup", "policy of the group", wanted, group.alloc_policy)
    missing = [name for name in item.networks if name not in group.networks]
    if missing:
        wanted = f"connected to {', '.join(missing)}"
        return reason("FailNet", "networks of the group", wanted, "not connected")
    return []


def is_outside(reason: Reason) -> bool:
    """Return whether a reason excludes its node before any check."""
    return reason.kind not in constraints.KINDS


def of_policy(state: ClusterState, item: Instance, node: int) -> list[Reason]:
    """Return why the policy of a node's group refuses an instance; empty if not."""
    record = state.cluster.nodes[node]
    rules = state.cluster.groups[record.group].policy
    checks = constraints.policy(item, rules, exclusive=record.exclusive)
    if checks is None:
        return []
    kind, rule, wanted, value = checks
    name = constraints.KINDS[kind - 1]
    if rule.startswith("disk template"):
        listed = f"one of {', '.join(rules.templates)}"
        return [Reason(record.name, "primary", name, rule, "", listed, item.template)]
    relation = "at least" if rule.startswith("least") else "at most"
    unit = _unit(rule)
    return [Reason(record.name, "primary", name, rule, relation, wanted, value, unit)]


def _unit(rule: str) -> str:
    return "MiB" if any(word in rule for word in _MIB) else ""


def add_refusals(
    case: PlacementCase,
    by_node: ReasonsByNode,
    rows: Sequence[constraints.Constraint],
    role: str,
) -> None:
    """Add the reasons of failed checks to the lists of nodes.

    Only the first failed check of each kind is added per node, and nothing that is
    already in the list for the role of primary.
    """
    for node in case.nodes:
        first = {c.kind: c for c in reversed(rows) if c.failed[node]}
        for check in reversed(first.values()):
            reason = _reason(case, node, check, role)
            same = msgspec.structs.replace(reason, role="primary")
            if same not in by_node[node]:
                by_node[node].append(reason)


def _reason(
    case: PlacementCase, node: int, check: constraints.Constraint, role: str
) -> Reason:
    """Return the reason of a failed check.

    Limits of the amount left are converted to limits of the amount needed.
    """
    asked = 0.0
    name = _LEFT.get(check.rule, "")
    if name and not (name == "memory" and role == "secondary"):
        asked = float(getattr(case.item, name) or 0)
        if name == "memory" and check.rule != "free memory with reservations":
            asked = asked if case.item.uses_memory else 0.0
    return Reason(
        case.state.cluster.nodes[node].name,
        role,
        constraints.KINDS[check.kind - 1],
        check.rule,
        _RELATIONS[check.relation],
        float(check.wanted[node]) + asked,
        float(check.actual[node]) + asked,
        _unit(check.rule),
    )


def _combined(
    case: PlacementCase, by_node: ReasonsByNode, count: int, capacity: GlobalN1 | None
) -> None:
    """Add reasons for nodes that pass alone but not in any combination."""
    state, nodes = case.state, case.nodes
    left = _MOST_TRIALS
    seconds = [n for n in nodes if not _refused(by_node[n], "secondary")]
    for first in nodes:
        if _refused(by_node[first], "primary"):
            continue
        partners = [NONE]
        if count > 1:
            same = state.group[first]
            partners = [n for n in seconds if n != first and state.group[n] == same]
        left -= len(partners)
        if not partners:
            text = "another node of the group for the disk copy"
            values = ("FailDisk", "secondary node", "", text, "none")
        elif capacity is None or left < 0:
            return
        elif any(
            survives_loss(capacity, case.item, first, second) for second in partners
        ):
            continue
        else:
            bad = capacity.failing_with(case.item, first, partners[0])
            by_node[first].append(not_redundant(state, first, "primary", bad))
            continue
        by_node[first].append(
            Reason(state.cluster.nodes[first].name, "primary", *values)
        )


def not_redundant(
    state: ClusterState, node: int, role: str, bad: Sequence[int]
) -> Reason:
    """Return the reason against a node that breaks N+1.

    Args:
        state: the cluster.
        node: the refused node.
        role: of the node, primary or secondary.
        bad: nodes that could not be emptied with the instance there.
    """
    names = [
        f"{state.cluster.nodes[k].name} of group"
        f" {state.cluster.groups[state.cluster.nodes[k].group].name}"
        for k in bad[:_NAMED]
    ]
    more = f" and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
    actual = "too little"
    if names:
        actual += f" for the instances of node {', '.join(names)}{more}"
    values = ("FailN1", "redundancy", "", _REDUNDANCY, actual)
    return Reason(state.cluster.nodes[node].name, role, *values)


def _refused(against_node: Sequence[Reason], role: str) -> bool:
    """Return whether a node is refused in a role; a policy refuses both roles."""
    return any(
        r.role == role or r.check.endswith("of the policy") for r in against_node
    )


def survives_loss(capacity: GlobalN1, item: Instance, first: int, second: int) -> bool:
    """Return whether any node can be lost with an instance on one or two nodes."""
    if second != NONE:
        pair = np.array([first]), np.array([second])
        if not capacity.pairs(item, *pair)[0, 0]:
            return False
    return capacity.others_hold(item, first, second)
