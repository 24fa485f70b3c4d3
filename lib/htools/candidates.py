"""Scores of many possible moves at once.

An ``Evaluator`` estimates, for arrays of instances and target nodes, by how much each
kind of move would change the score. A move touches three nodes at most, so sums and
sums of squares are corrected instead of computed anew: constant work for each move.
Estimates are good to about ten digits; ``balance`` computes the best ones exactly.
"""

import dataclasses
from typing import Final

import numpy as np

from ganeti.htools import grid_score as score
from ganeti.htools.effects import Floats, Ints, Row
from ganeti.htools.grid import State
from ganeti.htools.legality import Legality, Move, Options
from ganeti.htools.moves import Kind
from ganeti.htools.unknown_spindles import Correction

#: Spread components and the row of a node's numbers each is about.
_SPREAD_ROWS: Final = {
    "free_mem_cv": Row.MEMORY,
    "free_disk_cv": Row.DISK,
    "vcpu_ratio_cv": Row.CPU,
    "cpu_load_cv": Row.LOAD_CPU,
    "mem_load_cv": Row.LOAD_MEMORY,
    "disk_load_cv": Row.LOAD_DISK,
    "net_load_cv": Row.LOAD_NET,
    "spindles_cv": Row.SPINDLES,
    "free_mem_cv_forth": Row.ALL_MEMORY,
    "free_disk_cv_forth": Row.ALL_DISK,
    "vcpu_ratio_cv_forth": Row.ALL_CPU,
    "spindles_cv_forth": Row.ALL_SPINDLES,
}


@dataclasses.dataclass(slots=True)
class Part:
    """A spread component: weight, and how instances and nodes enter into it.

    ``inverse`` is 1 / capacity of nodes, 0 for those offline; ``second`` likewise for
    spindles where nodes have exclusive storage. ``deviation`` is from the mean.
    """

    weight: float
    name: str
    row: Row
    inverse: Floats
    second: Floats | None
    deviation: Floats
    variance: float = 0.0


class Evaluator:
    """Estimates of score changes for the state it was given.

    ``refresh`` must be called after the state changed.
    """

    def __init__(self, state: State, options: Options) -> None:
        self.state = state
        self.options = options
        self.legality = Legality(state, options)
        self.effects = effects = self.legality.effects
        self._gain = self.legality.gain
        self._exclusive = bool(state.exclusive.any())
        self.located = bool(state.node_places.size or effects.lacking.any())
        self.inverse_memory = self._inverses(state.t_mem)
        self.count = max(1, int(state.online.sum()))
        self.parts = self._make_parts()
        self._correction = Correction(self.legality, *self._capacity(Row.ALL_DISK))
        self.refresh(np.arange(state.size))

    def _inverses(self, capacity: Floats) -> Floats:
        asked = self.state.online & (capacity != 0)
        out: Floats = np.divide(1.0, capacity, out=np.zeros_like(capacity), where=asked)
        return out

    def _make_parts(self) -> list[Part]:
        """Describe the spread components, equal ones merged."""
        effects, amounts = self.effects, self.state.rows
        nothing = np.zeros(0)
        parts: list[Part] = []
        for name, row in _SPREAD_ROWS.items():
            inverse, second = self._capacity(row)
            twin = next(
                (part for part in parts if self._equal(part, row, inverse)), None
            )
            if twin is not None:
                twin.weight += score.WEIGHT[name]
                continue
            moving = amounts[row].any() or effects.as_primary[row].any()
            if moving:
                weight = score.WEIGHT[name]
                parts.append(Part(weight, name, row, inverse, second, nothing))
        return parts

    def _capacity(self, row: Row) -> tuple[Floats, Floats | None]:
        state = self.state
        if row in {Row.MEMORY, Row.ALL_MEMORY}:
            return self.inverse_memory, None
        if row in {Row.CPU, Row.ALL_CPU}:
            return self._inverses(state.t_cpu * state.speed), None
        if row in {Row.SPINDLES, Row.ALL_SPINDLES}:
            inverse = self._inverses(state.hi_spin)
            return np.where(state.exclusive, 0.0, inverse), None
        if row in {Row.DISK, Row.ALL_DISK}:
            inverse = self._inverses(state.t_dsk)
            if not self._exclusive:
                return inverse, None
            second = self._inverses(state.spindle_count)
            return (
                np.where(state.exclusive, 0.0, inverse),
                np.where(state.exclusive, second, 0.0),
            )
        return self._inverses(np.ones(state.size)), None

    def _equal(self, part: Part, row: Row, inverse: Floats) -> bool:
        """Tell whether a row is and will stay the same as that of a part."""
        effects, amounts = self.effects, self.state.rows
        tables = (amounts, effects.as_primary, effects.as_secondary)
        pairs = [(part.row, row)]
        if part.second is not None:
            pairs.append((Row.FREE_SPINDLES, Row.ALL_FREE_SPINDLES))
        return bool(np.array_equal(part.inverse, inverse)) and all(
            np.array_equal(table[a], table[b]) for a, b in pairs for table in tables
        )

    def refresh(self, nodes: Ints) -> None:
        """Take over changes of some nodes."""
        state = self.state
        self.legality.refresh(nodes)
        for part in self.parts:
            values = score.SPREADS[part.name](state)
            part.deviation, part.variance = self._deviation(values)
        shares = state.r_mem * self.inverse_memory
        self.reserved_deviation, self.reserved_variance = self._deviation(shares)

    def _deviation(self, values: Floats) -> tuple[Floats, float]:
        """Give distances from the mean (0 for offline nodes), and the variance."""
        online = self.state.online
        mean = float(values[online].sum() / self.count)
        deviation = np.where(online, values - mean, 0.0)
        return deviation, float((deviation * deviation).sum() / self.count)

    def estimate(self, kind: Kind, inst: Ints, target: Ints) -> Floats:
        """Estimate score changes; infinite where a move is not allowed.

        ``inst`` and ``target`` are broadcast together.
        """
        rules = self.legality
        move = rules.move(kind, inst, target)
        reserved = rules.reserved_after(move)
        with np.errstate(invalid="ignore"):
            allowed = rules.allowed(move) & rules.legal(move, reserved)
            change = self._spreads(move, reserved)
        change = change + self.counted(move, reserved) + self._correction.of(move)
        return np.where(allowed, change, np.inf)

    def _spreads(self, move: Move, reserved: tuple[Floats | Ints, ...]) -> Floats:
        """Add up what the spreads change, and reserved memory's sum."""
        change: Floats = np.zeros(1)
        for part in self.parts:
            steps = [
                (node, self.step(part, move.inst, node, before, after))
                for node, before, after in (
                    (move.primary, "p", move.ends.primary),
                    (move.secondary, "s", move.ends.secondary),
                    (move.target, "", move.ends.target),
                )
                if after not in {"=", before}
            ]
            gain = self._variance_change(part.deviation, steps)
            change = change + self._spread(part.variance, part.weight, gain)
        if move.kind == Kind.FAILOVER_TO:
            return change
        inverse, before_ = self.inverse_memory, self.state.r_mem
        nodes = (move.primary, move.secondary, move.target)
        steps = [
            (node, (after - before_[node]) * inverse[node])
            for node, after in zip(nodes, reserved, strict=True)
        ]
        gain = self._variance_change(self.reserved_deviation, steps)
        change = change + self._spread(self.reserved_variance, 1.0, gain)
        rise = steps[0][1] + steps[1][1] + steps[2][1]
        result: Floats = change + score.WEIGHT["reserved_mem_rtotal"] * rise
        return result

    def step(
        self, part: Part, inst: Ints, node: Ints, before: str, after: str
    ) -> Floats:
        """Tell what roles that change do to nodes' values of a spread."""
        gain = self._gain[before, after]
        step: Floats = gain[part.row][inst] * part.inverse[node]
        if part.second is not None:
            row = Row.FREE_SPINDLES if part.row == Row.DISK else Row.ALL_FREE_SPINDLES
            step = step + gain[row][inst] * part.second[node]
        return step

    def _variance_change(
        self, deviation: Floats, steps: list[tuple[Ints, Floats]]
    ) -> Floats:
        """Give the change of a variance when some nodes' values make a step."""
        squares: Floats = np.zeros(1)
        sums: Floats = np.zeros(1)
        for node, step in steps:
            squares = squares + step * (2.0 * deviation[node] + step)
            sums = sums + step
        count = self.count
        result: Floats = (squares - sums * sums / count) / count
        return result

    @staticmethod
    def _spread(variance: float, weight: float, gain: Floats) -> Floats:
        after: Floats = weight * np.sqrt(np.maximum(variance + gain, 0.0))
        change: Floats = after - weight * variance**0.5
        return change

    def counted(self, move: Move, reserved: tuple[Floats | Ints, ...]) -> Floats:
        """Add up what components that count something change."""
        state, inst = self.state, move.inst
        online, p = state.online, move.primary
        change = self.failing_before(move, reserved) + self.left(move)
        role = move.ends.target
        if role:
            change = change + self._failing_at(move, move.target, "", role, reserved[2])
        if move.kind == Kind.REPLACE_SECONDARY and not self.located:
            return change
        new_p = self._new_primary(move)
        if len(state.exclusion_tags) and move.ends.primary != "=":
            lost = self.legality.conflicts(inst, p, 1) * online[p]
            won = self.legality.conflicts(inst, new_p, 0) * online[new_p]
            change = change + score.WEIGHT["pri_tags_score"] * (won - lost)
        if self.located:
            change = change + self._located_change(move, new_p)
            if len(state.exclusion_tags) and move.ends.primary != "=":
                change = change + self._pairs_change(move, new_p)
        return change

    @staticmethod
    def _new_primary(move: Move) -> Ints:
        if move.ends.primary == "=":
            return move.primary
        return move.secondary if move.ends.secondary == "p" else move.target

    def left(self, move: Move) -> Floats:
        """Count what leaves nodes that are offline."""
        effects, online = self.effects, self.state.online
        ends = move.ends
        real = ~effects.forthcoming[move.inst]
        off_p = ~online[move.primary] & real
        change: Floats = np.zeros(1)
        if ends.primary != "=":
            change = change - score.WEIGHT["offline_pri_cnt"] * off_p
        if ends.primary == "":
            change = change - score.WEIGHT["offline_all_cnt"] * off_p
        if ends.secondary == "":
            off_s = ~online[move.secondary] & real
            change = change - score.WEIGHT["offline_all_cnt"] * off_s
        return change

    def failing_before(self, move: Move, reserved: tuple[Floats | Ints, ...]) -> Floats:
        """Count what the instances on old nodes that fail N+1 change."""
        change: Floats = np.zeros(1)
        for node, before, after, kept in (
            (move.primary, "p", move.ends.primary, reserved[0]),
            (move.secondary, "s", move.ends.secondary, reserved[1]),
        ):
            role = before if after == "=" else after
            if role != before or move.kind == Kind.REPLACE_PRIMARY:
                change = change + self._failing_at(move, node, before, role, kept)
        return change

    def _failing_at(
        self, move: Move, node: Ints, before: str, after: str, kept: Floats | Ints
    ) -> Floats:
        state, effects, inst = self.state, self.effects, move.inst
        memory = state.rows[Row.MEMORY][node]
        if after != before:
            gain = self._gain[before, after]
            memory = self.legality.after(Row.MEMORY, node, gain, inst)
        count = state.held[node] + (bool(after) - bool(before))
        old = state.fails_n1[node] * state.held[node]
        change = (memory <= kept) * count - old
        result: Floats = change * state.online[node] * ~effects.forthcoming[inst]
        return result

    def _located_change(self, move: Move, new_p: Ints) -> Floats:
        """Change of the location score."""
        state, effects, inst = self.state, self.effects, move.inst
        common = effects.common(inst)
        after = common
        if move.kind not in {Kind.FAILOVER, Kind.FAILOVER_TO}:
            new_s = {
                Kind.REPLACE_SECONDARY: move.target,
                Kind.REPLACE_FAILOVER: move.primary,
                Kind.REPLACE_PRIMARY: move.secondary,
                Kind.FAILOVER_REPLACE: move.target,
            }[move.kind]
            after = state.common_places[new_p, new_s]
        lacking, online = effects.lacking, state.online
        new = (after + lacking[inst, new_p]) * online[new_p]
        old = (common + lacking[inst, move.primary]) * online[move.primary]
        result: Floats = (new - old) * (~effects.forthcoming[inst]).astype(np.float64)
        return result

    def _pairs_change(self, move: Move, new_p: Ints) -> Floats:
        """Change of the number of repeated (location tag, exclusion tag) pairs."""
        state, effects = self.state, self.effects
        inst, p = move.inst, move.primary
        pairs = score.place_pairs(state, np.nonzero(state.online)[0])
        located = (state.node_places.T > 0) & state.online
        result: Floats = np.zeros(1)
        for tag, tagged in enumerate(effects.exclusion & ~effects.forthcoming):
            if not tagged[inst].any():
                continue
            for place, at in enumerate(located):
                won = at[new_p] & ~at[p] & tagged[inst]
                lost = at[p] & ~at[new_p] & tagged[inst]
                count = pairs[place, tag]
                result = result + won * float(count >= 1) - lost * float(count > 1)
        return result
