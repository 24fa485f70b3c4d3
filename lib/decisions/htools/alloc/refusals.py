"""Reasons against nodes for a new instance, and for a move of an existing one.

Computed only if an allocation or a move failed or an explanation was requested.
``alloc.allocate`` selects the best nodes and does not need it. The checks of moves and
their order are those of ``alloc.evacuate``, which selects the best move.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec
import numpy as np

from ganeti.decisions.htools.alloc import evacuate
from ganeti.decisions.htools.model.cluster import EXTERNAL_TEMPLATES, NONE, Instance
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
        # Without a primary, no node reserves memory for its failovers.
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
        # The last entry of a kind stays, which is its first check.
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
        # Each partner may cost a simulation.
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
        if not capacity.failovers.pairs(capacity.state, item, *pair)[0, 0]:
            return False
    return capacity.others_hold(item, first, second)


#: A possible placement: score with it, node, role of the node.
Other = tuple[float, int, str]


class MoveRequest(msgspec.Struct, frozen=True):
    """A requested move.

    Attributes:
        index: position of the instance.
        mode: one of `hail.request.EVAC_MODES`.
        group: the target group; may be the present one.
        leave: nodes that must not be used.
        force: ignore soft rules of the target.
    """

    index: int
    mode: str
    group: int
    leave: frozenset[int] = frozenset()
    force: bool = False


class MoveRefusals(msgspec.Struct, frozen=True):
    """Reasons against nodes, and the possible placements."""

    reasons: list[Reason]
    others: list[Other]


def refusals_of(state: ClusterState, request: MoveRequest) -> MoveRefusals:
    """Check each node of the group; the state is restored afterwards."""
    return _RefusalFinder(state, request).refusals()


def never(state: ClusterState, index: int, mode: str) -> Reason | None:
    """Return why no node is possible for an instance in a mode; None if some may be."""
    template = state.instances[index].template
    if template == "drbd":
        if state.sec[index] >= 0:
            return None
        words = ("secondary node", "", "a node with a copy of the disks", "none")
    elif template not in EXTERNAL_TEMPLATES:
        words = ("disk template", "", "one that other nodes can access", template)
    elif mode != "secondary-only":
        return None
    else:
        words = ("disk template", "", "drbd, which has a secondary node", template)
    name = state.cluster.nodes[state.pri[index]].name
    return Reason(name, "primary", "FailDisk", *words)


class _RefusalFinder:
    """Check of the nodes for one move."""

    def __init__(self, state: ClusterState, request: MoveRequest) -> None:
        self.state, self.request, self.index = state, request, request.index
        self.item = state.instances[request.index]
        self.pri, self.sec = state.pri[request.index], state.sec[request.index]
        inside = state.group == request.group
        self.places = np.nonzero(inside)[0]
        fine = inside & state.online
        fine[[*request.leave, self.pri]] = False
        self.usable = np.nonzero(fine)[0]
        self.by_node: ReasonsByNode = {int(node): [] for node in self.places}
        self.by_node.setdefault(self.pri, [])

    def refusals(self) -> MoveRefusals:
        """Return the refusals and the possible placements."""
        whole = never(self.state, self.index, self.request.mode)
        if whole is not None:
            return MoveRefusals([whole], [])
        if self.item.template == "drbd" and self.request.mode == "primary-only":
            return MoveRefusals(self._failover(), [])
        self._left_out()
        if self.item.template != "drbd":
            others = self._external()
        elif self.request.mode == "secondary-only":
            others = self._secondary()
        else:
            others = self._both()
        return MoveRefusals([r for rows in self.by_node.values() for r in rows], others)

    def _reason(self, node: int, kind: str, values: tuple[str, str, str]) -> Reason:
        check, wanted, actual = values
        name = self.state.cluster.nodes[node].name
        return Reason(name, "primary", kind, check, "", wanted, actual)

    def _left_out(self) -> None:
        """Add reasons for nodes that are excluded before any check."""
        for node in map(int, self.places):
            if node == self.pri:
                continue
            if node in self.request.leave:
                values = ("nodes", "a node that is not evacuated", "evacuated")
                self.by_node[node].append(self._reason(node, "FailLeave", values))
            elif self.state.offline[node]:
                values = ("state", "online and not drained", "offline or drained")
                self.by_node[node].append(self._reason(node, "FailState", values))

    def _check(
        self, nodes: list[int], rows: list[constraints.Constraint], role: str
    ) -> None:
        case = PlacementCase(self.state, self.item, nodes)
        add_refusals(case, self.by_node, rows, role)

    def _migration(self, node: int, start: int) -> None:
        may = self.state.may_migrate
        if may is None or may[start, node]:
            return
        source = self.state.cluster.nodes[start].name
        values = (f"migration from {source}", "allowed by tags", "not allowed")
        self.by_node[node].append(self._reason(node, "FailMig", values))

    @contextmanager
    def _taken_off(self) -> Iterator[None]:
        """Remove the instance from its nodes during a block."""
        pair = [node for node in (self.pri, self.sec) if node >= 0]
        mark = self.state.mark(self.index, pair)
        self.state.remove(self.index)
        yield
        self.state.restore(mark)

    def _failover(self) -> list[Reason]:
        """Check the secondary as primary, then the primary as secondary."""
        state, old, new = self.state, self.pri, self.sec
        was_off = bool(state.offline[old])
        strict = not (was_off or self.request.force)
        self.by_node = {new: [], old: []}
        self._migration(new, old)
        with self._taken_off():
            self._check(
                [new], constraints.primary(state, self.item, strict=strict), "primary"
            )
            rows = constraints.secondary(
                state,
                self.item,
                state.peers[:, new],
                strict=strict,
                ignore_disk_on=old if was_off else -1,
            )
            self._check([old], rows, "secondary")
        return [*self.by_node[new], *self.by_node[old]]

    def _strict(self, node: int) -> bool:
        return not (
            self.request.force or (node >= 0 and bool(self.state.offline[node]))
        )

    def _external(self) -> list[Other]:
        strict, usable = self._strict(self.pri), self.usable.tolist()
        with self._taken_off():
            trial = evacuate.external_trial(
                self.state,
                self.index,
                self.pri,
                self.usable,
                self.places,
                strict=strict,
            )
            self._check(usable, list(trial.rows), "primary")
        for node in usable:
            self._migration(node, self.pri)
        return _others(trial, "primary")

    def _secondary(self) -> list[Other]:
        """Check nodes as secondary; the primary must pass its hard rules."""
        state, strict = self.state, self._strict(self.sec)
        with self._taken_off():
            own = constraints.primary(state, self.item, strict=False)
            self._check([self.pri], own, "primary")
            state.place(self.index, self.pri)
            trial = evacuate.secondary_trial(
                state, self.index, self.usable, self.places, strict=strict
            )
            self._check(self.usable.tolist(), list(trial.rows), "secondary")
        return _others(trial, "secondary")

    def _both(self) -> list[Other]:
        """Check nodes for a new pair: each node alone, then the steps of the move."""
        state, usable = self.state, self.usable.tolist()
        strict = not self.request.force
        with self._taken_off():
            rows = constraints.primary(state, self.item, strict=strict)
            self._check(usable, rows, "primary")
            nothing = np.zeros(state.size)
            rows = constraints.secondary(state, self.item, nothing, strict=strict)
            self._check(usable, rows, "secondary")
        mover = evacuate.Evacuator(state, ignore_soft=self.request.force)
        others: list[Other] = []
        for first in usable:
            trial = mover.move_via(self.index, first, self.usable, self.places)
            mover.move_back(self.index, (self.pri, self.sec))
            if not isinstance(trial, evacuate.Failure):
                others.append((trial[0], first, "primary"))
            elif not any(r.role == "primary" for r in self.by_node[first]):
                kind = constraints.KINDS[trial.code - 1] if trial.code else "FailDisk"
                refusal = f"one refused ({kind})"
                obstacle = refusal if trial.code else "no node for the secondary"
                values = ("steps of the move", "all allowed", obstacle)
                self.by_node[first].append(self._reason(first, kind, values))
        return sorted(others)


def _others(trial: evacuate.TargetTrial, role: str) -> list[Other]:
    pairs = zip(trial.scores.tolist(), trial.fine.tolist(), strict=True)
    return sorted((value, node, role) for value, node in pairs)


def second(
    state: ClusterState,
    item: Instance,
    primary: int,
    capacity: GlobalN1 | None,
    *,
    force: bool = False,
) -> list[Reason]:
    """Return why nodes cannot be the secondary of an instance that has none.

    Args:
        state: without the instance.
        item: the instance, as DRBD.
        primary: its node.
        capacity: the N+1 test; None for none.
        force: ignore soft rules of the primary.
    """
    nodes = [int(n) for n in np.nonzero(state.group == state.group[primary])[0]]
    by_node: ReasonsByNode = {node: [] for node in nodes}
    by_node[primary] += of_policy(state, item, primary)
    rows = constraints.primary(state, item, strict=not force)
    add_refusals(PlacementCase(state, item, [primary]), by_node, rows, "primary")
    partners = [node for node in nodes if node != primary]
    rows = constraints.secondary(state, item, state.peers[:, primary])
    add_refusals(PlacementCase(state, item, partners), by_node, rows, "secondary")
    for node in partners:
        safe = capacity is None or survives_loss(capacity, item, primary, node)
        if not by_node[node] and not safe:
            bad = capacity.failing_with(item, primary, node) if capacity else []
            reason = not_redundant(state, node, "secondary", bad)
            by_node[node].append(reason)
    return [reason for node in nodes for reason in by_node[node]]
