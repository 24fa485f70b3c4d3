"""The best pair of nodes for one more of equal instances, on few nodes.

All pairs are estimated from tables, most of which a placement does not change. With
changes c1, c2 of the values at primary and secondary, their deviations d1, d2 and n
nodes, a variance changes by

    (2 c1 d1 + 2 c2 d2 + (c1^2 + c2^2) (n - 1) / n - 2 c1 c2 / n) / n.

Pairs whose estimates are within their error of the best are decided by the exact digits
of ``ExactPairScores``, which are those of ``Filler``. Tests:
test/py/unit/decisions/htools/capacity/test_table_terms.py.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from ganeti.decisions.htools.capacity.node_tables import NodeTables
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.score.counts import Count
from ganeti.decisions.htools.state.amounts import Floats, Places

RESERVED: Final = components.RESERVED
TOTAL: Final = components.RESERVED_TOTAL
#: Counts in the order of the components.
_COUNTS: Final = list(components.COUNTS.items())


class ExactPairScores:
    """Scores of pairs of some nodes, for a cluster without nodes that fail N+1.

    Attributes:
        both: number of rows that secondaries change too; these are the first.
        base: rows x nodes online, reserved memory last.
        changes: by one more primary, and by one more secondary: rows x nodes of the
            pairs. After earlier placements they are right but for rounding.
        weights: of the rows.
        within: positions of the nodes of the pairs among those online.
        whole: total memory of the nodes of the pairs.
    """

    def __init__(
        self,
        tables: NodeTables,
        usable: Places,
        up: Places,
        fixed: dict[str, float],
    ) -> None:
        """Prepare.

        Args:
            tables: of a state for one instance; placements are counted there.
            usable: nodes of the pairs.
            up: nodes over which the score is.
            fixed: components that placements do not change.
        """
        self._tables, self._usable, self._up = tables, usable, up
        places = {node: at for at, node in enumerate(up.tolist())}
        self.within = np.array([places[node] for node in usable.tolist()], np.intp)
        self.whole = tables.whole[tables.RESERVED, usable]
        # Equal components are computed once and added in their order.
        rows, of = tables.twins()
        changed = set(tables.changes_second.tolist())
        # Rows that secondaries change come first, so that slices select them.
        self._rows = sorted(rows, key=lambda row: row not in changed)
        self._row_column = np.array(self._rows, np.intp)[:, None]
        self.both = len(changed.intersection(rows))
        self._order = self._steps(of, fixed)
        self.weights = np.zeros(len(rows))
        for kind, at, weight in self._order:
            if kind == "row":
                self.weights[at] += weight
        self._stale: set[int] = set()
        self._load()

    def _steps(
        self, of: Sequence[int], fixed: dict[str, float]
    ) -> list[tuple[str, int, float]]:
        """Return how components are added: kind of term, row, and weight or value."""
        tables, out = self._tables, list[tuple[str, int, float]]()
        for name, weight in components.WEIGHTS:
            place = tables.METRICS.get(name)
            count = components.COUNTS.get(name)
            if name in {RESERVED, TOTAL}:
                out.append((name, 0, weight))
            elif count and count.is_filled(tables):
                out.append(("count", _COUNTS.index((name, count)), weight))
            elif place is not None:
                out.append(("row", self._rows.index(of[place]), weight))
            elif fixed[name]:
                out.append(("", 0, fixed[name] * weight))
        return out

    def _load(self) -> None:
        """Copy the values of the tables."""
        tables, rows, n = self._tables, self._rows, len(self._up)
        self.base = tables.base[[*rows, tables.RESERVED]][:, self._up]
        changes = [tables.first[rows], tables.second[rows]]
        # Factors of the published update: n x'^2 - n x^2 and (x' - x)^2.
        squares = [tables.first_squares[rows], tables.second_squares[rows]]
        self.changes = np.array(changes)[:, :, self._usable]
        self._squares = n * np.array(squares)[:, :, self._usable]
        self._powers = self.changes * self.changes
        self._parts = [tables.parts(rows, node) for node in self._usable]

    def count(self, at: int) -> None:
        """Update a node of the pairs after the tables counted a placement there."""
        node, place = self._usable[at], self.within[at]
        self.base[:-1, place] = self._tables.values(*self._parts[at])
        self.base[-1, place] = self._tables.reserved[node] / self.whole[at]
        # Changes of this node are computed again when they are needed.
        self._stale.add(at)

    def statistics(self) -> tuple[Floats, Floats, Floats]:
        """Return sum and variance of each row, and the deviations from the means."""
        n = len(self._up)
        sums = np.add.accumulate(self.base, axis=1)[:, -1]
        away = self.base - (sums / n)[:, None]
        variance = np.add.accumulate(away * away, axis=1)[:, -1] / n
        return sums, variance, away

    def scores(
        self,
        pairs: tuple[Places, Places],
        kept: Floats,
        *,
        sums: Floats,
        variance: Floats,
    ) -> Floats:
        """Return the score of each pair, added in the order of components.

        Args:
            pairs: positions of primaries and of secondaries.
            kept: memory that the secondaries would reserve.
            sums: of the rows.
            variance: of the rows.
        """
        self._refresh()
        rows, columns = pairs
        own, square, both = sums[:-1, None], len(self._up) ** 2, self.both
        # First the primary, in the published order of operations.
        change = self.changes[0][:, rows]
        after = self._squares[0][:, rows] - (2 * own) * change
        after -= self._powers[0][:, rows]
        after /= square
        after += variance[:-1, None]
        np.maximum(after, 0, out=after)
        # Then the secondary, from the sums after the primary.
        moved = (own + change)[:both]
        second = (-2 * moved) * self.changes[1][:both, columns]
        second += self._squares[1][:both, columns]
        second -= self._powers[1][:both, columns]
        second /= square
        second += after[:both]
        np.maximum(second, 0, out=second)
        after[:both] = second
        metrics = np.sqrt(after)
        more, deviation = self._reserve(columns, kept, sums[-1], variance[-1])
        # Terms are added in the order of components, as the score is.
        total = np.zeros(len(rows))
        for kind, at, weight in self._order:
            match kind:
                case "row":
                    total += metrics[at] * weight
                case "":
                    total += weight
                case components.RESERVED:
                    total += deviation * weight
                case components.RESERVED_TOTAL:
                    total += (more + sums[-1]) * weight
                case _:
                    total += self._counted(at, rows, columns) * weight
        return total

    def _refresh(self) -> None:
        """Compute the changes of nodes again that were counted since the last call."""
        if not self._stale:
            return
        at = np.array(sorted(self._stale), np.intp)
        self._stale.clear()
        columns = self._tables.columns(self._row_column, self._usable[at])
        squares = columns * columns
        change = columns[1:] - columns[0]
        self.changes[:, :, at] = change
        self._powers[:, :, at] = change * change
        self._squares[:, :, at] = len(self._up) * (squares[1:] - squares[0])

    def _reserve(
        self, columns: Places, kept: Floats, total: float, variance: float
    ) -> tuple[Floats, Floats]:
        """Return changes of the reserved share, and its standard deviation after."""
        n = len(self._up)
        old = self.base[-1, self.within[columns]]
        # The same update for reserved memory, whose change depends on the pair.
        new = kept / self.whole[columns]
        change = new - old
        after = new * new
        after -= old * old
        after *= n
        after -= (2 * total) * change
        after -= change * change
        after /= n * n
        after += variance
        np.maximum(after, 0, out=after)
        return change, np.sqrt(after, out=after)

    def _counted(self, at: int, rows: Places, columns: Places) -> Floats | float:
        """Return a count that pairs change; it is a whole number."""
        count, tables = _COUNTS[at][1], self._tables
        primaries, secondaries = self._usable[rows], self._usable[columns]
        value: Floats | float = count.filled(tables, self._up)
        each, pairs = count.by_copy(tables), count.by_pair(tables)
        if each is not None:
            value = value + (each[0][primaries] + each[1][secondaries])
        return value if pairs is None else value + pairs[primaries, secondaries]


#: Placements after which the error of estimates is computed again.
_ROUNDS: Final = 32
#: Error of a variance, relative to the square of the largest value: some dozens of
#: roundings.
_WRONG: Final = 64 * float(np.finfo(np.float64).eps)
_EACH: Final = slice(None)


class PairScores:
    """Scores of all pairs of some nodes, for a cluster without failing nodes.

    Tables are nodes x nodes: primaries and their secondaries.
    """

    def __init__(
        self,
        tables: NodeTables,
        usable: Places,
        up: Places,
        fixed: dict[str, float],
    ) -> None:
        """Prepare.

        Args:
            tables: of a state for one instance; placements are counted there.
            usable: nodes of the pairs.
            up: nodes over which the score is.
            fixed: components that placements do not change.
        """
        self.tables, self.usable, self._count = tables, usable, len(up)
        self._exact_scores = ExactPairScores(tables, usable, up, fixed)
        self._at = {node: at for at, node in enumerate(usable.tolist())}
        self._within = _index(self._exact_scores.within)
        state = tables.state
        groups = state.group[usable]
        self._partners = groups[:, None] == groups
        # A pair is two nodes of one group.
        np.fill_diagonal(self._partners, val=False)
        self._there = state.peers[np.ix_(usable, usable)].T + tables.reserve
        self._common: Floats = np.zeros(self._there.shape)
        #: Counts that a node changes as primary or as secondary, with their weights.
        self._counts: list[tuple[float, Count]] = []
        for name, count in components.COUNTS.items():
            if not count.is_filled(tables):
                continue
            weight, pairs = components.WEIGHT[name], count.by_pair(tables)
            if pairs is not None:
                self._common += weight * pairs[np.ix_(usable, usable)]
            if count.by_copy(tables) is not None:
                self._counts.append((weight, count))
        self._fits = [tables.can_first[usable], tables.can_second[usable]]
        self._left = [0] * len(usable)
        self._load()
        self._keep()
        self._allow()
        self._rounds = 0

    @staticmethod
    def suits(tables: NodeTables) -> bool:
        """Return whether all that matters is in the tables."""
        return not tables.is_failing.any()

    def _load(self) -> None:
        """Compute what stays: weighted changes by one more instance."""
        exact, n, both = self._exact_scores, self._count, self._exact_scores.both
        # Weights are under the root, w sigma = sqrt(w^2 sigma^2): one root per entry.
        self._square = (exact.weights * exact.weights)[:, None]
        first, second = exact.changes[0], exact.changes[1][:both]
        scale = 2 / n * self._square
        self._slope, self._slope_second = scale * first, scale[:both] * second
        bend = (n - 1) / (n * n) * self._square
        self._bend = bend * first * first
        # 2 c1 c2 / n^2, less the squares (n - 1) / n^2 of both changes.
        crossed = 2 / (n * n) * self._square[:both, :, None]
        crossed = crossed * first[:both, :, None] * second[:, None, :]
        crossed -= self._bend[:both, :, None]
        self._crossed = crossed - (bend[:both] * second * second)[:, None, :]
        self._table = np.empty((both + 1, *self._there.shape))

    def _keep(self) -> None:
        """Compute the changes by reserved memory."""
        shape = self._there.shape
        self._kept_slope, self._kept_bend, self._extra = np.zeros((3, *shape))
        self._kept = np.zeros(shape)
        for at in range(len(self.usable)):
            self._keep_at(at)

    def _keep_at(self, at: int, rows: slice | int = _EACH) -> None:
        """Compute the changes by reserved memory for one secondary."""
        exact, n = self._exact_scores, self._count
        kept = np.maximum(self._there[rows, at], self.tables.reserved[self.usable[at]])
        change = kept / exact.whole[at] - exact.base[-1, exact.within[at]]
        square = components.WEIGHT[RESERVED] ** 2
        self._kept[rows, at] = kept
        self._kept_slope[rows, at] = 2 / n * square * change
        self._kept_bend[rows, at] = (n - 1) / (n * n) * square * change * change
        self._extra[rows, at] = (
            components.WEIGHT[TOTAL] * change + self._common[rows, at]
        )

    def _allow(self) -> None:
        """Find the pairs of nodes that take one more."""
        first, second = self._fits
        self._allowed = self._partners & first[:, None] & second
        fine = self.tables.unallocated[self.usable] > self._kept
        self._open = np.where(fine & self._allowed, self._extra, np.inf)

    def _allow_at(self, at: int, rows: slice | int = _EACH) -> None:
        """Find out whether one secondary takes one more of some primaries."""
        fine = self.tables.unallocated[self.usable[at]] > self._kept[rows, at]
        fine &= self._allowed[rows, at]
        self._open[rows, at] = np.where(fine, self._extra[rows, at], np.inf)

    def take(self, first: int, second: int) -> None:
        """Count one more instance on two nodes."""
        tables = self.tables
        before = tables.reserved[second]
        tables.take((first, second))
        one, two = self._at[first], self._at[second]
        self._there[one, two] = tables.state.peers[second, first] + tables.reserve
        self._exact_scores.count(one)
        self._exact_scores.count(two)
        # Mostly the secondary reserves enough already, and one pair changes.
        changed = one if tables.reserved[second] == before else _EACH
        self._keep_at(two, changed)
        is_new = [self._judge(one, first), self._judge(two, second)]
        if any(is_new):
            self._allow()
        else:
            if tables.unallocated[first] <= tables.reserved[first] + tables.reserve:
                self._allow_at(one)
            self._allow_at(two, changed)
        self._rounds -= 1

    def _judge(self, at: int, node: int) -> bool:
        """Find out in which roles a node takes one more, and how often for sure.

        Returns whether the roles changed.
        """
        tables = self.tables
        can_first, can_second = self._fits
        before = can_first[at], can_second[at]
        if not self._left[at]:
            roles, self._left[at] = tables.roles(node)
            can_first[at], can_second[at] = roles
        else:
            self._left[at] -= 1
        if can_first[at]:
            left = tables.unallocated[node] - tables.item.memory
            can_first[at] = left > tables.reserved[node]
        return before != (can_first[at], can_second[at])

    def best(self) -> tuple[int, int] | None:
        """Return the best pair, the last one on ties; None if none is possible."""
        if self._rounds <= 0:
            # The error grows with the placements until then.
            self._rounds = _ROUNDS
            self._look()
        sums, variance, away = self._exact_scores.statistics()
        total = self._estimates(variance, away).ravel()
        place = int(total.argmin())
        least = total[place]
        if np.isinf(least):
            return None
        pairs = (total <= least + self._near).nonzero()[0]
        if len(pairs) > 1:
            pairs = self._nearer(pairs, total)
        if len(pairs) != 1:
            if not len(pairs):
                # Comparisons with NaN are false, so nothing was near: take all pairs.
                pairs = np.isfinite(self._open).ravel().nonzero()[0]
            rows, columns = np.divmod(pairs, len(self.usable))
            kept = self._kept.ravel()[pairs]
            scores = self._exact_scores.scores(
                (rows, columns), kept, sums=sums, variance=variance
            )
            place = int(pairs[len(pairs) - 1 - int(scores[::-1].argmin())])
        row, column = divmod(place, len(self.usable))
        return int(self.usable[row]), int(self.usable[column])

    def _estimates(self, variance: Floats, away: Floats) -> Floats:
        """Return the score of each pair without the terms that all pairs share."""
        both, away = self._exact_scores.both, away[:, self._within]
        rows = self._slope * away[:-1]
        rows += self._square * variance[:-1, None]
        table, pairs = self._table, self._table[:both]
        second = self._slope_second * away[:both]
        np.add(rows[:both, :, None], second[:, None, :], out=pairs)
        pairs -= self._crossed
        np.multiply(self._kept_slope, away[-1], out=table[both])
        table[both] += self._kept_bend
        table[both] += variance[-1] * components.WEIGHT[RESERVED] ** 2
        np.maximum(table, 0, out=table)
        np.sqrt(table, out=table)
        total: Floats = np.add.reduce(table, axis=0)
        alone = rows[both:] + self._bend[both:]
        np.maximum(alone, 0, out=alone)
        self._alone = np.sqrt(alone, out=alone)
        total += np.add.reduce(alone, axis=0)[:, None]
        total += self._open
        for weight, count in self._counts:
            each = count.by_copy(self.tables)
            if each is not None:
                total += weight * each[0][self.usable][:, None]
                total += weight * each[1][self.usable]
        return total

    def _look(self) -> None:
        """Compute the largest error of weighted variances in the next placements."""
        exact = self._exact_scores
        change = np.abs(exact.changes).sum(axis=0).max(axis=1)
        most = np.abs(exact.base).max(axis=1)
        most[:-1] += _ROUNDS * change
        weights = np.append(exact.weights, components.WEIGHT[RESERVED])
        self._wrong = _WRONG * (weights * np.maximum(most, 1)) ** 2
        # Two estimates are compared, and a root errs by at most the root of the error.
        self._near = float(2 * np.sqrt(self._wrong).sum())

    def _nearer(self, pairs: Places, total: Floats) -> Places:
        """Return those of some pairs that may be the best.

        The error of a root is that of the variance divided by the root, so that it is
        small where the root is large.
        """
        both, count = self._exact_scores.both, len(self.usable)
        table = self._table.reshape(both + 1, -1)[:, pairs]
        metrics = np.concatenate(
            [table[:-1], self._alone[:, pairs // count], table[-1:]]
        )
        # sqrt(a + e) - sqrt(a) <= e / sqrt(a), and <= sqrt(e).
        wrong = self._wrong[:, None] / np.maximum(
            metrics, np.sqrt(self._wrong)[:, None]
        )
        some, off = total[pairs], wrong.sum(axis=0)
        return np.asarray(pairs[some - off <= (some + off).min()])


def _index(places: Places) -> Places | slice:
    """Return an index of the same places, a slice if they are neighbours."""
    first = int(places[0]) if len(places) else 0
    are_all = np.array_equal(places, np.arange(first, first + len(places)))
    return slice(first, first + len(places)) if are_all else places
