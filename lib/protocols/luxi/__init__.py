"""LUXI, the local protocol between clients and the master daemon.

JSON messages on a Unix socket, each ended by one byte. `Client` is the client side.
`ganeti.protocols.luxi.server` is the server side; only the master daemon imports it,
because commands must start quickly. The methods belong to `ganeti.daemons.masterd`.
"""

from ganeti.protocols.luxi.client import Client
from ganeti.protocols.luxi.framing import END, MAX_MESSAGE_BYTES

__all__ = ["END", "MAX_MESSAGE_BYTES", "Client"]
