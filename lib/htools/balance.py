"""The greedy balancing plan: again and again the one move that lowers the score most.

Which moves are tried, and which wins when several are equal, follows the documented
order, so that plans are the same line by line. What changes from round to round is
little, so estimates of earlier rounds are kept as lower bounds: spreads that shrank by
so much can make an old estimate better by no more than a known slack.
"""

import dataclasses
from collections.abc import Iterator
from typing import Final

import numpy as np

from ganeti.htools import moves, score
from ganeti.htools.candidates import TARGET_KINDS, Evaluator, Options, Spreads
from ganeti.htools.model import NONE
from ganeti.htools.moves import Kind, Move
from ganeti.htools.state import Bools, Floats, Ints, State

#: Estimates nearer to the best than this are computed exactly.
_NEAR: Final = 1e-7
#: Elements of one estimate, for caches to hold its arrays.
_BLOCK: Final = 40_000
#: Part of the estimates from which on it is better to start anew.
_STALE: Final = 0.2
#: Candidates that are scored exactly at once.
_EXACT_BLOCK: Final = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Goal:
    """When to stop: fractions of score; ``max_length`` below 0 is no limit."""

    min_score: float = 1e-9
    min_gain: float = 0.01
    min_gain_limit: float = 0.1
    max_length: int = -1


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One move of a plan: nodes before and after (-1 is none) and the score after."""

    inst: int
    move: Move
    before: tuple[int, int]
    after: tuple[int, int]
    score: float


def eligible(state: State, options: Options) -> Bools:
    """Tell which instances may move now."""
    cluster = state.fixed.cluster
    found = np.array(
        [inst.movable and inst.auto_balance for inst in cluster.instances],
        dtype=np.bool_,
    )
    if options.evacuate:
        offline = ~state.fixed.online
        away = (state.secondary != NONE) & offline[state.secondary]
        found &= offline[state.primary] | away
    return found


def plan(
    state: State, goal: Goal, options: Options, lowest: float | None = None
) -> Iterator[Step]:
    """Give the moves of a plan one by one; the state changes with each.

    ``lowest`` is the ideal score at the start; computed when not given.
    """
    target = (score.ideal(state) if lowest is None else lowest) + goal.min_score
    search: Search | None = None
    current = score.of(state)
    length = 0
    while goal.max_length < 0 or length < goal.max_length:
        if length and current <= target:
            return
        if search is None:
            search = Search(state, options)
        best = search.best()
        if best is None:
            return
        inst, move, found = best
        gain = current - found
        if not found < current:
            return
        if current <= goal.min_gain_limit and gain < goal.min_gain:
            return
        before = (int(state.primary[inst]), int(state.secondary[inst]))
        moves.apply(state, inst, move)
        after = (int(state.primary[inst]), int(state.secondary[inst]))
        current = found
        length += 1
        yield Step(inst, move, before, after, found)
        search.moved({*before, *after} - {NONE})


class Search:
    """Finds the best next move of a state.

    ``_bounds`` (instances x targets, failover in the last column) holds lower bounds of
    score changes, raised by the slack of all rounds so far; ``_fresh`` tells which are
    estimates of this round.
    """

    def __init__(self, state: State, options: Options) -> None:
        self._state = state
        self._options = options
        self._evaluator = Evaluator(state, options)
        self._inst: Ints = np.nonzero(eligible(state, options))[0]
        self._target: Ints = np.nonzero(state.fixed.online)[0]
        shape = (len(self._inst), len(self._target) + 1)
        self._bounds: Floats = np.full(shape, np.inf)
        self._fresh: Bools = np.zeros(shape, dtype=np.bool_)
        self._slack = 0.0
        self._forget()
        self._all()

    def _forget(self) -> None:
        """Start with no bounds."""
        self._slack = 0.0
        spreads = len(self._evaluator.spreads().weights)
        self._seen: Floats = np.tile(np.array([np.inf, -np.inf]), (spreads, 1))

    def _all(self) -> None:
        """Estimate everything."""
        rows = np.arange(len(self._inst))
        self._rows(rows)

    def _rows(self, rows: Ints) -> None:
        """Estimate all moves of some instances."""
        columns = np.arange(len(self._target))
        height = max(1, _BLOCK // max(1, len(columns)))
        for start in range(0, len(rows), height):
            part = rows[start : start + height]
            self._rectangle(part, columns)
        self._failovers(rows)

    def _rectangle(self, rows: Ints, columns: Ints) -> None:
        if not len(rows) or not len(columns):
            return
        inst, target = self._inst[rows][:, None], self._target[columns][None, :]
        found = self._estimate(inst, target)
        self._bounds[np.ix_(rows, columns)] = found + self._slack
        self._fresh[np.ix_(rows, columns)] = True

    def _failovers(self, rows: Ints) -> None:
        inst = self._inst[rows]
        found = self._evaluator.estimate(
            Kind.FAILOVER, inst, np.full(len(inst), NONE), self._seen
        )
        self._bounds[rows, -1] = found + self._slack
        self._fresh[rows, -1] = True

    def _estimate(self, inst: Ints, target: Ints) -> Floats:
        """Estimate the best kind of move for instances and targets."""
        shape = np.broadcast_shapes(inst.shape, target.shape)
        best = np.full(shape, np.inf)
        drbd = self._state.fixed.drbd[inst]
        for kind in TARGET_KINDS:
            wanted = ~drbd if kind == Kind.FAILOVER_TO else drbd
            if wanted.any():
                found = self._evaluator.estimate(kind, inst, target, self._seen)
                best = np.minimum(best, found)
        return best

    def best(self) -> tuple[int, Move, float] | None:
        """Find the best move and the score after it; None if nothing can move."""
        if not self._bounds.size:
            return None
        limit = self._settle()
        if not np.isfinite(limit):
            return None
        rows, columns = np.nonzero(self._bounds - self._slack <= limit)
        return self._exact(self._spell_out(rows, columns, limit))

    def _settle(self) -> float:
        """Estimate anew whatever may be among the best; tell the limit of the best."""
        while True:
            now = self._bounds - self._slack
            known = np.min(now, where=self._fresh, initial=np.inf)
            if not np.isfinite(known):
                lowest = now.min()
                if not np.isfinite(lowest):
                    return float(lowest)
                known = lowest
            limit = known + _NEAR
            rows, columns = np.nonzero((now <= limit) & ~self._fresh)
            if not len(rows):
                return float(limit)
            if len(rows) > _STALE * now.size:
                self._forget()
                self._all()
            else:
                self._pairs(rows, columns)

    def _pairs(self, rows: Ints, columns: Ints) -> None:
        """Estimate single entries."""
        last = columns == len(self._target)
        if last.any():
            self._failovers(rows[last])
        rows, columns = rows[~last], columns[~last]
        for start in range(0, len(rows), _BLOCK):
            at = slice(start, start + _BLOCK)
            inst, target = self._inst[rows[at]], self._target[columns[at]]
            found = self._estimate(inst, target)
            self._bounds[rows[at], columns[at]] = found + self._slack
            self._fresh[rows[at], columns[at]] = True

    def _spell_out(
        self, rows: Ints, columns: Ints, limit: float
    ) -> list[tuple[int, Move]]:
        """List single moves of entries, in the order in which they are tried."""
        found: list[tuple[int, int, int]] = []
        last = columns == len(self._target)
        found += [(int(i), NONE, int(Kind.FAILOVER)) for i in self._inst[rows[last]]]
        inst, target = self._inst[rows[~last]], self._target[columns[~last]]
        for kind in TARGET_KINDS if len(inst) else ():
            change = self._evaluator.estimate(kind, inst, target)
            at = np.nonzero(change <= limit)[0]
            found += [
                (int(i), int(t), int(kind))
                for i, t in zip(inst[at], target[at], strict=True)
            ]
        return [(i, Move(Kind(kind), t)) for i, t, kind in sorted(found)]

    def _exact(self, listed: list[tuple[int, Move]]) -> tuple[int, Move, float] | None:
        """Compute scores exactly; the first of the lowest wins."""
        best: tuple[int, Move, float] | None = None
        for start in range(0, len(listed), _EXACT_BLOCK):
            block = listed[start : start + _EXACT_BLOCK]
            for (inst, move), found in zip(
                block, exact(self._state, block), strict=True
            ):
                if best is None or found < best[2]:
                    best = (inst, move, found)
        return best

    def moved(self, nodes: set[int]) -> None:
        """Take over a move that touched some nodes."""
        before = self._evaluator.spreads()
        self._evaluator.refresh()
        self._fresh[:] = False
        state = self._state
        if not self._evaluator.local_only:
            self._forget()
            self._all()
            return
        self._slack += self._loosen(before, self._evaluator.spreads())
        touched = np.array(sorted(nodes))
        mine = np.isin(state.primary[self._inst], touched)
        mine |= np.isin(state.secondary[self._inst], touched)
        self._rows(np.nonzero(mine)[0])
        over = np.zeros(len(self._inst), dtype=np.bool_)
        if self._options.evacuate:
            over = ~eligible(state, self._options)[self._inst]
            self._bounds[over] = np.inf
        others = np.nonzero(~mine & ~over)[0]
        columns = np.nonzero(np.isin(self._target, touched))[0]
        self._rectangle(others, columns)

    def _loosen(self, before: Spreads, after: Spreads) -> float:
        """Tell by how much changed spreads may have bettered old estimates.

        For one spread the change of sqrt(after + d) - sqrt(before + d) with d is
        monotone, so one end of the range of d is the worst. Where nodes differ in size
        means move too, and every d with them, by ``drift`` at most.
        """
        low, high = self._seen[:, 0].copy(), self._seen[:, 1].copy()
        used = np.isfinite(low) & np.isfinite(high)
        low, high = np.where(used, low, 0.0), np.where(used, high, 0.0)
        drift = np.abs(after.means - before.means) * after.drift
        old, new = before.variances, after.variances
        # No variance gets below zero, whatever the lowest change once seen was.
        low = np.maximum(low, -np.minimum(old, new))
        base = np.sqrt(new) - np.sqrt(old)
        worst = np.zeros(len(low))
        for change in (low, high):
            then = np.sqrt(np.maximum(old + change, 0.0))
            now = np.sqrt(np.maximum(new + change, 0.0))
            worst = np.maximum(worst, base + then - now)
        lowest = np.maximum(new + low, 0.0)
        worst += np.sqrt(lowest) - np.sqrt(np.maximum(lowest - drift, 0.0))
        self._seen += np.stack([-drift, drift], axis=1)
        return float((after.weights * worst * used).sum())


def exact(state: State, listed: list[tuple[int, Move]]) -> list[float]:
    """Compute the scores after each of some moves, as ``score.of`` would."""
    results = []
    for inst, move in listed:
        with moves.trial(state, inst, move.target):
            moves.apply(state, inst, move)
            results.append(score.of(state))
    return results
