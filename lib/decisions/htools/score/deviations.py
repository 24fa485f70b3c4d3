"""Standard deviations of many possible moves at once, from changes of variances.

Let x_i be the value of node i, mu and sigma^2 mean and variance over u online nodes,
and delta_i = x_i - mu. A move changes at most three nodes, node i by the step d_i. With
Q = sum d_i (2 delta_i + d_i) and D = sum d_i, the squares about the old mean grow by Q,
and the mean moves by D / u. So

    sigma'^2 = sigma^2 + g,    g = (Q - D^2 / u) / u,

which is exact but for rounding, about ten digits. The work per move is constant. Which
moves exist and which counts they change: ``score.move_estimates``. Tests:
test/py/unit/decisions/htools/score/test_terms.py.
"""

from typing import Final

import msgspec
import numpy as np

from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.state.amounts import ROWS, Floats, Ints
from ganeti.decisions.htools.state.instance_deltas import DeltaRow, InstanceDeltas
from ganeti.decisions.htools.state.node_state import ClusterState

_RESERVED: Final = components.RESERVED
#: Metrics that amounts of an instance change, and the row of each. Reserved memory is
#: a maximum over instances; it has the last column.
_METRIC_ROWS: Final = {
    name: ROWS.index(metric.row)
    for name, metric in components.METRICS.items()
    if name != _RESERVED
}
#: Rows of spindles that replace those of disk on nodes with exclusive storage.
_IN_PLACE: Final = {
    ROWS.index(metric.row): ROWS.index(metric.spindles)
    for metric in components.METRICS.values()
    if metric.spindles
}


class Moments(msgspec.Struct):
    """Means and variances, and nodes x columns deviations from the mean.

    Offline nodes have the deviation 0.
    """

    mean: Floats
    variance: Floats
    deviation: Floats

    def copy(self) -> "Moments":
        """Return a copy that does not change with the original."""
        return Moments(self.mean, self.variance, self.deviation.copy())


class _DeviationColumn(msgspec.Struct, frozen=True):
    """A component: its row of amounts, and the value of one unit on each node.

    ``inverse`` is for units of the row, ``second`` for free spindles where storage is
    exclusive.
    """

    name: str
    row: int
    inverse: Floats
    second: Floats


class DeviationMetrics:
    """All standard deviations of a state; the last column is reserved memory.

    ``refresh`` must be called after the state changed.

    Attributes:
        count: nodes online, at least 1.
        weight: per column; components that are equal everywhere share a column.
        inverse: nodes x columns, value of one unit; 0 for offline nodes and in the last
            column.
        second: the same for free spindles; None where no storage is exclusive.
        inverse_memory: value of one MiB of reserved memory per node, 1 / T_i.
        gain, more: by roles before and after: instances x columns, units that a node
            gains, and free spindles.
        moments: of the present state.
    """

    def __init__(
        self, state: ClusterState, deltas: InstanceDeltas, gain: "RoleDeltas"
    ) -> None:
        """Describe the columns; ``gain`` is by two roles, rows x instances."""
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
        # The part of values that no instance changes, such as the CPUs of the node.
        self._bias = np.array([*values, nothing]).T - self._sums(every)
        self._bias[:, -1] = 0.0
        self._values = np.zeros(self.inverse.shape)
        self.refresh(every)

    @staticmethod
    def _of(rows: list[int], gain: Floats) -> Floats:
        result: Floats = np.zeros((gain.shape[1], len(rows) + 1))
        result[:, :-1] = gain[rows].T
        return result

    def _columns(self) -> tuple[list[float], list[_DeviationColumn]]:
        """Describe the components that can change; equal ones are merged."""
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
                # Equal components stay equal: one column has the sum of their weights.
                weights[twin] += components.WEIGHT[name]
            elif amounts[row].any() or deltas.as_primary[row].any():
                weights.append(components.WEIGHT[name])
                columns.append(column)
        return weights, columns

    def _inverses(self, capacity: Floats) -> Floats:
        # Offline nodes get 0, so that their steps change nothing.
        asked = self._state.online & (capacity != 0)
        out: Floats = np.divide(1.0, capacity, out=np.zeros_like(capacity), where=asked)
        return out

    def _capacity(self, metric: components.Metric) -> tuple[Floats, Floats]:
        """Return the value of one unit of the row, and of one free spindle."""
        state = self._state
        nothing = np.zeros(state.size)
        if not metric.whole:
            keepers = state.keepers[ROWS.index(metric.row)]
            return self._inverses(np.ones(state.size)) * keepers, nothing
        whole: Floats = getattr(state, metric.whole)
        inverse = self._inverses(whole * state.speed if metric.by_speed else whole)
        if metric.spindles:
            second = self._inverses(state.spindle_count)
            return (
                np.where(state.exclusive, 0.0, inverse),
                np.where(state.exclusive, second, 0.0),
            )
        # Rows that a node does not keep, such as shared spindles, do not change.
        inverse = inverse * state.keepers[ROWS.index(metric.row)]
        return inverse, nothing

    def _equal(self, part: _DeviationColumn, other: _DeviationColumn) -> bool:
        """Return whether two columns are equal now and stay equal after any move."""
        deltas, amounts = self._deltas, self._state.rows
        tables = (amounts, deltas.as_primary, deltas.as_secondary)
        pairs = [(part.row, other.row)]
        if part.second.any():
            pairs.append((DeltaRow.FREE_SPINDLES, DeltaRow.ALL_FREE_SPINDLES))
        return bool(np.array_equal(part.inverse, other.inverse)) and all(
            np.array_equal(table[a], table[b]) for a, b in pairs for table in tables
        )

    def _sums(self, nodes: Ints) -> Floats:
        """Return the part of the values of nodes that instances change."""
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
        """Update the values of some nodes, and all means and variances."""
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
        """Return the deviations of nodes from a mean; 0 for offline nodes."""
        online = self._state.online[nodes][:, None]
        return np.where(online, self._values[nodes] - mean, 0.0)

    # Moves
    def step(self, inst: Ints, node: Ints, before: str, after: str) -> Floats:
        """Return the steps of nodes where instances change roles: ... x columns."""
        step: Floats = self.gain[before, after][inst] * self.inverse[node]
        if self.second is not None:
            step += self.more[before, after][inst] * self.second[node]
        return step

    def keep(self, step: Floats, node: Ints, memory: Floats | Ints) -> Floats:
        """Enter the reserved memory of nodes after a move into the steps."""
        share = (memory - self._state.r_mem[node]) * self.inverse_memory[node]
        if step.shape[:-1] != share.shape:
            shape = np.broadcast_shapes(step.shape[:-1], share.shape)
            step = np.broadcast_to(step, (*shape, step.shape[-1])).copy()
        # The last column is reserved memory: a maximum, no multiple of an amount.
        step[..., -1] = share
        return step

    def gains(
        self, moments: Moments, steps: list[tuple[Ints, Floats]]
    ) -> tuple[Floats, Floats]:
        """Return the changes g of the variances, and the sums D of the steps."""
        squares, sums = None, None
        for node, step in steps:
            # d (2 delta + d), the part of one node of Q.
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
        """Return the change of the weighted sum of standard deviations."""
        # Rounding may leave a variance of 0 slightly negative.
        after = np.sqrt(np.maximum(moments.variance + gains, 0.0))
        before = np.sqrt(moments.variance)
        result: Floats = after @ self.weight - before @ self.weight
        return result


#: By roles before and after: instances x columns, or rows x instances.
RoleDeltas = dict[tuple[str, str], Floats]
