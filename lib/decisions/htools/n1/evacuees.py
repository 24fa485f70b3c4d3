"""Where instances go when their node is lost: failovers, and those without secondary.

Failovers of mirrored instances from node p to s succeed exactly when
f_s > sum of their memory (f_s unallocated memory in MiB) and the disk and migration
rules hold. `Evacuees` need another place; their loads, one per node, are counted when
they are asked for and kept.

Tests: test_table_terms.py and test_simulate.py in test/py/unit/decisions/htools/n1.
"""

import copy
import operator
from typing import Final

import numpy as np

from ganeti.decisions.htools.model.cluster import EXTERNAL_TEMPLATES, Instance
from ganeti.decisions.htools.n1 import failure_tables, slot_count
from ganeti.decisions.htools.rules import constraints
from ganeti.decisions.htools.state.amounts import Flags, Floats, Places
from ganeti.decisions.htools.state.node_state import ClusterState

#: Templates whose disks every node of the group can use: instances migrate.
SHARED: Final = EXTERNAL_TEMPLATES - {"blockdev"}


class Evacuees:
    """The evacuees of each node of a state, and their loads as far as they are known.

    Attributes:
        others: indices of the instances of each node.
        loads: of each node, None where it is not known.
        kinds: of the instances.
        are_usual: nodes whose instances kinds describe completely, where that is known.
        allowed: (id of the record, group) -> the record, and whether the policy allows
            it.
    """

    def __init__(self, state: ClusterState) -> None:
        """List the instances of each node."""
        self.others = [
            [index for index in present(state, node) if state.sec[index] < 0]
            for node in range(state.size)
        ]
        self.loads: list[slot_count.EvacuationLoad | None] = [None] * state.size
        self.kinds = failure_tables.EvacueeKinds()
        self.are_usual: Flags = np.zeros(state.size, bool)
        self.allowed: dict[tuple[int, int], tuple[Instance, bool]] = {}

    def learn(
        self, known: "Evacuees", before: ClusterState, state: ClusterState
    ) -> None:
        """Take over the tables of a state before that are valid here too."""
        self.allowed, self.kinds = known.allowed, known.kinds
        old, new = before.instances, state.instances
        # Records are compared by identity: equal records may be at other places.
        same = [*map(operator.is_, old, new), False].index(False)
        for node, others in enumerate(self.others):
            if known.others[node] == others and max(others, default=-1) < same:
                self.loads[node] = known.loads[node]
                self.are_usual[node] = known.are_usual[node]

    def with_change(self, node: int) -> "Evacuees":
        """Return those with the load of one node unknown."""
        out = copy.copy(self)
        out.loads = list(self.loads)
        out.loads[node], out.are_usual = None, self.are_usual.copy()
        return out

    def with_new(self, index: int, node: int) -> "Evacuees":
        """Return those with a new instance on a node."""
        out = self.with_change(node)
        out.others = list(self.others)
        out.others[node] = [index, *self.others[node]]
        return out

    def know(self, state: ClusterState, nodes: list[int]) -> None:
        """Count the loads of nodes where that was not done yet."""
        for node in nodes:
            if self.loads[node] is None:
                items = [state.instances[index] for index in self.others[node]]
                items = in_order(items)
                self.loads[node] = slot_count.load(
                    items,
                    is_allowed=all(
                        self.may_be_placed(state, node, item) for item in items
                    ),
                    runs=self.kinds.runs(state, items),
                )
                self.are_usual[node] = failure_tables.are_usual(state, items)

    def may_be_placed(self, state: ClusterState, node: int, item: Instance) -> bool:
        """Return whether the policy lets an instance be placed again in its group.

        All other nodes must have exclusive storage, or none of them.
        """
        if item.template in SHARED:
            return True
        group = int(state.group[node])
        key = id(item), group
        if key not in self.allowed:
            # The caller made sure that the group is uniform.
            apart = bool(state.exclusive[members(state, group)].all())
            self.allowed[key] = item, is_allowed(state, node, item, exclusive=apart)
        return self.allowed[key][1]


def in_order(items: list[Instance]) -> list[Instance]:
    """Sort the instances of a node in the order in which they leave it."""
    shared = [item for item in items if item.template in SHARED]
    rest = [item for item in items if item.template not in SHARED]
    return [*shared, *sorted(rest, key=lambda item: -item.memory)]


def members(state: ClusterState, group: int) -> Places:
    """Return the nodes of a group."""
    return np.asarray(np.nonzero(state.group == group)[0])


def is_allowed(
    state: ClusterState, node: int, item: Instance, *, exclusive: bool
) -> bool:
    """Return whether the policy of a node's group allows an instance there."""
    rules = state.cluster.groups[state.group[node]].policy
    return constraints.policy(item, rules, exclusive=exclusive) is None


def present(state: ClusterState, node: int) -> list[int]:
    """Return the primaries of a node that need another place when it is lost."""
    instances = state.instances
    return [i for i in state.primaries[node] if not instances[i].forthcoming]


class Failovers:
    """The failovers of one state.

    Attributes:
        tested: nodes that need to be evacuable.
        memory: [primary, secondary] -> MiB of the failovers.
        exists: [primary, secondary]: there are any.
        are_possible: all of them were possible in the state at the beginning.
        starts: nodes that are primary of a mirrored instance.
    """

    def __init__(self, state: ClusterState, tested: Flags) -> None:
        """Sum up."""
        self.tested = tested
        self.memory, self.exists = state.failover_memory()
        self._barred = _barred(state)
        self.are_possible = bool(self.possible(state).all())
        self.starts: Flags = np.asarray(self.exists.any(axis=1))

    def with_new(self, item: Instance, primary: int, secondary: int) -> "Failovers":
        """Return those with a new instance."""
        out = copy.copy(self)
        out.memory, out.exists = self.memory.copy(), self.exists.copy()
        out.exists[primary, secondary] = True
        out.starts = self.starts.copy()
        out.starts[primary] = True
        out.memory[primary, secondary] += item.memory if item.uses_memory else 0
        return out

    def room(self, state: ClusterState) -> Floats:
        """Return the memory of each node that is left whichever failovers happen."""
        out = state.unallocated - self.memory.max(axis=0, initial=0)
        return np.asarray(np.maximum(0, out))

    def possible(self, state: ClusterState) -> Flags:
        """Return [primary, secondary]: all failovers between them are possible."""
        if not self.exists.any():
            return np.ones_like(self.exists)
        # All instances of a pair fail over at once, so sums are compared.
        fits = state.unallocated[None, :] - self.memory > 0
        # The new secondary is tested too, unless it is offline.
        has_disk = state.f_dsk > 0
        fits &= has_disk[None, :] & (has_disk | state.offline)[:, None]
        spindles = ~state.exclusive | (state.f_spin >= 0)
        fits &= spindles[None, :] & spindles[:, None] & ~self._barred
        if state.may_migrate is not None:
            fits &= state.may_migrate
        out: Flags = fits | ~self.exists | ~self.tested[:, None]
        return out

    def possible_to(self, state: ClusterState, node: int) -> Flags:
        """Return for each primary whether failovers to one node are possible."""
        if not self.exists[:, node].any():
            return np.ones(state.size, bool)
        return np.asarray(self.possible(state)[:, node])

    def pairs(
        self,
        state: ClusterState,
        item: Instance,
        primaries: Places,
        secondaries: Places,
    ) -> Flags:
        """Return [primary, secondary]: failovers are possible with a new instance."""
        size = (len(primaries), len(secondaries))
        if not self.are_possible:
            return np.zeros(size, bool)
        memory = item.memory if item.uses_memory else 0
        tested = self.exists & self.tested[:, None]
        # As primary it lowers the memory for all failovers to this node.
        most = np.where(tested, self.memory, -np.inf).max(axis=0, initial=-np.inf)
        first = state.unallocated - memory > most
        # As secondary it adds to the failovers of its primary.
        there = self.memory[np.ix_(primaries, secondaries)] + memory
        second = state.unallocated[secondaries][None, :] > there
        if state.may_migrate is not None:
            second &= state.may_migrate[np.ix_(primaries, secondaries)]
        second |= ~self.tested[primaries][:, None]
        return np.asarray(first[primaries][:, None] & second)


def _barred(state: ClusterState) -> Flags:
    """Return [primary, secondary]: disks of unknown spindles forbid failovers.

    No node with exclusive storage takes such disks, not even the node that has them.
    """
    out = np.zeros((state.size, state.size), bool)
    if not state.exclusive.any():
        return out
    for item, first, second in zip(state.instances, state.pri, state.sec, strict=True):
        if second >= 0 and item.spindles is None and not item.forthcoming:
            out[first, second] = state.exclusive[first] or state.exclusive[second]
    return out
