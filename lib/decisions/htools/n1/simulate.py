"""Evacuation of lost nodes by simulation, many lost nodes side by side.

Each instance goes to the node of the group with the best score, soft rules aside. Each
node is lost alone. The variance after an arrival at a place is

    variance + extra - slope * mean,
    extra = c (2 away + c (1 - 1/n)) / n,    slope = 2 c / n,

where ``away`` is the deviation of the place from the first mean, ``mean`` the change of
the mean since, and c the change of the value: an arrival changes one column of
``extra``. A simulation ends early when places for the largest of the remaining
instances are at least as many as these: a place for the largest takes any of them, and
an arrival closes at most one of such places. Tests:
test/py/unit/decisions/htools/n1/test_table_terms.py (terms),
test/py/property/test_evacuation.py (against one by one).
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from ganeti.decisions.htools.n1 import failure_tables
from ganeti.decisions.htools.n1.failure_tables import (
    EvacuationProgress,
    FailedNode,
    FailureTables,
    Relocated,
)
from ganeti.decisions.htools.n1.slot_count import count_places
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.score.counts import NodeView
from ganeti.decisions.htools.state.amounts import Flags, Floats, Places

Rows = Places | slice

#: Relative difference below which costs are equal; the last node wins then.
_SAME: Final = 1e-12
_ALL: Final = slice(None)


def find_bad(tables: FailureTables, lost: Sequence[FailedNode]) -> int | None:
    """Return a node whose instances find no room if it alone is lost, or None."""
    progress, turn = EvacuationProgress(tables, lost), 0
    left = progress.open_at(np.nonzero(progress.lengths)[0], turn)
    while len(left):
        undecided = []
        for some in progress.groups(left, turn):
            step = _EvacuationStep(progress, some, turn)
            undecided.append(step.go())
            if step.bad is not None:
                return lost[step.bad].node
        turn += 1
        left = progress.open_at(np.concatenate(undecided), turn)
    return None


class _EvacuationStep:
    """One run of each of some lost nodes, moved side by side.

    It ends as soon as counts of places decide the rest. Matrices are lost nodes x
    places, after the components where there are any.

    Attributes:
        bad: a lost node whose instances find no room.
    """

    def __init__(self, progress: EvacuationProgress, lost: Places, turn: int) -> None:
        self.progress, self.tables = progress, progress.tables
        self.lost = lost
        self.bad: int | None = None
        runs = progress.runs_at(lost, turn)
        self.kind = runs[:, failure_tables.KIND].astype(np.intp)
        self.count, self.rest = (
            runs[:, failure_tables.COUNT],
            runs[:, failure_tables.REST],
        )
        self.most = runs.T[failure_tables.MOST][self.tables.kept]
        self.size = self.tables.needs[:, self.kind]
        least = self.size.min(axis=1)
        self.columns: Places = np.nonzero(self.tables.fits(least))[0]
        self.position = np.full(len(self.tables.places), -1, np.intp)
        self.position[self.columns] = np.arange(len(self.columns))
        self._set_room()

    def _set_room(self) -> None:
        """Set what the places have left; nothing on the lost node."""
        left, number = self.tables.left[:, self.columns], len(self.lost)
        self.room = np.repeat(left[:, None, :], number, axis=1)
        self.taken: Floats = np.zeros(self.room.shape[1:])
        self.before = self._moved_before()
        if self.before is not None:
            rows, columns = self.before.lost, self.before.columns
            taken = self.tables.takes[:, self.before.kinds] * self.before.count
            for some, amount in zip(self.room, taken, strict=True):
                np.subtract.at(some, (rows, columns), amount)
        own = self.position[self.progress.at[self.lost]]
        inside = np.nonzero(own >= 0)[0]
        # Nothing fits on the lost node itself.
        self.room[0, inside, own[inside]] = -1.0

    def _moved_before(self) -> Relocated | None:
        """Return the moves so far by row and column of the matrices."""
        moved = self.progress.moved()
        if moved is None:
            return None
        row_of = np.full(len(self.progress.lengths), -1, np.intp)
        row_of[self.lost] = np.arange(len(self.lost))
        rows, columns = row_of[moved.lost], self.position[moved.columns]
        here = np.nonzero((rows >= 0) & (columns >= 0))[0]
        if not len(here):
            return None
        return Relocated(
            rows[here], columns[here], moved.kinds[here], moved.count[here]
        )

    def _set_costs(self) -> None:
        """Set what the score needs for as long as one kind is moved."""
        progress, tables = self.progress, self.tables
        n = len(tables.places)
        change = tables.changes(self.kind[:, None], self.columns)
        away = np.zeros_like(change)
        away += tables.away[tables.rows[:, None], self.columns][:, None, :]
        self.held = np.tile(tables.held[self.columns], (len(self.lost), 1))
        if self.before is not None:
            moved = self.before
            more = tables.changes(moved.kinds, self.columns[moved.columns])
            for metric, added in zip(away, more * moved.count, strict=True):
                np.add.at(metric, (moved.lost, moved.columns), added)
            np.add.at(self.held, (moved.lost, moved.columns), moved.count)
        self.change = change
        #: Change of the variance by one more, without the part of the mean.
        self.extra = change * (2 * away + change * (1 - 1 / n)) / n
        self.slope = 2 * change / n
        self.own_change = tables.changes(self.kind, progress.at[self.lost])
        self.own = progress.own[:, self.lost]
        self.mean = progress.mean[:, self.lost]
        self.variance = progress.variance[:, self.lost]
        self._set_others()

    def _set_others(self) -> None:
        """Set the cost of places besides the standard deviations."""
        tables = self.tables
        self.reserved = tables.reserved[self.columns]
        wanted = [tables.kinds.listed[kind].wanted for kind in self.kind.tolist()]
        self.fixed: Floats = np.zeros((len(wanted), 1))
        places = tables.places[self.columns]
        for name, count in components.COUNTS.items():
            part = count.at_places(tables.state, wanted, places)
            if part is not None:
                self.fixed = self.fixed + components.WEIGHT[name] * part

    def go(self) -> Places:
        """Move the runs; return lost nodes that are still open unless one is bad."""
        # Fewer places than equal instances: no order helps.
        if self._is_bad(self.count > self._places(self.size, _ALL, above=True)):
            return self.lost
        self.check: Floats = self._lack(_ALL)
        if not (self.check > 0).all():
            if not self._keep(self.check > 0):
                return self.lost
            self.before = self._moved_before()
        self._set_costs()
        #: Numbers of moves after which runs end.
        self.ends = sorted(set(self.count.tolist()))
        ended, done = [], 0
        while self._move():
            done += 1
            if self.ends[0] == done:
                self.ends = self.ends[1:]
                ended.append(self._end(done))
                if not self._keep(self.count > done):
                    break
            # Each move lowers the lack by one at most: no need to count earlier.
            if self.check.min() <= done:
                due = np.nonzero(self.check <= done)[0]
                self.check[due] = self._lack(due)
                if not self._keep(self.check > done):
                    break
        return np.concatenate(ended) if ended else self.lost

    def _is_bad(self, is_bad: Flags) -> bool:
        """Record one bad lost node, if there is any; return whether there is."""
        if not is_bad.any():
            return False
        self.bad = int(self.lost[np.argmax(is_bad)])
        return True

    def _places(self, sizes: Floats, rows: Rows, *, above: bool) -> Floats:
        """Count how many of a size the places of each lost node take."""
        counts = count_places(sizes, self.room[:, rows], above=above)
        return np.asarray(counts.sum(axis=1))

    def _lack(self, rows: Rows) -> Floats:
        """Return how many places are missing at the start of the run.

        A place for the largest of the rest takes any of them and an arrival closes at
        most one, so as many of such places as instances are enough.
        """
        places = self._places(self.most[:, rows], rows, above=False)
        return np.asarray(self.rest[rows] - places)

    def _keep(self, which: Flags) -> bool:
        """Keep some of the lost nodes; return whether there are any."""
        if which.all():
            return True
        for name in _BY_LOST:
            if hasattr(self, name):
                setattr(self, name, getattr(self, name)[which])
        for name in _AFTER_OTHERS:
            if hasattr(self, name):
                setattr(self, name, getattr(self, name)[:, which])
        return len(self.lost) > 0

    def _end(self, done: int) -> Places:
        """Record the moves of those whose runs end; return those that are open."""
        ended = np.nonzero(self.count == done)[0]
        rows, columns = np.nonzero(self.taken[ended])
        rows, progress = ended[rows], self.progress
        lost, count = self.lost[rows], self.taken[rows, columns]
        kinds = self.kind[rows]
        progress.add(Relocated(lost, self.columns[columns], kinds, count))
        lost = self.lost[ended]
        progress.own[:, lost] = self.own[:, ended]
        progress.mean[:, lost] = self.mean[:, ended]
        progress.variance[:, lost] = self.variance[:, ended]
        return np.asarray(lost[self.rest[ended] > done])

    def _move(self) -> bool:
        """Move one instance of each lost node; return whether all found room."""
        self._leave()
        fine = (self.room > self.size[:, :, None]).all(axis=0)
        costs = np.where(fine, self._costs(), np.inf)
        least = costs.min(axis=1, initial=np.inf)
        if self._is_bad(~np.isfinite(least)):
            return False
        same = costs <= (least + _SAME * np.maximum(1.0, least))[:, None]
        # The last of the places with equal cost, as published.
        best = same.shape[1] - 1 - np.argmax(same[:, ::-1], axis=1)
        rows = np.arange(len(best))
        self._arrive(rows, best)
        self.room[:, rows, best] -= np.maximum(0, self.size)
        self.taken[rows, best] += 1
        self.held[rows, best] += 1
        return True

    def _leave(self) -> None:
        """Take one instance off each lost node."""
        change, n = self.own_change, len(self.tables.places)
        # The variance changes as by an arrival of -c, see the module.
        away = 2 * (self.own - self.mean) - change * (1 - 1 / n)
        self.variance = np.maximum(0, self.variance - change * away / n)
        self.mean = self.mean - change / n
        self.own = self.own - change

    def _arrive(self, rows: Places, best: Places) -> None:
        """Add one instance to the best place of each."""
        change = self.change[:, rows, best]
        slope, extra = self.slope[:, rows, best], self.extra[:, rows, best]
        more = extra - slope * self.mean
        self.variance = np.maximum(0, self.variance + more)
        self.mean = self.mean + change / len(self.tables.places)
        self.extra[:, rows, best] = extra + slope * change

    def _costs(self) -> Floats:
        """Return the score for each place of the instance."""
        out = self.fixed + self.tables.rest
        for row, weight in enumerate(self.tables.weights):
            after = self.extra[row] - self.slope[row] * self.mean[row, :, None]
            after += self.variance[row, :, None]
            np.maximum(after, 0, out=after)
            out = out + weight * np.sqrt(after, out=after)
        left, more = self.room[0], self.size[0][:, None]
        now = self._view(unallocated=left, held=self.held)
        after = self._view(unallocated=left - more, held=self.held + 1)
        for name, count in components.COUNTS.items():
            values = count.by_arrival(now, after)
            if values is not None:
                weight = components.WEIGHT[name]
                out = out - weight * values[0] + weight * values[1]
        return np.asarray(out)

    def _view(self, **rows: Floats) -> NodeView:
        """Return the places as counts read them, with some rows replaced."""
        nodes = self.tables.places[self.columns]
        return NodeView(self.tables.state, nodes, {"r_mem": self.reserved, **rows})


#: Attributes with an entry per lost node, on their first and on their second axis.
_BY_LOST: Final = ("lost", "kind", "count", "rest", "check", "fixed", "taken", "held")
_AFTER_OTHERS: Final = (
    *("size", "most", "room"),
    *("change", "extra", "slope", "own_change", "own", "mean", "variance"),
)
