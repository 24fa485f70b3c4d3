"""The sockets of kept connections, of which a server may have closed some.

The HTTP library notices a connection that its server has closed, but not each one of
several: after the restart of a server it sent requests over the next one. A request
that must not be repeated is lost then, and nobody knows that it was not executed.
"""

import os
import select

from ganeti.protocols.http.liveness import Host


class KeptSockets:
    """The sockets of a client by server. Not thread-safe."""

    def __init__(self) -> None:
        #: Descriptor -> inode, as the library may have closed it since.
        self._sockets: dict[Host, dict[int, int]] = {}

    def note(self, host: Host, fd: int) -> None:
        """Note a new socket for a connection to a server."""
        self._sockets.setdefault(host, {})[fd] = os.fstat(fd).st_ino

    def has_closed(self, host: Host) -> bool:
        """Return whether a server has closed a connection that is still kept here."""
        sockets = self._sockets.get(host, {})
        poll = select.poll()
        for fd, inode in list(sockets.items()):
            if _inode(fd) == inode:
                poll.register(fd, select.POLLRDHUP)
            else:
                del sockets[fd]
        return bool(sockets and poll.poll(0))


def _inode(fd: int) -> int | None:
    try:
        return os.fstat(fd).st_ino
    except OSError:
        return None
