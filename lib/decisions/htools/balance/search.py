"""The best next moves of a state: the best one, the best few, the best pair.

Lower bounds exclude most moves, estimates are computed for the others, and exact scores
for those within ``NEAR`` of the lowest estimate. Why no best move is lost: an estimate
e is within eps of the true change, eps about 1e-10, and a bound is at most e + eps. The
best move has a change of at most the lowest estimate + eps, so its estimate and its
bound are at most 3 eps above the lowest estimate, far less than ``NEAR``. When to stop
is decided in ``balance.greedy``.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from ganeti.decisions.htools.balance.lower_bounds import MoveBounds
from ganeti.decisions.htools.model.cluster import NONE
from ganeti.decisions.htools.rules import moves
from ganeti.decisions.htools.rules.move_constraints import MoveOptions
from ganeti.decisions.htools.rules.moves import Move, MoveKind
from ganeti.decisions.htools.score import components, exact_deltas
from ganeti.decisions.htools.score.move_estimates import MoveEstimator
from ganeti.decisions.htools.state.instance_deltas import Bools, Floats, Ints
from ganeti.decisions.htools.state.node_state import ClusterState

#: Estimates nearer to the best than this are computed exactly. Estimates are good to
#: about 1e-10, so this leaves a factor of 1000.
NEAR: Final = 1e-7
#: Most pairs of instance and target in one step.
_BLOCK: Final = 100_000
#: Moves that are estimated first; so many times more as long as none is allowed.
_SAMPLE: Final = 4
#: More than any change of a score.
_ANY: Final = 1e300
#: Number of first moves of pairs that are tried.
_BEAM: Final = 20
#: Components that the first move of a pair may not raise, because they count faults.
_FAULTS: Final = [item.name for item in components.COMPONENTS if item.is_fault]
#: Decimals to which the changes of equivalent moves agree.
_ALIKE: Final = 9

#: An instance, its move, and the score after it.
Scored = tuple[int, Move, float]


def eligible(state: ClusterState, options: MoveOptions) -> Bools:
    """Return which instances may move now."""
    result = np.array(
        [inst.movable and inst.auto_balance for inst in state.instances],
        dtype=np.bool_,
    )
    if options.evacuate:
        result &= _to_evacuate(state, np.arange(len(result)))
    return result


def _to_evacuate(state: ClusterState, inst: Ints) -> Bools:
    """Return which instances have an offline node."""
    first, second = np.array(state.pri)[inst], np.array(state.sec)[inst]
    result: Bools = state.offline[first] | (second != NONE) & state.offline[second]
    return result


class MoveSearch:
    """Finds the best next move of a state."""

    def __init__(self, state: ClusterState, options: MoveOptions) -> None:
        self._state = state
        self._options = options
        self._estimator = MoveEstimator(state, options)
        every = eligible(state, options)
        apart = self._estimator.deltas.not_additive
        self._inst: Ints = np.nonzero(every & ~apart)[0]
        #: Instances for which there are no bounds, because their changes are no sums.
        self._apart: Ints = np.nonzero(every & apart)[0]
        may_take = state.online.copy()
        may_take[sorted(options.no_targets)] = False
        targets: Ints = np.nonzero(may_take)[0]
        self._bounds = MoveBounds(self._estimator, self._inst, targets)
        self._target = self._bounds.target

    def best_one(self) -> Sequence[Scored]:
        """Return the best move; empty if nothing can move."""
        best = self.best()
        return () if best is None else (best,)

    def best_pair(self) -> Sequence[Scored]:
        """Return the best of the pairs that begin with one of the best moves.

        Returns:
            both moves; empty if nothing can move twice. The state is as before.
        """
        state = self._state
        best: Sequence[Scored] = ()
        faults = _faults(state)
        first = self.lowest(_BEAM)
        scores = exact_deltas.after(state, first, self._estimator)
        for (inst, move), score in zip(first, scores, strict=True):
            nodes = {state.pri[inst], state.sec[inst], move.target} - {NONE}
            with moves.trial(state, inst, move.target):
                moves.apply(state, inst, move)
                pairs = zip(_faults(state), faults, strict=True)
                if any(now > before for now, before in pairs):
                    continue
                self.moved(inst, nodes)
                second = self.best()
            self.moved(inst, nodes)
            if second is not None and (not best or second[2] < best[-1][2]):
                best = ((inst, move, score), second)
        return best

    def lowest(self, count: int) -> list[tuple[int, Move]]:
        """List the best moves, the best first; of equal changes only the first."""
        if not len(self._inst) + len(self._apart):
            return []
        listed = [*self._of_apart(), self._swaps()]
        limit = _nth(listed, count)
        height = max(1, _BLOCK // max(1, len(self._target)))
        for kind, bounds in zip(self._bounds.kinds, self._bounds.rows, strict=True):
            order = np.argsort(bounds, kind="stable")
            for start in range(0, len(order), height):
                part = order[start : start + height]
                part = part[bounds[part] <= limit]
                if not len(part):
                    break
                listed.append(self._estimate(kind, part, limit))
                limit = _nth(listed, count)
        return _first_of_each(listed, limit)

    def best(self) -> tuple[int, Move, float] | None:
        """Return the best move and the score after it; None if nothing can move."""
        listed = self._of_apart()
        lowest = min([self._sample(), *(estimates.least for estimates in listed)])
        if not np.isfinite(lowest):
            return None
        listed.append(self._swaps(lowest + NEAR))
        lowest = min(lowest, listed[-1].least)
        for kind, bounds in zip(self._bounds.kinds, self._bounds.rows, strict=True):
            # Instances with a higher bound cannot have the best move, see the module.
            rows = np.nonzero(bounds <= lowest + NEAR)[0]
            rows = rows[np.argsort(bounds[rows], kind="stable")]
            height = max(1, _BLOCK // max(1, len(self._target)))
            for start in range(0, len(rows), height):
                part = rows[start : start + height]
                estimates = self._estimate(kind, part, lowest + NEAR)
                listed.append(estimates)
                lowest = min(lowest, estimates.least)
        return self._exact(_spell_out(listed, lowest + NEAR))

    def _swaps(self, limit: float = _ANY) -> "_KindEstimates":
        """Estimate the moves without a target that can be below a limit."""
        inst = self._inst[self._bounds.swaps <= limit]
        nowhere = np.full(len(inst), NONE)
        if not len(inst):
            return _KindEstimates(MoveKind.FAILOVER, inst, nowhere, np.zeros(0))
        change = self._estimator.estimate(MoveKind.FAILOVER, inst, nowhere)
        return _KindEstimates(MoveKind.FAILOVER, inst, nowhere, change)

    def _of_apart(self) -> list["_KindEstimates"]:
        """Estimate all moves of the instances for which there are no bounds."""
        if not len(self._apart):
            return []
        result = []
        for kind in sorted(self._estimator.move_rules.kinds(self._apart)):
            inst = np.repeat(self._apart, len(self._target))
            target = np.tile(self._target, len(self._apart))
            if kind == MoveKind.FAILOVER:
                inst, target = self._apart, np.full(len(self._apart), NONE)
            change = self._estimator.estimate(kind, inst, target)
            result.append(_KindEstimates(kind, inst, target, change))
        return result

    def _sample(self) -> float:
        """Estimate the most promising moves until one is allowed; return the lowest."""
        bounds = self._bounds.table.ravel()
        lowest, done, count = np.inf, 0, _SAMPLE
        while np.isinf(lowest) and done < len(bounds):
            count = min(count, len(bounds))
            order: Ints = np.arange(count)
            if count < len(bounds):
                order = np.argpartition(bounds, count - 1)[:count]
            order = order[np.argsort(bounds[order], kind="stable")]
            if np.isinf(bounds[order[0]]):
                return float("inf")
            lowest = self._lowest_of(order[done:])
            done, count = count, count * _SAMPLE
        return min(lowest, _ANY)

    def _lowest_of(self, places: Ints) -> float:
        """Return the lowest estimate at some places of the table of bounds.

        The best target by its bound stands for all targets of an instance.
        """
        bounds, lowest = self._bounds, np.inf
        row, column = np.divmod(places, len(self._inst))
        least = bounds.table[row, column]
        for kind in dict.fromkeys(row.tolist()):
            rows = column[(row == kind) & (least < lowest)]
            if not len(rows):
                continue
            inst, kinds = self._inst[rows], (*bounds.kinds, MoveKind.FAILOVER)
            target = np.full(len(rows), NONE)
            if kind < len(bounds.kinds):
                target = self._target[bounds.pairs(kinds[kind], rows).argmin(axis=1)]
            change = self._estimator.estimate(kinds[kind], inst, target)
            lowest = min(lowest, float(change.min()))
        return lowest

    def _estimate(self, kind: MoveKind, rows: Ints, limit: float) -> "_KindEstimates":
        """Estimate the moves that can be below a limit."""
        at, column = self._bounds.below(kind, rows, limit)
        inst, target = self._inst[rows[at]], self._target[column]
        return _KindEstimates(
            kind, inst, target, self._estimator.estimate(kind, inst, target)
        )

    def _exact(self, listed: list[tuple[int, Move]]) -> tuple[int, Move, float] | None:
        """Return the first of the moves with the lowest exact score."""
        best: tuple[int, Move, float] | None = None
        scores = exact_deltas.after(self._state, listed, self._estimator)
        for (inst, move), score in zip(listed, scores, strict=True):
            if best is None or score < best[2]:
                best = (inst, move, score)
        return best

    def moved(self, inst: int, nodes: set[int]) -> None:
        """Update the tables after an instance moved, for the nodes that it touched."""
        touched = np.array(sorted(nodes))
        self._estimator.deltas.moved(inst)
        self._estimator.refresh(touched)
        if self._options.evacuate:
            self._allow(np.array([inst]))
        self._bounds.refresh(touched)

    def _allow(self, inst: Ints) -> None:
        """Set whether an instance still has an offline node to leave."""
        live = _to_evacuate(self._state, inst)
        if not self._estimator.deltas.not_additive[inst[0]]:
            self._bounds.allow(int(inst[0]), bool(live[0]))
            return
        self._apart = np.setdiff1d(self._apart, inst)
        if live[0]:
            self._apart = np.union1d(self._apart, inst)


class _KindEstimates(msgspec.Struct, frozen=True):
    """Estimates of moves of one kind."""

    kind: MoveKind
    inst: Ints
    target: Ints
    change: Floats

    @property
    def least(self) -> float:
        """The lowest change; infinite without any."""
        return float(self.change.min(initial=np.inf))


def _spell_out(listed: list[_KindEstimates], limit: float) -> list[tuple[int, Move]]:
    """List the moves below a limit, in the order in which they are tried."""
    moves_listed: list[tuple[int, int, MoveKind]] = []
    for part in listed:
        at = np.nonzero(part.change <= limit)[0]
        moves_listed += [
            (int(inst), int(target), part.kind)
            for inst, target in zip(part.inst[at], part.target[at], strict=True)
        ]
    return [(inst, Move(kind, target)) for inst, target, kind in sorted(moves_listed)]


def _faults(state: ClusterState) -> list[float]:
    values = components.components(state)
    return [values[name] for name in _FAULTS]


def _nth(listed: list[_KindEstimates], count: int) -> float:
    """Return the change up to which there are so many moves that differ."""
    every = np.unique(np.concatenate([part.change for part in listed]).round(_ALIKE))
    every = every[np.isfinite(every)]
    return float(every[count - 1]) + NEAR if len(every) >= count else _ANY


def _first_of_each(
    listed: list[_KindEstimates], limit: float
) -> list[tuple[int, Move]]:
    """List moves below a limit by their change, the first of equal changes."""
    first_by_change: dict[float, tuple[int, int, MoveKind]] = {}
    for part in listed:
        for at in np.nonzero(part.change <= limit)[0]:
            change = float(part.change[at].round(_ALIKE))
            move = (int(part.inst[at]), int(part.target[at]), part.kind)
            first_by_change[change] = min(move, first_by_change.get(change, move))
    ordered = (first_by_change[change] for change in sorted(first_by_change))
    return [(inst, Move(kind, target)) for inst, target, kind in ordered]
