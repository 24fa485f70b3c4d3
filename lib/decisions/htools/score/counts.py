"""Components of the score that count something: everything that any path needs of one.

A count is a row of ``components.COMPONENTS`` with an object of a class below. Its
methods return values and changes without the weight; all of them are whole numbers, so
their sums have the same digits in any order.

Most counts are a sum over nodes of a function of the rows of each node:
``NodeCount(function, rows)`` derives all changes and bounds from the function. Other
classes: ``score.tag_counts``. With a ``NodeView`` the same functions return the values
after a change that no state has. Tests:
test/py/unit/decisions/htools/score/test_terms.py,
test/py/unit/decisions/htools/score/test_placement.py,
test/py/unit/decisions/htools/balance/test_bound_terms.py.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
import numpy as np

from ganeti.base import errors
from ganeti.decisions.htools.model.cluster import Instance
from ganeti.decisions.htools.rules.move_constraints import MoveArrays, MoveConstraints
from ganeti.decisions.htools.rules.moves import MoveKind
from ganeti.decisions.htools.state import amounts
from ganeti.decisions.htools.state.amounts import ROWS, Flags, Floats, Ints
from ganeti.decisions.htools.state.node_state import ClusterState

#: All nodes.
EVERY: Final = slice(None)
#: Positions of nodes.
Nodes = Ints | slice


class NodeView:
    """Some nodes of a state; ``changed`` are rows by name in place of their own."""

    def __init__(
        self, state: ClusterState, nodes: Nodes, changed: Mapping[str, Any]
    ) -> None:
        self._state, self._nodes = state, nodes
        # Attributes of its own are found without a call of ``__getattr__``.
        self.__dict__.update(changed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)[self._nodes]


class NewInstance(msgspec.Struct, frozen=True):
    """A new instance, and the rows of each node if it were there.

    Attributes:
        state: without the instance.
        up: nodes online over which the score is.
        first, second: rows that change on a primary, and on a secondary, but for
            ``r_mem`` of the secondary.
        common_on: nodes as whose primary the instance has its location tags counted.
    """

    state: ClusterState
    item: Instance
    up: Any
    first: dict[str, Floats]
    second: dict[str, Floats]
    common_on: Flags


def new_instance(
    state: ClusterState, item: Instance, up: Any, common_on: Flags | None = None
) -> NewInstance:
    """Describe a new instance; ``common_on`` are the online nodes if not given."""
    first, second = (
        {
            ROWS[row]: state.rows[row] + adds[row] * state.keepers[row]
            for row in np.nonzero(adds)[0].tolist()
        }
        for adds in amounts.of_item(item)
    )
    if item.local and item.spindles is None:
        rows = ("f_spin_later",) if item.forthcoming else ("f_spin_later", "f_spin")
        for name in rows:
            free = np.where(state.exclusive, -1.0, getattr(state, name))
            first[name] = second[name] = free
    counted = state.online if common_on is None else common_on
    return NewInstance(state, item, up, first, second, counted)


class FillTables(Protocol):
    """Nodes while copies of one instance are placed (``capacity.node_tables``).

    Attributes:
        state: as before the placements, but for ``peers``.
        amounts: rows x nodes, now.
        as_first, as_second: rows x nodes, added by one more copy.
        has_places: whether any nodes share location tags.
        is_failing: nodes that fail N+1 from the start.
    """

    state: ClusterState
    amounts: Floats
    as_first: Floats
    as_second: Floats
    has_places: bool
    is_failing: Flags


#: Memory reserved on old primary, old secondary and, if it is known, target, in MiB.
Reserved = Sequence[Floats | Ints]

_RESERVED: Final = "r_mem"
#: Rows that ``n1.simulate`` keeps for each lost node.
_SIMULATED: Final = frozenset({"unallocated", "held", _RESERVED})


class _OptionalChanges:
    """Functions of ``MoveChanges`` that many counts do not need."""

    def refresh(self, nodes: Ints) -> None:
        """Update tables after nodes changed."""

    def outdated(self, inst: Ints) -> Flags | None:
        """Return instances whose ``before`` the last refresh changed.

        Instances on the nodes that changed need not be listed; None for no others.
        """

    def size_features(self, _inst: Ints, /) -> list[Ints]:
        """Return what ``at_target`` reads of instances besides amounts and tags."""
        return []

    def node_features(self) -> Ints | None:
        """Return nodes x features on which alone ``link`` depends; None for none."""

    def link(self, other: Ints, target: Ints) -> Floats | None:
        """Return the least changes by other node and target together; None for none."""


class MoveChanges(_OptionalChanges, abc.ABC):
    """Changes of a count by moves of one state, and lower bounds of them.

    For each legal move, the sum of ``before``, ``at_target`` and ``link`` is at most
    ``change``. Moves are arrays; the results have their shape, or broadcast to it.
    """

    @abc.abstractmethod
    def change(self, move: MoveArrays, reserved: Reserved, /) -> Floats:
        """Return the exact changes; ``reserved`` is after the moves."""

    @abc.abstractmethod
    def before(self, move: MoveArrays, reserved: Reserved, /) -> Floats:
        """Return the least changes without the target, which is not known.

        ``reserved`` are lower bounds at the old nodes.
        """

    @abc.abstractmethod
    def at_target(self, inst: Ints, node: Ints, role: str, /) -> Floats:
        """Return the least changes by targets, which are online: inst x node.

        Only the instance, the node and its new role are known. The result depends on
        the present rows of the node, and on amounts, tags and ``size_features`` of the
        instance.
        """


class _FewInstances:
    """Functions of ``Count`` for instances without tags, which many do not need."""

    # Copies of an instance that has no tags, on online nodes: hspace
    def is_filled(self, _tables: FillTables, /) -> bool:
        """Return whether copies change the value."""
        return False

    def filled(self, _tables: FillTables, _up: Ints, /) -> float:
        """Return the present value over the online nodes, if copies change it."""
        name = type(self).__name__
        raise errors.ProgrammerError(f"{name}: is_filled is defined, filled is not")

    def by_copy(self, tables: FillTables) -> tuple[Floats, Floats] | None:
        """Return the changes by one more primary and by one more secondary per node."""

    def by_pair(self, tables: FillTables) -> Floats | None:
        """Return the further changes by both: primaries x secondaries."""

    # Instances without tags and secondaries that leave a lost node: global N+1
    @property
    def is_simulated(self) -> bool:
        """Whether ``at_places`` and ``by_arrival`` have all changes, up to a constant.

        If not, instances are moved one by one, which is slower.
        """
        return True

    def at_places(
        self, state: ClusterState, wanted: Sequence[frozenset[str]], places: Ints
    ) -> Floats | None:
        """Return the part that stays: by desired location tags x places."""

    def by_arrival(
        self, now: NodeView, after: NodeView, /
    ) -> tuple[Floats, Floats] | None:
        """Return the values of places now and with one more instance.

        ``now`` and ``after`` are lost nodes x places; ``unallocated``, ``r_mem`` and
        ``held`` are those of the simulation, other rows are those before the loss.
        """


class Count(_FewInstances, abc.ABC):
    """A component that counts something."""

    @abc.abstractmethod
    def value(self, state: ClusterState, up: Ints, down: Ints, /) -> float:
        """Return the value over some nodes, online and offline ones."""

    # Moves
    @abc.abstractmethod
    def on_moves(self, rules: MoveConstraints) -> MoveChanges | None:
        """Return the changes by moves; None if no move changes the value."""

    # A new instance
    @abc.abstractmethod
    def as_primary(self, new: NewInstance) -> Floats:
        """Return the change by a new primary on each node."""

    @abc.abstractmethod
    def as_secondary(
        self, new: NewInstance, primaries: Ints, secondaries: Ints, kept: Floats, /
    ) -> Floats | float:
        """Return the change by a secondary too: primaries x secondaries.

        ``kept`` is the memory that the secondaries reserve then.
        """


class NodeCount(Count):
    """The sum over nodes of a whole number that follows from the rows of each node.

    The number must not fall when ``r_mem`` rises, since bounds know only the least
    reserved memory.
    """

    def __init__(
        self,
        at_nodes: Callable[[Any], Floats],
        rows: Sequence[str],
        *,
        offline: bool = False,
    ) -> None:
        """Describe the count.

        Args:
            at_nodes: returns the number of each node, from rows and other attributes of
                a state or of a view of one.
            rows: the rows of ``ROWS`` that ``at_nodes`` reads.
            offline: the sum is over offline nodes, else over online ones.
        """
        self.at_nodes, self.rows, self.offline = at_nodes, tuple(rows), offline

    def _scope(self, state: ClusterState) -> Flags:
        return state.offline if self.offline else state.online

    def value(self, state: ClusterState, up: Ints, down: Ints, /) -> float:
        """Return the sum over the nodes in scope."""
        nodes = down if self.offline else up
        return float(self.at_nodes(state)[nodes].sum()) if len(nodes) else 0.0

    def on_moves(self, rules: MoveConstraints) -> MoveChanges | None:
        """Return the changes; targets are online, so only offline nodes lose some."""
        scope = self._scope(rules.state)
        return _NodeChanges(self, rules, scope) if scope.any() else None

    def as_primary(self, new: NewInstance) -> Floats:
        """Return the change of each node as primary."""
        state = new.state
        after = self.at_nodes(NodeView(state, EVERY, new.first))
        return (after - self.at_nodes(state)) * self._scope(state)

    def as_secondary(
        self, new: NewInstance, _primaries: Ints, secondaries: Ints, kept: Floats, /
    ) -> Floats:
        """Return the change of the secondaries."""
        changed: dict[str, Any] = {
            name: row[secondaries] for name, row in new.second.items()
        }
        view = NodeView(new.state, secondaries, {**changed, _RESERVED: kept})
        change = self.at_nodes(view) - self.at_nodes(new.state)[secondaries]
        return np.asarray(change * self._scope(new.state)[secondaries])

    def is_filled(self, _tables: FillTables, /) -> bool:
        """Return whether the count is of online nodes: only these are filled."""
        return not self.offline

    def filled(self, tables: FillTables, up: Ints) -> float:
        """Return the present sum."""
        return float(self._with(tables)[up].sum())

    def by_copy(self, tables: FillTables) -> tuple[Floats, Floats]:
        """Return the changes of each node, without what the copy lets it reserve."""
        now = self._with(tables)
        first, second = tables.as_first, tables.as_second
        return self._with(tables, first) - now, self._with(tables, second) - now

    def _with(self, tables: FillTables, added: Floats | None = None) -> Floats:
        changed = {}
        for name in self.rows:
            row = ROWS.index(name)
            amounts = tables.amounts[row]
            changed[name] = amounts if added is None else amounts + added[row]
        return self.at_nodes(NodeView(tables.state, EVERY, changed))

    @property
    def is_simulated(self) -> bool:
        """Whether the simulation has all rows, and keeps the sums of offline nodes."""
        return self.offline or _SIMULATED.issuperset(self.rows)

    def by_arrival(
        self, now: NodeView, after: NodeView, /
    ) -> tuple[Floats, Floats] | None:
        """Return the numbers of places."""
        if self.offline or not self.is_simulated:
            return None
        return self.at_nodes(now), self.at_nodes(after)


class _NodeChanges(MoveChanges):
    """Changes of the nodes of moves: the function of their rows after, less now."""

    def __init__(self, count: NodeCount, rules: MoveConstraints, scope: Flags) -> None:
        self._count, self._rules, self._scope = count, rules, scope
        self._everywhere = bool(scope.all())
        self._rows = [
            (name, ROWS.index(name)) for name in count.rows if name != _RESERVED
        ]
        self._now: Floats = np.zeros(rules.state.size)
        self.refresh(np.arange(rules.state.size))

    def refresh(self, nodes: Ints) -> None:
        view = NodeView(self._rules.state, nodes, {})
        self._now[nodes] = self._count.at_nodes(view)

    def change(self, move: MoveArrays, reserved: Reserved, /) -> Floats:
        change, role = self.before(move, reserved), move.ends.target
        if role and not self._count.offline:
            at = self._at(move.inst, move.target, ("", role), reserved[2])
            change = change + at
        return change

    def before(self, move: MoveArrays, reserved: Reserved, /) -> Floats:
        change: Floats | None = None
        for node, before, after, kept in (
            (move.primary, "p", move.ends.primary, reserved[0]),
            (move.secondary, "s", move.ends.secondary, reserved[1]),
        ):
            role = before if after == "=" else after
            # In REPLACE_PRIMARY the secondary stays but reserves for another primary.
            if role != before or move.kind == MoveKind.REPLACE_PRIMARY:
                part = self._at(move.inst, node, (before, role), kept)
                change = part if change is None else change + part
        return np.zeros(1) if change is None else change

    def at_target(self, inst: Ints, node: Ints, role: str, /) -> Floats:
        if self._count.offline:
            return np.zeros(1)
        kept: Floats | Ints = self._rules.state.r_mem[node]
        if role == "s":
            kept = np.maximum(kept, self._rules.own_reserve[inst])
        return self._at(inst, node, ("", role), kept)

    def _at(
        self, inst: Ints, node: Ints, roles: tuple[str, str], kept: Floats | Ints
    ) -> Floats:
        """Return the change of nodes whose role changes, or their reserved memory."""
        rules, changed = self._rules, dict[str, Any]()
        if roles[0] != roles[1]:
            gain = rules.gain[roles]
            changed = {
                name: rules.after(row, node, gain, inst) for name, row in self._rows
            }
        view = NodeView(rules.state, node, {**changed, _RESERVED: kept})
        result = self._count.at_nodes(view) - self._now[node]
        return result if self._everywhere else result * self._scope[node]


class FailingInstances(NodeCount):
    """``n1_cnt``: instances of the nodes that fail local N+1."""

    def __init__(self) -> None:
        super().__init__(_failing, ("held", "unallocated", _RESERVED))

    def is_filled(self, tables: FillTables) -> bool:
        """Return whether nodes fail from the start; no other may start to fail."""
        return bool(tables.is_failing.any())

    def by_arrival(
        self, now: NodeView, after: NodeView, /
    ) -> tuple[Floats, Floats] | None:
        """Return the instances; without reserves nodes fail where nothing fits."""
        if not now.r_mem.any():
            return None
        return super().by_arrival(now, after)


def _failing(nodes: Any) -> Floats:
    # While a node fails N+1, all its instances count.
    return np.asarray((nodes.unallocated <= nodes.r_mem) * nodes.held)


#: Instances, and primaries, of offline nodes.
OFFLINE_ALL: Final = NodeCount(lambda nodes: nodes.held, ("held",), offline=True)
OFFLINE_PRIMARIES: Final = NodeCount(
    lambda nodes: nodes.held_pri, ("held_pri",), offline=True
)
