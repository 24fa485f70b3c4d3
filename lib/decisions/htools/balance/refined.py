"""Score changes of all moves of the instances whose bounds are too loose.

Secants lose (B - A)^2 / (4 (sqrt A + sqrt B)^3) between variances A and B, see
``balance.secants``. Where gains get as small as that, the bounds of the same instances
are in question in every round. For these the change by each target is computed with the
moments of the secants, so that only the slack is lost, and updated for the few targets
that change.
"""

from typing import Final

import numpy as np

from ganeti.decisions.htools.balance.secants import SecantBounds
from ganeti.decisions.htools.model.cluster import NONE
from ganeti.decisions.htools.rules.moves import MoveKind
from ganeti.decisions.htools.score.move_estimates import MoveEstimator
from ganeti.decisions.htools.state.instance_deltas import Bools, Floats, Ints

#: Most changes that are kept (32 MiB).
_MOST: Final = 1 << 22
#: Most changes that are computed at once.
_BLOCK: Final = 1 << 15


class RefinedBounds:
    """Changes by kind and row of an instance: slots x targets.

    Attributes:
        count: slots in use.
    """

    def __init__(
        self,
        estimator: MoveEstimator,
        kinds: tuple[MoveKind, ...],
        inst: Ints,
        target: Ints,
    ) -> None:
        """Prepare for all kinds and instances."""
        self._estimator, self._kinds = estimator, kinds
        self._inst, self._target = inst, target
        self._slot: Ints = np.full((len(kinds), len(inst)), NONE)
        #: Pairs of a row that were in question while it had no slot.
        self._asked: Ints = np.zeros(self._slot.shape, np.int64)
        self._places: Ints = np.zeros((0, 2), np.int64)
        self._changes: Floats = np.zeros((0, len(target)))
        self._least: Floats = np.zeros(0)
        self._secants: SecantBounds | None = None

    @property
    def count(self) -> int:
        """Number of rows that have changes."""
        return len(self._places)

    def begin(self, secants: SecantBounds) -> None:
        """Drop all changes; new ones use the moments of these secants."""
        self._secants = secants
        self._slot.fill(NONE)
        self._asked.fill(0)
        self._keep(np.zeros(0, np.bool_))

    def _keep(self, which: Bools) -> None:
        self._places = self._places[: len(which)][which]
        self._changes = self._changes[: len(which)][which]
        self._least = self._least[: len(which)][which]
        self._slot[self._places[:, 0], self._places[:, 1]] = np.arange(self.count)

    def drop(self, rows: Ints) -> None:
        """Drop the changes of some instances."""
        self._asked[:, rows] = 0
        slots = self._slot[:, rows]
        if (slots == NONE).all():
            return
        which = np.ones(self.count, np.bool_)
        which[slots[slots != NONE]] = False
        self._slot[:, rows] = NONE
        self._keep(which)

    def ask(self, kind: int, rows: Ints, pairs: Ints) -> Ints:
        """Count pairs that are in question; list the places that get changes now."""
        self._asked[kind, rows] += pairs
        # A row pays for its changes once as many pairs as targets were in question.
        ripe = (self._slot[kind, rows] == NONE) & (
            self._asked[kind, rows] >= len(self._target)
        )
        room = max(0, _MOST // len(self._target) - self.count)
        result = np.nonzero(ripe)[0][:room]
        height = max(1, _BLOCK // len(self._target))
        for start in range(0, len(result), height):
            self._add(kind, rows[result[start : start + height]])
        return result

    def _add(self, kind: int, rows: Ints) -> None:
        every = np.arange(len(self._target))
        changes = self._compute(kind, rows, every)
        self._slot[kind, rows] = self.count + np.arange(len(rows))
        places = np.stack([np.full(len(rows), kind), rows], axis=1)
        self._places = np.concatenate([self._places, places])
        self._changes = np.concatenate([self._changes, changes])
        self._least = np.concatenate([self._least, changes.min(axis=1)])

    def _compute(self, kind: int, rows: Ints, columns: Ints) -> Floats:
        if self._secants is None:
            raise ValueError("changes without secants")
        inst, target = self._inst[rows][:, None], self._target[columns][None, :]
        changes, gains = self._estimator.from_moments(
            self._secants.moments, self._kinds[kind], inst, target
        )
        legal = np.isfinite(changes)
        # The slack must cover these changes of variances too.
        self._secants.reach_over(gains[legal], gains[legal])
        return changes

    def take(self, columns: Ints) -> None:
        """Update the changes by some targets."""
        if not self.count or not len(columns):
            return
        for kind in range(len(self._kinds)):
            slots = np.nonzero(self._places[:, 0] == kind)[0]
            if len(slots):
                rows = self._places[slots, 1]
                changes = self._compute(kind, rows, columns)
                self._changes[slots[:, None], columns] = changes
        self._least = self._changes.min(axis=1)

    def put_least(self, bounds: Floats) -> None:
        """Enter the least change of each row into a table of bounds."""
        bounds[self._places[:, 0], self._places[:, 1]] = self._least

    def put(self, kind: int, rows: Ints, pairs: Floats) -> None:
        """Enter the changes of rows into bounds of rows x targets."""
        slots = self._slot[kind, rows]
        known = np.nonzero(slots != NONE)[0]
        if len(known):
            pairs[known] = self._changes[slots[known]]
