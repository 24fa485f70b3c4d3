"""Estimates of the score changes of many possible moves at once.

The change of the score by a move is

    sum w_j (sqrt(sigma_j^2 + g_j) - sigma_j) + w_r D_r + changes of counts,

with g_j from ``score.deviations``, the step sum D_r of the reserved memory and the
weight w_r of its total. The work per move is constant, whatever the number of nodes.
Estimates are good to about ten digits, so that the best move is among those whose
estimates are within 1e-7 of the lowest; ``balance.search`` computes these exactly.
Tests: test/py/unit/htools/score/test_terms.py.
"""

from typing import Final

import numpy as np

from ganeti.htools.model.cluster import NONE
from ganeti.htools.rules.move_constraints import (
    MoveArrays,
    MoveConstraints,
    MoveOptions,
)
from ganeti.htools.rules.moves import MoveKind
from ganeti.htools.score import components
from ganeti.htools.score.deviations import DeviationMetrics, Moments
from ganeti.htools.score.unknown_spindles import correction
from ganeti.htools.state.instance_deltas import DeltaRow, Floats, Ints
from ganeti.htools.state.node_state import ClusterState

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
        located: whether nodes or instances have location tags.
        retagged: exclusion tags whose pairs with location tags changed in the last
            refresh.
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
        self.located = bool(state.node_places.size or deltas.lacking.any())
        self.tagged = bool(len(state.exclusion_tags))
        self._all_online = bool(state.online.all())
        self.retagged: Ints = np.zeros(0, np.int64)
        if self.located and self.tagged:
            online = np.nonzero(state.online)[0]
            self._places = (state.node_places > 0) & state.online[:, None]
            self._present = state.present_tags.copy()
            #: Exclusion tag x location tag: primaries on online nodes that have both.
            self._pairs: Ints = components.place_pairs(state, online).T.copy()

    def refresh(self, nodes: Ints) -> None:
        """Update the tables for nodes that changed."""
        self.move_rules.refresh(nodes)
        self.metrics.refresh(nodes)
        if self.located and self.tagged:
            change = self.state.present_tags[nodes] - self._present[nodes]
            self._present[nodes] += change
            self.retagged = np.nonzero(change.any(axis=0))[0]
            change = change[:, self.retagged]
            self._pairs[self.retagged] += change.T @ self._places[nodes]

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
        change = change + components.WEIGHT["reserved_mem_rtotal"] * sums[..., -1]
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

    def counted(self, move: MoveArrays, reserved: tuple[Floats | Ints, ...]) -> Floats:
        """Return the weighted change of the components that count something."""
        state, inst = self.state, move.inst
        online, p = state.online, move.primary
        change = self.failing_before(move, reserved) + self.left(move)
        role = move.ends.target
        if role:
            change = change + self._failing_at(move, move.target, "", role, reserved[2])
        # The primary stays, and with it everything that tags count.
        if move.kind == MoveKind.REPLACE_SECONDARY and not self.located:
            return change
        new_p = self._new_primary(move)
        if self.tagged and move.ends.primary != "=":
            removed = self.move_rules.conflicts(inst, p, 1) * online[p]
            added = self.move_rules.conflicts(inst, new_p, 0) * online[new_p]
            change = change + components.WEIGHT["pri_tags_score"] * (added - removed)
        if self.located:
            change = change + self._located_change(move, new_p)
            if self.tagged and move.ends.primary != "=":
                weight = components.WEIGHT["location_exclusion_score"]
                change = change + weight * self.pairs_change(move, new_p)
        return change

    @staticmethod
    def _new_primary(move: MoveArrays) -> Ints:
        if move.ends.primary == "=":
            return move.primary
        return move.secondary if move.ends.secondary == "p" else move.target

    def left(self, move: MoveArrays) -> Floats:
        """Return the weighted change of the counts of instances on offline nodes."""
        change: Floats = np.zeros(1)
        if self._all_online:
            return change
        ends, online = move.ends, self.state.online
        real = self.deltas.real[move.inst]
        # Targets are online, so instances can only leave offline nodes.
        off_p = ~online[move.primary] & real
        if ends.primary != "=":
            change = change - components.WEIGHT["offline_pri_cnt"] * off_p
        if ends.primary == "":
            change = change - components.WEIGHT["offline_all_cnt"] * off_p
        if ends.secondary == "":
            off_s = ~online[move.secondary] & real
            change = change - components.WEIGHT["offline_all_cnt"] * off_s
        return change

    def failing_before(
        self, move: MoveArrays, reserved: tuple[Floats | Ints, ...]
    ) -> Floats:
        """Return the weighted change of ``n1_cnt`` at the old nodes."""
        change: Floats = np.zeros(1)
        for node, before, after, kept in (
            (move.primary, "p", move.ends.primary, reserved[0]),
            (move.secondary, "s", move.ends.secondary, reserved[1]),
        ):
            role = before if after == "=" else after
            # In REPLACE_PRIMARY the secondary stays but reserves for another primary.
            if role != before or move.kind == MoveKind.REPLACE_PRIMARY:
                change = change + self._failing_at(move, node, before, role, kept)
        return change

    def _failing_at(
        self, move: MoveArrays, node: Ints, before: str, after: str, kept: Floats | Ints
    ) -> Floats:
        state, inst = self.state, move.inst
        memory, held = state.unallocated[node], state.held[node]
        old = (memory <= state.r_mem[node]) * held
        if after != before:
            gain = self._gain[before, after]
            memory = self.move_rules.after(DeltaRow.MEMORY, node, gain, inst)
        # While a node fails N+1, all its instances count.
        count = held + (bool(after) - bool(before))
        change = components.WEIGHT["n1_cnt"] * ((memory <= kept) * count - old)
        result: Floats = change * state.online[node] * self.deltas.real[inst]
        return result

    def _located_change(self, move: MoveArrays, new_p: Ints) -> Floats:
        """Return the weighted change of the location score."""
        state, deltas, inst = self.state, self.deltas, move.inst
        common = deltas.common(inst)
        after = common
        # Swapped nodes share the same tags; a single node shares none.
        if move.kind not in {MoveKind.FAILOVER, MoveKind.FAILOVER_TO}:
            new_s = {
                MoveKind.REPLACE_SECONDARY: move.target,
                MoveKind.REPLACE_FAILOVER: move.primary,
                MoveKind.REPLACE_PRIMARY: move.secondary,
                MoveKind.FAILOVER_REPLACE: move.target,
            }[move.kind]
            after = state.common_places[new_p, new_s]
        desired, online = deltas.desired[inst], state.online
        new = (after + deltas.lacking[desired, new_p]) * online[new_p]
        old = (common + deltas.lacking[desired, move.primary]) * online[move.primary]
        real = (~deltas.forthcoming[inst]).astype(np.float64)
        result: Floats = components.WEIGHT["location_score"] * (new - old) * real
        return result

    def unlike(self, inst: Ints, primary: Ints, secondary: Ints) -> Ints:
        """Count location tags that both nodes share, and those that are lacking."""
        common = self.state.common_places[primary, secondary]
        lacking = self.deltas.lacking[self.deltas.desired[inst], primary]
        return np.where(secondary == NONE, 0, common) + lacking

    def pairs_change(self, move: MoveArrays, new_p: Ints | None) -> Floats:
        """Return the change of the number of repeated (location, exclusion) tag pairs.

        Without a new primary this is a lower bound: the new primary adds at least 0
        pairs.
        """
        deltas, inst = self.deltas, move.inst
        old = self._places[move.primary]
        removed, added = old, None
        if new_p is not None:
            new = self._places[new_p]
            removed, added = old & ~new, new & ~old
        result: Floats = np.zeros(1)
        for tags in deltas.tags.T:
            tag = tags[inst]
            counts = self._pairs[tag]
            # A pair counts from its second primary on.
            change = -(removed & (counts > 1)).sum(axis=-1)
            if added is not None:
                change = change + (added & (counts >= 1)).sum(axis=-1)
            result = result + np.where(tag != NONE, change, 0)
        return np.where(deltas.forthcoming[inst], 0.0, result)
