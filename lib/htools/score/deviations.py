"""Standard-deviation metrics, which make up most of the score, side by side.

A move touches three nodes at most, so variances are corrected instead of computed
again: constant work for each move, and one calculation for all metrics. Estimates are
good to about ten digits. Which moves there are and what else they change:
``score.move_estimates``.
"""

from typing import Final

import msgspec
import numpy as np

from ganeti.htools.score import components
from ganeti.htools.state.columns import ROWS
from ganeti.htools.state.instance_deltas import DeltaRow, Floats, InstanceDeltas, Ints
from ganeti.htools.state.node_state import ClusterState

_RESERVED: Final = "reserved_mem_cv"
#: Metrics that change by amounts of the instance, and the row of each. Memory kept for
#: failovers depends on the other instances, and has the last column.
_METRIC_ROWS: Final = {
    name: DeltaRow(ROWS.index(metric.row))
    for name, metric in components.METRICS.items()
    if name != _RESERVED
}
#: Rows of spindles that count in place of disk where nodes have exclusive storage.
_IN_PLACE: Final = {
    DeltaRow(ROWS.index(metric.row)): DeltaRow(ROWS.index(metric.spindles))
    for metric in components.METRICS.values()
    if metric.spindles
}


class Moments(msgspec.Struct):
    """Means and variances of metrics, and nodes x metrics distances from the mean.

    Nodes offline have the distance 0.
    """

    mean: Floats
    variance: Floats
    deviation: Floats

    def copy(self) -> "Moments":
        """Return one that stays as it is."""
        return Moments(self.mean, self.variance, self.deviation.copy())


class _DeviationColumn(msgspec.Struct, frozen=True):
    """A metric: its row, what a unit of it is of a node's value, and of spindles."""

    name: str
    row: DeltaRow
    inverse: Floats
    second: Floats


class DeviationMetrics:
    """All metrics of a state; the last column is of memory kept for failovers.

    ``refresh`` must be called after the state changed.

    Attributes:
        count: nodes online, at least 1.
        weight: of each metric; equal ones are merged.
        inverse: nodes x metrics, what a unit is of a value; 0 for nodes offline and in
            the last column.
        second: the same for free spindles; None where no storage is exclusive.
        inverse_memory: what a MiB of reserved memory is.
        gain, more: by roles before and after: instances x metrics, units that a node
            gains, and free spindles.
        moments: of the present state.
    """

    def __init__(
        self, state: ClusterState, deltas: InstanceDeltas, gain: "RoleDeltas"
    ) -> None:
        """Describe the metrics; ``gain`` is by two roles, rows x instances."""
        self._state, self._deltas = state, deltas
        self._up = np.nonzero(state.online)[0]
        self.count = max(1, len(self._up))
        self.inverse_memory = self._inverses(state.t_mem)
        weight, columns = self._columns()
        self.weight = np.array([*weight, components.WEIGHT[_RESERVED]])
        self._rows = [column.row for column in columns]
        self._others = [_IN_PLACE.get(row, row) for row in self._rows]
        nothing = np.zeros(state.size)
        self.inverse = np.array([*(c.inverse for c in columns), nothing]).T.copy()
        self.second: Floats | None = None
        if any(column.second.any() for column in columns):
            self.second = np.array([*(c.second for c in columns), nothing]).T.copy()
        self.gain = {roles: self._of(self._rows, of) for roles, of in gain.items()}
        self.more: RoleDeltas = {}
        if self.second is not None:
            self.more = {
                roles: self._of(self._others, of) for roles, of in gain.items()
            }
        every = np.arange(state.size)
        values = [components.METRICS[column.name].values(state) for column in columns]
        self._bias = np.array([*values, nothing]).T - self._sums(every)
        self._bias[:, -1] = 0.0
        self._values = np.zeros(self.inverse.shape)
        self.refresh(every)

    @staticmethod
    def _of(rows: list[DeltaRow], gain: Floats) -> Floats:
        result: Floats = np.zeros((gain.shape[1], len(rows) + 1))
        result[:, :-1] = gain[rows].T
        return result

    def _columns(self) -> tuple[list[float], list[_DeviationColumn]]:
        """Describe metrics that can change, equal ones merged."""
        deltas, amounts = self._deltas, self._state.rows
        weights: list[float] = []
        columns: list[_DeviationColumn] = []
        for name, row in _METRIC_ROWS.items():
            column = _DeviationColumn(
                name, row, *self._capacity(components.METRICS[name])
            )
            twin = next(
                (at for at, other in enumerate(columns) if self._equal(other, column)),
                None,
            )
            if twin is not None:
                weights[twin] += components.WEIGHT[name]
            elif amounts[row].any() or deltas.as_primary[row].any():
                weights.append(components.WEIGHT[name])
                columns.append(column)
        return weights, columns

    def _inverses(self, capacity: Floats) -> Floats:
        asked = self._state.online & (capacity != 0)
        out: Floats = np.divide(1.0, capacity, out=np.zeros_like(capacity), where=asked)
        return out

    def _capacity(self, metric: components.Metric) -> tuple[Floats, Floats]:
        """Return what a unit of the row is of the metric, and a free spindle."""
        state = self._state
        nothing = np.zeros(state.size)
        if not metric.whole:
            return self._inverses(np.ones(state.size)), nothing
        whole: Floats = getattr(state, metric.whole)
        inverse = self._inverses(whole * state.speed if metric.by_speed else whole)
        if metric.spindles:
            second = self._inverses(state.spindle_count)
            return (
                np.where(state.exclusive, 0.0, inverse),
                np.where(state.exclusive, second, 0.0),
            )
        if metric.whole == "hi_spin":
            # Instances use no shared spindles of nodes with exclusive storage.
            inverse = np.where(state.exclusive, 0.0, inverse)
        return inverse, nothing

    def _equal(self, part: _DeviationColumn, other: _DeviationColumn) -> bool:
        """Tell whether a row is and will stay the same as that of a part."""
        deltas, amounts = self._deltas, self._state.rows
        tables = (amounts, deltas.as_primary, deltas.as_secondary)
        pairs = [(part.row, other.row)]
        if part.second.any():
            pairs.append((DeltaRow.FREE_SPINDLES, DeltaRow.ALL_FREE_SPINDLES))
        return bool(np.array_equal(part.inverse, other.inverse)) and all(
            np.array_equal(table[a], table[b]) for a, b in pairs for table in tables
        )

    def _sums(self, nodes: Ints) -> Floats:
        """Give the part of nodes' values that instances change."""
        rows = self._state.rows
        result = np.zeros((len(nodes), len(self._rows) + 1))
        for column, row in enumerate(self._rows):
            result[:, column] = rows[row, nodes]
        result *= self.inverse[nodes]
        if self.second is not None:
            for column, row in enumerate(self._others):
                result[:, column] += rows[row, nodes] * self.second[nodes, column]
        return result

    def refresh(self, nodes: Ints) -> None:
        """Take over changes of some nodes."""
        fresh = self._bias[nodes] + self._sums(nodes)
        fresh[:, -1] = self._state.r_mem[nodes] * self.inverse_memory[nodes]
        self._values[nodes] = fresh
        values = self._values[self._up]
        mean = values.sum(axis=0) / self.count
        values -= mean
        deviation = np.zeros(self._values.shape)
        deviation[self._up] = values
        values *= values
        self.moments = Moments(mean, values.sum(axis=0) / self.count, deviation)

    def from_mean(self, nodes: Ints, mean: Floats) -> Floats:
        """Give how far nodes are from a mean; 0 for nodes offline."""
        online = self._state.online[nodes][:, None]
        return np.where(online, self._values[nodes] - mean, 0.0)

    # Moves
    def step(self, inst: Ints, node: Ints, before: str, after: str) -> Floats:
        """Tell what roles that change do to nodes' values: ... x metrics."""
        step: Floats = self.gain[before, after][inst] * self.inverse[node]
        if self.second is not None:
            step += self.more[before, after][inst] * self.second[node]
        return step

    def keep(self, step: Floats, node: Ints, memory: Floats | Ints) -> Floats:
        """Put what nodes keep for failovers, after a move, into its steps."""
        share = (memory - self._state.r_mem[node]) * self.inverse_memory[node]
        if step.shape[:-1] != share.shape:
            shape = np.broadcast_shapes(step.shape[:-1], share.shape)
            step = np.broadcast_to(step, (*shape, step.shape[-1])).copy()
        step[..., -1] = share
        return step

    def gains(
        self, moments: Moments, steps: list[tuple[Ints, Floats]]
    ) -> tuple[Floats, Floats]:
        """Give the changes of variances when nodes' values make steps, and the sums."""
        squares, sums = None, None
        for node, step in steps:
            more = moments.deviation[node]
            more *= 2.0
            more = more + step
            more *= step
            squares = more if squares is None else squares + more
            sums = step if sums is None else sums + step
        if squares is None or sums is None:
            nothing = np.zeros((1, len(self.weight)))
            return nothing, nothing
        return (squares - sums * sums / self.count) / self.count, sums

    def change(self, moments: Moments, gains: Floats) -> Floats:
        """Add up what the metrics change by, from changes of variances."""
        after = np.sqrt(np.maximum(moments.variance + gains, 0.0))
        before = np.sqrt(moments.variance)
        result: Floats = after @ self.weight - before @ self.weight
        return result


#: By roles before and after: instances x numbers, or numbers x instances.
RoleDeltas = dict[tuple[str, str], Floats]
