"""``ganeti-mond``: the monitoring agent of a node, over HTTP."""

import argparse
import logging
import os
import socket
import sys
import threading
from collections.abc import Sequence
from typing import Any, Final

from ganeti.base import clock
from ganeti.base.constants import daemons, exitcodes
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths
from ganeti.daemons import common
from ganeti.node.collectors import heartbeat, helper
from ganeti.protocols import ssconf
from ganeti.protocols.confd import ConfdClient, wire

_log = logging.getLogger(__name__)

#: Seconds between config reads from confd.
_MOND_CONFIG_TIME_INTERVAL: Final = 15

NAME: Final = "ganeti-mond"
_CONFD: Final = "ganeti-confd"
#: Requests served at once; the answers of collectors are shared.
_THREADS: Final = 6
_STOP_TIMEOUT_S: Final = 3.0
_MAX_BODY: Final = 1024
_MAX_PORT: Final = 65535
#: Signatures of requests to confd; the setting of the cluster allows one or both.
_MAGICS: Final = (wire.MAGIC_SHA1, wire.MAGIC_SHA256)
#: Seconds until confd is asked again after a request without an answer.
_RETRY_S: Final = 5.0


class Mond:
    """The daemon's service."""

    def __init__(self, paths: Paths, options: argparse.Namespace) -> None:
        self._paths = paths
        self._options = options
        self._socket: socket.socket | None = None
        self._helper: helper.Helper | None = None
        self._heart_socket: socket.socket | None = None
        self._heart: heartbeat.Heartbeat | None = None
        self._shown: dict[str, str] = {}
        self._http: Any = None
        self._magic = wire.MAGIC_SHA1
        self._is_stopping = threading.Event()

    def prepare(self) -> None:
        """Fork what stays root's, while this process is root's and has one thread."""
        self._socket = helper.start(self._paths)
        self._heart_socket = heartbeat.start(self._paths)

    def start(self, control: common.Control) -> "Mond":
        """Bind, and start to collect.

        Raises:
            GenericError, OSError: the address cannot be bound.
        """
        # Imported here, so that the helper does not hold a copy of them in memory.
        from ganeti.daemons import mond_agent
        from ganeti.daemons.mond_agent import Agent, Application
        from ganeti.node.collectors.sources import Sources
        from ganeti.protocols.http import server

        assert self._socket is not None
        assert self._heart_socket is not None
        self._helper = helper.Helper(self._socket, lambda: self._on_loss(control))
        self._heart = heartbeat.Heartbeat(
            self._heart_socket, lambda: self._on_loss(control)
        )
        follower = mond_agent.Follower(self._connect)
        store = ssconf.SimpleStore(self._paths)
        sources = Sources(
            self._paths,
            self._helper.ask,
            self._connect,
            lambda: follower.present.diagnose,
            store.hypervisor_list,
        )
        clock_ = clock.SystemClock()
        agent = Agent(sources, lambda: follower.present, clock_)
        app = Application(
            agent,
            hostname=self._paths.hostname,
            key=self._key,
            metrics=mond_agent.exposition(mond_agent.NodeMetrics(agent, self._beats)),
            clock=clock_,
        )
        self._http = server.Server(
            (self._address(), self._port()),
            app,
            context=None,
            threads=_THREADS,
            max_body=_MAX_BODY,
        )
        port = self._http.start_serving()
        _log.info("serving on port %d", port)
        self._repeat("settings", lambda: self._refresh(follower))
        self._repeat("samples", agent.sample_due)
        return self

    def _refresh(self, follower: Any) -> float:
        """Ask confd for the settings; return the seconds until the next time."""
        is_answered = follower.refresh()
        self._follow_heartbeats(follower.present.heartbeats)
        if is_answered:
            return float(_MOND_CONFIG_TIME_INTERVAL)
        # A server that accepts only the other kind of signature does not answer.
        before = self._magic
        self._magic = next(each for each in _MAGICS if each != before)
        return _RETRY_S

    def _follow_heartbeats(self, kinds: Sequence[str]) -> None:
        """Pass the setting on, and log what has changed about heartbeats."""
        assert self._heart is not None
        self._heart.follow(kinds)
        shown = heartbeat.problems(self._beats(), clock.SystemClock().monotonic())
        if not kinds:
            shown = {}
        for subject, text in shown.items():
            if self._shown.get(subject) != text:
                _log.warning("heartbeat %s: %s", subject, text)
        for subject in self._shown.keys() - shown.keys():
            _log.info("heartbeat %s: no problem any more", subject)
        self._shown = shown

    def _beats(self) -> Any:
        from ganeti.node.storage import heartbeats

        return heartbeats.read_state(self._paths)

    def _address(self) -> str:
        return str(self._options.bind or common.wildcard_address(self._paths))

    def _port(self) -> int:
        if self._options.port is not None:
            return int(self._options.port)
        return netutils.service_port(NAME, daemons.DAEMONS[NAME].port or 0)

    def _repeat(self, name: str, work: Any) -> None:
        """Call a function again and again, after the seconds that it returns."""

        def live() -> None:
            wait_s = 0.0
            while not self._is_stopping.wait(wait_s):
                try:
                    wait_s = work()
                except Exception:  # noqa: BLE001 - logged, the thread goes on
                    _log.exception("%s", name)
                    wait_s = float(_MOND_CONFIG_TIME_INTERVAL)

        threading.Thread(target=live, name=name, daemon=True).start()

    def _key(self) -> bytes:
        """Return the cluster's key, which only root can read."""
        assert self._helper is not None
        return str(self._helper.ask("key")).encode("latin-1")

    def _connect(self) -> ConfdClient:
        default = daemons.DAEMONS[_CONFD].port or 0
        return ConfdClient(
            self._key(),
            ssconf.SimpleStore(self._paths).master_candidates_ips(),
            port=netutils.service_port(_CONFD, default, "udp"),
            magic=self._magic,
        )

    def _on_loss(self, control: common.Control) -> None:
        if not self._is_stopping.is_set():
            _log.error("a process of this daemon has ended, so it ends, too")
            control.ask_stop(exitcodes.EXIT_FAILURE)

    def stop(self) -> None:
        """Answer no more requests."""
        self._is_stopping.set()
        if self._http is not None:
            from ganeti.protocols.http import server

            server.wait_until_stopped(self._http, _STOP_TIMEOUT_S)
        for process in (self._helper, self._heart):
            if process is not None:
                process.close()


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the daemon's options."""
    parser = common.parser(NAME)
    add = parser.add_argument
    port = daemons.DAEMONS[NAME].port
    add("-p", "--port", type=int, help=f"TCP port, default {port}")
    add("-b", "--bind", metavar="ADDRESS", help="address to bind to, default all")
    return parser


def check(options: argparse.Namespace, paths: Paths) -> None:
    """Refuse to start as another user than root, or outside of a cluster.

    Raises:
        StartError: with the reason.
    """
    common.check_user(options, 0 if not paths.is_virtual else os.geteuid())
    if options.port is not None and not 0 <= options.port <= _MAX_PORT:
        raise common.StartError(f"--port: wanted 0 to 65535, found {options.port}")
    if options.bind and not netutils.is_address(options.bind, scope_ok=True):
        raise common.StartError(f"--bind: wanted an address, found {options.bind!r}")
    if not os.path.exists(paths.hmac_key):
        raise common.StartError(
            f"{paths.hmac_key}: no such file; is this node part of a cluster?"
        )


def main() -> int:
    """Run the agent."""
    paths = common.own_paths(NAME)
    options = common.parse(build_parser(), sys.argv[1:])
    service = Mond(paths, options)
    daemon = common.Daemon(
        name=NAME,
        check=lambda: check(options, paths),
        prepare=service.prepare,
        start=service.start,
    )
    return common.run(daemon, options, paths)
