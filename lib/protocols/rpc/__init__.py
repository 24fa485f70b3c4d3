"""Calls from the master to node daemons.

`calls` declares the procedures. Callers pass a request of one to a `base.Runner`;
`runner` has the two real ones. `encode` converts instances and disks, `wire` converts
files. The transport is `ganeti.protocols.http`, the server side `ganeti.node.calls`.
"""

from ganeti.protocols.rpc import calls, encode
from ganeti.protocols.rpc.base import Arguments, LateRunner, Runner, Target
from ganeti.protocols.rpc.calls import PROCEDURES
from ganeti.protocols.rpc.procedure import TIMEOUTS, Answer, Procedure, Request, Result
from ganeti.protocols.rpc.runner import NetworkRunner, StaticRunner, by_name, node_port

__all__ = [
    "PROCEDURES",
    "TIMEOUTS",
    "Answer",
    "Arguments",
    "LateRunner",
    "NetworkRunner",
    "Procedure",
    "Request",
    "Result",
    "Runner",
    "StaticRunner",
    "Target",
    "by_name",
    "calls",
    "encode",
    "node_port",
]
