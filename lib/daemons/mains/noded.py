"""ganeti-noded: answers the master's calls on every node.

Requests are ``POST /<procedure>`` over mutual TLS. `ganeti.protocols.http` has the
transport, `ganeti.node.calls` the procedures; this module connects them.

A thread of a pool runs each request, where the protocol's first implementation forked a
child: the daemon stays locked into RAM as one process, and a call costs no fork. Calls
of different lanes (`ganeti.protocols.rpc.calls`) never wait for each other's threads,
so a node whose storage hangs in all ordinary calls can still be reset. At most
``--max-clients`` ordinary calls run in parallel; others wait for a short time and are
then answered with the status "busy".
"""

import argparse
import encodings.idna  # noqa: F401 - name lookups import it late
import functools
import importlib
import json
import logging
import os
import resource
import sys
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, Final

import msgspec
from OpenSSL import SSL

from ganeti.base import clock, errors, memory, process
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths
from ganeti.base.tls import authority, x509
from ganeti.daemons import common
from ganeti.decisions.quorum import Term, parse_term, term_of
from ganeti.node import calls as backend
from ganeti.node import hypervisor
from ganeti.node.calls import consoles, guest_files, power, running_calls
from ganeti.node.calls.membership import master_term
from ganeti.node.consoles.relay import Consoles
from ganeti.node.consoles.tickets import TicketError
from ganeti.node.hypervisor import registry
from ganeti.protocols import ssconf
from ganeti.protocols.console import stream
from ganeti.protocols.http import admission, server, tls
from ganeti.protocols.rpc import calls, procedure, wire

_log = logging.getLogger(__name__)

# Locking of a daemon into RAM, so that it continues when the disk fails.

#: Number of the capability IPC_LOCK.
_CAP_IPC_LOCK: Final = 14


def _may_lock_anything() -> bool:
    """Return whether this process has the capability that lifts the limit."""
    try:
        return bool(int(memory.status()["CapEff"], 16) >> _CAP_IPC_LOCK & 1)
    except (OSError, KeyError, ValueError):
        return False


def lock_memory() -> bool:
    """Lock all present and future memory of this process; return whether it worked.

    Failures are logged: a daemon that can be paged out is better than none. With a
    finite limit nothing is locked, since later allocations would fail; a process with
    the capability to lock memory needs no limit.
    """
    try:
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, unlimited)
    except (OSError, ValueError) as err:
        if not _may_lock_anything():
            _log.warning(
                "memory is not locked: the limit of locked memory is not unlimited: %s",
                err,
            )
            return False
    try:
        memory.lock()
    except OSError as err:
        _log.warning("memory is not locked: %s", err)
        return False
    _log.debug("memory is locked")
    return True


NAME: Final = "ganeti-noded"
#: Modules that are imported late, for a quick start: SSH checks and key distribution,
#: addresses and links, pretty-printing.
_LATE_MODULES: Final = (
    "ganeti.protocols.ssh.client",
    "pyroute2",
    "pyroute2.netlink.exceptions",
    "simplejson",
)
TERM_FILE: Final = "term"
#: Procedures whose first argument is a term that is to be that of the caller.
_PROMISING: Final = frozenset(
    ("store_promise", "store_apply", "store_install", "term_review")
)
#: The procedure whose first argument is the uuid of the caller.
_VOUCHING: Final = "term_vouch"
#: Lanes beside the ordinary one. Their calls take milliseconds unless something hangs,
#: so few threads suffice, and nobody should wait for long.
_LANES: Final = (
    admission.Lane(procedure.LANE_POWER, threads=1, waiting=4, patience_s=5.0),
    admission.Lane(procedure.LANE_URGENT, threads=6, waiting=64, patience_s=5.0),
    admission.Lane(procedure.LANE_STORE, threads=3, waiting=16, patience_s=5.0),
    admission.Lane(procedure.LANE_STORAGE, threads=4, waiting=32, patience_s=5.0),
)
#: Ordinary calls that may wait for a thread, per thread, and for how many seconds.
_WAITING_PER_THREAD: Final = 3
_PATIENCE_S: Final = 10.0
#: Seconds that running requests may take after a request to stop; less than
#: daemon-util waits.
_STOP_TIMEOUT_S: Final = 25.0
#: Seconds for which the addresses of the nodes are remembered.
_KNOWN_FOR_S: Final = 10.0
_TERM_KEY: Final = "HTTP_" + wire.TERM_HEADER.upper().replace("-", "_")
_CALL_KEY: Final = "HTTP_" + wire.CALL_HEADER.upper().replace("-", "_")
_CONSOLE_KEY: Final = "HTTP_" + stream.HEADER.upper().replace("-", "_")

Start = Callable[[str, list[tuple[str, str]]], Any]


class HttpError(Exception):
    """A request that is not a valid call; has HTTP status and explanation."""

    def __init__(self, status: HTTPStatus | int, explain: str) -> None:
        super().__init__(explain)
        self.status = HTTPStatus(status)
        self.explain = explain


class App:
    """The WSGI application: from a request to a procedure and back."""

    def __init__(
        self,
        node: backend.LocalNode,
        *,
        guard: tls.PeerGuard | None,
        term_guard: master_term.TermGuard,
        plan: admission.Plan,
        calls: running_calls.RunningCalls,
        quit_daemon: Callable[[], None],
    ) -> None:
        """Create the application.

        Args:
            node: what procedures work with.
            guard: knows who may call; None without TLS.
            term_guard: remembers the newest master term.
            plan: the lanes, see `lane_plan`.
            calls: registers calls that can be aborted.
            quit_daemon: called when a procedure ends the daemon.
        """
        self._node = node
        self._guard = guard
        self._terms = term_guard
        self._turns = running_calls.DiskTurns(
            {lane.name: lane.threads for lane in plan.lanes}
        )
        self._quit_daemon = quit_daemon
        self._calls = calls

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        """Answer one request."""
        try:
            if environ["PATH_INFO"] == stream.PATH:
                self._open_console(environ)
                return []
            name, term = self._check(environ)
            args = _read_arguments(environ)
            self._check_promised(environ, name, args)
            lane = _lane(environ, name)
            _check_caller(environ, name)
            with self._calls.running(str(environ.get(_CALL_KEY, ""))):
                status, body = HTTPStatus.OK, self._run(name, args, term, lane)
        except HttpError as err:
            _log.info("refused %s: %s", environ.get("PATH_INFO"), err.explain)
            status, body = err.status, _error_body(err)
        headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
        ]
        start(f"{status.value} {status.phrase}", headers)
        return [body]

    def _check_peer(self, environ: dict[str, Any]) -> None:
        peer = environ.get(tls.PEER_KEY)
        if self._guard is not None and not (peer and self._guard.allows(peer)):
            raise HttpError(HTTPStatus.FORBIDDEN, "not a master candidate")

    def _open_console(self, environ: dict[str, Any]) -> None:
        """Give the connection of a viewer whose ticket is valid to the relay."""
        self._check_peer(environ)
        _require_lane(environ, procedure.LANE_URGENT)
        is_upgrade = environ.get("HTTP_UPGRADE") == stream.PROTOCOL
        if environ["REQUEST_METHOD"] != "GET" or not is_upgrade:
            raise HttpError(
                HTTPStatus.UPGRADE_REQUIRED,
                f"wanted GET with Upgrade: {stream.PROTOCOL}",
            )
        known = self._node.consoles
        if known is None:
            raise HttpError(HTTPStatus.NOT_FOUND, "this node relays no consoles")
        if environ[admission.CONNECTION_KEY].rfile.has_data():
            raise HttpError(HTTPStatus.BAD_REQUEST, "data came before the answer")
        try:
            opening = stream.parse_opening(environ.get(_CONSOLE_KEY, ""))
            ticket = known.tickets.redeem(opening)
        except stream.Malformed as err:
            raise HttpError(HTTPStatus.BAD_REQUEST, str(err)) from err
        except TicketError as err:
            _log.warning("console: refused %s: %s", environ.get("REMOTE_ADDR"), err)
            raise HttpError(HTTPStatus.FORBIDDEN, str(err)) from err
        opener = functools.partial(consoles.open_line, self._node, ticket)
        environ[server.HAND_OVER_KEY](
            lambda conn: known.relay.enter(conn, ticket, opening.viewer, opener)
        )

    def _check(self, environ: dict[str, Any]) -> tuple[str, Term | None]:
        """Return procedure and master term of a request that may be answered."""
        if environ["REQUEST_METHOD"] != "POST":
            raise HttpError(HTTPStatus.BAD_REQUEST, "only POST is served here")
        self._check_peer(environ)
        name = str(environ["PATH_INFO"]).removeprefix("/")
        if name not in backend.PROCEDURES:
            raise HttpError(HTTPStatus.NOT_FOUND, f"no procedure {name!r}")
        text = environ.get(_TERM_KEY)
        if text is None:
            return name, None
        try:
            term = parse_term(str(text))
        except ValueError as err:
            raise HttpError(HTTPStatus.BAD_REQUEST, str(err)) from err
        self._check_owner(environ, term)
        self._check_term(term)
        return name, term

    def _check_owner(self, environ: dict[str, Any], term: Term) -> None:
        """Refuse a term that is not that of the caller's certificate."""
        peer = environ.get(tls.PEER_KEY)
        holder = self._guard.holder(peer) if self._guard is not None and peer else ""
        if term.owner and holder and term.owner != holder:
            raise HttpError(
                HTTPStatus.FORBIDDEN, f"term {term} is not the caller's, {holder}"
            )

    def _check_promised(
        self, environ: dict[str, Any], name: str, args: list[Any]
    ) -> None:
        """Check the term, or the uuid, that a caller names as its own."""
        if name == _VOUCHING:
            peer = environ.get(tls.PEER_KEY)
            holder = self._guard.holder(peer) if self._guard and peer else ""
            if not holder or args[:1] != [holder]:
                raise HttpError(HTTPStatus.FORBIDDEN, f"the caller is {holder or '?'}")
        if name not in _PROMISING or not args:
            return
        try:
            term = term_of(args[0])
        except ValueError as err:
            raise HttpError(HTTPStatus.BAD_REQUEST, str(err)) from err
        self._check_owner(environ, term)

    def _check_term(self, term: Term) -> None:
        try:
            self._terms.check(term)
        except errors.TermError as err:
            raise HttpError(wire.STATUS_DEPOSED, str(err)) from err
        except errors.RpcError as err:
            raise HttpError(HTTPStatus.BAD_REQUEST, str(err)) from err

    def _run(self, name: str, args: list[Any], term: Term | None, lane: str) -> bytes:
        try:
            with self._turns.taken(lane, running_calls.kinds_of(name, args)):
                # The caller may have been deposed while its arguments arrived.
                if term is not None:
                    self._check_term(term)
                return self._answer(name, args, term)
        except running_calls.StorageBusy as err:
            raise HttpError(wire.STATUS_BUSY, str(err)) from err

    def _answer(self, name: str, args: list[Any], term: Term | None) -> bytes:
        """Run a procedure and return the body of the reply."""
        _log.debug("call %s, term %s", name, term)
        try:
            result = backend.call(self._node, name, args)
            if isinstance(result, backend.LastAnswer):
                self._quit_daemon()
                result = result.payload
            return msgspec.json.encode([True, result])
        except errors.GenericError as err:
            _log.info("%s failed: %s", name, err)
            return msgspec.json.encode([False, wire.error_text(err)])
        except Exception as err:  # noqa: BLE001 - the daemon must continue
            _log.error("%s failed unexpectedly", name, exc_info=err)
            text = f"Error while executing backend function: {err}"
            return msgspec.json.encode([False, text])


def lane_plan(max_clients: int) -> admission.Plan:
    """Return the lanes of the daemon, with a number of threads for ordinary calls."""
    ordinary = admission.Lane(
        procedure.LANE_ORDINARY,
        threads=max_clients,
        waiting=_WAITING_PER_THREAD * max_clients,
        patience_s=_PATIENCE_S,
    )
    return admission.Plan([ordinary, *_LANES], _lane_of_path)


def _lane_of_path(path: str) -> str:
    if path == stream.PATH:
        return procedure.LANE_URGENT
    row = calls.PROCEDURES.get(path.removeprefix("/"))
    return procedure.LANE_ORDINARY if row is None else row.lane


def _lane(environ: dict[str, Any], name: str) -> str:
    """Return the lane of a request that may be served in it.

    Raises:
        HttpError: too many calls run, or the lane was chosen for another request.
    """
    return _require_lane(environ, calls.PROCEDURES[name].lane)


def _require_lane(environ: dict[str, Any], wanted: str) -> str:
    assigned = environ[admission.LANE_KEY]
    if assigned == admission.BUSY:
        raise HttpError(
            wire.STATUS_BUSY,
            f"the node is busy: all threads for {wanted} calls are taken",
        )
    if assigned != wanted:
        raise HttpError(HTTPStatus.BAD_REQUEST, "the request line is not plain")
    return wanted


def _check_caller(environ: dict[str, Any], name: str) -> None:
    """Refuse an acting call that its caller has given up.

    Raises:
        HttpError: the connection was closed; nobody reads the answer.
    """
    if not calls.PROCEDURES[name].reads and server.is_abandoned(environ):
        raise HttpError(HTTPStatus.BAD_REQUEST, "the caller has gone")


def _read_arguments(environ: dict[str, Any]) -> list[Any]:
    try:
        size = int(environ.get("CONTENT_LENGTH") or "")
    except ValueError:
        size = -1
    if size < 0:
        raise HttpError(
            HTTPStatus.LENGTH_REQUIRED, "the header Content-Length is missing"
        )
    data = environ["wsgi.input"].read(size)
    try:
        args = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
        raise HttpError(HTTPStatus.BAD_REQUEST, f"body is not JSON: {err}") from err
    if not isinstance(args, list):
        raise HttpError(HTTPStatus.BAD_REQUEST, "body is not an array of arguments")
    return args


def _error_body(err: HttpError) -> bytes:
    return json.dumps(
        {"code": err.status.value, "message": err.explain, "explain": err.status.phrase}
    ).encode()


class Noded:
    """The daemon's service: an HTTP server with the application, and its viewers."""

    def __init__(self, http: server.Server, viewers: Consoles) -> None:
        self._http = http
        self._viewers = viewers

    def stop(self) -> None:
        """Accept no more calls; wait a limited time for running calls."""
        self._viewers.relay.stop()
        if not server.wait_until_stopped(self._http, _STOP_TIMEOUT_S):
            _log.warning("stopping while calls are still running")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the daemon's options."""
    parser = common.parser(NAME, network=True)
    parser.add_argument(
        "--no-mlock", action="store_true", help="do not lock memory pages"
    )
    return parser


def check(options: argparse.Namespace, paths: Paths) -> None:
    """Refuse to start as the wrong user or without certificates.

    Raises:
        StartError: with the reason.
    """
    if not paths.is_virtual:
        common.check_user(options, wanted_uid=0)
    if options.max_clients < 1:
        raise common.StartError(
            f"--max-clients: wanted at least 1, found {options.max_clients}"
        )
    if options.no_ssl:
        return
    try:
        needed = _own_files(options, paths)
    except errors.X509CertError as err:
        raise common.StartError(str(err)) from err
    for path in needed:
        if not os.path.exists(path):
            raise common.StartError(
                f"{path}: no certificate; is this node part of a cluster?"
            )


def _own_files(options: argparse.Namespace, paths: Paths) -> tuple[str, str]:
    """Return the files of this node's certificate and of its key.

    Without an authority, all nodes have the certificate of the cluster.
    """
    is_own = authority.is_used(paths.server_pem)
    own = paths.client_pem if is_own else paths.server_pem
    return options.ssl_cert or own, options.ssl_key or own


def start(options: argparse.Namespace, paths: Paths, control: common.Control) -> Noded:
    """Load everything, lock the memory, bind, serve.

    Raises:
        X509CertError: the certificate cannot be used.
        OSError: the address cannot be bound.
    """
    backend.load()
    guard, context = _tls(options, paths)
    digests = [""] if options.no_ssl else _digests(options, paths)
    clock_, runner = clock.SystemClock(), process.SystemRunner()
    term_guard = master_term.TermGuard(paths.data(TERM_FILE), *digests)
    calls = running_calls.RunningCalls(runner.end_children)
    viewers = Consoles(clock_)
    node = backend.LocalNode(
        paths=paths,
        process=runner,
        clock=clock_,
        hypervisors=registry.drivers(
            hypervisor.NodeEffects(
                paths=paths,
                process=runner,
                clock=clock_,
                open_disk=guest_files.opener(paths, runner),
            )
        ),
        power=power.for_node(paths),
        terms=term_guard,
        running_calls=calls,
        consoles=viewers,
    )
    guest_files.sweep(node)
    guest_files.end_processes(node)
    plan = lane_plan(options.max_clients)
    app = App(
        node,
        guard=guard,
        term_guard=term_guard,
        plan=plan,
        calls=calls,
        quit_daemon=control.ask_stop,
    )
    http = server.Server(
        (
            common.bind_address(options, paths),
            options.port or netutils.service_port(NAME, 1811),
        ),
        app,
        context=context,
        threads=plan,
        is_known=_KnownAddresses(paths, clock_).has,
    )
    viewers.relay.start()
    if not options.no_mlock:
        _load_late_modules()
        lock_memory()
    port = http.start_serving()
    _log.info("serving on port %d", port)
    return Noded(http, viewers)


class _KnownAddresses:
    """The addresses of the nodes, from ssconf; read when connections are many."""

    def __init__(self, paths: Paths, clock_: clock.Clock) -> None:
        self._ssconf = ssconf.SimpleStore(paths)
        self._clock = clock_
        self._read_at = float("-inf")
        self._addresses: frozenset[str] = frozenset()

    def has(self, address: str) -> bool:
        """Return whether an address is that of a node."""
        now = self._clock.monotonic()
        if now - self._read_at >= _KNOWN_FOR_S:
            self._read_at = now
            try:
                primary = self._ssconf.node_primary_ips().values()
                secondary = self._ssconf.node_secondary_ips().values()
            except (OSError, ValueError, errors.GenericError) as err:
                _log.warning("cannot read the addresses of the nodes: %s", err)
            else:
                self._addresses = frozenset((*primary, *secondary))
        return address in self._addresses


def _load_late_modules() -> None:
    """Load modules that are imported at first use, while the disk is readable."""
    for name in _LATE_MODULES:
        importlib.import_module(name)


def _digests(options: argparse.Namespace, paths: Paths) -> list[str]:
    """Return the digests of the authorities, the issuing one first."""
    trusted = authority.trusted(_issuer(options, paths))
    return list(map(x509.digest, trusted))


def _issuer(options: argparse.Namespace, paths: Paths) -> str:
    """Return the file of the certificate that issues those of callers."""
    if authority.is_used(paths.server_pem):
        return paths.server_pem
    return str(options.ssl_cert or paths.server_pem)


def _tls(
    options: argparse.Namespace, paths: Paths
) -> tuple[tls.PeerGuard | None, tls.ReloadedContext | None]:
    if options.no_ssl:
        return None, None
    store = ssconf.SimpleStore(paths)
    guard = tls.PeerGuard(
        _digests(options, paths)[0],
        store.path("master_candidates_certs"),
        store.master_candidates_certs,
    )
    certificate, key = _own_files(options, paths)
    issuer = _issuer(options, paths)

    def make() -> SSL.Context:
        guard.trust(_digests(options, paths))
        return tls.server_context(certificate, key, guard=guard, authority=issuer)

    return guard, tls.ReloadedContext(make, (certificate, key, issuer))


def main() -> int:
    """Run the node daemon."""
    paths = common.own_paths(NAME)
    options = common.parse(build_parser(), sys.argv[1:])
    daemon = common.Daemon(
        name=NAME,
        check=lambda: check(options, paths),
        start=lambda control: start(options, paths, control),
        console=True,
    )
    return common.run(daemon, options, paths)
