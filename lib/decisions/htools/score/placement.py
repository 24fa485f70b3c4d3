"""Scores of a new instance on each node or pair of nodes, for many places at once.

For one node (of at least two) the digits are those that ``score.components`` returns
with the instance there. For pairs the published score is an update of the present
statistics, first by the primary, then by the secondary: where one of u values changes
from x to x',

    sigma'^2 = max(0, sigma^2 + (u (x'^2 - x^2) - 2 X (x' - x) - (x' - x)^2) / u^2)

with the sum X of all values. It is the formula of ``score.deviations`` for one node, in
another order of operations. The choice of a place is in ``alloc.allocate``. Tests:
test/py/unit/decisions/htools/score/test_placement.py.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ganeti.decisions.htools.model.cluster import Instance
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.score.components import RESERVED
from ganeti.decisions.htools.score.counts import EVERY, NodeView, new_instance
from ganeti.decisions.htools.state.amounts import Floats, Places
from ganeti.decisions.htools.state.node_state import ClusterState

#: Most entries of one table of candidates (32 MiB).
_CHUNK: Final = 1 << 22


def _metrics(state: ClusterState, changed: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return the values of each node with some rows replaced."""
    # The functions of the table of components read the changed rows.
    view = NodeView(state, EVERY, changed)
    return {
        name: metric.values(view)  # type: ignore[arg-type]
        for name, metric in components.METRICS.items()
    }


def as_primary(
    state: ClusterState, item: Instance, targets: Places, nodes: Places | None = None
) -> Floats:
    """Return the score for each node on which an instance would be alone.

    Args:
        state: without the instance.
        item: the new instance.
        targets: nodes to try, members of ``nodes``.
        nodes: over which the score is; all by default.
    """
    places = np.arange(state.size) if nodes is None else nodes
    new = new_instance(state, item, places[state.online[places]])
    counted = {n: count.as_primary(new) for n, count in components.COUNTS.items()}
    return _each(state, new.first, counted, targets=targets, places=places)


def as_secondary(
    state: ClusterState, index: int, targets: Places, nodes: Places | None = None
) -> Floats:
    """Return the score for each node as secondary of an instance.

    Args:
        state: the instance has its primary and no secondary.
        index: position of the instance.
        targets: nodes to try, members of ``nodes``.
        nodes: over which the score is; all by default.
    """
    item, primary = state.instances[index], state.pri[index]
    places = np.arange(state.size) if nodes is None else nodes
    # Common location tags count here on offline primaries, too.
    everywhere = np.ones(state.size, np.bool_)
    new = new_instance(state, item, places[state.online[places]], everywhere)
    # r_i is a maximum: it grows only if this primary needs most.
    reserve = 0 if item.forthcoming else item.reserved_memory
    kept = np.maximum(state.r_mem, state.peers[:, primary] + reserve)
    every, nothing = np.arange(state.size), np.zeros((1, state.size))
    counted = {
        name: (
            nothing + count.as_secondary(new, np.array([primary]), every, kept[None])
        )[0]
        for name, count in components.COUNTS.items()
    }
    changed = {**new.second, "r_mem": kept}
    return _each(state, changed, counted, targets=targets, places=places)


def _each(
    state: ClusterState,
    changed: Mapping[str, Floats],
    counted: Mapping[str, Floats],
    *,
    targets: Places,
    places: Places,
) -> Floats:
    """Return the score for each target whose rows become those of ``changed``.

    ``counted`` are the changes of counts.
    """
    up = places[state.online[places]]
    if not len(up):
        return np.zeros(len(targets))
    base, after = components.metric_values(state), _metrics(state, changed)
    fixed = components.components(state, places, metrics=base)
    # Parts limit the memory of the tables.
    step = max(1, _CHUNK // len(up))
    parts = [
        _chunk(
            base,
            after,
            counted,
            targets=targets[at : at + step],
            up=up,
            fixed=fixed,
        )
        for at in range(0, len(targets), step)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def _chunk(
    base: Mapping[str, Floats],
    after: Mapping[str, Floats],
    counted: Mapping[str, Floats],
    *,
    targets: Places,
    up: Places,
    fixed: dict[str, float],
) -> Floats:
    position = {int(node): place for place, node in enumerate(up)}
    at = np.array([position.get(int(node), -1) for node in targets], np.intp)
    result: dict[str, Floats | float] = dict(fixed)
    for name, values in after.items():
        old = base[name]
        # Components that no place changes keep their digits.
        if not np.array_equal(values, old):
            result[name] = _deviations(old[up], values[targets], at)
    for name, of in components.TOTALS.items():
        change = (after[of] - base[of])[targets]
        result[name] = fixed[name] + np.where(at >= 0, change, 0.0)
    for name, values in counted.items():
        result[name] = fixed[name] + values[targets]
    total: Floats = np.zeros(len(targets))
    for name, weight in components.WEIGHTS:
        total = total + weight * result[name]
    return total


def _deviations(base: Floats, new: Floats, at: Places) -> Floats:
    """Return the standard deviation with one value replaced, per candidate."""
    # One column per candidate: sums along the first axis run in node order.
    table = np.repeat(base[:, None], len(new), axis=1)
    inside = np.nonzero(at >= 0)[0]
    table[at[inside], inside] = new[inside]
    table -= np.add.reduce(table, axis=0) / len(base)
    table *= table
    out: Floats = np.sqrt(np.add.reduce(table, axis=0) / len(base))
    return out


class PairPlacements:
    """Scores of (primary, secondary) pairs, updated from the present statistics."""

    def __init__(self, state: ClusterState, item: Instance) -> None:
        """Prepare; the state lacks the instance."""
        self.state, self.item = state, item
        self.up = np.nonzero(state.online)[0]
        self.new = new_instance(state, item, self.up)
        self.base = components.metric_values(state)
        self.first = _metrics(state, self.new.first)
        self.second = _metrics(state, self.new.second)
        self.fixed = components.components(state, metrics=self.base)
        self.counted = {
            name: count.as_primary(self.new)
            for name, count in components.COUNTS.items()
        }

    def scores(self, primaries: Places, secondaries: Places) -> Floats:
        """Return the matrix [primary, secondary] of scores.

        Of offline nodes only the instances count.
        """
        kept = self._kept(primaries, secondaries)
        reserved = components.per(kept, self.state.t_mem[secondaries])
        other = self.state.online[secondaries]
        # Reserved memory of offline nodes does not count.
        reserved = np.where(other, reserved, self.base[RESERVED][secondaries])
        total: Floats = np.zeros((len(primaries), len(secondaries)))
        for name, weight in components.WEIGHTS:
            component = self._one(name, primaries, secondaries, kept, reserved)
            total += weight * component
        return total

    def _kept(self, primaries: Places, secondaries: Places) -> Floats:
        """Return [primary, secondary] -> memory reserved on the secondary then."""
        state = self.state
        reserve = 0 if self.item.forthcoming else self.item.reserved_memory
        peers = state.peers[np.ix_(secondaries, primaries)].T + reserve
        return np.maximum(peers, state.r_mem[secondaries])

    def _one(
        self,
        name: str,
        primaries: Places,
        secondaries: Places,
        kept: Floats,
        reserved: Floats,
    ) -> Floats | float:
        base, fixed = self.base, self.fixed[name]
        if name in self.counted:
            first = self.counted[name][primaries][:, None]
            count = components.COUNTS[name]
            second = count.as_secondary(self.new, primaries, secondaries, kept)
            return fixed + (first + second)
        if name == components.RESERVED_TOTAL:
            return fixed + (reserved - base[RESERVED][secondaries])
        if name == RESERVED:
            new = reserved
        else:
            new = np.broadcast_to(self.second[name][secondaries], kept.shape)
        return self._spread(name, primaries, secondaries, new)

    def _spread(
        self, name: str, primaries: Places, secondaries: Places, new: Floats
    ) -> Floats:
        """Return the standard deviation, updated for primary and then for secondary."""
        base = self.base[name]
        n = len(self.up)
        values = base[self.up]
        total: Floats | float = components.total(values)
        variance: Floats | float = components.variance(values)
        old = base[primaries]
        own, other = self.state.online[primaries], self.state.online[secondaries]
        # Published order: the primary changes first, then the secondary.
        new_first = np.where(own, self.first[name][primaries], old)
        if not np.array_equal(old, new_first):
            moved, sums = _moved(n, total, variance, old, new_first)
            variance, total = moved[:, None], sums[:, None]
        old_second = base[secondaries]
        if not other.all():
            new = np.where(other, new, old_second)
        if np.array_equal(np.broadcast_to(old_second, new.shape), new):
            return np.asarray(np.sqrt(variance))
        # Broadcast rows are equal, so one row is enough.
        if new.strides[0] == 0:
            new = new[:1]
        variance, _total_now = _moved(n, total, variance, old_second, new)
        return np.asarray(np.sqrt(variance))


def _moved(
    n: int, total: Floats | float, variance: Floats | float, old: Floats, new: Floats
) -> tuple[Floats, Floats]:
    """Return variance and sum after one of n values changed."""
    change = new - old
    squares = new * new - old * old
    # The order of operations is published: others give other digits.
    step = ((n * squares - 2 * total * change) - change * change) / (n * n)
    return np.maximum(0, variance + step), np.asarray(total + change)


def choose(places: Sequence[int]) -> Places:
    """Return node positions as an array."""
    return np.array(list(places), np.intp)
