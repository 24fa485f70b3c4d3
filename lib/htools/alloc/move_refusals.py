"""Why an instance that exists cannot go to a node, and where else it could have gone.

For moves within a group, and into another one once that is chosen. What is looked at is
what ``alloc.evacuate`` looks at, in the same order; which move is best is decided
there.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import numpy as np

from ganeti.htools.alloc import evacuate, refusals
from ganeti.htools.model.cluster import EXTERNAL_TEMPLATES, Instance
from ganeti.htools.n1.check import GlobalN1
from ganeti.htools.rules import constraints
from ganeti.htools.rules.reasons import Reason
from ganeti.htools.state.node_state import ClusterState

#: A place that was possible: score with it, node, role there.
Other = tuple[float, int, str]


class MoveRequest(msgspec.Struct, frozen=True):
    """A move that is looked for.

    Attributes:
        index: of the instance.
        mode: of `hail.request.EVAC_MODES`.
        group: that it goes to, or stays in.
        leave: nodes that must not be used.
        force: soft rules of the target do not count.
    """

    index: int
    mode: str
    group: int
    leave: frozenset[int] = frozenset()
    force: bool = False


class MoveRefusals(msgspec.Struct, frozen=True):
    """What was found: the reasons against nodes, and the possible places."""

    reasons: list[Reason]
    others: list[Other]


def refusals_of(state: ClusterState, trip: MoveRequest) -> MoveRefusals:
    """Look at each node of the group; the state is as before afterwards."""
    return _RefusalFinder(state, trip).refusals()


def never(state: ClusterState, index: int, mode: str) -> Reason | None:
    """Tell why no node at all will do for an instance in a mode; None if some may."""
    template = state.instances[index].template
    if template == "drbd":
        if state.sec[index] >= 0:
            return None
        words = ("second node", "", "one that has a copy", "none")
    elif template not in EXTERNAL_TEMPLATES:
        words = ("disk template", "", "one whose disks other nodes reach", template)
    elif mode != "secondary-only":
        return None
    else:
        words = ("disk template", "", "drbd, which has a second node", template)
    name = state.cluster.nodes[state.pri[index]].name
    return Reason(name, "primary", "FailDisk", *words)


class _RefusalFinder:
    """Looks at the nodes for one move."""

    def __init__(self, state: ClusterState, trip: MoveRequest) -> None:
        self.state, self.trip, self.index = state, trip, trip.index
        self.item = state.instances[trip.index]
        self.pri, self.sec = state.pri[trip.index], state.sec[trip.index]
        inside = state.group == trip.group
        self.places = np.nonzero(inside)[0]
        fine = inside & state.online
        fine[[*trip.leave, self.pri]] = False
        self.usable = np.nonzero(fine)[0]
        self.by_node: refusals.ReasonsByNode = {int(node): [] for node in self.places}
        self.by_node.setdefault(self.pri, [])

    def refusals(self) -> MoveRefusals:
        """Look."""
        whole = never(self.state, self.index, self.trip.mode)
        if whole is not None:
            return MoveRefusals([whole], [])
        if self.item.template == "drbd" and self.trip.mode == "primary-only":
            return MoveRefusals(self._failover(), [])
        self._left_out()
        if self.item.template != "drbd":
            others = self._external()
        elif self.trip.mode == "secondary-only":
            others = self._secondary()
        else:
            others = self._both()
        return MoveRefusals([r for rows in self.by_node.values() for r in rows], others)

    def _reason(self, node: int, kind: str, words: tuple[str, str, str]) -> Reason:
        check, wanted, actual = words
        name = self.state.cluster.nodes[node].name
        return Reason(name, "primary", kind, check, "", wanted, actual)

    def _left_out(self) -> None:
        """Tell of nodes that are not looked at; where the instance is goes unsaid."""
        for node in map(int, self.places):
            if node == self.pri:
                continue
            if node in self.trip.leave:
                words = ("nodes", "one that is not to be left", "to be left")
                self.by_node[node].append(self._reason(node, "FailLeave", words))
            elif self.state.offline[node]:
                words = ("state", "online and not drained", "offline or drained")
                self.by_node[node].append(self._reason(node, "FailState", words))

    def _judge(
        self, nodes: list[int], rows: list[constraints.Constraint], role: str
    ) -> None:
        case = refusals.PlacementCase(self.state, self.item, nodes)
        refusals.judge(case, self.by_node, rows, role)

    def _migration(self, node: int, start: int) -> None:
        may = self.state.may_migrate
        if may is None or may[start, node]:
            return
        source = self.state.cluster.nodes[start].name
        words = (f"migration from {source}", "allowed by tags", "not allowed")
        self.by_node[node].append(self._reason(node, "FailMig", words))

    @contextmanager
    def _taken_off(self) -> Iterator[None]:
        """Take the instance off its nodes inside."""
        pair = [node for node in (self.pri, self.sec) if node >= 0]
        mark = self.state.mark(self.index, pair)
        self.state.remove(self.index)
        yield
        self.state.restore(mark)

    def _failover(self) -> list[Reason]:
        """Look at the secondary as primary, then at the primary as secondary."""
        state, old, new = self.state, self.pri, self.sec
        was_off = bool(state.offline[old])
        strict = not (was_off or self.trip.force)
        self.by_node = {new: [], old: []}
        self._migration(new, old)
        with self._taken_off():
            self._judge(
                [new], constraints.primary(state, self.item, strict=strict), "primary"
            )
            rows = constraints.secondary(
                state,
                self.item,
                state.peers[:, new],
                strict=strict,
                ignore_disk_on=old if was_off else -1,
            )
            self._judge([old], rows, "secondary")
        return [*self.by_node[new], *self.by_node[old]]

    def _strict(self, node: int) -> bool:
        return not (self.trip.force or (node >= 0 and bool(self.state.offline[node])))

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
            self._judge(usable, list(trial.rows), "primary")
        for node in usable:
            self._migration(node, self.pri)
        return _others(trial, "primary")

    def _secondary(self) -> list[Other]:
        """Look for a secondary; the primary must hold the instance by itself."""
        state, strict = self.state, self._strict(self.sec)
        with self._taken_off():
            own = constraints.primary(state, self.item, strict=False)
            self._judge([self.pri], own, "primary")
            state.place(self.index, self.pri)
            trial = evacuate.secondary_trial(
                state, self.index, self.usable, self.places, strict=strict
            )
            self._judge(self.usable.tolist(), list(trial.rows), "secondary")
        return _others(trial, "secondary")

    def _both(self) -> list[Other]:
        """Look for a new pair: each node alone, then the steps that lead there."""
        state, usable = self.state, self.usable.tolist()
        strict = not self.trip.force
        with self._taken_off():
            rows = constraints.primary(state, self.item, strict=strict)
            self._judge(usable, rows, "primary")
            nothing = np.zeros(state.size)
            rows = constraints.secondary(state, self.item, nothing, strict=strict)
            self._judge(usable, rows, "secondary")
        mover = evacuate.Evacuator(state, ignore_soft=self.trip.force)
        others: list[Other] = []
        for first in usable:
            trial = mover.through(self.index, first, self.usable, self.places)
            mover.back(self.index, (self.pri, self.sec))
            if not isinstance(trial, evacuate.Failure):
                others.append((trial[0], first, "primary"))
            elif not any(r.role == "primary" for r in self.by_node[first]):
                kind = constraints.KINDS[trial.code - 1] if trial.code else "FailDisk"
                refusal = f"one is refused ({kind})"
                obstacle = refusal if trial.code else "no node for the copy"
                words = ("steps of the move", "all possible", obstacle)
                self.by_node[first].append(self._reason(first, kind, words))
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
    """Tell why nodes cannot have the second copy of an instance that has one.

    Args:
        state: without the instance.
        item: the instance, as DRBD.
        primary: its node.
        capacity: the test that nodes can be lost; None for none.
        force: soft rules of the primary do not count.
    """
    nodes = [int(n) for n in np.nonzero(state.group == state.group[primary])[0]]
    by_node: refusals.ReasonsByNode = {node: [] for node in nodes}
    by_node[primary] += refusals.of_policy(state, item, primary)
    rows = constraints.primary(state, item, strict=not force)
    refusals.judge(
        refusals.PlacementCase(state, item, [primary]), by_node, rows, "primary"
    )
    partners = [node for node in nodes if node != primary]
    rows = constraints.secondary(state, item, state.peers[:, primary])
    refusals.judge(
        refusals.PlacementCase(state, item, partners), by_node, rows, "secondary"
    )
    for node in partners:
        safe = capacity is None or refusals.holds(capacity, item, primary, node)
        if not by_node[node] and not safe:
            words = ("room elsewhere for the instances of any node that is lost",)
            name = state.cluster.nodes[node].name
            reason = Reason(
                name, "secondary", "FailN1", "redundancy", "", *words, "too little"
            )
            by_node[node].append(reason)
    return [reason for node in nodes for reason in by_node[node]]
