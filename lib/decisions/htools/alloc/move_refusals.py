"""Reasons why an existing instance cannot move to a node, and possible other targets.

For moves within a group, and into another group after it was chosen. The checks and
their order are those of ``alloc.evacuate``, which selects the best move.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import numpy as np

from ganeti.decisions.htools.alloc import evacuate, refusals
from ganeti.decisions.htools.model.cluster import EXTERNAL_TEMPLATES, Instance
from ganeti.decisions.htools.n1.check import GlobalN1
from ganeti.decisions.htools.rules import constraints
from ganeti.decisions.htools.rules.reasons import Reason
from ganeti.decisions.htools.state.node_state import ClusterState

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
        self.by_node: refusals.ReasonsByNode = {int(node): [] for node in self.places}
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
        case = refusals.PlacementCase(self.state, self.item, nodes)
        refusals.add_refusals(case, self.by_node, rows, role)

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
    by_node: refusals.ReasonsByNode = {node: [] for node in nodes}
    by_node[primary] += refusals.of_policy(state, item, primary)
    rows = constraints.primary(state, item, strict=not force)
    refusals.add_refusals(
        refusals.PlacementCase(state, item, [primary]), by_node, rows, "primary"
    )
    partners = [node for node in nodes if node != primary]
    rows = constraints.secondary(state, item, state.peers[:, primary])
    refusals.add_refusals(
        refusals.PlacementCase(state, item, partners), by_node, rows, "secondary"
    )
    for node in partners:
        safe = capacity is None or refusals.survives_loss(capacity, item, primary, node)
        if not by_node[node] and not safe:
            bad = capacity.failing_with(item, primary, node) if capacity else []
            reason = refusals.not_redundant(state, node, "secondary", bad)
            by_node[node].append(reason)
    return [reason for node in nodes for reason in by_node[node]]
