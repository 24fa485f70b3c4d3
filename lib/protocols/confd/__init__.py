"""Confd: read-only facts of the cluster over UDP, signed with the cluster's HMAC key.

`wire` has the datagrams, and `client` is the library that asks several master
candidates. The server is in ``ganeti.daemons.confd``. This package reads no file.
"""

from ganeti.protocols.confd.client import ConfdClient, Result
from ganeti.protocols.confd.wire import Dropped, Query, Reply, Signers

__all__ = ["ConfdClient", "Dropped", "Query", "Reply", "Result", "Signers"]
