"""Instances that leave a lost node, in order, as runs of instances of one kind.

Instances of one kind take the same amounts and change the score in the same way. Their
new places are found in ``n1.simulate``.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ganeti.decisions.htools.model.cluster import NONE, Instance
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.state import amounts
from ganeti.decisions.htools.state.columns import ROWS
from ganeti.decisions.htools.state.node_state import ClusterState

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

#: The row of each metric.
_ROWS: Final = [ROWS.index(metric.row) for metric in components.METRICS.values()]

#: Columns of a table of runs: number of the kind, how many there are in a row, how many
#: leave from there on, and the most that any of these takes (as in
#: ``EvacueeKind.size``).
KIND, COUNT, REST, MOST = 0, 1, 2, slice(3, 6)


class EvacueeKind(NamedTuple):
    """Properties that instances of one kind share.

    Attributes:
        size: memory, disk (-1 without a disk of its own) and spindles that one takes.
        amounts: what one adds to the values of a node, before division by the capacity,
            in the order of the components.
        wanted: the location tags that it desires.
    """

    size: tuple[int, int, int]
    amounts: tuple[float, ...]
    wanted: frozenset[str]


class EvacueeKinds:
    """Numbers the kinds of the instances of a cluster when they are first met.

    Attributes:
        listed: the kinds by number.
        counts: components that any of them changes.
        differ: [component, component] -> some kind changes the two differently.
    """

    def __init__(self) -> None:
        """Start without kinds."""
        self.listed: list[EvacueeKind] = []
        self._numbers: dict[EvacueeKind, int] = {}
        #: id of a record -> the record and its number; keeping it keeps the id unique.
        self._known: dict[int, tuple[Instance, int]] = {}
        #: A record without name and place -> its number: most instances have equals.
        self._equals: dict[Instance, int] = {}
        self.counts: Flags = np.zeros(len(components.METRICS), bool)
        self.differ: Flags = np.zeros((len(components.METRICS),) * 2, bool)
        self._tables: tuple[Floats, Floats] | None = None

    def runs(self, state: ClusterState, items: Iterable[Instance]) -> Floats:
        """Return instances, in the order in which they leave, as a table of runs."""
        numbers = [self._number(state, item) for item in items]
        rows = [(kind, len(list(run))) for kind, run in itertools.groupby(numbers)]
        out = np.zeros((len(rows), 6))
        rest, most = 0, (0, -1, 0)
        for at in range(len(rows) - 1, -1, -1):
            kind, count = rows[at]
            size = self.listed[kind].size
            rest += count
            most = max(most[0], size[0]), max(most[1], size[1]), max(most[2], size[2])
            out[at] = (kind, count, rest, *most)
        return out

    def tables(self) -> tuple[Floats, Floats]:
        """Return [component, kind] -> amount, and [kind, dimension] -> size."""
        if self._tables is None:
            shape = len(self.listed), len(components.METRICS)
            amounts = np.array([kind.amounts for kind in self.listed]).reshape(shape)
            sizes = np.array([kind.size for kind in self.listed], np.float64)
            sizes = sizes.reshape(len(self.listed), 3)
            self._tables = np.ascontiguousarray(amounts.T), sizes
        return self._tables

    def _number(self, state: ClusterState, item: Instance) -> int:
        known = self._known.get(id(item))
        if known is None:
            bare = msgspec.structs.replace(item, name="", primary=NONE, secondary=NONE)
            number = self._equals.get(bare)
            if number is None:
                number = self._equals[bare] = self._enter(_kind(state, bare))
            known = self._known[id(item)] = item, number
        return known[1]

    def _enter(self, kind: EvacueeKind) -> int:
        number = self._numbers.setdefault(kind, len(self.listed))
        if number == len(self.listed):
            self.listed.append(kind)
            amounts = np.array(kind.amounts)
            self.counts |= amounts != 0
            self.differ |= amounts[:, None] != amounts
            self._tables = None
        return number


def _kind(state: ClusterState, item: Instance) -> EvacueeKind:
    memory = item.memory if item.uses_memory else 0
    size = memory, item.disk if item.local else -1, item.known_spindles * item.local
    column = tuple(amounts.of_item(item)[0, _ROWS].tolist())
    return EvacueeKind(size, column, state.desired_tags(item))


def are_usual(state: ClusterState, items: Sequence[Instance]) -> bool:
    """Return whether kinds describe everything that matters of some instances."""
    if not all(count.is_simulated for count in components.COUNTS.values()):
        return False
    apart = bool(state.exclusive.any())
    return not any(
        item.forthcoming
        or (apart and item.local and item.spindles is None)
        or state.tag_places(item)
        for item in items
    )
