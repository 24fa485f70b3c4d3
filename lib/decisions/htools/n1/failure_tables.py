"""Tables of the nodes of a group, and of each lost node, for ``n1.simulate``.

A value x of n nodes that changes by c changes the variance by c (2 (x - mu) + c (1 -
1/n)) / n. The tables hold x - mu at the start (``away``) and c per kind of instance and
node (``changes``). Tests: test/py/unit/decisions/htools/n1/test_table_terms.py.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from ganeti.decisions.htools.n1 import evacuees
from ganeti.decisions.htools.n1.evacuees import EvacueeKinds
from ganeti.decisions.htools.n1.slot_count import count_places
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.state.columns import ROWS
from ganeti.decisions.htools.state.node_state import ClusterState

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]

#: Most entries of one matrix of lost nodes x places.
_CHUNK: Final = 1 << 16
#: Fewest lost nodes that are simulated in several parts.
_SPLIT: Final = 8
#: More places of one node than are ever needed; sums of it are exact.
_ENOUGH: Final = 1e9


def is_usual(state: ClusterState, places: Places) -> bool:
    """Return whether the tables describe everything that matters of a group."""
    exclusive = places[state.exclusive[places]]
    if len(exclusive) and not (
        state.spindle_count[exclusive].all() and (state.f_spin[exclusive] >= 0).all()
    ):
        return False
    return bool(state.online[places].all())


class FailedNode(msgspec.Struct, frozen=True, eq=False):
    """A lost node and the runs that leave it, as ``runs`` of the kinds gives them."""

    node: int
    runs: Floats


class FailureTables:
    """The nodes of a group as tables, with a column per node."""

    def __init__(
        self, state: ClusterState, places: Places, kinds: EvacueeKinds
    ) -> None:
        """Prepare.

        Args:
            state: must not change while the tables are used.
            places: nodes of the group, online.
            kinds: of the instances.
        """
        self.state, self.places, self.kinds = state, places, kinds
        metrics = components.metric_values(state)
        base = np.array([values[places] for values in metrics.values()])
        #: Metrics x nodes: deviation from the mean.
        self.away: Floats = base - base.mean(axis=1, keepdims=True)
        self.variance: Floats = (self.away * self.away).mean(axis=1)
        self.exclusive = state.exclusive[places]
        self._set_parts(list(metrics))
        self._choose_rows([components.WEIGHT[name] for name in metrics])
        self.reserved, self.held = state.r_mem[places], state.held[places]
        self.has_exclusive = bool(self.exclusive.any())
        self.amounts, self.sizes = kinds.tables()
        self._set_room()
        self._fitting: dict[int, int] = {}

    def _set_room(self) -> None:
        """Set the amounts that nodes have left, without those that decide nothing.

        An instance fits if every amount left is larger than its need. Of spindles, an
        equal number is enough; half a spindle is added, so that the comparison is the
        same.
        """
        state, places = self.state, self.places
        spindles = np.where(self.exclusive, state.f_spin[places] + 0.5, np.inf)
        # An instance without a disk needs -1 MiB, so that it fits where none is left.
        disk = np.maximum(-0.5, state.f_dsk[places])
        self.kept = [0]
        if (self.sizes[:, 1] >= 0).any():
            self.kept.append(1)
        if self.has_exclusive:
            self.kept.append(2)
        self.left = np.array([state.unallocated[places], disk, spindles])[self.kept]
        self.needs = self.sizes.T[self.kept]
        self.takes = np.maximum(0, self.needs)

    def _set_parts(self, order: list[str]) -> None:
        """Set by how much the value of a node changes per unit of an amount.

        Disks on exclusive storage are counted by spindles (``apart``), and not by size.
        """
        state, places, apart = self.state, self.places, self.exclusive
        self.part = np.ones_like(self.away)
        self.apart = np.zeros_like(self.away)
        # Spindles of exclusive storage are a share of those of the node.
        spindles = np.where(apart, _inverse(state.spindle_count[places]), 0)
        for row, metric in enumerate(map(components.METRICS.__getitem__, order)):
            if metric.whole:
                whole: Floats = getattr(state, metric.whole)
                if metric.by_speed:
                    whole = whole * state.speed
                self.part[row] = _inverse(whole[places])
            self.part[row] *= state.keepers[ROWS.index(metric.row), places]
            if metric.spindles:
                self.apart[row] = spindles
                self.part[row, apart] = 0

    def _choose_rows(self, weights: Sequence[float]) -> None:
        """Choose the components that matter, one for several that are equal."""
        weight_of: dict[int, float] = {}
        #: Weighted sum of the components that no move of these kinds changes.
        self.rest = 0.0
        tables = (self.away, self.part, self.apart)
        for row, weight in enumerate(weights):
            if not self.kinds.counts[row] and not self.apart[row].any():
                self.rest += weight * float(np.sqrt(self.variance[row]))
                continue
            like = row
            for other in weight_of:
                if not self.kinds.differ[row, other] and all(
                    np.array_equal(table[row], table[other]) for table in tables
                ):
                    like = other
                    break
            weight_of[like] = weight_of.get(like, 0.0) + weight
        self.rows = np.array(list(weight_of), np.intp)
        self.weights = list(weight_of.values())

    def changes(self, kinds: Places, columns: Places) -> Floats:
        """Return [component, ...]: the change of nodes' values by one more of a kind.

        Args:
            kinds: numbers of kinds.
            columns: of nodes, as many or broadcast with these.
        """
        rows = self.rows.reshape(-1, *[1] * np.broadcast(kinds, columns).ndim)
        out = self.amounts[rows, kinds] * self.part[rows, columns]
        if self.has_exclusive:
            out = out - self.sizes[kinds, 2] * self.apart[rows, columns]
        return np.asarray(out)

    def count(self, sizes: Floats) -> Floats:
        """Return [size, node] -> how often the node takes the size, at the start.

        Args:
            sizes: [memory or disk or spindles, size].
        """
        parts = []
        step = max(1, _CHUNK // len(self.places))
        for at in range(0, sizes.shape[1], step):
            some = sizes[:, at : at + step]
            left = np.repeat(self.left[:, None, :], some.shape[1], axis=1)
            parts.append(count_places(some, left, above=False))
        # Sums of whole numbers of this size are exact.
        return np.minimum(np.concatenate(parts), _ENOUGH)

    def fits(self, needs: Floats) -> Flags:
        """Return which nodes have room for one instance with these needs."""
        return np.asarray((self.left > needs[:, None]).all(axis=0))

    def fitting(self, kind: int) -> int:
        """Count the nodes that have room for one of a kind."""
        if kind not in self._fitting:
            self._fitting[kind] = int(self.fits(self.needs[:, kind]).sum())
        return self._fitting[kind]


def _inverse(whole: Floats) -> Floats:
    out: Floats = np.divide(1, whole, out=np.zeros(len(whole)), where=whole != 0)
    return out


class Relocated(msgspec.Struct, frozen=True, eq=False):
    """Moves so far: lost node, column, kind and number, side by side."""

    lost: Places
    columns: Places
    kinds: Places
    count: Floats


class EvacuationProgress:
    """The state of the simulation for each lost node.

    Attributes:
        at: column of each lost node.
        lengths: number of runs of each.
        own, mean, variance: components x lost nodes: deviation of the lost node from
            the first mean, change of the mean so far, and present variance.
    """

    def __init__(self, tables: FailureTables, lost: Sequence[FailedNode]) -> None:
        """Begin with all instances where they are."""
        self.tables = tables
        self.lengths = np.array([len(one.runs) for one in lost], np.intp)
        self._starts = np.cumsum(self.lengths) - self.lengths
        self._runs = np.concatenate([one.runs for one in lost])
        self.at = np.searchsorted(tables.places, [one.node for one in lost])
        rows = tables.rows
        self.own = tables.away[rows[:, None], self.at]
        self.mean: Floats = np.zeros_like(self.own)
        self.variance = np.repeat(tables.variance[rows, None], len(lost), axis=1)
        self._moved: list[Relocated] = []

    def add(self, moved: Relocated) -> None:
        """Record moves."""
        self._moved.append(moved)

    def moved(self) -> Relocated | None:
        """Return all moves, None without any."""
        if len(self._moved) > 1:
            every = self._moved
            joined = Relocated(
                np.concatenate([some.lost for some in every]),
                np.concatenate([some.columns for some in every]),
                np.concatenate([some.kinds for some in every]),
                np.concatenate([some.count for some in every]),
            )
            self._moved = [joined]
        return self._moved[0] if self._moved else None

    def runs_at(self, lost: Places, turn: int) -> Floats:
        """Return the run of each of some lost nodes after ``turn`` other runs."""
        return np.asarray(self._runs[self._starts[lost] + turn])

    def open_at(self, left: Places, turn: int) -> Places:
        """Return the lost nodes for which places may not be enough.

        The places for the largest of the rest are counted as at the start, without
        nodes that received instances: ``n1.simulate`` counts these.
        """
        if not len(left):
            return left
        tables, runs = self.tables, self.runs_at(left, turn)
        sizes, each = np.unique(runs[:, evacuees.MOST], axis=0, return_inverse=True)
        each = each.reshape(-1)
        counts = tables.count(sizes.T[tables.kept])
        counts_open = counts.sum(axis=1)[each] - counts[each, self.at[left]]
        moved = self.moved()
        if moved is not None:
            row_of = np.full(len(self.lengths), -1, np.intp)
            row_of[left] = np.arange(len(left))
            rows = row_of[moved.lost]
            here = rows >= 0
            rows = rows[here]
            np.subtract.at(counts_open, rows, counts[each[rows], moved.columns[here]])
        return np.asarray(left[counts_open < runs[:, evacuees.REST]])

    def groups(self, left: Places, turn: int) -> Iterator[Places]:
        """Yield parts of lost nodes whose next runs have a similar number of places."""
        if len(left) < _SPLIT:
            yield left
            return
        numbers = self.runs_at(left, turn)[:, evacuees.KIND].astype(np.intp)
        kinds, each = np.unique(numbers, return_inverse=True)
        fitting = [self.tables.fitting(kind) for kind in kinds.tolist()]
        counts = np.array(fitting)[each]
        # Similar numbers of places waste little of a common table.
        like = np.ceil(np.log2(counts + 1)) // 2
        for size in np.unique(like):
            rows = left[like == size]
            step = max(1, _CHUNK // max(1, int(counts[like == size].max())))
            for start in range(0, len(rows), step):
                yield rows[start : start + step]
