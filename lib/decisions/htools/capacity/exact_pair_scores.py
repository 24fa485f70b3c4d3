"""Exact scores of single pairs of nodes, with the digits of ``Filler``.

The statistics of all nodes and the changes by one more of equal instances are kept up
to date for ``capacity.pair_scores``. Components that are equal everywhere are computed
once.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ganeti.decisions.htools.capacity.node_tables import NodeTables
from ganeti.decisions.htools.score import components

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

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
