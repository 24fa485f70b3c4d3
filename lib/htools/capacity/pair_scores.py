"""The best pair of nodes for one more of equal instances, on few nodes.

The digits are those of ``Filler`` in ``capacity.greedy``, which says what a pair costs;
here what is the same for several components is worked out once, and a placement changes
the columns of its two nodes alone.
"""

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from ganeti.htools import grid_score as score
from ganeti.htools.capacity.node_tables import NodeTables

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]

_RESERVED: Final = "reserved_mem_cv"
_TOTAL: Final = "reserved_mem_rtotal"


class PairScores:
    """All pairs of some nodes, for a cluster without failing nodes and locations."""

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
        self.tables, self.usable, self.up = tables, usable, up
        self._at = {node: at for at, node in enumerate(usable.tolist())}
        self._place = {node: at for at, node in enumerate(up.tolist())}
        within = np.array([self._place[node] for node in self._at], np.intp)
        self._where, self._within = _index(usable), _index(within)
        self._rows, self._of = tables.twins()
        self._row_column = np.array(self._rows, np.intp)[:, None]
        self._order = self._steps(fixed)
        state = tables.state
        groups = state.group[usable]
        self._partners = groups[:, None] == groups
        np.fill_diagonal(self._partners, val=False)
        self._there = state.peers[np.ix_(usable, usable)].T + tables.reserve
        self._whole = tables.whole[tables.RESERVED, usable]
        self._fits = [tables.can_first[usable], tables.can_second[usable]]
        self._left = [0] * len(usable)
        self._allow()
        self._load()

    @staticmethod
    def suits(tables: NodeTables) -> bool:
        """Tell whether nothing counts that is left out here."""
        return not (tables.is_failing.any() or tables.has_places)

    def _steps(self, fixed: dict[str, float]) -> list[tuple[str, int, float]]:
        """Return how components are added up: kind, position there, weight or value.

        Weighted by position are the rows that only primaries change, and those that
        both nodes of a pair do.
        """
        tables, out = self.tables, list[tuple[str, int, float]]()
        both = [row for row in self._rows if row in set(tables.changes_second.tolist())]
        self._both = np.array([self._rows.index(row) for row in both], np.intp)
        singles, doubles = list[tuple[int, float]](), list[tuple[int, float]]()
        for name, weight in score.WEIGHTS:
            place = tables.SPREADS.get(name)
            if name in {_RESERVED, _TOTAL}:
                out.append((name, 0, weight))
            elif place is None:
                if fixed[name]:
                    out.append(("", 0, fixed[name] * weight))
            elif self._of[place] in both:
                out.append(("both", len(doubles), weight))
                doubles.append((both.index(self._of[place]), weight))
            else:
                out.append(("row", len(singles), weight))
                singles.append((self._rows.index(self._of[place]), weight))
        self._row_at, self._row_weights = _columns(singles)
        self._both_at, self._both_weights = _columns(doubles)
        return out

    def _allow(self) -> None:
        """Find the pairs of nodes that take one more, memory kept aside apart."""
        first, second = self._fits
        self._allowed = self._partners & first[:, None] & second

    def _load(self) -> None:
        """Copy what the tables have."""
        tables, rows, n = self.tables, self._rows, len(self.up)
        self._base = tables.base[[*rows, tables.RESERVED]][:, self.up]
        change = [tables.first[rows], tables.second[rows]]
        squares = [tables.first_squares[rows], tables.second_squares[rows]]
        self._change = np.array(change)[:, :, self.usable]
        self._squares = n * np.array(squares)[:, :, self.usable]
        self._powers = self._change * self._change

    def take(self, first: int, second: int) -> None:
        """Count one more instance on two nodes."""
        tables, nodes = self.tables, (first, second)
        tables.take(nodes)
        one, two = self._at[first], self._at[second]
        self._there[one, two] = tables.state.peers[second, first] + tables.reserve
        columns = tables.columns(self._row_column, np.array(nodes))
        squares, at = columns * columns, np.array([one, two])
        places = [self._place[first], self._place[second]]
        self._base[:-1, places] = columns[0]
        self._base[-1, places[1]] = tables.reserved[second] / self._whole[two]
        change = columns[1:] - columns[0]
        self._change[:, :, at] = change
        self._powers[:, :, at] = change * change
        self._squares[:, :, at] = len(self.up) * (squares[1:] - squares[0])
        is_new = [self._judge(node) for node in nodes]
        if any(is_new):
            self._allow()

    def _judge(self, node: int) -> bool:
        """Find out in which roles a node takes one more, and how often for sure.

        Returns whether that is new.
        """
        tables, at = self.tables, self._at[node]
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
        tables, usable, n = self.tables, self._where, len(self.up)
        values = self._base
        sums = np.add.accumulate(values, axis=1)[:, -1]
        away = values - (sums / n)[:, None]
        away *= away
        variance = np.add.accumulate(away, axis=1)[:, -1] / n
        kept = np.maximum(self._there, tables.reserved[usable])
        fine = tables.unallocated[usable] > kept
        fine &= self._allowed
        total = self._total(sums, variance, kept)
        flat = np.where(fine, total, np.inf).ravel()
        place = len(flat) - 1 - int(flat[::-1].argmin())
        if math.isinf(flat[place]):
            return None
        row, column = divmod(place, len(self.usable))
        return int(self.usable[row]), int(self.usable[column])

    def _total(self, sums: Floats, variance: Floats, kept: Floats) -> Floats:
        """Return [primary, secondary] -> score, summed in the order of components."""
        own, square = sums[:-1, None], len(self.up) ** 2
        after = self._squares[0] - (2 * own) * self._change[0]
        after -= self._powers[0]
        after /= square
        after += variance[:-1, None]
        np.maximum(after, 0, out=after)
        both = self._both
        moved = (own + self._change[0])[both]
        pairs = (-2 * moved)[:, :, None] * self._change[1][both][:, None]
        pairs += self._squares[1][both][:, None]
        pairs -= self._powers[1][both][:, None]
        pairs /= square
        pairs += after[both][:, :, None]
        np.maximum(pairs, 0, out=pairs)
        np.sqrt(pairs, out=pairs)
        pairs = pairs[self._both_at]
        pairs *= self._both_weights
        rows = np.sqrt(after[self._row_at])[:, :, None]
        rows *= self._row_weights
        change, spread = self._reserve(kept, float(sums[-1]), float(variance[-1]))
        total: Floats = np.zeros(kept.shape)
        for kind, at, weight in self._order:
            match kind:
                case "row":
                    total += rows[at]
                case "both":
                    total += pairs[at]
                case "":
                    total += weight
                case "reserved_mem_cv":
                    total += spread * weight
                case _:
                    total += (change + sums[-1]) * weight
        return total

    def _reserve(
        self, kept: Floats, total: float, variance: float
    ) -> tuple[Floats, Floats]:
        """Return how reserved parts change, and their spread, for all pairs."""
        n = len(self.up)
        old = self._base[-1, self._within]
        new = kept / self._whole
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


def _index(places: Places) -> Places | slice:
    """Return what picks the same places, quickly if they are neighbours."""
    first = int(places[0]) if len(places) else 0
    are_all = np.array_equal(places, np.arange(first, first + len(places)))
    return slice(first, first + len(places)) if are_all else places


def _columns(weighted: list[tuple[int, float]]) -> tuple[Places, Floats]:
    places = np.array([place for place, _weight in weighted], np.intp)
    weights = np.array([weight for _place, weight in weighted], np.float64)
    return places, weights[:, None, None]
