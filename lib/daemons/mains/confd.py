"""``ganeti-confd``: answers questions about the configuration over UDP."""

import argparse
import os
import signal
import socket
import sys
import threading
from typing import Final

from ganeti.base import clock, errors
from ganeti.base.constants import daemons
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths
from ganeti.daemons import common
from ganeti.daemons.confd import server
from ganeti.daemons.confd.confd_source import MAGICS, StoreSource, read_key

NAME: Final = "ganeti-confd"
#: Magics by the word of ``--hmac``.
_STOP_TIMEOUT_S: Final = 10.0
_MAX_PORT: Final = 65535


class Confd:
    """The daemon's service: the loop in a thread, once `start` was called."""

    def __init__(self, paths: Paths, options: argparse.Namespace) -> None:
        self._paths = paths
        self._options = options
        self._source: StoreSource | None = None
        self._udp: server.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self, _control: common.Control) -> "Confd":
        """Bind the socket, read the store if there is one, and answer requests.

        SIGUSR1 makes the server log its counters.

        Raises:
            GenericError: the address cannot be used, the key not be read, or the
                directory not be watched.
        """
        sock = bind(self._options, self._paths)
        clock_ = clock.SystemClock()
        self._source = StoreSource(self._paths, clock_, self._options.hmac)
        udp = server.Server(
            sock,
            self._source,
            clock_,
            detects_replays=self._options.detect_replays,
        )
        self._udp = udp
        self._thread = threading.Thread(target=udp.serve, name="serve", daemon=True)
        self._thread.start()
        signal.signal(signal.SIGUSR1, lambda _number, _frame: udp.report())
        return self

    def stop(self) -> None:
        """Answer no more requests."""
        if self._udp is not None and self._thread is not None:
            self._udp.stop()
            self._thread.join(_STOP_TIMEOUT_S)
        if self._source is not None:
            self._source.close()


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the daemon's options."""
    parser = common.parser(NAME)
    add = parser.add_argument
    port = daemons.DAEMONS[NAME].port
    add("-p", "--port", type=int, help=f"UDP port, default {port}")
    add("-b", "--bind", metavar="ADDRESS", help="address to bind to, default all")
    add(
        "--hmac",
        choices=sorted(MAGICS),
        help="signatures that are accepted; default: the setting of the cluster",
    )
    add(
        "--detect-replays",
        action="store_true",
        help="answer each request only once, whatever the setting of the cluster is",
    )
    return parser


def check(options: argparse.Namespace, paths: Paths) -> None:
    """Refuse to start as another user than root, or without a key.

    Raises:
        StartError: with the reason.
    """
    common.check_user(options, 0 if not paths.is_virtual else os.geteuid())
    if options.port is not None and not 0 <= options.port <= _MAX_PORT:
        raise common.StartError(f"--port: wanted 0 to 65535, found {options.port}")
    if options.bind and not netutils.is_address(options.bind, scope_ok=True):
        raise common.StartError(f"--bind: wanted an address, found {options.bind!r}")
    try:
        read_key(paths)
    except errors.ConfigurationError as err:
        raise common.StartError(str(err)) from err


def bind(options: argparse.Namespace, paths: Paths) -> socket.socket:
    """Return the daemon's socket.

    Raises:
        GenericError: the address cannot be used.
    """
    address = options.bind or common.wildcard_address(paths)
    port = options.port
    if port is None:
        port = netutils.service_port(NAME, daemons.DAEMONS[NAME].port or 0, "udp")
    return server.bind(address, port)


def main() -> int:
    """Run confd."""
    paths = common.own_paths(NAME)
    options = common.parse(build_parser(), sys.argv[1:])
    service = Confd(paths, options)

    daemon = common.Daemon(
        name=NAME,
        check=lambda: check(options, paths),
        start=service.start,
    )
    return common.run(daemon, options, paths)
