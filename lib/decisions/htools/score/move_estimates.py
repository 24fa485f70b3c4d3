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
)
from ganeti.decisions.htools.rules.moves import MoveKind
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.score.counts import MoveChanges, Reserved
from ganeti.decisions.htools.score.deviations import DeviationMetrics, Moments
from ganeti.decisions.htools.score.unknown_spindles import correction
from ganeti.decisions.htools.state.instance_deltas import Floats, Ints
from ganeti.decisions.htools.state.node_state import ClusterState

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
        return change + correction(rules, rules.move(kind, inst, target))

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
            allowed = rules.allowed(move) & rules.legal(move, reserved)
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
