"""Rows of some nodes with a few of them replaced, read like those of a state.

Metrics and counts are functions of rows by name: ``state.held``. With these views the
same functions return the values after a change that no state has.
"""

from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec
import numpy as np

from ganeti.decisions.htools.model.cluster import Instance
from ganeti.decisions.htools.state import amounts
from ganeti.decisions.htools.state.columns import ROWS
from ganeti.decisions.htools.state.instance_deltas import Bools, Floats, Ints
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
    common_on: Bools


def new_instance(
    state: ClusterState, item: Instance, up: Any, common_on: Bools | None = None
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
    is_failing: Bools
