"""``ganeti-rapi``: the remote API over HTTPS."""

import argparse
import logging
import os
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from OpenSSL import SSL

from ganeti.base import clock, errors, memory
from ganeti.base.clock import Clock
from ganeti.base.constants import exitcodes
from ganeti.base.pathutils import Paths
from ganeti.base.tls import x509
from ganeti.daemons import common
from ganeti.daemons.rapi import (
    application,
    authentication,
    document,
    pool,
    sessions,
    waits,
)
from ganeti.daemons.rapi.following import events
from ganeti.daemons.rapi.handlers import Master
from ganeti.decisions.sessions import AGE_S, IDLE_S, check_times
from ganeti.protocols import ssconf
from ganeti.protocols.http import admission, server, tls
from ganeti.protocols.luxi import Client
from ganeti.protocols.luxi.shared import SharedClient

if TYPE_CHECKING:
    from ganeti.base.process import Runner

_log = logging.getLogger(__name__)

# Settings of the cluster that the remote API follows.

#: Seconds for which an answer of the master daemon is used, and of one that failed.
_FRESH_S: Final = 5.0
_REQUIRES: Final = "rapi_require_authentication"


class Settings:
    """Asks the master daemon for settings; for use by many threads."""

    def __init__(self, master: Master, clock: Clock) -> None:
        """Prepare; nothing is asked before the first question."""
        self._master = master
        self._clock = clock
        self._lock = threading.Lock()
        self._asked_at = float("-inf")
        #: Until the master daemon has answered once, nothing is open.
        self._requires = True

    def requires_authentication(self) -> bool:
        """Return whether reading needs credentials, as of the last seconds."""
        with self._lock:
            now = self._clock.monotonic()
            if now - self._asked_at >= _FRESH_S:
                self._asked_at = now
                try:
                    info = self._master.call("QueryClusterInfo", timeout_s=_FRESH_S)
                    # A daemon of an earlier release has no such setting.
                    self._requires = bool(info.get(_REQUIRES, False))
                except errors.GenericError as err:
                    _log.warning("the last known settings remain: %s", err)
            return self._requires


NAME: Final = "ganeti-rapi"
#: Seconds to wait for a master daemon that does not listen, for example in a restart.
_CONNECT_S: Final = 5.0
#: Seconds for running requests after a request to stop, and for waits for jobs, which
#: end at once then.
_STOP_TIMEOUT_S: Final = 12.0
_STOP_WAITS_S: Final = 5.0
#: Threads that begin waits for jobs and write their answers.
_WAIT_THREADS: Final = 4
#: Requests that may wait for a thread, per thread, and for how many seconds.
_WAITING_PER_THREAD: Final = 50
_PATIENCE_S: Final = 30.0
#: Users who may not read or write a key.
_OTHERS: Final = stat.S_IRWXO | stat.S_IWGRP


class Rapi:
    """The daemon's service."""

    def __init__(
        self,
        http: server.Server,
        connections: pool.Pool,
        waiting: waits.Waits,
        ends: Sequence[Callable[[], None]],
    ) -> None:
        """Prepare; ``ends`` are called first at the end."""
        self._http = http
        self._connections = connections
        self._waits = waiting
        self._ends = ends

    def stop(self) -> None:
        """Finish the running requests, and end."""
        for end in self._ends:
            end()
        self._waits.stop_soon()
        if not self._http.parking.wait_until_empty(_STOP_WAITS_S):
            _log.warning("ending with waits for jobs")
        if not server.wait_until_stopped(self._http, _STOP_TIMEOUT_S):
            _log.warning("ending with running requests")
        self._waits.close()
        self._connections.close()


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the daemon's options."""
    parser = common.parser(NAME, network=True)
    parser.add_argument(
        "--require-authentication",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="demand credentials for reading, too, or not, whatever the cluster says",
    )
    parser.add_argument(
        "--ssl-chain", metavar="FILE", help="file with further certificates to send"
    )
    for name, default, text in (
        ("idle", IDLE_S, "a session ends after this time without a request"),
        ("age", AGE_S, "a session ends after this time in any case"),
    ):
        parser.add_argument(
            f"--session-{name}",
            metavar="SECONDS",
            type=int,
            default=default,
            help=f"{text}; default {default}",
        )
    return parser


def check(options: argparse.Namespace, paths: Paths) -> None:
    """Refuse to start on another node than the master, or without a safe key.

    Raises:
        StartError: with the reason.
    """
    common.check_user(options, 0 if not paths.is_virtual else os.geteuid())
    if options.max_clients < 1:
        raise common.StartError(
            f"--max-clients: wanted at least 1, found {options.max_clients}"
        )
    if wrong := check_times(options.session_idle, options.session_age):
        raise common.StartError(f"--session-idle, --session-age: {wrong}")
    _check_is_master(paths)
    if options.no_ssl:
        return
    certificate, key = _files(options, paths)
    for path in (certificate, key, *([options.ssl_chain] if options.ssl_chain else [])):
        if not os.path.exists(path):
            raise common.StartError(
                f"{path}: no such file; wanted a certificate or key, which"
                " gnt-cluster renew-crypto --new-rapi-certificate creates"
            )
    try:
        _check_key(key)
    except errors.X509CertError as err:
        raise common.StartError(str(err)) from err


def _check_is_master(paths: Paths) -> None:
    try:
        master = ssconf.SimpleStore(paths).master_node()
    except (OSError, errors.GenericError) as err:
        raise common.StartError(
            f"cannot read the name of the master: {err}", exitcodes.EXIT_NOTMASTER
        ) from err
    if master != paths.hostname:
        raise common.StartError(
            f"this node is {paths.hostname}, the master is {master}",
            exitcodes.EXIT_NOTMASTER,
        )


def _check_key(path: str) -> None:
    """Refuse a key that others than its owner and group may use.

    Raises:
        X509CertError: it is one.
    """
    status = os.stat(path)
    if status.st_mode & _OTHERS:
        raise errors.X509CertError(
            f"{path}: has mode {stat.S_IMODE(status.st_mode):04o}, so other users can"
            " use the key; wanted 0440 or less. Run chmod, and replace the key if it"
            " was read"
        )
    if status.st_uid not in {0, os.geteuid()}:
        raise errors.X509CertError(
            f"{path}: belongs to user {status.st_uid}, wanted root or this daemon's"
            " user"
        )


def _files(options: argparse.Namespace, paths: Paths) -> tuple[str, str]:
    """Return the files of the certificate and of its key."""
    own = paths.data("rapi.pem")
    return options.ssl_cert or own, options.ssl_key or own


def lane_plan(max_clients: int) -> admission.Plan:
    """Return the lanes: waits and streams never take the threads of other requests.

    A wait needs a thread only when it begins and ends.
    """
    ordinary = admission.Lane(
        "ordinary",
        threads=max_clients,
        waiting=_WAITING_PER_THREAD * max_clients,
        patience_s=_PATIENCE_S,
    )
    waiting = admission.Lane("wait", threads=_WAIT_THREADS, patience_s=_PATIENCE_S)

    def choose(path: str) -> str:
        is_wait = path.startswith("/2/jobs/") and path.endswith("/wait")
        is_stream = path.partition("?")[0] == "/2/events"
        return "wait" if is_wait or is_stream else "ordinary"

    return admission.Plan([ordinary, waiting], choose)


def _runner() -> "Runner":
    """Return a runner of processes, which takes memory that most servers never need."""
    from ganeti.base.process import SystemRunner

    return SystemRunner()


def start(options: argparse.Namespace, paths: Paths, _control: common.Control) -> Rapi:
    """Bind and serve.

    Raises:
        GenericError: the certificate or the address cannot be used.
        OSError: the address cannot be bound.
    """
    clock_ = clock.SystemClock()
    memory.use_one_arena()

    def connect() -> Client:
        return Client.of_node(
            paths,
            override=paths.rapi_socket,
            retries=0,
            connect_timeout_s=_CONNECT_S,
        )

    connections = pool.Pool(connect, clock_)
    waiting = waits.Waits(SharedClient(connect, clock_))
    known_sessions = sessions.Sessions(
        connections.call,
        clock_,
        sessions.Times(options.session_idle, options.session_age),
    )
    authenticator = authentication.Authenticator(clock_, None, known_sessions)
    followed = authentication.WatchedUsers(
        paths.data("rapi/users"), authenticator.replace
    )
    streams = events.Events(
        SharedClient(connect, clock_), clock_, authenticator.is_present
    )
    demands = options.require_authentication
    app = application.Application(
        connections,
        authenticator,
        clock_,
        waiting=waiting,
        requires_authentication=(
            Settings(connections, clock_).requires_authentication
            if demands is None
            else lambda: bool(demands)
        ),
        document=document.Document(_runner),
        streams=streams,
    )
    http = server.Server(
        (common.bind_address(options, paths), options.port),
        app,
        context=None if options.no_ssl else _context(options, paths),
        threads=lane_plan(options.max_clients),
        max_body=application.MAX_BODY,
        error_content=application.error_content,
    )
    port = http.start_serving()
    followed.start()
    _log.info("serving on port %d", port)
    ends = [followed.stop, known_sessions.stop, streams.close]
    return Rapi(http, connections, waiting, ends)


def _context(options: argparse.Namespace, paths: Paths) -> tls.ReloadedContext:
    certificate, key = _files(options, paths)
    further = options.ssl_chain

    def make() -> SSL.Context:
        _check_key(key)
        own, *chain = x509.load_certificates(certificate)
        if x509.seconds_left(own) <= 0:
            _log.error(
                "certificate %s ended on %s UTC, so clients that check it refuse this"
                " service; run gnt-cluster renew-crypto --new-rapi-certificate",
                certificate,
                f"{own.not_valid_after_utc:%Y-%m-%d %H:%M}",
            )
        if further:
            chain += x509.load_certificates(further)
        return tls.server_context(certificate, key, chain=chain)

    return tls.ReloadedContext(
        make, (certificate, key, *([further] if further else []))
    )


def main() -> int:
    """Run the daemon of the remote API."""
    paths = common.own_paths(NAME)
    options = common.parse(build_parser(), sys.argv[1:])
    daemon = common.Daemon(
        name=NAME,
        check=lambda: check(options, paths),
        start=lambda control: start(options, paths, control),
    )
    return common.run(daemon, options, paths)
