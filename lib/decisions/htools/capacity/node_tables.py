"""Amounts and values of each node, now and with one more of an instance.

Kept for ``capacity.filler``: amounts, their bounds, and the values that the score is
computed from, as tables with a column per node, so that few are computed again.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ganeti.decisions.htools.model.cluster import Instance
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.state import amounts
from ganeti.decisions.htools.state.amounts import ROWS, Flags, Floats, Places
from ganeti.decisions.htools.state.node_state import ClusterState

#: Row of each amount that instances change.
_ROW: Final = {name: row for row, name in enumerate(ROWS)}
_METRICS: Final = components.METRICS
_PLACES: Final = {name: row for row, name in enumerate(_METRICS)}
_ORDER: Final = {name: at for at, (name, _weight) in enumerate(components.WEIGHTS)}
#: The least positive amount: "> 0" becomes ">= this".
ABOVE_ZERO: Final = float(np.nextafter(0.0, 1.0))


class NodeTables:
    """Tables of a state for one instance; ``settle`` writes the amounts back.

    Attributes:
        base: components x nodes, present values.
        first, second: change of the value by one more primary or secondary.
        first_squares, second_squares: change of the square of the value.
        can_first, can_second: nodes that may take one more.
        is_failing: nodes that fail N+1 from the start.
    """

    METRICS: Final = _PLACES
    RESERVED: Final = _PLACES[components.RESERVED]
    ORDER: Final = _ORDER
    IN_ORDER: Final = np.array([_ORDER[name] for name in _METRICS])

    def __init__(self, state: ClusterState, item: Instance, accepted: Flags) -> None:
        """Prepare; ``accepted`` are the nodes whose policy allows the instance."""
        self.state, self.item = state, item
        self.weights = np.array([dict(components.WEIGHTS)[name] for name in _METRICS])
        self.amounts: Floats = state.rows.copy()
        self.has_places = bool(state.common_places.any())
        self.reserve = item.reserved_memory
        self.is_failing = self.unallocated <= self.reserved
        #: [primary, secondary] -> memory reserved; rows are read faster than columns.
        self._of_primary: Floats | None = None
        self._bar = state.exclusive & (item.local and item.spindles is None)
        self._open = accepted & ~self._bar
        self._has_second = item.template == "drbd"
        # [primary or secondary, amount, node]: what one more adds.
        one = amounts.of_item(item)[:, :, None]
        self._both: Any = one * state.keepers + 0.0
        self.as_first, self.as_second = self._both
        self._limits()
        self._scale()
        shape = (3, len(_METRICS), state.size)
        self._values, self._changes = np.zeros(shape), np.zeros((2, *shape[1:]))
        self._squares = np.zeros((2, *shape[1:]))
        self.base, self.first_values, _second = self._values
        self.first, self.second = self._changes
        self.first_squares, self.second_squares = self._squares
        self.can_first, self.can_second = (np.zeros(state.size, bool) for _ in "12")
        self.refresh(list(range(state.size)))
        self.changes_first: Flags = np.asarray(self.first.any(axis=1))
        self.changes_second = np.nonzero(self.second.any(axis=1))[0]

    @property
    def unallocated(self) -> Floats:
        """Unallocated memory, per node."""
        return np.asarray(self.amounts[_ROW["unallocated"]])

    @property
    def reserved(self) -> Floats:
        """Reserved memory, per node."""
        return np.asarray(self.amounts[_ROW["r_mem"]])

    @property
    def held(self) -> Floats:
        """Instances, per node."""
        return np.asarray(self.amounts[_ROW["held"]])

    @property
    def location(self) -> Floats:
        """Location score, per node."""
        return np.asarray(self.amounts[_ROW["location"]])

    def _limits(self) -> None:
        """Set the least and most amounts that nodes may have afterwards."""
        state, item = self.state, self.item
        low = np.full_like(self.amounts, -np.inf)
        high = np.full_like(self.amounts, np.inf)
        if item.local:
            for suffix in ("", "_later"):
                disk = np.maximum(ABOVE_ZERO, state.lo_dsk)
                low[_ROW[f"f_dsk{suffix}"]] = disk
                spindles = np.where(state.exclusive, 0.0, -np.inf)
                low[_ROW[f"f_spin{suffix}"]] = spindles
                high[_ROW[f"inst_spin{suffix}"]] = state.hi_spin
        low_second, high_second = low.copy(), high.copy()
        # A secondary needs more than it reserves: > becomes >=.
        reserve = np.nextafter(self.reserve, np.inf)
        low_second[_ROW["unallocated"]] = low_second[_ROW["f_mem_later"]] = reserve
        low[_ROW["unallocated"]] = low[_ROW["f_mem_later"]] = ABOVE_ZERO
        high[_ROW["u_cpu"]] = high[_ROW["u_cpu_later"]] = most_cpus(state)
        self._low = np.array([low, low_second])
        self._high = np.array([high, high_second])

    def _scale(self) -> None:
        """Set how amounts become values: the row, its divisor and its offset."""
        state = self.state
        nodes = np.arange(state.size)
        metrics = list(_METRICS.values())
        source = np.array([[_ROW[metric.row]] * state.size for metric in metrics])
        ones = np.ones(state.size)
        self.whole = np.array(
            [getattr(state, m.whole) if m.whole else ones for m in metrics]
        )
        self._offset = np.zeros_like(self.whole)
        self._speed = np.ones_like(self.whole)
        for row, metric in enumerate(metrics):
            if metric.spindles:
                apart = state.exclusive
                # On exclusive storage the component reads spindles instead of disk.
                source[row, apart] = _ROW[metric.spindles]
                self.whole[row, apart] = state.spindle_count[apart]
            nothing = self.whole[row] == 0
            # Without capacity the value is 0, or 1 for free disk.
            self.whole[row, nothing] = np.inf
            self._offset[row, nothing] = 1.0 if metric.spindles else 0.0
            if metric.by_speed:
                self._speed[row] = state.speed
        self.source = source
        # Dividing by a speed of 1 is left out; it would not change digits.
        self._is_plain = bool((state.speed == 1).all() and not self._offset.any())
        first, second = (effect[source, nodes] for effect in self._both)
        self._steps = np.array([np.zeros_like(first), first, second])

    def refresh(self, nodes: list[int]) -> None:
        """Compute the columns of some nodes again."""
        at = np.array(nodes, np.intp)
        raw = self.amounts[self.source[:, at], at]
        values = (raw + self._steps[:, :, at]) / self.whole[:, at]
        if not self._is_plain:
            values = values / self._speed[:, at] + self._offset[:, at]
        squares = values * values
        self._values[:, :, at] = values
        self._changes[:, :, at] = values[1:] - values[0]
        self._squares[:, :, at] = squares[1:] - squares[0]
        self._judge(at)

    def twins(self) -> tuple[list[int], list[int]]:
        """Return components that differ, and for each component the equal one.

        Equal components stay equal. Reserved memory is left out.
        """
        known: dict[bytes, int] = {}
        own = self.amounts[self.source, np.arange(self.state.size)]
        tables = (own, *self._steps, self.whole, self._speed, self._offset)
        of = [
            known.setdefault(b"".join(table[row].tobytes() for table in tables), row)
            for row in range(len(_METRICS))
        ]
        # Reserved memory is a maximum and follows no other component.
        of[self.RESERVED] = self.RESERVED
        return sorted({*of} - {self.RESERVED}), of

    def parts(
        self, rows: list[int], node: int
    ) -> tuple[Places, Floats, Floats, Floats]:
        """Return what ``values`` needs of a node for some components."""
        where = self.source[rows, node] * self.state.size + node
        return (
            where,
            self.whole[rows, node],
            self._speed[rows, node],
            self._offset[rows, node],
        )

    def values(
        self, where: Places, whole: Floats, speed: Floats, offset: Floats
    ) -> Floats:
        """Return the present values of a node."""
        values = self.amounts.take(where)
        values /= whole
        if not self._is_plain:
            values /= speed
            values += offset
        return np.asarray(values)

    def columns(self, rows: Places, at: Places) -> Floats:
        """Return [now or with one more as primary or secondary, component, node].

        Args:
            rows: of components, [component, 1].
            at: nodes.
        """
        raw = self.amounts[self.source[rows, at], at]
        values = (raw + self._steps[:, rows, at]) / self.whole[rows, at]
        if not self._is_plain:
            values /= self._speed[rows, at]
            values += self._offset[rows, at]
        return np.asarray(values)

    def roles(self, node: int) -> tuple[tuple[bool, bool], int]:
        """Return whether a node may become primary and secondary, N+1 aside.

        Also return how many more instances, whatever their roles, surely do not change
        this: each is assumed to take the most of every amount.
        """
        now, adds = self.amounts[:, node], self._both[:, :, node]
        low, high = self._low[:, :, node], self._high[:, :, node]
        after = now + adds
        is_open = bool(self._open[node]), not self._bar[node]
        fine = ((after >= low) & (after <= high)).all(axis=1) & is_open
        if not fine.any():
            return (False, False), 0
        # The worst that any role adds to each amount.
        least = np.minimum(adds.min(axis=0), 0)
        most = np.maximum(adds.max(axis=0), 0)
        times = np.minimum(
            np.divide(
                after - low, -least, out=np.full_like(after, np.inf), where=least < 0
            ),
            np.divide(
                high - after, most, out=np.full_like(after, np.inf), where=most > 0
            ),
        )[fine]
        number = float(times.min())
        # One less, because quotients are rounded.
        steps = int(min(number, 1e6)) - 1
        return (bool(fine[0]), bool(fine[1])), max(0, steps)

    def _judge(self, at: Places) -> None:
        now = self.amounts[:, at]
        after = now + self._both[:, :, at]
        fine = (after >= self._low[:, :, at]) & (after <= self._high[:, :, at])
        first, second = fine.all(axis=1)
        left, kept = after[0, _ROW["unallocated"]], now[_ROW["r_mem"]]
        # Nodes that fail N+1 already are not refused for it.
        first &= (left > kept) | self.is_failing[at]
        self.can_first[at] = first & self._open[at]
        if self._has_second:
            self.can_second[at] = second & ~self._bar[at]

    def take(self, nodes: Sequence[int]) -> None:
        """Count one more instance on its nodes; ``refresh`` these afterwards."""
        first = nodes[0]
        self.amounts[:, first] += self.as_first[:, first]
        if len(nodes) == 1:
            return
        second = nodes[1]
        self.amounts[:, second] += self.as_second[:, second]
        peers, row = self.state.peers, _ROW["r_mem"]
        peers[second, first] += self.reserve
        if self._of_primary is not None:
            self._of_primary[first, second] += self.reserve
        kept = max(self.amounts[row, second], peers[second, first])
        self.amounts[row, second] = kept
        if self.has_places:
            common = self.state.common_places[first, second]
            self.amounts[_ROW["location"], first] += common

    def settle(self) -> None:
        """Write the amounts into the state."""
        self.state.rows[:] = self.amounts

    def kept(self, primary: int, places: Places) -> Floats:
        """Return the memory that places would reserve as secondaries of a primary."""
        if self._of_primary is None:
            self._of_primary = self.state.peers.T.copy()
        there = self._of_primary[primary, places] + self.reserve
        return np.asarray(np.maximum(there, self.reserved[places]))

    def kept_pairs(self, primaries: Places, secondaries: Places) -> Floats:
        """Return [primary, secondary] -> memory the secondary would reserve."""
        there = self.state.peers[secondaries, primaries[:, None]] + self.reserve
        return np.asarray(np.maximum(there, self.reserved[secondaries]))

    def pairs_fine(self, primaries: Places, secondaries: Places, kept: Floats) -> Flags:
        """Return [primary, secondary] -> may form a pair if each is fit alone."""
        groups = self.state.group
        fine = groups[primaries][:, None] == groups[secondaries]
        fine &= primaries[:, None] != secondaries
        enough = self.unallocated[secondaries] > kept
        return np.asarray(fine & (enough | self.is_failing[secondaries]))

    def memory_part(self, memory: Floats, nodes: Places) -> Floats:
        """Return memory as a share of that of the nodes; the last axis is nodes."""
        return np.asarray(memory / self.whole[self.RESERVED, nodes])


def most_cpus(state: ClusterState) -> Floats:
    """Return the most virtual CPUs of each node for which the ratio is kept."""
    ratio, cpus = state.cpu_ratio, state.t_cpu
    most = np.floor(ratio * cpus)
    with np.errstate(divide="ignore", invalid="ignore"):
        # The quotient decides, so the rounded product is corrected by one.
        most = np.where((most + 1) / cpus <= ratio, most + 1, most)
        most = np.where(most / cpus > ratio, most - 1, most)
    most = np.where(cpus == 0, -np.inf, most)
    return np.where(ratio < 0, np.inf, most)
