"""Estimates for instances of which nobody said how many spindles they take.

One that is still to come is placed all the same when soft errors do not count. Its node
then has -1 spindle left, whatever it had, and leaving gives nothing back: no sum, which
``candidates`` takes every change for. Here is what that makes wrong. Instances that are
there are never placed so, on nodes with exclusive storage.
"""

from typing import Final

import numpy as np

from ganeti.htools import grid_score as score
from ganeti.htools.effects import LATER, Effects, Floats, Ints, Row
from ganeti.htools.legality import Legality, Move

#: Spindles of a node that took an unknown number.
_UNKNOWN: Final = -1.0
_NAME: Final = "free_disk_cv_forth"
_DISK: Final = LATER[Row.DISK]


class Correction:
    """Of estimates, for the state of the rules it was given.

    Args:
        rules: what moves are, and what instances gain.
        inverse: 1 / disk of nodes, 0 for those offline or with exclusive storage.
        second: 1 / spindles of those with exclusive storage.
    """

    def __init__(self, rules: Legality, inverse: Floats, second: Floats | None) -> None:
        self._state = rules.state
        self._gain = rules.gain
        self._inverse = inverse
        self._second = np.zeros_like(inverse) if second is None else second
        effects: Effects = rules.effects
        self._unknown = effects.unplaceable & bool(self._state.exclusive.any())
        self._is_needed = bool(self._unknown.any())

    def of(self, move: Move) -> Floats:
        """Return what to add to the estimates of moves."""
        asked = self._unknown[move.inst] if self._is_needed else np.zeros(1, np.bool_)
        online = self._state.online
        if not (asked.any() and online.any()):
            return np.zeros(1)
        values = score.SPREADS[_NAME](self._state)
        far = np.where(online, values - values[online].mean(), 0.0)
        count = int(online.sum())
        roots = [
            np.sqrt(np.maximum((far * far).sum() / count + gain, 0.0))
            for gain in self._gains(move, far, count)
        ]
        result: Floats = np.where(asked, score.WEIGHT[_NAME] * (roots[1] - roots[0]), 0)
        return result

    def _gains(self, move: Move, far: Floats, count: int) -> tuple[Floats, Floats]:
        """Return the changes of the variance: as estimated, and as they are."""
        squares: list[Floats] = [np.zeros(1), np.zeros(1)]
        sums: list[Floats] = [np.zeros(1), np.zeros(1)]
        for node, before, after in (
            (move.primary, "p", move.ends.primary),
            (move.secondary, "s", move.ends.secondary),
            (move.target, "", move.ends.target),
        ):
            step = np.zeros(1)
            if after not in {"=", before}:
                step = self._gain[before, after][_DISK][move.inst] * self._inverse[node]
            placed = self._placed(node) if after else np.zeros(1)
            for at, one in enumerate((step, step + placed)):
                squares[at] = squares[at] + one * (2.0 * far[node] + one)
                sums[at] = sums[at] + one
        first, second = (
            (square - total * total / count) / count
            for square, total in zip(squares, sums, strict=True)
        )
        return first, second

    def _placed(self, node: Ints) -> Floats:
        """Return what nodes' shares of free spindles gain where it is placed."""
        change = _UNKNOWN - self._state.f_spin_later[node]
        result: Floats = change * self._second[node]
        return result
