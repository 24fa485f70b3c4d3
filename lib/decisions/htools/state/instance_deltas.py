"""How each instance changes the numbers of its nodes: arrays over all instances.

A state changes one instance at a time; evaluating all possible moves at once needs
the same numbers as arrays. ``moved`` updates the nodes of an instance.
"""

import enum

import numpy as np

from ganeti.decisions.htools.model.cluster import EXTERNAL_TEMPLATES, NONE
from ganeti.decisions.htools.state import amounts
from ganeti.decisions.htools.state.aggregate import InstanceColumns
from ganeti.decisions.htools.state.amounts import ROWS, Flags, Ints
from ganeti.decisions.htools.state.node_state import ClusterState


class DeltaRow(enum.IntEnum):
    """Rows of a state, changed by instances, that rules and bounds read by name.

    Rows ``ALL_*`` include forthcoming instances.
    """

    MEMORY = ROWS.index("unallocated")
    DISK = ROWS.index("f_dsk")
    CPU = ROWS.index("u_cpu")
    SPINDLES = ROWS.index("inst_spin")
    FREE_SPINDLES = ROWS.index("f_spin")
    ALL_MEMORY = ROWS.index("f_mem_later")
    ALL_DISK = ROWS.index("f_dsk_later")
    ALL_CPU = ROWS.index("u_cpu_later")
    ALL_SPINDLES = ROWS.index("inst_spin_later")
    ALL_FREE_SPINDLES = ROWS.index("f_spin_later")


#: Row without forthcoming instances -> the same row with them.
LATER = {
    DeltaRow.MEMORY: DeltaRow.ALL_MEMORY,
    DeltaRow.DISK: DeltaRow.ALL_DISK,
    DeltaRow.CPU: DeltaRow.ALL_CPU,
    DeltaRow.SPINDLES: DeltaRow.ALL_SPINDLES,
    DeltaRow.FREE_SPINDLES: DeltaRow.ALL_FREE_SPINDLES,
}


class InstanceDeltas:
    """Numbers of all instances of a state.

    Attributes:
        primary, secondary: nodes of each instance, -1 for none.
        as_primary, as_secondary: rows x instances, added to a node's numbers.
        counted: rows x nodes, 1.0 where the node keeps the row, else 0.0.
        real: which exist, that is, are not forthcoming.
        reserved: memory that a secondary reserves.
        tags: instances x exclusion tags, padded with -1.
        desired: for each instance a row of ``lacking``.
        lacking: sets of desired tags x nodes, number of them that the node lacks.
    """

    def __init__(self, state: ClusterState) -> None:
        """Extract the numbers of all instances."""
        self.state = state
        items = state.instances
        self.primary: Ints = np.array(state.pri, dtype=np.int64)
        self.secondary: Ints = np.array(state.sec, dtype=np.int64)
        self.counted = state.keepers
        self.as_primary, self.as_secondary = amounts.of_columns(InstanceColumns(items))
        self.forthcoming = _flags(item.forthcoming for item in items)
        self.real: Flags = ~self.forthcoming
        self.reserved: Ints = np.array(
            [0 if item.forthcoming else item.reserved_memory for item in items],
            dtype=np.int64,
        )
        self.asked: Ints = np.array(
            [item.reserved_memory for item in items], dtype=np.int64
        )
        self.local = _flags(item.local for item in items)
        self.drbd = _flags(item.template == "drbd" for item in items)
        self.external = _flags(item.template in EXTERNAL_TEMPLATES for item in items)
        self.unknown_spindles = _flags(item.spindles is None for item in items)
        #: Instances whose effect on nodes is not additive (``score.unknown_spindles``).
        self.not_additive: Flags = self.local & self.unknown_spindles & self.forthcoming
        self.not_additive &= bool(state.exclusive.any())
        tags = [state.tag_places(item) for item in items]
        self.tags = _padded([sorted({*each}) for each in tags])
        #: Whether amounts and tags describe the whole effect of all instances.
        self.are_sums = all(len({*each}) == len(each) for each in tags) and not (
            state.exclusive.any() and self.unknown_spindles.any()
        )
        self.desired, self.lacking = _desired_tags(state)

    def moved(self, inst: int) -> None:
        """Update the nodes of one instance from the state."""
        self.primary[inst] = self.state.pri[inst]
        self.secondary[inst] = self.state.sec[inst]

    def common(self, inst: Ints) -> Ints:
        """Count the location tags that the nodes of instances share."""
        second = self.secondary[inst]
        shared = self.state.common_places[self.primary[inst], second]
        return np.where(second >= 0, shared, 0)


def _padded(lists: list[list[int]]) -> Ints:
    """Convert lists of different lengths into one padded array."""
    width = max(map(len, lists), default=0)
    return np.array(
        [[*each, *[NONE] * (width - len(each))] for each in lists], dtype=np.int64
    ).reshape(len(lists), width)


def _desired_tags(state: ClusterState) -> tuple[Ints, Ints]:
    """Number the distinct sets of desired tags; count what each node lacks of each."""
    numbers: dict[frozenset[str], int] = {}
    desired = [
        numbers.setdefault(state.desired_tags(item), len(numbers))
        for item in state.instances
    ]
    lacking: Ints = np.zeros((max(1, len(numbers)), state.size), dtype=np.int64)
    for row, wanted in enumerate(numbers):
        lacking[row] = state.lacking(wanted)
    return np.array(desired, dtype=np.int64), lacking


def _flags(values: object) -> Flags:
    return np.array(list(values), dtype=np.bool_)  # type: ignore[call-overload]
