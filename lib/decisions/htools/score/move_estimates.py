"""Estimates of the score changes of many possible moves at once.

The change of the score by a move is

    sum w_j (sqrt(sigma_j^2 + g_j) - sigma_j) + w_r D_r + changes of counts,

with g_j from ``score.deviations``, the step sum D_r of the reserved memory and the
weight w_r of its total. The work per move is constant, whatever the number of nodes.
Estimates are good to about ten digits, so that the best move is among those whose
estimates are within 1e-7 of the lowest; ``balance.search`` computes these exactly.
Tests: test/py/unit/decisions/htools/score/test_terms.py.
"""

from typing import Final

import numpy as np

from ganeti.decisions.htools.rules.move_constraints import (
    MoveArrays,
    MoveConstraints,
    MoveOptions,
    is_permitted,
)
from ganeti.decisions.htools.rules.moves import MoveKind
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.score.counts import MoveChanges, Reserved
from ganeti.decisions.htools.score.deviations import DeviationMetrics, Moments
from ganeti.decisions.htools.state.amounts import Flags, Floats, Ints
from ganeti.decisions.htools.state.instance_deltas import LATER, DeltaRow
from ganeti.decisions.htools.state.node_state import ClusterState

# Corrections of estimates for instances whose number of spindles is unknown.
#
# A forthcoming instance of this kind may be placed on a node with exclusive storage
# when soft rules do not count. The node then has -1 free spindles, whatever it had
# before, and nothing is given back when the instance leaves. This is not a sum of
# amounts, which ``score.move_estimates`` assumes; here is the difference. Existing
# instances of this kind are never placed on nodes with exclusive storage.

#: Free spindles of a node after it took an unknown number.
_UNKNOWN: Final = -1.0
_NAME: Final = "free_disk_cv_forth"
_DISK: Final = LATER[DeltaRow.DISK]


def unknown_spindles_correction(rules: MoveConstraints, move: MoveArrays) -> Floats:
    """Return what to add to estimates of moves; 0 for most instances."""
    # Only these instances need it, and only forthcoming ones can be placed so.
    asked, online = rules.deltas.not_additive[move.inst], rules.state.online
    if not (asked.any() and online.any()):
        return np.zeros(1)
    values = components.METRICS[_NAME].values(rules.state)
    far = np.where(online, values - values[online].mean(), 0.0)
    variance = (far * far)[online].mean()
    estimated, real = (
        np.sqrt(np.maximum(variance + gain, 0.0)) for gain in _gains(rules, move, far)
    )
    result: Floats = np.where(asked, components.WEIGHT[_NAME] * (real - estimated), 0.0)
    return result


def _gains(
    rules: MoveConstraints, move: MoveArrays, far: Floats
) -> tuple[Floats, Floats]:
    """Return the changes of the variance: as estimated, and as they are."""
    squares: list[Floats] = [np.zeros(1), np.zeros(1)]
    sums: list[Floats] = [np.zeros(1), np.zeros(1)]
    count = int(rules.state.online.sum())
    disk = _inverse(rules.state, rules.state.t_dsk, ~rules.state.exclusive)
    for node, before, after in (
        (move.primary, "p", move.ends.primary),
        (move.secondary, "s", move.ends.secondary),
        (move.target, "", move.ends.target),
    ):
        step = np.zeros(1)
        if after not in {"=", before}:
            step = rules.gain[before, after][_DISK][move.inst] * disk[node]
        # A node that takes one loses its free spindles; leaving returns none.
        placed = _placed(rules.state, node) if after else np.zeros(1)
        for at, one in enumerate((step, step + placed)):
            squares[at] = squares[at] + one * (2.0 * far[node] + one)
            sums[at] = sums[at] + one
    first, second = (
        (square - total * total / count) / count
        for square, total in zip(squares, sums, strict=True)
    )
    return first, second


def _placed(state: ClusterState, node: Ints) -> Floats:
    """Return the change of the share of free spindles of nodes that take one."""
    share = _inverse(state, state.spindle_count, state.exclusive)
    result: Floats = (_UNKNOWN - state.f_spin_later[node]) * share[node]
    return result


def _inverse(state: ClusterState, whole: Floats, where: Flags) -> Floats:
    asked = where & state.online & (whole != 0)
    out: Floats = np.divide(1.0, whole, out=np.zeros_like(whole), where=asked)
    return out


#: Whose reserved memory a kind changes, of old primary, old secondary and target.
_KEEPING: Final = {
    MoveKind.FAILOVER: (True, True, False),
    MoveKind.FAILOVER_TO: (False, False, False),
    MoveKind.REPLACE_SECONDARY: (False, True, True),
    MoveKind.REPLACE_FAILOVER: (True, True, False),
    MoveKind.REPLACE_PRIMARY: (False, True, False),
    MoveKind.FAILOVER_REPLACE: (False, True, True),
}


class MoveEstimator:
    """Estimates of score changes for one state.

    ``refresh`` must be called after the state changed.

    Attributes:
        counts: by name, the changes of the counts that some move may change.
    """

    def __init__(self, state: ClusterState, options: MoveOptions) -> None:
        self.state = state
        self.options = options
        self.move_rules = MoveConstraints(state, options)
        self.deltas = deltas = self.move_rules.deltas
        self._gain = self.move_rules.gain
        self.metrics = DeviationMetrics(state, deltas, self._gain)
        # Instances whose changes are no sums of amounts (unknown spindles).
        self._has_apart = bool(deltas.not_additive.any())
        self.counts: dict[str, MoveChanges] = {
            name: changes
            for name, count in components.COUNTS.items()
            if (changes := count.on_moves(self.move_rules))
        }

    def refresh(self, nodes: Ints) -> None:
        """Update the tables for nodes that changed."""
        self.move_rules.refresh(nodes)
        self.metrics.refresh(nodes)
        for changes in self.counts.values():
            changes.refresh(nodes)

    def estimate(self, kind: MoveKind, inst: Ints, target: Ints) -> Floats:
        """Estimate score changes; infinite where a move is not allowed.

        ``inst`` and ``target`` are broadcast together.
        """
        change = self.from_moments(self.metrics.moments, kind, inst, target)[0]
        if not self._has_apart:
            return change
        rules = self.move_rules
        return change + unknown_spindles_correction(
            rules, rules.move(kind, inst, target)
        )

    def from_moments(
        self, moments: Moments, kind: MoveKind, inst: Ints, target: Ints
    ) -> tuple[Floats, Floats]:
        """Estimate score changes with other means and variances than the present ones.

        Returns:
            the changes, infinite where a move is not allowed, and the changes of the
            variances.
        """
        rules = self.move_rules
        move = rules.move(kind, inst, target)
        reserved = rules.reserved_after(move)
        # Nodes without capacity give 0 * inf; such moves are excluded below.
        with np.errstate(invalid="ignore"):
            allowed = is_permitted(move, rules) & rules.legal(move, reserved)
            gains, sums = self.metrics.gains(moments, self._steps(move, reserved))
            change = self.metrics.change(moments, gains)
        change = change + components.WEIGHT[components.RESERVED_TOTAL] * sums[..., -1]
        change = change + self.counted(move, reserved)
        return np.where(allowed, change, np.inf), gains

    def _steps(
        self, move: MoveArrays, reserved: tuple[Floats | Ints, ...]
    ) -> list[tuple[Ints, Floats]]:
        """Return the nodes that change, each with the steps of its values."""
        metrics, ends = self.metrics, move.ends
        steps = []
        for node, before, after, keeps, memory in zip(
            (move.primary, move.secondary, move.target),
            ("p", "s", ""),
            (ends.primary, ends.secondary, ends.target),
            _KEEPING[move.kind],
            reserved,
            strict=True,
        ):
            # A node that keeps its role changes by its reserved memory alone.
            changes = after not in {"=", before}
            if changes:
                step = metrics.step(move.inst, node, before, after)
            elif keeps:
                step = np.zeros((*node.shape, len(metrics.weight)))
            if keeps:
                step = metrics.keep(step, node, memory)
            if keeps or changes:
                steps.append((node, step))
        return steps

    def counted(self, move: MoveArrays, reserved: Reserved) -> Floats:
        """Return the weighted change of the components that count something."""
        return _weighted(
            {name: each.change(move, reserved) for name, each in self.counts.items()}
        )

    def counted_before(self, move: MoveArrays, reserved: Reserved) -> Floats:
        """Return the least of ``counted`` that is known without the targets.

        ``reserved`` are lower bounds at the old nodes.
        """
        return _weighted(
            {name: each.before(move, reserved) for name, each in self.counts.items()}
        )

    def counted_at(self, inst: Ints, node: Ints, role: str) -> Floats:
        """Return the least of ``counted`` that targets add in a role: inst x node."""
        return _weighted(
            {n: each.at_target(inst, node, role) for n, each in self.counts.items()}
        )

    def counted_by_link(self, other: Ints, target: Ints) -> Floats:
        """Return the least of ``counted`` that other nodes and targets add together."""
        links = {n: each.link(other, target) for n, each in self.counts.items()}
        nothing: Floats = np.zeros((len(other), len(target)))
        return nothing + _weighted({n: at for n, at in links.items() if at is not None})


def _weighted(changes: dict[str, Floats]) -> Floats:
    """Return the weighted sum of changes of components."""
    total: Floats | None = None
    for name, change in changes.items():
        weight = components.WEIGHT[name]
        part = change if weight == 1.0 else weight * change
        total = part if total is None else total + part
    return np.zeros(1) if total is None else total
