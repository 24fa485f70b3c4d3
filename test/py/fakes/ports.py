"""Ports for programs that tests start, which no other program gets in between.

The kernel gives ports of its range to whoever asks for any, also to outgoing connections:
one of these that was free a moment ago may be in use when a program binds it.
"""

import itertools
import os
import socket

#: Below the range of the kernel, see ip_local_port_range, and above the ports of daemons.
_FIRST, _COUNT = 20000, 10000
#: Processes of tests begin far from each other.
_NUMBERS = itertools.count(os.getpid() * 613)


def free(kind=socket.SOCK_STREAM):
    """Return a port of 127.0.0.1 that nobody has; each call returns another one."""
    for number in itertools.islice(_NUMBERS, _COUNT):
        with socket.socket(socket.AF_INET, kind) as sock:
            try:
                sock.bind(("127.0.0.1", _FIRST + number % _COUNT))
            except OSError:
                continue
            return sock.getsockname()[1]
    raise AssertionError("no port is free")
