"""Calls from the master to node daemons.

`table` lists the procedures. Callers use a `base.Runner`; `runner` has the two real
ones. `encode` converts instances and disks, `wire` converts files. The transport is
`ganeti.http`, the server side `ganeti.backend`.
"""

from ganeti.rpc import encode
from ganeti.rpc.base import Runner, Target
from ganeti.rpc.late import LateRunner
from ganeti.rpc.result import Result
from ganeti.rpc.runner import NetworkRunner, StaticRunner, by_name, node_port
from ganeti.rpc.table import PROCEDURES, TIMEOUTS, Procedure

__all__ = [
    "PROCEDURES",
    "TIMEOUTS",
    "LateRunner",
    "NetworkRunner",
    "Procedure",
    "Result",
    "Runner",
    "StaticRunner",
    "Target",
    "by_name",
    "encode",
    "node_port",
]
