"""LUXI, the local protocol between clients and the master daemon.

JSON messages on a unix socket, each ended by one byte. `Client` is the calling end;
`ganeti.luxi.server` is the serving end and is imported by the master daemon alone,
because commands must start quickly. What the methods do belongs to `ganeti.masterd`.
"""

from ganeti.luxi.client import Client
from ganeti.luxi.framing import END, MAX_MESSAGE_BYTES

__all__ = ["END", "MAX_MESSAGE_BYTES", "Client"]
