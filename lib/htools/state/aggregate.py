"""Sums over the instances of a cluster into the numbers of its nodes, vectorised.

Every decision loads the cluster again, so loading is most of the cost of an
allocation. `htools.state.node_state` changes single instances.
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ganeti.htools.model.cluster import LOCAL_TEMPLATES, NONE, USING_MEMORY, Instance
from ganeti.htools.state.columns import NodeRows

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]

_OFF_THE_BOOKS: Final = "ADMIN_offline"


class InstanceColumns:
    """Columns of numbers, one row per instance.

    Attributes:
        primary, secondary: positions of nodes, -1 for none.
        now: which exist, that is, are not forthcoming.
        use: CPU, memory, disk and network utilisation, each of all instances.
    """

    def __init__(self, items: Sequence[Instance]) -> None:
        """Extract the columns."""
        self.primary = _whole(item.primary for item in items)
        self.secondary = _whole(item.secondary for item in items)
        self.memory = _floats(item.memory for item in items)
        self.disk = _floats(item.disk for item in items)
        self.vcpus = _floats(item.vcpus for item in items)
        self.spindle_use = _floats(item.spindle_use for item in items)
        self.spindles = _floats(item.spindles or 0 for item in items)
        self.unknown = _each(items, lambda item: item.spindles is None)
        self.now = ~_each(items, lambda item: item.forthcoming)
        state = [item.status for item in items]
        self.uses_memory = self.now & _among(state, USING_MEMORY)
        self.online = ~_among(state, (_OFF_THE_BOOKS,))
        self.balanced = _each(items, lambda item: item.auto_balance)
        self.local = _among([item.template for item in items], LOCAL_TEMPLATES)
        self.use = _of_kinds([item.utilisation for item in items])

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
        first = self.primary >= 0
        uses, now = first & self.uses_memory, first & self.now
        self._add(state.i_mem, uses, self.memory)
        self._add(state.f_mem_later, first & ~self.uses_memory, -self.memory)
        self._add(state.u_cpu_later, first & self.online, self.vcpus)
        self._add(state.u_cpu, now & self.online, self.vcpus)
        cpu, memory, disk, net = self.use
        self._add(state.load_cpu, now, cpu)
        self._add(state.load_mem, now, memory)
        self._add(state.load_net, now, net)
        # Primary and secondary per instance: sums are taken in the order of instances.
        both = np.stack([self.primary, self.secondary], axis=1)
        there = (both >= 0) & self.now[:, None]
        np.add.at(state.load_dsk, both[there], np.repeat(disk, 2)[there.ravel()])
        np.add.at(state.held, both[there], 1.0)
        self._add_disks(state, exclusive, both)

    def _add(self, row: Floats, which: Flags, values: Floats) -> None:
        np.add.at(row, self.primary[which], values[which])

    def _add_disks(self, state: NodeRows, exclusive_nodes: Flags, both: Ints) -> None:
        """Add disks; free disk is as reported, less disks of forthcoming instances."""
        there = (both >= 0) & self.local[:, None]
        nodes = both[there]
        use, disk, spindles = (
            np.repeat(column, 2)[there.ravel()]
            for column in (self.spindle_use, self.disk, self.spindles)
        )
        now = np.repeat(self.now, 2)[there.ravel()]
        exclusive = exclusive_nodes[nodes]
        np.add.at(state.f_dsk_later, nodes[~now], -disk[~now])
        to_come = ~now & exclusive
        unknown = np.repeat(self.unknown, 2)[there.ravel()]
        for at in np.nonzero(to_come)[0]:
            if unknown[at]:
                state.f_spin_later[nodes[at]] = -1
            else:
                state.f_spin_later[nodes[at]] -= spindles[at]
        np.add.at(state.inst_spin_later, nodes[~exclusive], use[~exclusive])
        shared = now & ~exclusive
        np.add.at(state.inst_spin, nodes[shared], use[shared])

    def count_peers(self, peers: Floats) -> None:
        """Add memory reserved by secondaries to [secondary node, primary node]."""
        kept = self.now & (self.secondary >= 0) & self.online & self.balanced
        places = self.secondary[kept], self.primary[kept]
        np.add.at(peers, places, self.memory[kept])

    def by_node(self, size: int) -> tuple[list[list[int]], list[list[int]]]:
        """List the primaries and the secondaries of each node, newest first."""
        columns = []
        for column in (self.primary, self.secondary):
            lists: list[list[int]] = [[] for _ in range(size)]
            places = column.tolist()
            for index in range(len(places) - 1, -1, -1):
                if places[index] >= 0:
                    lists[places[index]].append(index)
            columns.append(lists)
        return columns[0], columns[1]


def _whole(values: Iterable[int]) -> Ints:
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
