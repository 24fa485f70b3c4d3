"""Global N+1: after the loss of any one node, do its instances fit elsewhere?

DRBD primaries fail over to their secondaries, then shared-storage instances go to other
nodes of the group, then those whose data would be lost are placed anew. Quick bounds
decide nearly always; what they leave open is simulated.
"""

import copy
from collections.abc import Collection
from typing import Final

import numpy as np
import numpy.typing as npt

from ganeti.htools import grid_checks as checks
from ganeti.htools import grid_score as score
from ganeti.htools import model
from ganeti.htools.grid import State

Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]

#: Templates whose instances move as they are.
_SHARED: Final = model.EXTERNAL_TEMPLATES - {"blockdev"}
_YES: Final = 1
_NO: Final = -1


class Capacity:
    """The test for one state, alone and with each place of a newcomer."""

    def __init__(
        self,
        state: State,
        *,
        ignored_groups: Collection[int] = (),
        only_online: bool = False,
    ) -> None:
        """Prepare.

        Args:
            state: without the newcomer.
            ignored_groups: nodes of these need not be evacuable.
            only_online: nodes that are offline need not be.
        """
        self.state = state
        self.tested = ~np.isin(state.group, list(ignored_groups))
        if only_online:
            self.tested &= state.online
        self.memory, self.exists = state.failover_memory()
        self.drbd_ok = bool(self._failovers().all())
        self.others = [
            [index for index in mine if state.sec[index] < 0]
            for mine in state.primaries
        ]
        #: The node that failed last; it is the first to be looked at again.
        self._suspects = [-1]
        self.has_others = any(
            mine and self.tested[node] for node, mine in enumerate(self.others)
        )

    def _failovers(self) -> Flags:
        """Return [primary, secondary]: the failovers between them are possible."""
        state = self.state
        fits = state.unallocated[None, :] - self.memory > 0
        has_disk = state.f_dsk > 0
        fits &= has_disk[None, :] & (has_disk | state.offline)[:, None]
        spindles = ~state.exclusive | (state.f_spin >= 0)
        fits &= spindles[None, :] & spindles[:, None]
        if state.may_migrate is not None:
            fits &= state.may_migrate
        out: Flags = fits | ~self.exists | ~self.tested[:, None]
        return out

    def holds(self) -> bool:
        """Return whether every node is evacuable now."""
        return self.drbd_ok and self._all_evacuable()

    def failing(self) -> list[int]:
        """Return the nodes that are not evacuable."""
        bad = np.logical_not(self._failovers().all(axis=1))
        return [
            int(node)
            for node in np.nonzero(self.tested)[0]
            if bad[node] or not self._evacuable(self.state, int(node))
        ]

    def _nodes(self) -> list[int]:
        return [int(node) for node in np.nonzero(self.tested)[0] if self.others[node]]

    def _all_evacuable(self) -> bool:
        """Return whether every node is evacuable; what failed last comes first."""
        nodes = self._nodes()
        nodes.sort(key=lambda node: node != self._suspects[0])
        for node in nodes:
            if not self._evacuable(self.state, node):
                self._suspects[0] = node
                return False
        return True

    def pairs(
        self, item: model.Instance, primaries: Places, secondaries: Places
    ) -> Flags:
        """Return [primary, secondary]: failovers are possible with a newcomer."""
        state = self.state
        size = (len(primaries), len(secondaries))
        if not self.drbd_ok:
            return np.zeros(size, bool)
        memory = item.memory if item.uses_memory else 0
        tested = self.exists & self.tested[:, None]
        most = np.where(tested, self.memory, -np.inf).max(axis=0, initial=-np.inf)
        first = state.unallocated - memory > most
        there = self.memory[np.ix_(primaries, secondaries)] + memory
        second = state.unallocated[secondaries][None, :] > there
        if state.may_migrate is not None:
            second &= state.may_migrate[np.ix_(primaries, secondaries)]
        second |= ~self.tested[primaries][:, None]
        return np.asarray(first[primaries][:, None] & second)

    def others_hold(self, item: model.Instance, primary: int, secondary: int) -> bool:
        """Return whether what has no secondary fits elsewhere with a newcomer."""
        if secondary < 0 and not self.drbd_ok:
            return False
        if secondary >= 0 and not self.has_others:
            return True
        return self._with(item, primary, secondary).others_fit(primary)

    def others_fit(self, changed: int) -> bool:
        """Return whether what has no secondary fits elsewhere, from every node.

        Args:
            changed: the one node to which failovers are not known to be possible.
        """
        failovers = self._failovers()[:, changed]
        return bool(failovers.all()) and self._all_evacuable()

    def _with(self, item: model.Instance, primary: int, secondary: int) -> "Capacity":
        """Return the test with a newcomer in its place."""
        out = copy.copy(self)
        out.state = self.state.copy()
        index = out.state.new(item)
        out.state.place(index, primary, secondary)
        if secondary < 0:
            out.others = list(self.others)
            out.others[primary] = [index, *self.others[primary]]
            return out
        out.memory, out.exists = self.memory.copy(), self.exists.copy()
        out.exists[primary, secondary] = True
        out.memory[primary, secondary] += item.memory if item.uses_memory else 0
        return out

    def _evacuable(self, state: State, node: int) -> bool:
        """Return whether the instances of a node without secondary fit elsewhere."""
        items = [state.instances[index] for index in self.others[node]]
        if not items:
            return True
        found = self._bounds(state, node, items)
        return found == _YES or (found != _NO and _simulate(state, node))

    def _bounds(self, state: State, node: int, items: list[model.Instance]) -> int:
        targets = _targets(state, node)
        if not len(targets):
            return _NO
        used = [item.memory if item.uses_memory else 0 for item in items]
        memory, most = sum(used), max(used)
        room = np.maximum(0, state.unallocated[targets] - self.memory[node, targets])
        if room.sum() <= memory - min(used) or room.max() <= most:
            return _NO
        if state.exclusive[targets].any() or any(
            not _policy_ok(state, node, item)
            for item in items
            if item.template not in _SHARED
        ):
            return 0
        slack = np.maximum(0, room - most)
        disks = [item.disk for item in items if item.local]
        if not disks:
            return _YES if slack.sum() > memory - min(used) else 0
        free = np.maximum(0, state.f_dsk[targets] - max(disks))
        part = np.minimum(slack / max(memory, 1), free / max(*disks, sum(disks), 1))
        return _YES if part.sum() > 2 else 0


def _targets(state: State, node: int) -> Places:
    """Return the other nodes of a group that instances may move to."""
    fine = np.array(state.group == state.group[node])
    fine[node] = False
    if state.may_migrate is not None:
        fine &= state.may_migrate[node]
    return np.nonzero(fine)[0]


def _policy_ok(state: State, node: int, item: model.Instance) -> bool:
    rules = state.cluster.groups[state.group[node]].policy
    exclusive = bool(state.exclusive[node])
    return checks.policy(item, rules, exclusive=exclusive) is None


def _simulate(before: State, node: int) -> bool:
    """Move a node's instances one after the other, each to its best place."""
    state = before.copy()
    mine = list(state.primaries[node])
    for index in mine:
        if state.sec[index] >= 0:
            secondary = state.sec[index]
            state.remove(index)
            state.place(index, secondary, node)
    left = [index for index in mine if before.sec[index] < 0]
    shared = [i for i in left if state.instances[i].template in _SHARED]
    rest = [i for i in left if state.instances[i].template not in _SHARED]
    rest.sort(key=lambda index: -state.instances[index].memory)
    places = np.nonzero(state.group == state.group[node])[0]
    for index in [*shared, *rest]:
        item = state.instances[index]
        if index in rest and not _policy_ok(state, node, item):
            return False
        state.remove(index)
        found = best_single(state, item, _targets(state, node), places)
        if found is None:
            return False
        state.place(index, found)
    return True


def best_single(
    state: State,
    item: model.Instance,
    targets: Places,
    places: Places,
    *,
    strict: bool = False,
) -> int | None:
    """Return the best node for an instance without secondary; the last on ties."""
    codes = checks.verdict(checks.primary(state, item, strict=strict), state.size)
    fine = targets[codes[targets] == 0]
    if not len(fine):
        return None
    scores = score.as_primary(state, item, fine, places)
    return int(fine[len(fine) - 1 - int(np.argmin(scores[::-1]))])
