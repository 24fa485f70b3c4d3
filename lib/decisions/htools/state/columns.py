"""Node numbers that depend on instances: one array, one row per number."""

from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

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
    row is in ``state.amounts``.
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
