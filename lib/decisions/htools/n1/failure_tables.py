"""Tables of the nodes of a group, and of each lost node, for ``n1.simulate``.

A value x of n nodes that changes by c changes the variance by c (2 (x - mu) + c (1 -
1/n)) / n. The tables hold x - mu at the start (``away``) and c per kind of instance and
node (``changes``). Tests: test/py/unit/decisions/htools/n1/test_table_terms.py.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from ganeti.decisions.htools.model.cluster import NONE, Instance
from ganeti.decisions.htools.n1.slot_count import count_places
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.state import amounts
from ganeti.decisions.htools.state.amounts import ROWS, Flags, Floats, Places
from ganeti.decisions.htools.state.node_state import ClusterState

_ROWS: Final = [ROWS.index(metric.row) for metric in components.METRICS.values()]

#: Columns of a table of runs: number of the kind, how many there are in a row, how many
#: leave from there on, and the most that any of these takes (as in
#: ``EvacueeKind.size``).
KIND, COUNT, REST, MOST = 0, 1, 2, slice(3, 6)


class EvacueeKind(NamedTuple):
    """Properties that instances of one kind share.

    Attributes:
        size: memory, disk (-1 without a disk of its own) and spindles that one takes.
        amounts: what one adds to the values of a node, before division by the capacity,
            in the order of the components.
        wanted: the location tags that it desires.
    """

    size: tuple[int, int, int]
    amounts: tuple[float, ...]
    wanted: frozenset[str]


class EvacueeKinds:
    """Numbers the kinds of the instances of a cluster when they are first met.

    Attributes:
        listed: the kinds by number.
        counts: components that any of them changes.
        differ: [component, component] -> some kind changes the two differently.
    """

    def __init__(self) -> None:
        """Start without kinds."""
        self.listed: list[EvacueeKind] = []
        self._numbers: dict[EvacueeKind, int] = {}
        #: id of a record -> the record and its number; keeping it keeps the id unique.
        self._known: dict[int, tuple[Instance, int]] = {}
        #: A record without name and place -> its number: most instances have equals.
        self._equals: dict[Instance, int] = {}
        self.counts: Flags = np.zeros(len(components.METRICS), bool)
        self.differ: Flags = np.zeros((len(components.METRICS),) * 2, bool)
        self._tables: tuple[Floats, Floats] | None = None

    def runs(self, state: ClusterState, items: Iterable[Instance]) -> Floats:
        """Return instances, in the order in which they leave, as a table of runs."""
        numbers = [self._number(state, item) for item in items]
        rows = [(kind, len(list(run))) for kind, run in itertools.groupby(numbers)]
        out = np.zeros((len(rows), 6))
        rest, most = 0, (0, -1, 0)
        for at in range(len(rows) - 1, -1, -1):
            kind, count = rows[at]
            size = self.listed[kind].size
            rest += count
            most = max(most[0], size[0]), max(most[1], size[1]), max(most[2], size[2])
            out[at] = (kind, count, rest, *most)
        return out

    def tables(self) -> tuple[Floats, Floats]:
        """Return [component, kind] -> amount, and [kind, dimension] -> size."""
        if self._tables is None:
            shape = len(self.listed), len(components.METRICS)
            amounts = np.array([kind.amounts for kind in self.listed]).reshape(shape)
            sizes = np.array([kind.size for kind in self.listed], np.float64)
            sizes = sizes.reshape(len(self.listed), 3)
            self._tables = np.ascontiguousarray(amounts.T), sizes
        return self._tables

    def _number(self, state: ClusterState, item: Instance) -> int:
        known = self._known.get(id(item))
        if known is None:
            bare = msgspec.structs.replace(item, name="", primary=NONE, secondary=NONE)
            number = self._equals.get(bare)
            if number is None:
                number = self._equals[bare] = self._enter(_kind(state, bare))
            known = self._known[id(item)] = item, number
        return known[1]

    def _enter(self, kind: EvacueeKind) -> int:
        number = self._numbers.setdefault(kind, len(self.listed))
        if number == len(self.listed):
            self.listed.append(kind)
            amounts = np.array(kind.amounts)
            self.counts |= amounts != 0
            self.differ |= amounts[:, None] != amounts
            self._tables = None
        return number


def _kind(state: ClusterState, item: Instance) -> EvacueeKind:
    memory = item.memory if item.uses_memory else 0
    size = memory, item.disk if item.local else -1, item.known_spindles * item.local
    column = tuple(amounts.of_item(item)[0, _ROWS].tolist())
    return EvacueeKind(size, column, state.desired_tags(item))


def are_usual(state: ClusterState, items: Sequence[Instance]) -> bool:
    """Return whether kinds describe everything that matters of some instances."""
    if not all(count.is_simulated for count in components.COUNTS.values()):
        return False
    apart = bool(state.exclusive.any())
    return not any(
        item.forthcoming
        or (apart and item.local and item.spindles is None)
        or state.tag_places(item)
        for item in items
    )


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
        sizes, each = np.unique(runs[:, MOST], axis=0, return_inverse=True)
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
        return np.asarray(left[counts_open < runs[:, REST]])

    def groups(self, left: Places, turn: int) -> Iterator[Places]:
        """Yield parts of lost nodes whose next runs have a similar number of places."""
        if len(left) < _SPLIT:
            yield left
            return
        numbers = self.runs_at(left, turn)[:, KIND].astype(np.intp)
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


#: The row of each metric.
