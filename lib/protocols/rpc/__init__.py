"""Calls from the master to node daemons.

`table` lists the procedures. Callers use a `base.Runner`; `runner` has the two real
ones. `encode` converts instances and disks, `wire` converts files. The transport is
`ganeti.protocols.http`, the server side `ganeti.node.calls`.
"""

from ganeti.protocols.rpc import encode
from ganeti.protocols.rpc.base import Runner, Target
from ganeti.protocols.rpc.late import LateRunner
from ganeti.protocols.rpc.result import Result
from ganeti.protocols.rpc.runner import NetworkRunner, StaticRunner, by_name, node_port
from ganeti.protocols.rpc.table import PROCEDURES, TIMEOUTS, Procedure

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
