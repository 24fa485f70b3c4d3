"""Calls from the master to node daemons.

`table` lists the procedures; callers get a `base.Runner`; `runner` has the two real
ones; `encode` makes the forms of instances and disks; `wire` those of files.
Transport is `ganeti.http`, the other end `ganeti.backend`.
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
