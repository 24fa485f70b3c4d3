"""Calls to node daemons: one table, one client, answers as values."""

from ganeti.rpc import encode
from ganeti.rpc.base import Runner, Target
from ganeti.rpc.result import Result
from ganeti.rpc.table import PROCEDURES, TIMEOUTS, Procedure

__all__ = [
    "PROCEDURES",
    "TIMEOUTS",
    "Procedure",
    "Result",
    "Runner",
    "Target",
    "encode",
]
