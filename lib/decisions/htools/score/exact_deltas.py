"""Exact scores after each of many moves: the digits of scoring each moved state.

Ties between moves are frequent and are decided by the last digit, so estimates choose
candidates only. Digits are reproduced because amounts of nodes change by the same
operations in the same order as in a state (off primary, off secondary, onto primary,
onto secondary), sums over nodes run in node order, and components are added in the
order of their table. All moves are computed side by side. Tests:
test/py/unit/decisions/htools/score/test_terms.py (terms),
test/py/property/test_placement_state.py (digits).
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ganeti.decisions.htools.model.cluster import NONE
from ganeti.decisions.htools.rules import moves
from ganeti.decisions.htools.rules.move_constraints import MoveOptions
from ganeti.decisions.htools.rules.moves import Move, MoveKind
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.score.move_estimates import MoveEstimator
from ganeti.decisions.htools.state import amounts
from ganeti.decisions.htools.state.columns import ROWS
from ganeti.decisions.htools.state.instance_deltas import Bools, Floats, Ints
from ganeti.decisions.htools.state.node_state import ClusterState

#: Nodes that a move touches: old primary, old secondary, target.
_TOUCHED: Final = 3
#: For so few moves, doing and undoing each is faster than tables.
_FEW: Final = 8
#: Most entries of one table (1 MiB).
_CHUNK: Final = 1 << 17
_ROWS: Final = amounts.CHANGED_ROWS
_RESERVED: Final = ROWS.index("r_mem")


def after(
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

    def _at(self, node: Ints) -> Bools:
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
