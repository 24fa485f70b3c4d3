"""What a move can gain at most, for all moves at once and without looking at each.

What a move does to the sum of squares of a spread is one number for the instance, with
what it leaves, plus one for its target. The spread itself is the root of that; a root
bends down, so between the least and the largest change possible its chord lies below
it. With chords in the place of roots a whole score is a sum as well: of a part of the
instance and of a part of the target, which is the same for all instances of one size.
So the least for an instance is its own part plus the least of its size's targets.
"""

import dataclasses
from typing import Final

import numpy as np

from ganeti.htools import grid_score as score
from ganeti.htools.candidates import Evaluator, Part
from ganeti.htools.effects import Bools, Floats, Ints, Row
from ganeti.htools.legality import ENDS, Move
from ganeti.htools.moves import Kind

_NOWHERE: Final = -2
#: Less than any change of a score.
_LEAST: Final = -1e300
_RISE: Final = score.WEIGHT["reserved_mem_rtotal"]


Numbers = Floats | Ints


@dataclasses.dataclass(slots=True)
class Chords:
    """Lines below a root, for each size of instances.

    ``slope`` is theirs; ``low`` and ``high`` are the least and the largest that one
    target in a role can add to the sum of squares.
    """

    variance: float
    weight: float
    slope: Floats
    low: dict[str, Floats]
    high: dict[str, Floats]


class Bounds:
    """Lower bounds of score changes for the state of an evaluator.

    ``kinds`` are those with targets that some instance may have; ``rows`` are bounds
    by kind and instance over all targets. ``refresh`` must be called after the state
    and the evaluator changed.
    """

    def __init__(self, evaluator: Evaluator, inst: Ints, target: Ints) -> None:
        self._evaluator = evaluator
        self._state = evaluator.state
        self._inst, self._target = inst, target
        possible = evaluator.legality.kinds(inst) - {Kind.FAILOVER}
        self.kinds = tuple(sorted(possible))
        self._roles = sorted({ENDS[kind].target for kind in self.kinds})
        apart = bool(self._state.exclusive.any())
        self._unbounded: Bools = evaluator.effects.unplaceable[inst] & apart
        self._size, self._sample = self._sizes()
        shape = (len(self._sample), len(target))
        self._fits = {role: np.zeros(shape, dtype=np.bool_) for role in self._roles}
        self._conflicts = np.zeros(shape)
        self.rows: Floats = np.zeros((len(self.kinds), len(inst)))
        self.refresh(np.arange(self._state.size))

    def _sizes(self) -> tuple[Ints, Ints]:
        """Number instances by all that targets see of them; give one of each number."""
        effects, inst = self._evaluator.effects, self._inst
        seen = np.concatenate(
            [
                effects.as_primary[:, inst],
                effects.as_secondary[:, inst],
                [
                    effects.asked[inst],
                    effects.local[inst],
                    effects.drbd[inst],
                    effects.unknown_spindles[inst],
                    effects.forthcoming[inst],
                ],
                effects.exclusion[:, inst],
            ]
        )
        columns = [column.tobytes() for column in np.ascontiguousarray(seen.T)]
        first: dict[bytes, int] = {}
        for at, column in enumerate(columns):
            first.setdefault(column, at)
        number = {column: at for at, column in enumerate(first)}
        size = [number[column] for column in columns]
        return np.array(size, np.int64), inst[list(first.values())]

    def refresh(self, nodes: Ints) -> None:
        """Take over changes of some nodes."""
        if not self.rows.size or not len(self._target):
            self.rows = np.full(self.rows.shape, np.inf)
            return
        self._judge(np.nonzero(np.isin(self._target, nodes))[0])
        chords = [self._chords(part) for part in self._evaluator.parts]
        kept = self._reserved_chords()
        self._parts = {
            role: self._at_targets(role, chords, kept) for role in self._roles
        }
        least = {
            role: (part.min(axis=1), self._masked(role).min(axis=1))
            for role, part in self._parts.items()
        }
        nowhere = np.full(len(self._inst), _NOWHERE)
        self._strict: list[Bools] = []
        self._own: list[Floats] = []
        for row, kind in enumerate(self.kinds):
            move = self._evaluator.legality.move(kind, self._inst, nowhere)
            own, strict = self._of_instances(move, chords, kept)
            any_least, fitting = least[ENDS[kind].target]
            best = np.where(strict, fitting[self._size], any_least[self._size])
            self._strict.append(strict)
            self._own.append(own)
            self.rows[row] = np.where(self._unbounded, _LEAST, own + best)

    def _masked(self, role: str) -> Floats:
        return np.where(self._fits[role], self._parts[role], np.inf)

    def pairs(self, kind: Kind, rows: Ints) -> Floats:
        """Give bounds of one kind for some instances and all targets."""
        row = self.kinds.index(kind)
        role, size = ENDS[kind].target, self._size[rows]
        part = self._parts[role][size]
        fits = self._fits[role][size] | ~self._strict[row][rows][:, None]
        found = np.where(fits, part, np.inf) + self._own[row][rows][:, None]
        return np.where(self._unbounded[rows][:, None], _LEAST, found)

    def _judge(self, columns: Ints) -> None:
        """Judge targets by the strict rules, as far as instances of a size are alike.

        A target that fails its failovers may take what it could not otherwise.
        """
        rules, state = self._evaluator.legality, self._state
        inst, node = self._sample[:, None], self._target[columns][None, :]
        strict = np.ones((1, 1), dtype=np.bool_)
        move = rules.move(Kind.FAILOVER_REPLACE, inst, node)
        kept = state.r_mem[node]
        if "p" in self._fits:
            self._fits["p"][:, columns] = rules.takes_primary(
                move, node, rules.gain["", "p"], kept, strict
            )
        if "s" in self._fits:
            kept = np.maximum(kept, rules.own_reserve[inst])
            self._fits["s"][:, columns] = rules.takes_secondary(
                move, node, rules.gain["", "s"], kept, strict
            )
        if len(state.exclusion_tags):
            self._conflicts[:, columns] = rules.conflicts(inst, node, 0)

    # Chords
    def _chords(self, part: Part) -> Chords:
        """Find the chords of a spread component."""
        zero = np.zeros(len(self._sample))
        low, high = dict.fromkeys(self._roles, zero), dict.fromkeys(self._roles, zero)
        for role in self._roles:
            for row, inverse in _scales(part):
                scale = inverse[self._target]
                gain = self._evaluator.legality.gain["", role][row][self._sample]
                linear = 2.0 * scale * part.deviation[self._target]
                ends = gain * linear.min(), gain * linear.max()
                square = (gain * scale.min()) ** 2, (gain * scale.max()) ** 2
                low[role] = low[role] + np.minimum(*ends) + square[0]
                high[role] = high[role] + np.maximum(*ends) + square[1]
        return self._chord(part.variance, part.weight, low, high)

    def _reserved_chords(self) -> Chords:
        found, rules = self._evaluator, self._evaluator.legality
        step = rules.own_reserve[self._sample] * found.inverse_memory.max()
        far = found.reserved_deviation[self._target]
        best = np.clip(-far.min(), 0.0, step)
        low = best * (best + 2.0 * far.min())
        high = np.maximum(step * (step + 2.0 * far.max()), 0.0)
        zero = np.zeros(len(self._sample))
        least, most = {"p": zero, "s": low}, {"p": zero, "s": high}
        return self._chord(found.reserved_variance, 1.0, least, most)

    def _chord(
        self,
        variance: float,
        weight: float,
        low: dict[str, Floats],
        high: dict[str, Floats],
    ) -> Chords:
        """Choose slopes that suit what moves to the best targets change."""
        start = np.minimum.reduce(list(low.values())) / self._evaluator.count
        end = np.maximum.reduce(list(high.values())) / self._evaluator.count
        start = np.maximum(start, -variance)
        end = np.maximum(end, start)
        rise = np.sqrt(variance + end) - np.sqrt(variance + start)
        wide = end > start
        slope = np.where(wide, rise / np.where(wide, end - start, 1.0), 0.0)
        return Chords(variance, weight, slope * weight, low, high)

    def _offset(
        self, chord: Chords, role: str, squares: Floats, more: Floats
    ) -> Floats:
        """Give where lines begin that are below the roots of instances.

        ``squares`` is the least that their old nodes add, ``more`` by how much more
        that can be.
        """
        size, count = self._size, self._evaluator.count
        slope = chord.slope[size]
        ends = []
        for value in (
            squares + chord.low[role][size],
            squares + more + chord.high[role][size],
        ):
            change = np.maximum(value / count, -chord.variance)
            root = np.sqrt(chord.variance + change) - chord.variance**0.5
            ends.append(chord.weight * root - slope * change)
        result: Floats = np.minimum(ends[0], ends[1])
        return result

    # What targets and instances add
    def _at_targets(self, role: str, chords: list[Chords], kept: Chords) -> Floats:
        """Give the targets' part of bounds: sizes x targets."""
        found, target = self._evaluator, self._target
        gain = found.legality.gain["", role]
        factors, values = [], []
        for part, chord in zip(found.parts, chords, strict=True):
            for row, inverse in _scales(part):
                own, scale = gain[row][self._sample], inverse[target]
                factors += [chord.slope * own, chord.slope * own * own]
                values += [2.0 * scale * part.deviation[target], scale * scale]
        at = np.array(factors).T @ np.array(values) / found.count
        at += np.where(
            found.effects.forthcoming[self._sample][:, None],
            0.0,
            self._state.fails_n1[target][None, :],
        )
        if role == "p":
            at += score.WEIGHT["pri_tags_score"] * self._conflicts
            return np.asarray(at)
        own = found.legality.own_reserve[self._sample][:, None]
        least = np.maximum(own - self._state.r_mem[target][None, :], 0)
        return np.asarray(
            at + self._reserve(kept.slope[:, None], target[None, :], least, own)
        )

    def _reserve(
        self, slope: Floats, node: Ints, least: Numbers, most: Numbers
    ) -> Floats:
        """Give the least that keeping some more memory on nodes can change."""
        found = self._evaluator
        inverse, far = found.inverse_memory[node], found.reserved_deviation[node]
        count = found.count
        with np.errstate(divide="ignore", invalid="ignore"):
            best = -far - _RISE * count / (2.0 * slope)
        step = np.clip(best, least * inverse, most * inverse)
        step = np.where(slope > 0, step, least * inverse)
        result: Floats = slope * step * (step + 2.0 * far) / count + _RISE * step
        return result

    def _of_instances(
        self, move: Move, chords: list[Chords], kept: Chords
    ) -> tuple[Floats, Bools]:
        """Give the instances' part of bounds, and whether soft rules count."""
        found, rules = self._evaluator, self._evaluator.legality
        reserved = rules.least_reserved(move)
        change = found.failing_before(move, reserved) + found.left(move)
        change = change - self._tags_left(move)
        for part, chord in zip(found.parts, chords, strict=True):
            change = change + self._spread(move, part, chord)
        if move.kind != Kind.FAILOVER_TO:
            change = change + self._kept(move, kept, reserved)
        with np.errstate(invalid="ignore"):
            legal = rules.allowed(move) & rules.legal_before(move, reserved)
        return np.where(legal, change, np.inf), rules.is_strict(move)

    def _spread(self, move: Move, part: Part, chord: Chords) -> Floats:
        """Add up what the old nodes do to a spread, and what its mean can."""
        found, count = self._evaluator, self._evaluator.count
        squares: Floats = np.zeros(1)
        sums: Floats = np.zeros(1)
        for node, before, after in (
            (move.primary, "p", move.ends.primary),
            (move.secondary, "s", move.ends.secondary),
        ):
            if after in {"=", before}:
                continue
            step = found.step(part, move.inst, node, before, after)
            squares = squares + step * (2.0 * part.deviation[node] + step)
            sums = sums + step
        low, high = sums, sums
        gain = found.legality.gain["", move.ends.target]
        for row, inverse in _scales(part):
            own = gain[row][move.inst]
            ends = own * inverse[self._target].min(), own * inverse[self._target].max()
            low, high = low + np.minimum(*ends), high + np.maximum(*ends)
        mean = np.maximum(low * low, high * high) / count
        squares = squares - mean
        offset = self._offset(chord, move.ends.target, squares, mean)
        result: Floats = offset + chord.slope[self._size] * squares / count
        return result

    def _kept(
        self, move: Move, chord: Chords, reserved: tuple[Floats | Ints, ...]
    ) -> Floats:
        """Give the least that reserved memory of old nodes can change."""
        found, state = self._evaluator, self._state
        own = found.legality.own_reserve[move.inst]
        slope = chord.slope[self._size]
        change: Floats = np.zeros(1)
        low: Floats = np.zeros(1)
        high: Floats = np.zeros(1)
        for node, least in zip((move.primary, move.secondary), reserved, strict=True):
            before = state.r_mem[node]
            rises = node is move.primary and move.kind == Kind.REPLACE_FAILOVER
            stays = node is move.secondary and move.kind == Kind.REPLACE_PRIMARY
            most = np.maximum(least, before + own) if rises or stays else least
            change = change + self._reserve(slope, node, least - before, most - before)
            far, inverse = found.reserved_deviation[node], found.inverse_memory[node]
            ends = (least - before) * inverse, (most - before) * inverse
            best = np.clip(-far, *ends)
            low = low + best * (best + 2.0 * far)
            high = high + np.maximum(*(step * (step + 2.0 * far) for step in ends))
        mean = own * found.inverse_memory.max()
        mean = mean * mean / found.count
        offset = self._offset(chord, move.ends.target, low - mean, high - low + mean)
        result: Floats = change + offset - slope * mean / found.count
        return result

    def _tags_left(self, move: Move) -> Floats:
        """Count what leaving the primary can gain of tags at most."""
        found, state = self._evaluator, self._state
        effects = found.effects
        inst, at = move.inst, move.primary
        left: Floats = np.zeros(len(inst))
        named = bool(len(state.exclusion_tags)) and move.ends.primary != "="
        if named:
            lost = found.legality.conflicts(inst, at, 1) * state.online[at]
            left = left + score.WEIGHT["pri_tags_score"] * lost
        if found.located:
            left = left + effects.common(inst) + effects.lacking[inst, at]
            if named:
                has = effects.exclusion[:, inst].sum(axis=0)
                left = left + has * state.node_places.T[:, at].sum(axis=0)
        return left


def _scales(part: Part) -> list[tuple[Row, Floats]]:
    """List rows of amounts that enter into a spread, and by how much."""
    found = [(part.row, part.inverse)]
    if part.second is not None:
        free = Row.FREE_SPINDLES if part.row == Row.DISK else Row.ALL_FREE_SPINDLES
        found.append((free, part.second))
    return found
