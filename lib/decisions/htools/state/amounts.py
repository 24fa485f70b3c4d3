"""The rows of nodes, and the amounts that an instance adds to them.

The rows are one array, a row per number. A state changes by one instance, a cluster is
loaded with all of them, moves are evaluated as arrays, and new instances are tried on
every node. All of these take the amounts from ``AMOUNTS``. Two rows are no sums of
amounts of instances and are computed elsewhere: ``r_mem`` (a maximum) and ``location``
(depends on both nodes).
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from ganeti.decisions.htools.model.cluster import Instance

#: Arrays of amounts, yes and no, whole numbers, and positions.
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.intp]

#: Names of the rows in order.
ROWS: Final = (
    "unallocated",
    "i_mem",
    "r_mem",
    "f_dsk",
    "f_spin",
    "inst_spin",
    "u_cpu",
    "load_cpu",
    "load_mem",
    "load_dsk",
    "load_net",
    "f_mem_later",
    "f_dsk_later",
    "f_spin_later",
    "inst_spin_later",
    "u_cpu_later",
    "location",
    "held",
    "held_pri",
)


class NodeRows:
    """The array ``rows``, and each row under its name.

    Memory and disk are in MiB: free (``f_``), used by instances (``i_``) or reserved
    for failovers (``r_``); ``_later`` includes forthcoming instances. ``held`` counts
    the instances of a node, ``held_pri`` its primaries. What an instance adds to each
    row is in ``AMOUNTS``.
    """

    unallocated: Floats
    i_mem: Floats
    r_mem: Floats
    f_dsk: Floats
    f_spin: Floats
    inst_spin: Floats
    u_cpu: Floats
    load_cpu: Floats
    load_mem: Floats
    load_dsk: Floats
    load_net: Floats
    f_mem_later: Floats
    f_dsk_later: Floats
    f_spin_later: Floats
    inst_spin_later: Floats
    u_cpu_later: Floats
    location: Floats
    held: Floats
    held_pri: Floats
    rows: Floats

    def use(self, rows: Floats) -> None:
        """Use an array as the rows."""
        self.rows = rows
        for position, name in enumerate(ROWS):
            setattr(self, name, rows[position])


#: Nodes that keep a row: those with exclusive storage, or all others.
EXCLUSIVE: Final = "exclusive"
SHARED: Final = "shared"


class Amount(msgspec.Struct, frozen=True):
    """An amount that each instance adds to one row of its primary node.

    Attributes:
        row: of ``ROWS``.
        of: the amount, computed by arithmetic from one ``Instance`` or from
            ``InstanceColumns``, which have the same attributes.
        on_secondary: added to the secondary node as well.
        later: forthcoming instances count too.
        storage: ``EXCLUSIVE`` or ``SHARED`` if only such nodes keep the row.
        reported: of columns, the instances whose amounts the values reported by nodes
            contain already; None for none.
    """

    row: str
    of: Callable[[Any], Any]
    on_secondary: bool = False
    later: bool = False
    storage: str = ""
    reported: Callable[[Any], Any] | None = None


def _disk(item: Any) -> Any:
    return -item.disk * item.local


def _spindle_use(item: Any) -> Any:
    return item.spindle_use * item.local


def _spindles(item: Any) -> Any:
    return -item.known_spindles * item.local


def _vcpus(item: Any) -> Any:
    return item.vcpus * item.online


#: Every amount. The order does not matter.
AMOUNTS: Final = (
    Amount("unallocated", lambda item: -item.memory * item.uses_memory),
    Amount("i_mem", lambda item: item.memory * item.uses_memory),
    Amount("f_dsk", _disk, on_secondary=True, reported=lambda items: items.now),
    Amount("f_spin", _spindles, on_secondary=True, storage=EXCLUSIVE),
    Amount("inst_spin", _spindle_use, on_secondary=True, storage=SHARED),
    Amount("u_cpu", _vcpus),
    Amount("load_cpu", lambda item: item.utilisation[0]),
    Amount("load_mem", lambda item: item.utilisation[1]),
    Amount("load_dsk", lambda item: item.utilisation[2], on_secondary=True),
    Amount("load_net", lambda item: item.utilisation[3]),
    Amount(
        "f_mem_later",
        lambda item: -item.memory,
        later=True,
        reported=lambda items: items.uses_memory,
    ),
    Amount(
        "f_dsk_later",
        _disk,
        on_secondary=True,
        later=True,
        reported=lambda items: items.now,
    ),
    Amount("f_spin_later", _spindles, on_secondary=True, later=True, storage=EXCLUSIVE),
    Amount(
        "inst_spin_later", _spindle_use, on_secondary=True, later=True, storage=SHARED
    ),
    Amount("u_cpu_later", _vcpus, later=True),
    Amount("held", lambda _item: 1, on_secondary=True),
    Amount("held_pri", lambda _item: 1),
)
#: The rows that instances change by amounts of their own.
CHANGED_ROWS: Final = sorted(ROWS.index(amount.row) for amount in AMOUNTS)
_PLACES: Final = [(ROWS.index(amount.row), amount) for amount in AMOUNTS]


def keepers(exclusive: Flags) -> Floats:
    """Return rows x nodes: 1.0 where the node keeps the row, else 0.0."""
    out: Floats = np.ones((len(ROWS), len(exclusive)))
    for place, amount in _PLACES:
        if amount.storage:
            out[place] = exclusive == (amount.storage == EXCLUSIVE)
    return out


def of_item(item: Instance) -> Floats:
    """Return [primary or secondary, row]: what an instance adds to a node."""
    out: Floats = np.zeros((2, len(ROWS)))
    now = not item.forthcoming
    for place, amount in _PLACES:
        if now or amount.later:
            out[0, place] = value = amount.of(item)
            if amount.on_secondary:
                out[1, place] = value
    return out


def of_columns(items: Any) -> Floats:
    """Return [primary or secondary, row, instance] for ``InstanceColumns``."""
    out: Floats = np.zeros((2, len(ROWS), len(items.primary)))
    for place, amount in _PLACES:
        value = amount.of(items)
        out[0, place] = value if amount.later else value * items.now
        if amount.on_secondary:
            out[1, place] = out[0, place]
    # Products may be -0.0, which has other bytes than 0.0.
    return out + 0.0
