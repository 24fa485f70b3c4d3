"""The best next moves of a state: the best one, the best few, the best pair.

Lower bounds exclude most moves, estimates are computed for the others, and exact scores
for those within ``NEAR`` of the lowest estimate. Why no best move is lost: an estimate
e is within eps of the true change, eps about 1e-10, and a bound is at most e + eps. The
best move has a change of at most the lowest estimate + eps, so its estimate and its
bound are at most 3 eps above the lowest estimate, far less than ``NEAR``. When to stop
is decided in ``balance.greedy``.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from ganeti.decisions.htools.balance.lower_bounds import MoveBounds
from ganeti.decisions.htools.model.cluster import NONE
from ganeti.decisions.htools.rules import moves
from ganeti.decisions.htools.rules.move_constraints import (
    MoveOptions,
    permitted_kinds,
)
from ganeti.decisions.htools.rules.moves import Move, MoveKind
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.score.move_estimates import MoveEstimator
from ganeti.decisions.htools.state import amounts
from ganeti.decisions.htools.state.amounts import ROWS, Flags, Floats, Ints
from ganeti.decisions.htools.state.node_state import ClusterState

# Exact scores after each of many moves: the digits of scoring each moved state.
#
# Ties between moves are frequent and are decided by the last digit, so estimates choose
# candidates only. Digits are reproduced because amounts of nodes change by the same
# operations in the same order as in a state: first off the primary node, then off the
# secondary node, then onto the new primary, then onto the new secondary. Sums over
# nodes run in node order, and components are added in the order of their table. All
# moves are computed side by side. Tests:
# test/py/unit/decisions/htools/score/test_terms.py for the terms, and
# test/py/property/test_placement_state.py for the digits.

#: Nodes that a move touches: old primary, old secondary, target.
_TOUCHED: Final = 3
#: For so few moves, doing and undoing each is faster than tables.
_FEW: Final = 8
#: Most entries of one table (1 MiB).
_CHUNK: Final = 1 << 17
_ROWS: Final = amounts.CHANGED_ROWS
_RESERVED: Final = ROWS.index("r_mem")


def exact_after(
    state: ClusterState,
    listed: Sequence[tuple[int, Move]],
    estimator: MoveEstimator | None = None,
) -> list[float]:
    """Return the score after each move, with the digits of ``components.value``.

    ``estimator`` is an estimator of this state; it is created if not given.
    """
    if len(listed) <= _FEW or not state.online.any():
        return [_after_one(state, inst, move) for inst, move in listed]
    estimator = estimator or MoveEstimator(state, MoveOptions())
    if not estimator.deltas.are_sums:
        return [_after_one(state, inst, move) for inst, move in listed]
    together = max(2, _CHUNK // max(1, state.size))
    parts = [listed[at : at + together] for at in range(0, len(listed), together)]
    return [value for part in parts for value in _together(estimator, part)]


def _together(
    estimator: MoveEstimator, listed: Sequence[tuple[int, Move]]
) -> list[float]:
    # NumPy adds a table of one column pairwise, which gives other digits.
    return _Trials(estimator, [*listed, listed[0]]).scores()[:-1]


def _after_one(state: ClusterState, inst: int, move: Move) -> float:
    with moves.trial(state, inst, move.target):
        moves.apply(state, inst, move)
        return components.value(state)


class _Trials:
    """Nodes that some moves touch, after each move: arrays of moves x touched nodes.

    Besides its rows, it has the attributes of a state from which the values of nodes
    are computed. There must be at least two moves, see ``_sums``.
    """

    def __init__(
        self, estimator: MoveEstimator, listed: Sequence[tuple[int, Move]]
    ) -> None:
        self._estimator, self._state = estimator, estimator.state
        inst = np.array([inst for inst, _move in listed])
        target = np.array([move.target for _inst, move in listed])
        kinds = np.array([move.kind for _inst, move in listed])
        self._move = move = estimator.move_rules.move(MoveKind.FAILOVER, inst, target)
        nodes = (move.primary, move.secondary, target)
        # A move that touches fewer nodes repeats its old primary.
        places = [np.where(node == NONE, move.primary, node) for node in nodes]
        self._places: Ints = np.array(places).T
        self._rows: Floats = estimator.state.rows[:, self._places]
        #: Changes of counts. They are whole numbers, so their digits are exact.
        self._changes = {name: np.zeros(len(inst)) for name in estimator.counts}
        self._new: tuple[Ints, Ints] = (move.primary.copy(), move.secondary.copy())
        for kind in set(kinds.tolist()):
            self._move_kind(MoveKind(kind), np.nonzero(kinds == kind)[0])
        self._rows[_RESERVED] = np.where(
            np.array(nodes).T == NONE,
            self._rows[_RESERVED, :, :1],
            self._rows[_RESERVED],
        )
        self._move_amounts()

    def _move_kind(self, kind: MoveKind, at: Ints) -> None:
        """Enter the new nodes of all moves of a kind, and the reserved memory there."""
        rules, every = self._estimator.move_rules, self._move
        move = rules.move(kind, every.inst[at], every.target[at])
        reserved = rules.reserved_after(move)
        self._rows[_RESERVED, at] = np.array(reserved).T
        for name, changes in self._estimator.counts.items():
            self._changes[name][at] = changes.change(move, reserved)
        roles = {move.ends.target: move.target}
        for old, node in (("p", move.primary), ("s", move.secondary)):
            ends = move.ends.primary if old == "p" else move.ends.secondary
            roles[old if ends == "=" else ends] = node
        self._new[0][at], self._new[1][at] = roles["p"], roles["s"]

    def _at(self, node: Ints) -> Flags:
        """Return which of the touched nodes a node is: moves x touched nodes."""
        return np.asarray(self._places == node[:, None])

    def _move_amounts(self) -> None:
        """Take instances off their nodes, and put them onto the new ones."""
        deltas, inst = self._estimator.deltas, self._move.inst
        first = deltas.as_primary[_ROWS][:, inst, None]
        second = deltas.as_secondary[_ROWS][:, inst, None]
        rows, counted = self._rows[_ROWS], deltas.counted[_ROWS][:, self._places]
        # The order of a state: off primary, off secondary, onto primary, secondary.
        for node, amount in (
            (self._move.primary, -first),
            (self._move.secondary, -second),
            (self._new[0], first),
            (self._new[1], second),
        ):
            rows += amount * (counted * self._at(node))
        self._rows[_ROWS] = rows

    def __getattr__(self, name: str) -> Any:
        if name in ROWS:
            return self._rows[ROWS.index(name)]
        return getattr(self._state, name)[self._places]

    def scores(self) -> list[float]:
        """Return the score after each move."""
        now = components.metric_values(self._state)
        fixed = components.components(self._state, metrics=now)
        values: dict[str, Floats | float] = dict(fixed)
        for name, change in self._changes.items():
            values[name] = fixed[name] + change
        values |= self._deviations(now)
        total: Floats = np.zeros(len(self._places))
        for name, weight in components.WEIGHTS:
            total = total + weight * values[name]
        return [float(value) for value in total]

    def _deviations(self, now: dict[str, Floats]) -> dict[str, Floats]:
        """Return standard deviations that change, and the sum of reserved memory."""
        up = np.nonzero(self._state.online)[0]
        result: dict[str, Floats] = {}
        known: dict[tuple[bytes, bytes], tuple[Floats, Floats]] = {}
        for name, metric in components.METRICS.items():
            old, new = now[name], metric.values(self)  # type: ignore[arg-type]
            same = self._state.offline[self._places] | (old[self._places] == new)
            if same.all():
                continue
            # Equal components have equal digits: each is computed once.
            key = old.tobytes(), new.tobytes()
            if key not in known:
                known[key] = self._sums(old[up], new)
            result[name], total = known[key]
            for sum_name, of in components.TOTALS.items():
                if of == name:
                    result[sum_name] = total
        return result

    def _sums(self, old: Floats, new: Floats) -> tuple[Floats, Floats]:
        """Return standard deviation and sum of values, some replaced, for each move.

        Args:
            old: values of the online nodes.
            new: values of the touched nodes.
        """
        online = self._state.online
        move, column = np.nonzero(online[self._places])
        place = (np.cumsum(online) - 1)[self._places[move, column]]
        # Sums along the first axis of a table with several columns run in node order.
        table = np.repeat(old[:, None], len(new), axis=1)
        table[place, move] = new[move, column]
        total: Floats = np.add.reduce(table, axis=0)
        table -= total / len(old)
        table *= table
        deviation: Floats = np.sqrt(np.add.reduce(table, axis=0) / len(old))
        return deviation, total


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


def eligible(state: ClusterState, options: MoveOptions) -> Flags:
    """Return which instances may move now."""
    result = np.array(
        [inst.movable and inst.auto_balance for inst in state.instances],
        dtype=np.bool_,
    )
    if options.evacuate:
        result &= _to_evacuate(state, np.arange(len(result)))
    return result


def _to_evacuate(state: ClusterState, inst: Ints) -> Flags:
    """Return which instances have an offline node."""
    first, second = np.array(state.pri)[inst], np.array(state.sec)[inst]
    result: Flags = state.offline[first] | (second != NONE) & state.offline[second]
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
        scores = exact_after(state, first, self._estimator)
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
        for kind in sorted(permitted_kinds(self._apart, self._estimator.move_rules)):
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
        scores = exact_after(self._state, listed, self._estimator)
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
