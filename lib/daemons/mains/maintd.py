"""``ganeti-maintd``: repairs what nodes report about themselves; on the master."""

import argparse
import logging
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from ganeti import store
from ganeti.automation.maintenance import diagnoses, instances
from ganeti.automation.maintenance.capacity import Capacity
from ganeti.automation.maintenance.diagnoses import Poller
from ganeti.automation.maintenance.node_deaths import NodeDeaths
from ganeti.automation.maintenance.passes import Passes
from ganeti.automation.maintenance.service import Maintenance, incidents_of
from ganeti.base import clock, errors
from ganeti.base.constants import daemons, exitcodes
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths
from ganeti.daemons import common, maintd_metrics
from ganeti.daemons.confd.confd_source import read_key
from ganeti.daemons.masterd import startup
from ganeti.decisions.repair.incidents import MaintenanceState
from ganeti.protocols import rpc
from ganeti.protocols.luxi import Client
from ganeti.protocols.rpc import voting

_log = logging.getLogger(__name__)

# The WSGI application of the maintenance daemon; see ganeti-maintd(8).

_VALUES: Final[dict[str, Callable[[MaintenanceState], Any]]] = {
    "/": lambda _state: [1],
    "/1": lambda _state: None,
    "/1/": lambda _state: None,
    "/1/status": incidents_of,
    "/1/jobs": lambda state: list(state.jobs),
    "/1/evacuated": lambda state: list(state.evacuated),
}


class Application:
    """Answers requests from the state of the last round; threads call it at once."""

    def __init__(
        self,
        state: Callable[[], MaintenanceState],
        metrics: Callable[[str], tuple[str, bytes]],
    ) -> None:
        """Prepare.

        Args:
            state: returns the state of the last round.
            metrics: returns type and content for the header Accept.
        """
        self._state = state
        self._metrics = metrics

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Answer a request."""
        headers = [("Content-Type", "text/plain; charset=utf-8")]
        value = _VALUES.get(str(environ.get("PATH_INFO", "")))
        if environ.get("REQUEST_METHOD") != "GET":
            status, body = HTTPStatus.METHOD_NOT_ALLOWED, b"only GET is possible\n"
            headers.append(("Allow", "GET"))
        elif environ.get("PATH_INFO") == "/metrics":
            kind, body = self._metrics(str(environ.get("HTTP_ACCEPT", "")))
            status, headers = HTTPStatus.OK, [("Content-Type", kind)]
        elif value is None:
            status, body = HTTPStatus.NOT_FOUND, b"Resource not found\n"
        else:
            status, body = HTTPStatus.OK, msgspec.json.encode(value(self._state()))
            headers = [("Content-Type", "application/json")]
        headers.append(("Content-Length", str(len(body))))
        start_response(f"{status.value} {status.phrase}", headers)
        return [body]


NAME: Final = "ganeti-maintd"
_AGENT: Final = "ganeti-mond"
#: As those of the master daemon, but that of a lost vote: the design says "not master".
_EXIT_CODES: Final = {
    **startup.EXIT_CODES,
    startup.Refusal.LOST: exitcodes.EXIT_NOTMASTER,
}
_THREADS: Final = 4
_MAX_BODY: Final = 1024
_MAX_PORT: Final = 65535
#: Seconds to wait for a master daemon that does not listen, for example in a restart.
_CONNECT_S: Final = 10.0
_STOP_TIMEOUT_S: Final = 3.0
#: Seconds between two votes.
_VOTE_PAUSE_S: Final = 1.0


class Maintd:
    """The daemon's service."""

    def __init__(self, maintenance: Maintenance, deaths: NodeDeaths, http: Any) -> None:
        self._maintenance = maintenance
        self._deaths = deaths
        self._http = http
        for name, live in (("rounds", maintenance.live), ("deaths", deaths.live)):
            threading.Thread(target=live, name=name, daemon=True).start()

    def stop(self) -> None:
        """Begin no further round, and answer no more requests.

        A round that is being played either commits as a whole or not at all.
        """
        from ganeti.protocols.http import server

        self._maintenance.stop()
        self._deaths.stop()
        server.wait_until_stopped(self._http, _STOP_TIMEOUT_S)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the daemon's options."""
    parser = common.parser(NAME)
    add = parser.add_argument
    port = daemons.DAEMONS[NAME].port
    add("-p", "--port", type=int, help=f"TCP port, default {port}")
    add("-b", "--bind", metavar="ADDRESS", help="address to bind to, default all")
    add("--no-voting", action="store_true", help="do not ask the nodes for the master")
    add("--yes-do-it", action="store_true", help="confirm --no-voting")
    startup.add_option(parser)
    return parser


def check(options: argparse.Namespace, paths: Paths) -> None:
    """Refuse to start on another node than the master that most nodes name.

    Raises:
        StartError: with the reason; the codes are `_EXIT_CODES`.
    """
    common.check_user(options, 0 if not paths.is_virtual else os.geteuid())
    if options.port is not None and not 0 <= options.port <= _MAX_PORT:
        raise common.StartError(f"--port: wanted 0 to 65535, found {options.port}")
    if options.bind and not netutils.is_address(options.bind, scope_ok=True):
        raise common.StartError(f"--bind: wanted an address, found {options.bind!r}")
    if options.no_voting and not options.yes_do_it:
        raise common.StartError("--no-voting: needs --yes-do-it")
    try:
        startup.check_own_files(paths)
        read_key(paths)
    except startup.NotMaster as err:
        raise common.StartError(str(err), _EXIT_CODES[err.why]) from err
    except (OSError, errors.GenericError) as err:
        raise common.StartError(f"cannot read the key of the cluster: {err}") from err
    if not options.no_voting:
        _vote(paths, options.not_answering)


def _vote(paths: Paths, silent: frozenset[str]) -> None:
    """Have the nodes vote.

    Args:
        paths: of this node.
        silent: nodes that have just not answered.

    Raises:
        StartError: most of them do not name this node.
    """
    try:
        snapshot = store.read_snapshot(paths.store_db)
    except errors.GenericError as err:
        raise common.StartError(f"the configuration cannot be used: {err}") from err
    if len(snapshot.nodes) == 1:
        return
    time = clock.SystemClock()
    refusing: set[str] = set()
    runner = rpc.NetworkRunner(lambda: snapshot, paths, None)

    def gather(nodes: Collection[str]) -> Mapping[str, str | None]:
        return voting.gather(runner, nodes, refusing)

    def pause(seconds: float) -> None:
        # Whoever starts the daemons of the master waits for this one, too.
        time.wait(threading.Event(), min(seconds, _VOTE_PAUSE_S))

    ask = startup.asking(gather, snapshot.nodes, paths.hostname, silent)
    try:
        startup.vote(ask, paths.hostname, pause=pause, refusing=refusing)
    except startup.NotMaster as err:
        raise common.StartError(str(err), _EXIT_CODES[err.why]) from err
    finally:
        runner.close()


def start(
    options: argparse.Namespace, paths: Paths, _control: common.Control
) -> Maintd:
    """Bind, and begin with rounds.

    Raises:
        OSError: the address cannot be bound.
    """
    from ganeti.protocols.http import server

    time = clock.SystemClock()

    def call(method: str, args: Any) -> Any:
        client = Client.of_node(paths, retries=0, connect_timeout_s=_CONNECT_S)
        with client:
            return client.call(method, args)

    def key() -> bytes:
        return read_key(paths)

    pollers: dict[str, Poller] = {}

    def loads(
        places: Mapping[str, diagnoses.Place], path: str
    ) -> tuple[dict[str, Any], dict[str, str]]:
        if path not in pollers:
            pollers[path] = Poller(key, time, path)
        return pollers[path].poll(places)

    poller = Poller(key, time)
    agent = netutils.service_port(_AGENT, daemons.DAEMONS[_AGENT].port or 0)
    passes = Passes(
        call, loads, lambda nodes: instances.repair_within(paths, time, nodes), time
    )
    maintenance = Maintenance(
        call,
        poller.poll,
        time,
        agent,
        passes=passes,
        is_late=lambda: poller.is_waiting,
    )
    room = Capacity(call, time).room
    port = options.port
    if port is None:
        port = netutils.service_port(NAME, daemons.DAEMONS[NAME].port or 0)
    http = server.Server(
        (options.bind or common.wildcard_address(paths), port),
        Application(maintenance.status, maintd_metrics.exposition(call, room)),
        context=None,
        threads=_THREADS,
        max_body=_MAX_BODY,
    )
    _log.info("serving on port %d", http.start_serving())
    deaths = NodeDeaths(
        call, lambda node, since: instances.repair(paths, time, node, since), time
    )
    return Maintd(maintenance, deaths, http)


def main() -> int:
    """Run the daemon."""
    paths = common.own_paths(NAME)
    options = common.parse(build_parser(), sys.argv[1:])
    daemon = common.Daemon(
        name=NAME,
        check=lambda: check(options, paths),
        start=lambda control: start(options, paths, control),
    )
    return common.run(daemon, options, paths)
