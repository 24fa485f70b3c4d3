"""Sums over the instances of a cluster into the numbers of its nodes, vectorised.

Every decision loads the cluster again, so loading is most of the cost of an
allocation. `htools.state.node_state` changes single instances.
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from ganeti.decisions.htools.model.cluster import (
    LOCAL_TEMPLATES,
    NONE,
    USING_MEMORY,
    Instance,
)
from ganeti.decisions.htools.state import amounts
from ganeti.decisions.htools.state.amounts import ROWS, Flags, Floats, NodeRows, Places

_OFF_THE_BOOKS: Final = "ADMIN_offline"
#: Rows that are derived from others or from reports when a cluster is loaded.
_COMPUTED: Final = frozenset({"unallocated", "f_spin", "f_spin_later"})


class InstanceColumns:
    """Columns of numbers, one row per instance.

    Attributes:
        primary, secondary: positions of nodes, -1 for none.
        now: which exist, that is, are not forthcoming.
        utilisation: CPU, memory, disk and network utilisation, each of all instances.
    """

    def __init__(self, items: Sequence[Instance]) -> None:
        """Extract the columns."""
        self.primary = _whole(item.primary for item in items)
        self.secondary = _whole(item.secondary for item in items)
        self.memory = _floats(item.memory for item in items)
        self.disk = _floats(item.disk for item in items)
        self.vcpus = _floats(item.vcpus for item in items)
        self.spindle_use = _floats(item.spindle_use for item in items)
        self.known_spindles = _floats(item.spindles or 0 for item in items)
        self.unknown = _each(items, lambda item: item.spindles is None)
        self.now = ~_each(items, lambda item: item.forthcoming)
        state = [item.status for item in items]
        self.uses_memory = self.now & _among(state, USING_MEMORY)
        self.online = ~_among(state, (_OFF_THE_BOOKS,))
        self.balanced = _each(items, lambda item: item.auto_balance)
        self.local = _among([item.template for item in items], LOCAL_TEMPLATES)
        self.utilisation = _of_kinds([item.utilisation for item in items])

    def with_changes(
        self, places: Sequence[int], items: Sequence[Instance]
    ) -> "InstanceColumns":
        """Return the columns after some instances were replaced by others."""
        out = copy.copy(self)
        changed = InstanceColumns(items)
        for name, column in vars(self).items():
            new = column.copy()
            new[..., places] = getattr(changed, name)
            setattr(out, name, new)
        return out

    def without_primary(self) -> "InstanceColumns":
        """Return the same columns with no primaries."""
        out = copy.copy(self)
        out.primary = np.full_like(self.primary, NONE)
        return out

    def count(self, state: NodeRows, exclusive: Flags) -> None:
        """Add all instances to the numbers of the nodes.

        Args:
            state: the numbers, changed.
            exclusive: which nodes have exclusive storage (whole spindles).
        """
        # Primary and secondary per instance: sums are taken in the order of instances.
        both = np.stack([self.primary, self.secondary], axis=1)
        there = both >= 0
        every = np.arange(len(both))
        on_first = self.primary[there[:, 0]], every[there[:, 0]]
        on_both = both[there], np.repeat(every, 2)[there.ravel()]
        keepers = amounts.keepers(exclusive)
        for amount in amounts.AMOUNTS:
            if amount.row in _COMPUTED:
                continue
            value = np.broadcast_to(amount.of(self), len(both))
            if not amount.later:
                value = value * self.now
            if amount.reported is not None:
                value = value * ~amount.reported(self)
            if not value.any():
                continue
            nodes, of = on_both if amount.on_secondary else on_first
            value = value[of]
            if amount.storage and exclusive.any():
                value = value * keepers[ROWS.index(amount.row), nodes]
            _add(getattr(state, amount.row), nodes, value)
        self._add_spindles(state.f_spin_later, exclusive, both)

    def _add_spindles(self, free: Floats, exclusive: Flags, both: Places) -> None:
        """Take the spindles of forthcoming instances off those that nodes reported."""
        there = (both >= 0) & (self.local & ~self.now)[:, None]
        for at, column in np.argwhere(there & exclusive[both]).tolist():
            if self.unknown[at]:
                free[both[at, column]] = -1
            else:
                free[both[at, column]] -= self.known_spindles[at]

    def count_peers(self, peers: Floats) -> None:
        """Add memory reserved by secondaries to [secondary node, primary node]."""
        kept = self.now & (self.secondary >= 0) & self.online & self.balanced
        places = self.secondary[kept] * peers.shape[1] + self.primary[kept]
        _add(peers.reshape(-1), places, self.memory[kept])

    def by_node(self, size: int) -> tuple[list[list[int]], list[list[int]]]:
        """List the primaries and the secondaries of each node, newest first."""
        return _positions(self.primary, size), _positions(self.secondary, size)


def _positions(places: Places, size: int) -> list[list[int]]:
    """List the positions of each value from 0, the last ones first."""
    there = np.flatnonzero(places >= 0)[::-1]
    order = there[np.argsort(places[there], kind="stable")]
    ends = np.cumsum(np.bincount(places[there], minlength=size)).tolist()
    listed = order.tolist()
    return [listed[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


class _Kept:
    """The columns of the last instances; threads may share it.

    Every decision loads the cluster again, but between two of them few instances
    change, and records that do not change are the same objects.

    Attributes:
        last: instances and their columns; replaced as a whole.
    """

    def __init__(self) -> None:
        self.last: tuple[Sequence[Instance], InstanceColumns] | None = None


_KEPT: Final = _Kept()
#: Most changed instances in a hundred; with more, all columns are made again.
_MOST_CHANGED: Final = 10


def columns_of(items: Sequence[Instance]) -> InstanceColumns:
    """Return the columns of instances; do not change them."""
    last, columns = _KEPT.last, None
    if last is not None and len(last[0]) == len(items):
        before, kept = last
        places = [at for at, item in enumerate(items) if item is not before[at]]
        if len(places) * 100 <= len(items) * _MOST_CHANGED:
            columns = kept
            if places:
                columns = kept.with_changes(places, [items[at] for at in places])
    columns = columns or InstanceColumns(items)
    _KEPT.last = tuple(items), columns
    return columns


def _add(row: Floats, nodes: Places, values: Floats) -> None:
    """Add values to the numbers of nodes, as if one after another."""
    if (np.rint(values) == values).all() and (np.rint(row) == row).all():
        # Sums of whole numbers have the same digits in any order; this is faster.
        row += np.bincount(nodes, values, len(row))
    else:
        np.add.at(row, nodes, values)


def _whole(values: Iterable[int]) -> Places:
    return np.array(list(values), np.intp)


def _floats(values: Iterable[float]) -> Floats:
    return np.array(list(values), np.float64)


def _each(items: Sequence[Instance], get: Callable[[Instance], bool]) -> Flags:
    return np.array([get(item) for item in items], np.bool_)


def _among(words: Sequence[str], wanted: Iterable[str]) -> Flags:
    known = frozenset(wanted)
    return np.array([word in known for word in words], np.bool_)


def _of_kinds(shares: Sequence[tuple[float, ...]]) -> Floats:
    """Convert tuples, most of them equal, into columns."""
    kinds = {share: place for place, share in enumerate(dict.fromkeys(shares))}
    table = np.array(list(kinds), np.float64).reshape(len(kinds), 4)
    return np.ascontiguousarray(table[[kinds[share] for share in shares]].T)
