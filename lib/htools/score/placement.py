"""Scores of a new instance on each node or pair of nodes, for many places at once.

For one node (of at least two) the digits are those that ``score.components`` returns
with the instance there. For pairs the published score is an update of the present
statistics, first by the primary, then by the secondary: where one of u values changes
from x to x',

    sigma'^2 = max(0, sigma^2 + (u (x'^2 - x^2) - 2 X (x' - x) - (x' - x)^2) / u^2)

with the sum X of all values. It is the formula of ``score.deviations`` for one node, in
another order of operations. The choice of a place is in ``alloc.allocate``. Tests:
test/py/unit/htools/score/test_placement_terms.py.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ganeti.htools.model.cluster import Instance
from ganeti.htools.score import components
from ganeti.htools.score.components import Floats, NodeValues, Places
from ganeti.htools.state import amounts
from ganeti.htools.state.columns import ROWS
from ganeti.htools.state.node_state import ClusterState

#: Most entries of one table of candidates (32 MiB).
_CHUNK: Final = 1 << 22


class _NewInstance:
    """Values of each node after it takes a new instance as primary or as secondary."""

    def __init__(self, state: ClusterState, item: Instance) -> None:
        self.state, self.item = state, item
        self.base = components.numbers(state)
        self.later = item.forthcoming
        self.reserve = 0 if item.forthcoming else item.reserved_memory

    def _with(self, **changes: Floats) -> dict[str, Floats]:
        # The functions of the table of components read the changed rows.
        shadow = _ChangedState(self.state, changes)
        return {
            name: metric.values(shadow)  # type: ignore[arg-type]
            for name, metric in components.METRICS.items()
        }

    def _changed(self, role: int) -> dict[str, Floats]:
        """Return the rows that change, with the instance as primary or secondary."""
        state = self.state
        both, keepers = amounts.of_item(self.item)[role], state.keepers
        out = {
            ROWS[row]: state.rows[row] + both[row] * keepers[row]
            for row in np.nonzero(both)[0].tolist()
        }
        if self.item.local and self.item.spindles is None:
            rows = ("f_spin_later",) if self.later else ("f_spin_later", "f_spin")
            for name in rows:
                free = getattr(state, name)
                out[name] = np.where(state.exclusive, -1.0, free)
        return out

    def primary(self) -> NodeValues:
        """Return the values of each node if it were the primary."""
        state, item = self.state, self.item
        changes = self._changed(0)
        left = changes.get("unallocated", state.unallocated)
        held, location = changes.get("held", state.held), state.location
        if not self.later:
            location = location + state.wanted_places(item)
        places = state.tag_places(item)
        # A tag counts if a primary of the node has it already.
        more = (state.pri_tags[:, places] > 0).sum(axis=1) if places else 0
        return NodeValues(
            self._with(**changes),
            # A primary takes memory and reserves none.
            np.where(left <= state.r_mem, held, 0.0),
            self.base.tags + more,
            location.astype(np.float64),
            self.base.reserved,
        )

    def secondary(self) -> dict[str, Floats]:
        """Return the values of each node as secondary, but for reserved memory."""
        return self._with(**self._changed(1))


class _ChangedState:
    """A state with some rows replaced."""

    def __init__(self, state: ClusterState, changes: dict[str, Floats]) -> None:
        self._state, self._changes = state, changes

    def __getattr__(self, name: str) -> Floats:
        result: Floats = self._changes.get(name, getattr(self._state, name))
        return result


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
    extra = _NewInstance(state, item)
    places = np.arange(state.size) if nodes is None else nodes
    up = places[state.online[places]]
    after = extra.primary()
    down = _down(state, item)
    more = {
        "offline_all_cnt": down,
        "offline_pri_cnt": down,
        "location_exclusion_score": state.online * _new_pairs(state, item, up),
    }
    return _each(state, extra.base, after, more=more, targets=targets, places=places)


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
    extra = _NewInstance(state, item)
    # r_i is a maximum: it grows only if this primary needs most.
    kept = np.maximum(state.r_mem, state.peers[:, primary] + extra.reserve)
    held = state.held + (0 if item.forthcoming else 1)
    common = 0 if item.forthcoming else state.common_places[primary]
    base = extra.base
    reserved = components.per(kept, state.t_mem)
    after = NodeValues(
        extra.secondary() | {"reserved_mem_cv": reserved},
        np.where(state.unallocated <= kept, held, 0.0),
        base.tags,
        base.location + common,
        reserved,
    )
    places = np.arange(state.size) if nodes is None else nodes
    more = {"offline_all_cnt": _down(state, item)}
    return _each(state, base, after, more=more, targets=targets, places=places)


def _each(
    state: ClusterState,
    base: NodeValues,
    after: NodeValues,
    *,
    more: Mapping[str, Floats],
    targets: Places,
    places: Places,
) -> Floats:
    """Return the score for each target whose values become those of ``after``.

    ``more`` are the changes of the other components. Of offline nodes nothing else
    counts.
    """
    up = places[state.online[places]]
    if not len(up):
        return np.zeros(len(targets))
    fixed = components.components(state, places)
    # Parts limit the memory of the tables.
    step = max(1, _CHUNK // len(up))
    parts = [
        _chunk(
            base,
            after,
            more,
            targets=targets[at : at + step],
            up=up,
            fixed=fixed,
        )
        for at in range(0, len(targets), step)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def _chunk(
    base: NodeValues,
    after: NodeValues,
    more: Mapping[str, Floats],
    *,
    targets: Places,
    up: Places,
    fixed: dict[str, float],
) -> Floats:
    position = {int(node): place for place, node in enumerate(up)}
    at = np.array([position.get(int(node), -1) for node in targets], np.intp)
    result: dict[str, Floats | float] = dict(fixed)
    for name, values in after.metrics.items():
        old = base.metrics[name]
        # Components that no place changes keep their digits.
        if not np.array_equal(values, old):
            result[name] = _deviations(old[up], values[targets], at)
    for name, one, two in (
        ("n1_cnt", base.n1, after.n1),
        ("pri_tags_score", base.tags, after.tags),
        ("location_score", base.location, after.location),
        ("reserved_mem_rtotal", base.reserved, after.reserved),
    ):
        result[name] = fixed[name] + np.where(at >= 0, (two - one)[targets], 0.0)
    for name, values in more.items():
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


def _down(state: ClusterState, item: Instance) -> Floats:
    """Return the new instances on offline nodes, for each node as the place: 0 or 1."""
    return np.where(state.offline, 0.0 if item.forthcoming else 1.0, 0.0)


def _new_pairs(state: ClusterState, item: Instance, up: Places) -> Floats:
    """Return per node how many (location, exclusion) tag pairs would be repeated."""
    places = state.tag_places(item)
    if not places or not state.node_places.size or item.forthcoming:
        return np.zeros(state.size)
    pairs = components.place_pairs(state, up)
    # Each location tag of the node pairs with each tag of the instance.
    doubled = (pairs[:, places] > 0).astype(np.int64).sum(axis=1)
    return np.asarray(state.node_places @ doubled, np.float64)


class PairPlacements:
    """Scores of (primary, secondary) pairs, updated from the present statistics."""

    def __init__(self, state: ClusterState, item: Instance) -> None:
        """Prepare; the state lacks the instance."""
        self.state, self.item = state, item
        self.extra = _NewInstance(state, item)
        self.first = self.extra.primary()
        self.second = self.extra.secondary()
        self.up = np.nonzero(state.online)[0]
        self.fixed = components.components(state)

    def scores(self, primaries: Places, secondaries: Places) -> Floats:
        """Return the matrix [primary, secondary] of scores.

        Of offline nodes only the instances count.
        """
        kept = self._kept(primaries, secondaries)
        reserved = components.per(kept, self.state.t_mem[secondaries])
        other = self.state.online[secondaries]
        # Reserved memory of offline nodes does not count.
        reserved = np.where(other, reserved, self.extra.base.reserved[secondaries])
        total: Floats = np.zeros((len(primaries), len(secondaries)))
        for name, weight in components.WEIGHTS:
            component = self._one(name, primaries, secondaries, kept, reserved)
            total += weight * component
        return total

    def _kept(self, primaries: Places, secondaries: Places) -> Floats:
        """Return [primary, secondary] -> memory reserved on the secondary then."""
        state = self.state
        peers = state.peers[np.ix_(secondaries, primaries)].T + self.extra.reserve
        return np.maximum(peers, state.r_mem[secondaries])

    def _one(
        self,
        name: str,
        primaries: Places,
        secondaries: Places,
        kept: Floats,
        reserved: Floats,
    ) -> Floats | float:
        base, first, fixed = self.extra.base, self.first, self.fixed[name]
        own = self.state.online[primaries][:, None]
        if name in {"offline_all_cnt", "offline_pri_cnt"}:
            down = (~own).astype(np.float64)
            if name == "offline_all_cnt":
                down = down + ~self.state.online[secondaries]
            return fixed + (0 if self.item.forthcoming else down)
        if name == "n1_cnt":
            return fixed + self._n1(primaries, secondaries, kept)
        if name == "pri_tags_score":
            return fixed + own * (first.tags - base.tags)[primaries][:, None]
        if name == "location_score":
            return fixed + own * self._location(primaries, secondaries)
        if name == "location_exclusion_score":
            new = _new_pairs(self.state, self.item, self.up)
            return fixed + own * new[primaries][:, None]
        if name == "reserved_mem_rtotal":
            return fixed + (reserved - base.reserved[secondaries])
        if name == "reserved_mem_cv":
            new = reserved
        elif name in base.metrics:
            new = np.broadcast_to(self.second[name][secondaries], kept.shape)
        else:
            return fixed
        return self._spread(name, primaries, secondaries, new)

    def _n1(self, primaries: Places, secondaries: Places, kept: Floats) -> Floats:
        state, base = self.state, self.extra.base
        held = state.held[secondaries] + (0 if self.item.forthcoming else 1)
        # A secondary may fail N+1 by its reserve alone.
        after = np.where(state.unallocated[secondaries] <= kept, held, 0.0)
        own, other = state.online[primaries][:, None], state.online[secondaries]
        change = own * (self.first.n1 - base.n1)[primaries][:, None]
        return np.asarray(change + other * (after - base.n1[secondaries]))

    def _location(self, primaries: Places, secondaries: Places) -> Floats:
        change = (self.first.location - self.extra.base.location)[primaries][:, None]
        if self.item.forthcoming:
            return np.asarray(change)
        common = self.state.common_places[np.ix_(primaries, secondaries)]
        return np.asarray(change + common)

    def _spread(
        self, name: str, primaries: Places, secondaries: Places, new: Floats
    ) -> Floats:
        """Return the standard deviation, updated for primary and then for secondary."""
        base = self.extra.base.metrics[name]
        n = len(self.up)
        values = base[self.up]
        total: Floats | float = components.total(values)
        variance: Floats | float = components.variance(values)
        old = base[primaries]
        own, other = self.state.online[primaries], self.state.online[secondaries]
        # Published order: the primary changes first, then the secondary.
        new_first = np.where(own, self.first.metrics[name][primaries], old)
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
