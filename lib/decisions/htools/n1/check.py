"""Global N+1: after the loss of any one node, do its instances fit elsewhere?

DRBD primaries fail over to their secondaries (`n1.evacuees`), then instances on shared
storage move to other nodes of the group, then the others are placed again. For these
two, the evacuees, three tests come in turn, each leaving cases open:

1. ``slot_count.certain``: so many places that every order succeeds.
2. ``slot_count.may_fit``: too few places for any order; ``slot_count.share_before``:
   the instances before cannot close all nodes.
3. ``simulate``: each instance goes to its best node, one after another.

Tests: test/py/unit/decisions/htools/n1/test_table_terms.py,
    test/py/property/test_evacuation.py.
"""

import contextlib
import copy
from collections.abc import Collection, Iterator
from typing import Final

import numpy as np

from ganeti.decisions.htools.model.cluster import Instance
from ganeti.decisions.htools.n1 import evacuees, failure_tables, simulate, slot_count
from ganeti.decisions.htools.n1.evacuees import Evacuees, Failovers
from ganeti.decisions.htools.rules import constraints
from ganeti.decisions.htools.score import placement
from ganeti.decisions.htools.state.amounts import Flags, Places
from ganeti.decisions.htools.state.node_state import ClusterState

_YES: Final = 1
_NO: Final = -1
#: Fewest lost nodes that are simulated side by side.
_TOGETHER: Final = 2


class GlobalN1:
    """The test for one state, alone and with each place of a new instance."""

    def __init__(
        self,
        state: ClusterState,
        *,
        ignored_groups: Collection[int] = (),
        only_online: bool = False,
        known: "GlobalN1 | None" = None,
    ) -> None:
        """Prepare.

        Args:
            state: without the new instance; a trial changes it and restores it.
            ignored_groups: groups whose nodes need not be evacuable.
            only_online: offline nodes need not be evacuable.
            known: the test of a state with mostly the same instances, whose tables are
                reused.
        """
        self.state = state
        self.tested = ~np.isin(state.group, list(ignored_groups))
        if only_online:
            self.tested &= state.online
        self.failovers = Failovers(state, self.tested)
        self.evacuees = Evacuees(state)
        #: The node that failed last: it most likely fails again, so it is tested first.
        self.suspects = [-1]
        self.tested_nodes = self.tested & np.array(
            [bool(mine) for mine in self.evacuees.others], bool
        )
        self.has_others = bool(self.tested_nodes.any())
        if known is not None:
            self.suspects = known.suspects
            self.evacuees.learn(known.evacuees, known.state, state)

    def holds(self) -> bool:
        """Return whether every node is evacuable now."""
        return self.failovers.are_possible and self._all_evacuable()

    def failing(self) -> list[int]:
        """Return the nodes that are not evacuable."""
        bad = np.logical_not(self.failovers.possible(self.state).all(axis=1))
        return [
            int(node)
            for node in np.nonzero(self.tested)[0]
            if bad[node] or not self._evacuable(self.state, int(node))
        ]

    def failing_with(self, item: Instance, primary: int, secondary: int) -> list[int]:
        """Return the nodes that are not evacuable with a new instance placed.

        Args:
            item: the new instance.
            primary: its primary node.
            secondary: its secondary node, negative for none.
        """
        return self._with(item, primary, secondary).failing()

    def _nodes(self) -> list[int]:
        """List the tested nodes with instances that have no secondary."""
        result: list[int] = np.nonzero(self.tested_nodes)[0].tolist()
        return result

    def _all_evacuable(self) -> bool:
        """Return whether every node is evacuable; the last failing node comes first."""
        nodes = self._nodes()
        suspect = self.suspects[0]
        # The node that failed last most likely fails again.
        for some in ([node for node in nodes if node == suspect], nodes):
            certain = self._certain(some)
            left = [node for node in some if not certain[node]]
            if (bad := self._find_bad(left)) is not None:
                self.suspects[0] = bad
                return False
        return True

    def _find_bad(self, nodes: list[int]) -> int | None:
        """Return one of some nodes that is not evacuable, None if all are."""
        together = self._simple(nodes) if len(nodes) >= _TOGETHER else {}
        alone = nodes
        if together:
            alone = sorted(set(nodes).difference(*together.values()))
        for node in alone:
            if not self._evacuable(self.state, node):
                return node
        for group, mine in together.items():
            bad = self._find_bad_of(group, mine)
            if bad is not None:
                return bad
        return None

    def _simple(self, nodes: list[int]) -> dict[int, list[int]]:
        """List by group the nodes whose loss can be simulated side by side."""
        state = self.state
        if state.may_migrate is not None:
            return {}
        self.evacuees.know(state, nodes)
        at = np.array(nodes, np.intp)
        at = at[self.evacuees.are_usual[at] & ~self.failovers.starts[at]]
        groups = state.group[at]
        return {
            group: at[groups == group].tolist()
            for group in sorted(set(groups.tolist()))
            if _is_uniform(state, group)
            and failure_tables.is_usual(state, evacuees.members(state, group))
        }

    def _find_bad_of(self, group: int, nodes: list[int]) -> int | None:
        """Return one of some nodes of a group that is not evacuable, or None."""
        loads = [(node, load) for node in nodes if (load := self.evacuees.loads[node])]
        for node, load in loads:
            if not load.is_allowed:
                return node
        tables = failure_tables.FailureTables(
            self.state, evacuees.members(self.state, group), self.evacuees.kinds
        )
        lost = [failure_tables.FailedNode(node, load.runs) for node, load in loads]
        return simulate.find_bad(tables, lost)

    def _certain(self, nodes: list[int]) -> Flags:
        """Return for each node whether counting places shows that it is evacuable."""
        state = self.state
        out = np.zeros(state.size, bool)
        if state.may_migrate is not None or state.exclusive.any():
            return out
        self.evacuees.know(state, nodes)
        room = self.failovers.room(state)
        free = np.maximum(0, state.f_dsk)
        groups = state.group[nodes]
        for group in sorted(set(groups.tolist())):
            nodes_of_group = [node for node in nodes if state.group[node] == group]
            places = np.nonzero(state.group == group)[0]
            loads = [
                load for node in nodes_of_group if (load := self.evacuees.loads[node])
            ]
            at = np.searchsorted(places, nodes_of_group)
            out[nodes_of_group] = slot_count.certain(
                loads, at, room[places], free[places]
            )
        return out

    def others_hold(self, item: Instance, primary: int, secondary: int) -> bool:
        """Return whether instances without secondary fit elsewhere with a new one."""
        if secondary < 0 and not self.failovers.are_possible:
            return False
        if secondary >= 0 and not self.has_others:
            return True
        if secondary >= 0:
            return self._with(item, primary, secondary).others_fit(primary)
        with self._trial(item, primary) as trial:
            return trial.others_fit(primary)

    def surely_fails(self, item: Instance, primary: int) -> bool:
        """Return whether a new instance of this size or larger surely does not fit.

        Only sums are looked at, for the nodes that most likely fail; False leaves it
        open.
        """
        if not self.failovers.are_possible:
            return True
        with self._trial(item, primary) as trial:
            return trial.lack_room({primary, self.suspects[0]})

    @contextlib.contextmanager
    def _trial(self, item: Instance, primary: int) -> Iterator["GlobalN1"]:
        """Yield the test with a new instance without secondary, removed afterwards."""
        trial = self._changed_by(item, primary, len(self.state.instances))
        index = self.state.new(item)
        mark = self.state.mark(index, [primary])
        self.state.place(index, primary)
        try:
            yield trial
        finally:
            self.state.restore(mark)
            self.state.forget(index)

    def lack_room(self, nodes: Collection[int]) -> bool:
        """Return whether counts alone show that one of some nodes is not evacuable."""
        for node in set(self._nodes()).intersection(nodes):
            items = [
                self.state.instances[index] for index in self.evacuees.others[node]
            ]
            if self._bounds(self.state, node, items) == _NO:
                return True
        return False

    def with_placed(self, item: Instance, primary: int) -> "GlobalN1":
        """Place a new instance without secondary; return the test of that state."""
        out = self._changed_by(item, primary, len(self.state.instances))
        self.state.place(self.state.new(item), primary)
        return out

    def others_fit(self, changed: int) -> bool:
        """Return whether instances without secondary fit elsewhere, from every node.

        Args:
            changed: the one node for which failovers were not tested yet.
        """
        return (
            bool(self.failovers.possible_to(self.state, changed).all())
            and self._all_evacuable()
        )

    def _with(self, item: Instance, primary: int, secondary: int) -> "GlobalN1":
        """Return the test with a new instance placed, in a state of its own."""
        index = len(self.state.instances)
        out = self._changed_by(item, primary, index, secondary)
        out.state = self.state.copy(same_peers=secondary < 0)
        out.state.place(out.state.new(item), primary, secondary)
        return out

    def _changed_by(
        self, item: Instance, primary: int, index: int, secondary: int = -1
    ) -> "GlobalN1":
        """Return the test for the same state with a new instance."""
        self.evacuees.know(self.state, self._nodes())
        out = copy.copy(self)
        if secondary >= 0:
            out.evacuees = self.evacuees.with_change(primary)
            out.failovers = self.failovers.with_new(item, primary, secondary)
            return out
        out.evacuees = self.evacuees.with_new(index, primary)
        out.tested_nodes = self.tested_nodes.copy()
        out.tested_nodes[primary] = self.tested[primary]
        out.has_others = bool(out.tested_nodes.any())
        return out

    def _evacuable(self, state: ClusterState, node: int) -> bool:
        """Return whether the instances of a node without secondary fit elsewhere."""
        items = [state.instances[index] for index in self.evacuees.others[node]]
        if not items:
            return True
        bounds = self._bounds(state, node, items)
        return bounds == _YES or (
            bounds != _NO and _simulate(state, node, self.evacuees.kinds)
        )

    def _bounds(self, state: ClusterState, node: int, items: list[Instance]) -> int:
        targets = _targets(state, node, free=True)
        if not len(targets):
            return _NO
        moved = evacuees.in_order(items)
        used = np.array([item.memory if item.uses_memory else 0 for item in moved])
        disks = np.array([item.disk if item.local else 0 for item in moved])
        # Failovers of the same node come first and take their part.
        room = np.maximum(
            0, state.unallocated[targets] - self.failovers.memory[node, targets]
        )
        free = np.maximum(0, state.f_dsk[targets])
        if not (
            slot_count.may_fit(used, room)
            and (not disks.any() or slot_count.may_fit(disks, free))
        ):
            return _NO
        # Spindles and policies are not counted here: leave it open.
        if state.exclusive[targets].any() or not all(
            self.evacuees.may_be_placed(state, node, item) for item in items
        ):
            return 0
        if state.may_migrate is not None and moved[0].template in evacuees.SHARED:
            open_ = np.isin(targets, _targets(state, node))
            room, free = room[open_], free[open_]
        part = slot_count.share_before(used, room)
        if not disks.any():
            # Shares of more than one whole: some node stays open.
            return _YES if (part.sum(axis=1) > 1).all() else 0
        of_disk = slot_count.share_before(disks, free)
        of_disk[disks == 0] = np.inf
        # Memory and disk are one whole each, so two wholes are needed.
        return _YES if (np.minimum(part, of_disk).sum(axis=1) > 2).all() else 0


def _targets(state: ClusterState, node: int, *, free: bool = False) -> Places:
    """Return the other nodes of a group to which instances may move.

    ``free`` ignores migration rules: instances that are placed again do not migrate.
    """
    fine = np.array(state.group == state.group[node])
    fine[node] = False
    if state.may_migrate is not None and not free:
        fine &= state.may_migrate[node]
    return np.nonzero(fine)[0]


def _is_uniform(state: ClusterState, group: int) -> bool:
    """Return whether policies apply in the same way to all nodes of a group."""
    apart = state.exclusive[evacuees.members(state, group)]
    return bool(apart.all() or not apart.any())


def _accepts_new(state: ClusterState, item: Instance, places: Places) -> Flags:
    """Return on which nodes of a group the policy allows an instance."""
    apart = state.exclusive[places]
    out = np.zeros(len(places), bool)
    for exclusive in (False, True):
        where = apart == exclusive
        if where.any():
            node = int(places[0])
            out[where] = evacuees.is_allowed(state, node, item, exclusive=exclusive)
    return out


def _simulate(
    before: ClusterState, node: int, kinds: failure_tables.EvacueeKinds | None = None
) -> bool:
    """Move the instances of a node one after another, each to its best place."""
    mine = evacuees.present(before, node)
    state = before
    mirrored = [index for index in mine if before.sec[index] >= 0]
    if mirrored:
        state = before.copy()
        for index in mirrored:
            secondary = state.sec[index]
            state.remove(index)
            state.place(index, secondary, node)
    left = [index for index in mine if before.sec[index] < 0]
    shared = [i for i in left if state.instances[i].template in evacuees.SHARED]
    rest = [i for i in left if state.instances[i].template not in evacuees.SHARED]
    rest.sort(key=lambda index: -state.instances[index].memory)
    places = evacuees.members(state, int(state.group[node]))
    items = [state.instances[index] for index in [*shared, *rest]]
    # Tables know no migration rules, so all nodes must be open.
    is_open = not shared or len(_targets(state, node)) == len(places) - 1
    if (
        is_open
        and failure_tables.are_usual(state, items)
        and failure_tables.is_usual(state, places)
    ):
        others = places[places != node]
        welcome = [
            _accepts_new(state, state.instances[index], others) for index in rest
        ]
        if not all(allowed.any() for allowed in welcome):
            return False
        if all(allowed.all() for allowed in welcome):
            known = kinds or failure_tables.EvacueeKinds()
            lost = failure_tables.FailedNode(node, known.runs(state, items))
            tables = failure_tables.FailureTables(state, places, known)
            return simulate.find_bad(tables, [lost]) is None
    if state is before:
        state = before.copy(same_peers=True)
    for index in [*shared, *rest]:
        item = state.instances[index]
        targets = _targets(state, node, free=index in rest)
        if index in rest:
            targets = targets[_accepts_new(state, item, targets)]
        state.remove(index)
        choice = best_single(state, item, targets, places)
        if choice is None:
            return False
        state.place(index, choice)
    return True


def best_single(
    state: ClusterState,
    item: Instance,
    targets: Places,
    places: Places,
) -> int | None:
    """Return the best node for an instance without secondary; the last on ties."""
    codes = constraints.verdict(
        constraints.primary(state, item, strict=False), state.size
    )
    fine = targets[codes[targets] == 0]
    if not len(fine):
        return None
    scores = placement.as_primary(state, item, fine, places)
    # The last of the lowest scores, as published.
    return int(fine[len(fine) - 1 - int(np.argmin(scores[::-1]))])
