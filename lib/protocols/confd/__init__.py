"""Confd: read-only facts of the cluster over UDP, signed with the cluster's HMAC key.

`wire` has the datagrams, `answers` the queries over a snapshot, `server` the daemon's
loop, and `client` the library that asks several master candidates. Where snapshots and
addresses come from is decided above: this package reads no file.
"""

from ganeti.protocols.confd.client import ConfdClient, Result
from ganeti.protocols.confd.wire import Dropped, Query, Reply, Signers

__all__ = ["ConfdClient", "Dropped", "Query", "Reply", "Result", "Signers"]
