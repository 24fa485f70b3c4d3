"""Do the instances of a node find room on the others of its group, one by one?

Each goes to the node with the best score, soft rules aside, as in ``global_n1``, whose
rules these are; here they are followed on plain tables, for the usual cases.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from ganeti.htools import grid_score as score
from ganeti.htools import model
from ganeti.htools.grid import State
from ganeti.htools.redundancy.slots import places_for

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

#: Costs closer than this part are the same; the last node wins.
_SAME: Final = 1e-12
_MEMORY: Final = ("free_mem_cv", "reserved_mem_cv", "free_mem_cv_forth")
_DISK: Final = ("free_disk_cv", "free_disk_cv_forth")
_CPU: Final = ("vcpu_ratio_cv", "vcpu_ratio_cv_forth")
_SPINDLES: Final = ("spindles_cv", "spindles_cv_forth")
_LOADS: Final = ("cpu_load_cv", "mem_load_cv", "disk_load_cv", "net_load_cv")


def is_usual(state: State, items: Sequence[model.Instance], places: Places) -> bool:
    """Tell whether the tables have all that counts here."""
    exclusive = places[state.exclusive[places]]
    if len(exclusive) and (
        not state.spindle_count[exclusive].all()
        or any(item.local and item.spindles is None for item in items)
    ):
        return False
    return bool(
        state.online[places].all()
        and not any(item.forthcoming or state.tag_places(item) for item in items)
    )


class Evacuation:
    """Nodes of a group as tables, with a column per node."""

    def __init__(self, state: State, places: Places, node: int) -> None:
        """Prepare.

        Args:
            state: stays as it is.
            places: nodes of the group, online.
            node: the one to leave.
        """
        self.state, self.places = state, places
        self.at = int(np.nonzero(places == node)[0][0])
        spreads = score.numbers(state).spreads
        self.base: Floats = np.array([values[places] for values in spreads.values()])
        self.weights = np.array([dict(score.WEIGHTS)[name] for name in spreads])
        part = np.ones_like(self.base)
        for names, whole in (
            (_MEMORY, state.t_mem),
            (_DISK, state.t_dsk),
            (_CPU, state.t_cpu * state.speed),
            (_SPINDLES, state.hi_spin),
        ):
            own = whole[places]
            one = np.divide(1, own, out=np.zeros(len(places)), where=own != 0)
            for name in names:
                part[list(spreads).index(name)] = one
        # Disks of exclusive storage are counted by spindles, and take no other.
        self.exclusive = np.nonzero(state.exclusive[places])[0]
        self.spindles = np.full(len(places), np.inf)
        apart = places[self.exclusive]
        self.spindles[self.exclusive] = state.f_spin[apart]
        for name in _DISK:
            row = list(spreads).index(name)
            part[row, self.exclusive] = 1 / state.spindle_count[apart]
        self.part = part
        self.order = list(spreads)
        self.unallocated = state.unallocated[places]
        self.disk = state.f_dsk[places]
        self.reserved, self.held = state.r_mem[places], state.held[places]

    def _change(self, item: model.Instance) -> Floats:
        """Return spreads x nodes: what an instance adds to a node's numbers."""
        use = item.spindle_use if item.local else 0
        disk = -item.disk if item.local else 0
        vcpus = item.vcpus if item.online else 0
        amounts = {
            "free_mem_cv": -item.memory if item.uses_memory else 0,
            "free_mem_cv_forth": -item.memory,
            "vcpu_ratio_cv": vcpus,
            "vcpu_ratio_cv_forth": vcpus,
            **dict.fromkeys(_DISK, disk),
            **dict.fromkeys(_SPINDLES, use),
            **dict(zip(_LOADS, item.utilisation, strict=True)),
        }
        column = np.array([float(amounts.get(name, 0)) for name in self.order])
        out: Floats = column[:, None] * self.part
        if len(self.exclusive):
            for name in _DISK:
                row = self.order.index(name)
                part = self.part[row, self.exclusive]
                out[row, self.exclusive] = -_spindles(item) * part
            for name in _SPINDLES:
                out[self.order.index(name), self.exclusive] = 0
        return out

    def move_all(self, items: Sequence[model.Instance]) -> bool:
        """Move instances in order; tell whether each found room.

        It ends as soon as a count of places tells what becomes of the others.
        """
        known: dict[int, tuple[Floats, Floats]] = {}
        rest = _Rest(items)
        for at, item in enumerate(items):
            told = rest.verdict(at, self._others())
            if told is not None:
                return told
            if id(item) not in known:
                wanted = self.state.wanted_places(item)[self.places]
                known[id(item)] = self._change(item), wanted.astype(np.float64)
            if not self._move(item, *known[id(item)]):
                return False
        return True

    def _others(self) -> "_Left":
        """Return what the other nodes have left."""
        return _Left(
            np.delete(self.unallocated, self.at),
            np.delete(self.disk, self.at),
            np.delete(self.spindles, self.at),
        )

    def _move(self, item: model.Instance, change: Floats, wanted: Floats) -> bool:
        memory = item.memory if item.uses_memory else 0
        self.base[:, self.at] -= change[:, self.at]
        self.unallocated[self.at] += memory
        self.held[self.at] -= 1
        left = self.unallocated - memory
        fine = left > 0
        if item.local:
            self.disk[self.at] += item.disk
            fine &= self.disk > item.disk
            self.spindles[self.at] += _spindles(item)
            fine &= self.spindles >= _spindles(item)
        fine[self.at] = False
        if not fine.any():
            return False
        costs = self._costs(change) + self._failing(left) + wanted
        costs[~fine] = np.inf
        least = float(costs.min())
        best = int(np.nonzero(costs <= least + _SAME * max(1.0, least))[0][-1])
        self.base[:, best] += change[:, best]
        self.unallocated[best] -= memory
        self.held[best] += 1
        self.disk[best] -= item.disk if item.local else 0
        self.spindles[best] -= _spindles(item)
        return True

    def _costs(self, change: Floats) -> Floats:
        """Return the score of all spreads for each node that takes the instance."""
        n = self.base.shape[1]
        away = self.base - self.base.mean(axis=1, keepdims=True)
        variance = (away * away).mean(axis=1, keepdims=True)
        after = variance + change * (2 * away + change * (1 - 1 / n)) / n
        out: Floats = self.weights @ np.sqrt(np.maximum(0, after))
        return out

    def _failing(self, left: Floats) -> Floats:
        """Return what nodes that lack memory for failovers add to the score."""
        before = np.where(self.unallocated <= self.reserved, self.held, 0.0)
        return np.where(left <= self.reserved, self.held + 1, 0.0) - before


def _spindles(item: model.Instance) -> int:
    return item.spindles or 0 if item.local else 0


class _Left(msgspec.Struct, frozen=True, eq=False):
    """What places have left; spindles are infinite without exclusive storage."""

    memory: Floats
    disk: Floats
    spindles: Floats

    def count(self, size: "_Size", *, above: bool = False) -> float:
        """Count how often they take one of a size; ``above`` rounds up."""
        memory, disk, spindles = size
        found = places_for(memory, disk, self.memory, self.disk, above=above)
        if spindles:
            times = np.floor(self.spindles / spindles)
            found = np.minimum(found, np.maximum(0, times))
        return float(found.sum())


#: Memory, disk or -1 without one of its own, and spindles.
_Size = tuple[int, int, int]


class _Rest:
    """What is still to be moved: does it find places whatever goes where?

    A place for the largest of the rest, in memory and in disk, takes any of them and is
    closed by one at most; so as many of such places as instances are enough. And where
    all of the next ones are equal, each closes exactly one place for its like.
    """

    def __init__(self, items: Sequence[model.Instance]) -> None:
        self._count = len(items)
        self._sizes: list[_Size] = [
            (
                item.memory if item.uses_memory else 0,
                item.disk if item.local else -1,
                _spindles(item),
            )
            for item in items
        ]
        #: Of those from a position on, the most; and the end of its equals.
        self._most: list[_Size] = []
        self._end: list[int] = []
        most, end = (0, -1, 0), self._count
        for at in range(self._count - 1, -1, -1):
            size = self._sizes[at]
            most = (
                max(most[0], size[0]),
                max(most[1], size[1]),
                max(most[2], size[2]),
            )
            if at + 1 < self._count and self._sizes[at + 1] != size:
                end = at + 1
            self._most.append(most)
            self._end.append(end)
        self._most.reverse()
        self._end.reverse()
        self._next = 0

    def verdict(self, at: int, left: _Left) -> bool | None:
        """Tell whether all from a position on find places; None if it is open."""
        equal = self._end[at] - at
        is_new = at == 0 or self._sizes[at - 1] != self._sizes[at]
        if is_new and equal > left.count(self._sizes[at], above=True):
            return False
        if at < self._next:
            return None
        lack = self._count - at - left.count(self._most[at])
        if lack <= 0:
            return True
        # Each move makes the lack smaller by one at most, unless the sizes change.
        self._next = min(at + int(lack), self._change_after(at))
        return None

    def _change_after(self, at: int) -> int:
        """Return the next position at which the rest is smaller."""
        for later in range(at + 1, self._count):
            if self._most[later] != self._most[at]:
                return later
        return self._count
