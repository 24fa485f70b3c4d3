"""Do the instances of a node find room on the others of its group, one by one?

Each goes to the node with the best score, soft rules aside, as in ``global_n1``, whose
rules these are; here they are followed on plain tables, for the usual cases.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ganeti.htools import grid_score as score
from ganeti.htools import model
from ganeti.htools.grid import State

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
    return bool(
        state.online[places].all()
        and not state.exclusive[places].any()
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
            "vcpu_ratio_cv_forth": item.vcpus,
            **dict.fromkeys(_DISK, disk),
            **dict.fromkeys(_SPINDLES, use),
            **dict(zip(_LOADS, item.utilisation, strict=True)),
        }
        column = np.array([float(amounts.get(name, 0)) for name in self.order])
        return column[:, None] * self.part

    def move_all(self, items: Sequence[model.Instance]) -> bool:
        """Move instances in order; tell whether each found room."""
        known: dict[int, tuple[Floats, Floats]] = {}
        for item in items:
            if id(item) not in known:
                wanted = self.state.wanted_places(item)[self.places]
                known[id(item)] = self._change(item), wanted.astype(np.float64)
            if not self._move(item, *known[id(item)]):
                return False
        return True

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
