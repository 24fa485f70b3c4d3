"""Netlink socket to the kernel's network configuration.

The library is loaded at the first use: its import takes longer than the start of most
programs.
"""

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def route() -> Iterator[Any]:
    """Open a ``pyroute2.IPRoute`` of this network namespace.

    Raises:
        OSError: the kernel refused a request in the body.
    """
    from pyroute2 import IPRoute
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        with IPRoute() as ip:
            yield ip
    except NetlinkError as err:
        raise OSError(err.code, str(err)) from err
