"""Evacuation of instances off nodes or to other groups: the moves and their targets.

Every function changes the given state if it succeeds and leaves it unchanged if not.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np

from ganeti.decisions.htools.alloc import allocate
from ganeti.decisions.htools.model.cluster import EXTERNAL_TEMPLATES, NONE
from ganeti.decisions.htools.n1.check import GlobalN1
from ganeti.decisions.htools.rules import constraints
from ganeti.decisions.htools.score import placement
from ganeti.decisions.htools.state.amounts import Floats, Places
from ganeti.decisions.htools.state.node_state import ClusterState

_NO_SCORES: Final = np.zeros(0)


class EvacuationMove(msgspec.Struct, frozen=True):
    """One step: ``failover``, ``failover_to`` or ``replace_secondary`` to a node."""

    kind: str
    target: int = NONE


class EvacuationRefused(msgspec.Struct, frozen=True):
    """Why an instance stays: a text, and (node, kind) per tried node."""

    text: str
    trials: Sequence[tuple[int, str]] = ()


EvacuationMoves = list[EvacuationMove] | EvacuationRefused


def failover(state: ClusterState, index: int, *, force: bool = False) -> int:
    """Swap the nodes of a DRBD instance; return 0 or the code of the refusal."""
    old, new = state.pri[index], state.sec[index]
    if state.may_migrate is not None and not state.may_migrate[old, new]:
        return constraints.MIG
    item = state.instances[index]
    was_off = bool(state.offline[old])
    # Soft rules must not keep an instance on an offline node.
    strict = not (was_off or force)
    state.remove(index)
    code = constraints.verdict_on(
        constraints.primary(state, item, strict=strict), state, new
    )
    if not code:
        checks = constraints.secondary(
            state,
            item,
            state.peers[:, new],
            strict=strict,
            # Ganeti does not test the free disk of an offline node here.
            ignore_disk_on=old if was_off else -1,
        )
        code = constraints.verdict_on(checks, state, old)
    pair = (old, new) if code else (new, old)
    state.place(index, *pair)
    return code


def _secondary_codes(
    state: ClusterState, index: int, *, strict: bool
) -> constraints.Codes:
    """Return the codes of all nodes; the primary must pass its hard rules too."""
    item, primary = state.instances[index], state.pri[index]
    checks = constraints.secondary(state, item, state.peers[:, primary], strict=strict)
    codes = constraints.verdict(checks, state.size)
    state.remove(index)
    own = constraints.verdict_on(
        constraints.primary(state, item, strict=False), state, primary
    )
    state.place(index, primary)
    return np.where(codes != 0, codes, np.int8(own))


def replace_secondary(
    state: ClusterState, index: int, target: int, *, force: bool = False
) -> int:
    """Give a DRBD instance another secondary; return 0 or the refusal's code."""
    primary, old = state.pri[index], state.sec[index]
    strict = not (force or bool(state.offline[old]))
    state.remove(index)
    state.place(index, primary)
    # The rules about a secondary want the instance on its primary alone.
    code = int(_secondary_codes(state, index, strict=strict)[target])
    state.remove(index)
    state.place(index, primary, old if code else target)
    return code


class TargetTrial(msgspec.Struct, frozen=True):
    """Checks of all nodes for an instance that was removed from its node.

    Attributes:
        rows: the checks.
        codes: of the first failing check, per node.
        fine: usable nodes without a failing check.
        scores: score with the instance on each of ``fine``.
    """

    rows: Sequence[constraints.Constraint]
    codes: constraints.Codes
    fine: Places
    scores: Floats


def external_trial(
    state: ClusterState,
    index: int,
    start: int,
    usable: Places,
    places: Places,
    *,
    strict: bool,
) -> TargetTrial:
    """Check nodes for an instance with shared storage, removed from node ``start``."""
    item = state.instances[index]
    rows = constraints.primary(state, item, strict=strict)
    codes = constraints.verdict(rows, state.size)
    if state.may_migrate is not None:
        codes[~state.may_migrate[start]] = constraints.MIG
    fine = usable[codes[usable] == 0]
    scores = (
        placement.as_primary(state, item, fine, places) if len(fine) else _NO_SCORES
    )
    return TargetTrial(rows, codes, fine, scores)


def secondary_trial(
    state: ClusterState, index: int, usable: Places, places: Places, *, strict: bool
) -> TargetTrial:
    """Check nodes as secondary of a DRBD instance that has none."""
    item, primary = state.instances[index], state.pri[index]
    rows = constraints.secondary(state, item, state.peers[:, primary], strict=strict)
    codes = _secondary_codes(state, index, strict=strict)
    fine = usable[codes[usable] == 0]
    scores = (
        placement.as_secondary(state, index, fine, places) if len(fine) else _NO_SCORES
    )
    return TargetTrial(rows, codes, fine, scores)


def _last_best(values: Floats) -> int:
    # Of equal scores the last node, as in Ganeti.
    return len(values) - 1 - int(np.argmin(values[::-1]))


def best_secondary(
    state: ClusterState, index: int, usable: Places, places: Places, *, force: bool
) -> tuple[int | None, float, list[tuple[int, int]]]:
    """Move the secondary of a DRBD instance to the best other node.

    Returns:
        node or None, the score with it, (node, code) of refused nodes.
    """
    primary, old = state.pri[index], state.sec[index]
    strict = not (force or (old >= 0 and bool(state.offline[old])))
    mark = state.mark(index, [node for node in (primary, old) if node >= 0])
    state.remove(index)
    state.place(index, primary)
    trial = secondary_trial(state, index, usable, places, strict=strict)
    codes = trial.codes
    refused = [(int(node), int(codes[node])) for node in usable if codes[node]]
    if not len(trial.fine):
        state.restore(mark)
        return None, 0.0, refused
    at = _last_best(trial.scores)
    state.remove(index)
    state.place(index, primary, int(trial.fine[at]))
    return int(trial.fine[at]), float(trial.scores[at]), refused


def refused(
    state: ClusterState, trials: Sequence[tuple[int, int]]
) -> EvacuationRefused:
    """Return the refusal of an instance that fits on no node: (node, code) each."""
    nodes = state.cluster.nodes
    kinds = [(node, constraints.KINDS[code - 1]) for node, code in trials]
    text = "".join(f" Node {nodes[node].name} failed: {k};" for node, k in kinds)
    return EvacuationRefused(f"Can't find any good node: {text}", kinds)


class Failure(msgspec.Struct, frozen=True):
    """The refused step of a move to two other nodes, and the refusal's code."""

    step: str
    code: int

    def text(self) -> str:
        """Return the failure as text."""
        kind = constraints.KINDS[self.code - 1] if self.code else "no nodes available"
        return f"Allocation failed: {self.step}: {kind}"


class Evacuator:
    """Evacuation of instances from nodes of one state, one after another."""

    def __init__(
        self,
        state: ClusterState,
        *,
        ignore_soft: bool = False,
        capacity: Callable[[ClusterState], GlobalN1] | None = None,
    ) -> None:
        """Keep the options.

        Args:
            state: changed by every move.
            ignore_soft: ignore the soft rules of target nodes.
            capacity: creates the N+1 test for choosing another group; None for none.
        """
        self.state = state
        self.force = ignore_soft
        self.capacity = capacity

    def forbidden(self, instances: Sequence[int], mode: str) -> set[int]:
        """Return the nodes that the instances leave; none of them is a target."""
        state, out = self.state, set()
        for index in instances:
            if mode in ("primary-only", "all"):
                out.add(state.pri[index])
            is_drbd = state.instances[index].template == "drbd"
            if mode in ("secondary-only", "all") and is_drbd:
                out.add(state.sec[index])
        return out - {NONE}

    def usable(self, index: int, leave: set[int]) -> Places:
        """Return the nodes of an instance's group that it may move to."""
        state = self.state
        primary = state.pri[index]
        fine = (state.group == state.group[primary]) & state.online
        fine[[*leave, primary]] = False
        return np.nonzero(fine)[0]

    def targets(self, instances: Sequence[int], groups: Sequence[int]) -> list[int]:
        """Return those of some groups, or of all, that instances may change to."""
        state = self.state
        sources = {int(state.group[state.pri[index]]) for index in instances}
        wanted = groups or range(len(state.cluster.groups))
        return [group for group in wanted if group not in sources]

    def evacuate(self, index: int, mode: str, leave: set[int]) -> EvacuationMoves:
        """Move one instance within its group."""
        group = int(self.state.group[self.state.pri[index]])
        return self._evacuate(index, mode, self.usable(index, leave), group)

    def _evacuate(
        self, index: int, mode: str, usable: Places, group: int
    ) -> EvacuationMoves:
        state = self.state
        template = state.instances[index].template
        places = np.nonzero(state.group == group)[0]
        if template == "drbd":
            if state.sec[index] < 0:
                return EvacuationRefused("Instance has no secondary node")
            if mode == "primary-only":
                return self._failover(index)
            if mode == "secondary-only":
                return self._secondary(index, usable, places)
            return self._both(index, usable, places)
        if template in EXTERNAL_TEMPLATES:
            if mode == "secondary-only":
                return EvacuationRefused(
                    f"Instances with disk template '{template}'"
                    " can't execute change secondary"
                )
            return self._external(index, usable, places)
        return EvacuationRefused(f"Instances of type {template} cannot be relocated")

    def _failover(self, index: int) -> EvacuationMoves:
        target = self.state.sec[index]
        code = failover(self.state, index, force=self.force)
        if code:
            kind = constraints.KINDS[code - 1]
            return EvacuationRefused(kind, [(target, kind)])
        return [EvacuationMove("failover")]

    def _secondary(self, index: int, usable: Places, places: Places) -> EvacuationMoves:
        node, _score, against = best_secondary(
            self.state, index, usable, places, force=self.force
        )
        if node is None:
            return refused(self.state, against)
        return [EvacuationMove("replace_secondary", node)]

    def _external(self, index: int, usable: Places, places: Places) -> EvacuationMoves:
        state = self.state
        primary = state.pri[index]
        strict = not (self.force or bool(state.offline[primary]))
        mark = state.mark(index, [primary])
        state.remove(index)
        trial = external_trial(state, index, primary, usable, places, strict=strict)
        if not len(trial.fine):
            state.restore(mark)
            trials = [(int(node), int(trial.codes[node])) for node in usable]
            return refused(self.state, trials)
        node = int(trial.fine[_last_best(trial.scores)])
        state.place(index, node)
        return [EvacuationMove("failover_to", node)]

    def _both(self, index: int, usable: Places, places: Places) -> EvacuationMoves:
        """Try every ordered pair of new nodes; on ties the last one is used."""
        state = self.state
        start = (state.pri[index], state.sec[index])
        best: tuple[float, list[EvacuationMove]] | None = None
        why = "no nodes available"
        # Both nodes are new, so one alone does not suffice.
        for first in usable if len(usable) > 1 else ():
            trial = self.move_via(index, int(first), usable, places)
            if isinstance(trial, Failure):
                why = trial.text()
            # An earlier pair stays only if it is strictly better, as in Ganeti.
            elif best is None or not best[0] < trial[0]:
                best = trial
            self.move_back(index, start)
        if best is None:
            return EvacuationRefused(
                f"Can't find any good nodes for relocation: {why}",
                [(int(node), why.rsplit(": ", 1)[-1]) for node in usable],
            )
        targets = [move.target for move in best[1] if move.target >= 0]
        state.remove(index)
        state.place(index, *targets)
        return best[1]

    def move_back(self, index: int, pair: tuple[int, int]) -> None:
        """Move an instance back to its nodes."""
        if (self.state.pri[index], self.state.sec[index]) != pair:
            self.state.remove(index)
            self.state.place(index, *pair)

    def move_via(
        self, index: int, first: int, usable: Places, places: Places
    ) -> "tuple[float, list[EvacuationMove]] | Failure":
        """Move to two new nodes, one given; return score and moves, or the refusal.

        The state is changed in both cases; `move_back` undoes it.
        """
        state, moves = self.state, []
        # Only the secondary has data that can be copied.
        if state.offline[state.pri[index]]:
            code = failover(state, index, force=self.force)
            if code:
                return Failure("Failing over to the secondary", code)
            moves.append(EvacuationMove("failover"))
        code = replace_secondary(state, index, first, force=self.force)
        if code:
            return Failure("Changing secondary to new primary", code)
        code = failover(state, index, force=self.force)
        if code:
            return Failure("Failing over to new primary", code)
        others = usable[usable != first]
        node, value, against = best_secondary(
            state, index, others, places, force=self.force
        )
        if node is None:
            code = against[-1][1] if against else 0
            return Failure("Changing secondary to final secondary", code)
        moves += [
            EvacuationMove("replace_secondary", first),
            EvacuationMove("failover"),
            EvacuationMove("replace_secondary", node),
        ]
        return value, moves

    def change_group(
        self, index: int, targets: Sequence[int]
    ) -> tuple[int, EvacuationMoves]:
        """Move one instance to the best of several groups.

        Returns:
            the group, -1 if none fits; the moves.
        """
        state = self.state
        item = state.instances[index]
        count = 2 if item.template == "drbd" else 1
        capacity = self.capacity(state) if self.capacity else None
        choice = allocate.over_groups(
            state, item, count, groups=targets, rules=allocate.AllocationRules(capacity)
        )
        if choice.best is None:
            return NONE, EvacuationRefused(allocate.choice_text(state, choice))
        group = choice.best.group
        fine = (state.group == group) & state.online
        # The allocation has chosen the group; the moves choose nodes by its own score.
        moves = self._evacuate(index, "all", np.nonzero(fine)[0], group)
        return group, moves
