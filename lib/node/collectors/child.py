"""Processes of the agent that keep the rights of root.

They are forked before the daemon changes to its own user, while it has one thread.
"""

import os
import socket
from collections.abc import Callable
from typing import Final

_FD: Final = 3


def fork(live: Callable[[socket.socket], None]) -> socket.socket:
    """Fork a process that has one end of a socket pair and no other file of the daemon.

    Args:
        live: the work of the process, which ends when the function returns or raises;
            it should return when the daemon has closed its end.

    Returns:
        the daemon's end.
    """
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        try:
            os.dup2(theirs.fileno(), _FD)
            os.closerange(_FD + 1, os.sysconf("SC_OPEN_MAX"))
            # The old objects' descriptors may be closed now; they must not be closed
            # twice.
            mine.detach()
            theirs.detach()
            live(socket.socket(fileno=_FD))
        finally:
            os._exit(0)
    theirs.close()
    return mine
