"""All node calls: arguments, result, time limit, offline policy, dry runs, lane.

One row per procedure. Client calls, server dispatch, simulated nodes and dry runs use
it. ``spec/rpc`` in ``test/data`` is the contract that the tests compare the rows with.
"""

from typing import Final

from ganeti.protocols.rpc.table import instance_calls, node_calls, storage_calls
from ganeti.protocols.rpc.table.procedure import (
    LANE_ORDINARY,
    LANE_POWER,
    LANE_STORAGE,
    LANE_STORE,
    LANE_URGENT,
    TIMEOUTS,
    Procedure,
)
from ganeti.protocols.rpc.table.shapes import SHAPES

__all__ = [
    "LANE_ORDINARY",
    "LANE_POWER",
    "LANE_STORAGE",
    "LANE_STORE",
    "LANE_URGENT",
    "PROCEDURES",
    "SHAPES",
    "TIMEOUTS",
    "Procedure",
]

#: Procedures by name.
PROCEDURES: Final[dict[str, Procedure]] = {
    row.name: row
    for row in sorted(
        (*instance_calls.ROWS, *node_calls.ROWS, *storage_calls.ROWS),
        key=lambda row: row.name,
    )
}
