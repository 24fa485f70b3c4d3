"""Runners that reach nodes over the network.

A call of many nodes is one batch of requests on one HTTP client. Calls are not
repeated, and failures of nodes are not raised: the caller decides. One exception: a
node that answers "busy" has not executed the call, and gets it again within the limit.
"""

import abc
import copy
import dataclasses
import functools
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

import msgspec

from ganeti.base import errors
from ganeti.base.constants import daemons
from ganeti.base.filesystem import files
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths
from ganeti.base.tls import authority
from ganeti.decisions.quorum import Term
from ganeti.model.objects import Snapshot, params
from ganeti.protocols.http import client
from ganeti.protocols.rpc import calls, wire
from ganeti.protocols.rpc.base import Arguments, Runner, Target
from ganeti.protocols.rpc.procedure import (
    LANE_ORDINARY,
    LANE_POWER,
    LANE_STORE,
    MAX_REASON,
    OFFLINE_TEXT,
    TIMEOUTS,
    Procedure,
    Result,
)

_log = logging.getLogger(__name__)
_NODED: Final = "ganeti-noded"
_HTTP_OK: Final = 200
#: Seconds of silence until a node is probed during a reading call: most answers take
#: milliseconds, and a probe costs one handshake.
_PROBE_AFTER_S: Final = 1.0
#: The same for acting calls, which usually take longer.
_PROBE_ACT_AFTER_S: Final = 5.0
#: Seconds that a listing waits for the handshake of a node that failed its last one. A
#: healthy node needs milliseconds, and the whole listing is to take less than 1 s.
_LISTING_CONNECT_S: Final = 0.3
#: Seconds for which acting calls wait for a frozen node, by class of time limit: a
#: short pause of the machine must not fail a job that took minutes.
_SILENCE_S: Final = {
    "urgent": 10.0,
    "fast": 30.0,
    "normal": 60.0,
    "slow": 120.0,
    "4h": 300.0,
    "1d": 300.0,
    "duration": 60.0,
}
#: Errors about bytes that are no JSON, no UTF-8, or nested too deep.
_NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
#: Seconds until a busy node is asked again. It has let the call wait already.
_BUSY_PAUSE_S: Final = 1.0
#: Seconds for which calls that only read try to reach a busy node.
_BUSY_READ_S: Final = 60.0
_ABORT: Final = "call_abort"
#: Seconds that a call may take to end after it was aborted.
_ABORT_GRACE_S: Final = 10.0


def node_port() -> int:
    """Return the port of node daemons: from the services file, else the default."""
    default = daemons.DAEMONS[_NODED].port
    if default is None:
        raise errors.ProgrammerError(f"{_NODED} has no default port")
    return netutils.service_port(_NODED, default)


def by_name(
    names: Iterable[str], paths: Paths, port: int | None = None
) -> list[Target]:
    """Return targets by host name, for `StaticRunner`.

    Raises:
        ResolverError: a name has no address.
    """
    at = node_port() if port is None else port
    return [Target(name, name, netutils.lookup(name, paths), at) for name in names]


class _Ongoing:
    """The call that a thread waits for.

    Attributes:
        call_id: its id on the nodes; empty if they cannot end it.
        requests: the requests of the whole call.
        transfers: the transfers under way.
        is_aborted: set when the call must end.
    """

    def __init__(self, call_id: str, requests: Sequence[client.Request]) -> None:
        self.call_id = call_id
        self.requests = requests
        self.transfers: list[client.Transfer] = []
        self.is_aborted = threading.Event()


class _Prepared(NamedTuple):
    """A call before it is made.

    Attributes:
        row: of the table.
        call_id: its id on the nodes; empty if they cannot end it.
        called: uuid and name of each node that is called.
        requests: one for each of them.
        results: of the other nodes, by uuid.
    """

    row: Procedure[..., Any]
    call_id: str
    called: list[tuple[str, str]]
    requests: list[client.Request]
    results: dict[str, Result]


class _Authority:
    """The cluster's certificate, read again when its file changes."""

    def __init__(self) -> None:
        self._seen: tuple[int, int, int] | None = None
        self._pem: bytes | None = None

    def pem(self, path: str) -> bytes | None:
        """Return the file's content if it is an authority's that issues certificates.

        None: all nodes share the certificate of this file, or it cannot be read.
        Without a readable one no connection succeeds.
        """
        try:
            seen = files.version(path)
            if seen != self._seen:
                is_used = authority.is_used(path)
                self._pem = files.read_file(path) if is_used else None
                self._seen = seen
        except (OSError, errors.X509CertError) as err:
            _log.warning("cannot read the certificate of the cluster: %s", err)
        return self._pem


class _Runner(Runner, abc.ABC):
    """The common part of both runners: from targets to results."""

    def __init__(
        self,
        paths: Paths,
        term: Term | None,
        *,
        use_tls: bool,
        shared: client.Client | None = None,
    ) -> None:
        self._paths = paths
        self._term = term
        self._headers = () if term is None else (f"{wire.TERM_HEADER}: {term}",)
        self._use_tls = use_tls
        self._client = shared or client.Client()
        self._is_shared = shared is not None
        self._silent_connect_s = client.Request.silent_connect_s
        #: Called with a thread and whether a node that it waits for is frozen, if this
        #: changes; from the client's thread, so it must not block.
        self.on_silence: Callable[[threading.Thread, bool], None] = _ignore_silence
        #: Called when a node has refused the term, even if other nodes of the call have
        #: not answered; from the client's thread, so it must not block. Calls about
        #: copies are left out: their caller asks the other candidates itself.
        self.on_refusal: Callable[[], None] = _ignore_refusal
        self._authority = _Authority()
        self._ongoing: dict[threading.Thread, _Ongoing] = {}

    def close(self) -> None:
        """Abort calls and close the connections, unless they are shared."""
        if not self._is_shared:
            self._client.close()

    def abort(self, thread: threading.Thread) -> None:
        """End the call that a thread waits for; returns at once.

        The nodes end the programs that the call runs. A call without an answer some
        seconds later is given up, although the nodes may still execute it.
        """
        ongoing = self._ongoing.get(thread)
        if ongoing is None:
            return
        ongoing.is_aborted.set()
        for request in ongoing.requests if ongoing.call_id else ():
            abort = dataclasses.replace(
                request,
                path=f"/{_ABORT}",
                headers=self._headers,
                body=_encode([ongoing.call_id]),
                timeout_s=_ABORT_GRACE_S,
            )
            self._client.start(abort, _log_abort)
        timer = threading.Timer(_ABORT_GRACE_S, self._give_up, [ongoing])
        # It must not keep a daemon that stops from its end.
        timer.daemon = True
        timer.start()

    def _give_up(self, ongoing: _Ongoing) -> None:
        for transfer in ongoing.transfers:
            self._client.abort(transfer)

    def at(self, targets: Iterable[Target]) -> "StaticRunner":
        """Return a runner for other nodes with the same connections and term."""
        runner = StaticRunner(
            targets,
            self._paths,
            self._term,
            use_tls=self._use_tls,
            shared=self._client,
        )
        runner.on_silence = self.on_silence
        runner.on_refusal = self.on_refusal
        return runner

    def for_listings(self) -> Self:
        """Return a runner with the same connections that waits less for silent nodes.

        Each call still tries to reach a silent node, so that one that answers again is
        seen at once.
        """
        made = copy.copy(self)
        # Shared, so that closing this runner leaves the connections to the other one.
        vars(made).update(_is_shared=True, _silent_connect_s=_LISTING_CONNECT_S)
        return made

    @abc.abstractmethod
    def _target(self, node: str) -> Target | None:
        """Return the target of a node, None for an unknown node."""

    def call(
        self,
        procedure: str,
        nodes: Sequence[str],
        args: Arguments = (),
        *,
        timeout_s: float | None = None,
    ) -> Mapping[str, Result]:
        """Call many nodes in parallel, see `Runner`."""
        me = threading.current_thread()
        prepared = self._prepare(
            procedure,
            nodes,
            args,
            timeout_s=timeout_s,
            on_silence=functools.partial(self.on_silence, me),
        )
        # A thread waits for one call at a time, so it identifies the call in `abort`.
        ongoing = _Ongoing(prepared.call_id, prepared.requests)
        self._ongoing[me] = ongoing
        try:
            responses = self._perform(prepared.row, prepared.requests, ongoing)
        finally:
            del self._ongoing[me]
            # A node of this call that is frozen does not matter any more.
            self.on_silence(me, False)
        results = prepared.results
        for (node, name), response in zip(prepared.called, responses, strict=True):
            results[node] = read_answer(procedure, name, response)
        return results

    def begin(
        self,
        procedure: str,
        nodes: Sequence[str],
        args: Sequence[Any],
        done: Callable[[str, Result], None],
    ) -> None:
        """Begin a call of many nodes that changes a copy of the store; do not wait.

        ``done`` is called with each node and its result when the node has answered,
        mostly from the client's thread, so it must not block. A busy node is not asked
        again.
        """
        prepared = self._prepare(procedure, nodes, args)
        if prepared.row.lane != LANE_STORE:
            raise errors.ProgrammerError(f"RPC: {procedure} must be waited for")

        def answered(node: str, name: str, response: client.Response) -> None:
            done(node, read_answer(procedure, name, response))

        self._client.start_all(
            [
                (request, functools.partial(answered, node, name))
                for (node, name), request in zip(
                    prepared.called, prepared.requests, strict=True
                )
            ]
        )
        for node, result in prepared.results.items():
            done(node, result)

    def _prepare(
        self,
        procedure: str,
        nodes: Sequence[str],
        args: Arguments,
        *,
        timeout_s: float | None = None,
        on_silence: Callable[[bool], None] | None = None,
    ) -> _Prepared:
        """Return the requests of a call, and the results of nodes without one."""
        row = calls.PROCEDURES.get(procedure)
        if row is None:
            raise errors.ProgrammerError(f"RPC has no procedure {procedure!r}")
        results: dict[str, Result] = {}
        targets: list[tuple[str, Target]] = []
        for node in nodes:
            target = self._target(node)
            if target is None:
                text = "not a node of this cluster"
                results[node] = Result(procedure, node, fail_msg=text)
            elif target.offline and not row.accept_offline:
                results[node] = Result(
                    procedure, target.name, fail_msg=OFFLINE_TEXT, offline=True
                )
            else:
                targets.append((node, target))
        credentials = self._credentials()
        # A node can only end programs, so other calls need no id.
        call_id = secrets.token_hex(8) if row.runs_programs else ""
        headers = self._headers
        if call_id:
            headers = (*headers, f"{wire.CALL_HEADER}: {call_id}")
        bodies = _bodies(args, [node for node, _ in targets])
        requests = [
            client.Request(
                address=target.address,
                port=target.port,
                path=f"/{procedure}",
                body=body,
                headers=headers,
                credentials=credentials,
                identity=target.identity,
                timeout_s=timeout_s or _time_limit(row, args),
                probe_after_s=_PROBE_AFTER_S if row.reads else _PROBE_ACT_AFTER_S,
                # A reading call can be repeated, so it gives a frozen node up at once.
                silence_s=0.0 if row.reads else _SILENCE_S[row.timeout],
                server=_NODED,
                max_answer=row.max_answer,
                is_repeatable=row.reads or row.names_its_base,
                on_silence=on_silence,
                silent_connect_s=self._silent_connect_s,
                goes_first=row.lane in (LANE_STORE, LANE_POWER),
            )
            for (_, target), body in zip(targets, bodies, strict=True)
        ]
        called = [(node, target.name) for node, target in targets]
        return _Prepared(row, call_id, called, requests, results)

    def _perform(
        self,
        row: Procedure[..., Any],
        requests: Sequence[client.Request],
        ongoing: _Ongoing,
    ) -> list[client.Response]:
        """Send requests; ask busy nodes again until the time limit of the call."""

        def send(some: Sequence[client.Request]) -> list[client.Response]:
            return self._client.perform(some, ongoing.transfers.extend, on_answer)

        def on_answer(response: client.Response) -> None:
            if response.status == wire.STATUS_DEPOSED and is_watched:
                self.on_refusal()

        is_watched = row.lane != LANE_STORE
        began = time.monotonic()
        responses = send(requests)
        if row.lane != LANE_ORDINARY:
            return responses
        limit = _BUSY_READ_S if row.reads else float("inf")
        while True:
            left = {}
            waited = time.monotonic() - began + _BUSY_PAUSE_S
            for index, response in enumerate(responses):
                left_s = min(limit, requests[index].timeout_s) - waited
                if response.status == wire.STATUS_BUSY and left_s > 0:
                    left[index] = dataclasses.replace(requests[index], timeout_s=left_s)
            if not left or ongoing.is_aborted.wait(_BUSY_PAUSE_S):
                return responses
            for index, response in zip(left, send(list(left.values())), strict=True):
                responses[index] = response

    def _credentials(self) -> client.Credentials | None:
        if not self._use_tls:
            return None
        own = self._paths.client_pem
        # Without certificates of their own, all nodes have that of the cluster.
        if not os.path.exists(own):
            own = self._paths.server_pem
        return client.Credentials(
            own, self._paths.server_pem, self._authority.pem(self._paths.server_pem)
        )


class NetworkRunner(_Runner):
    """The master's runner, for nodes of the configuration."""

    def __init__(
        self,
        snapshot_source: Callable[[], Snapshot],
        paths: Paths,
        term: Term | None,
        *,
        port: int | None = None,
        use_tls: bool = True,
    ) -> None:
        """Prepare a runner.

        Args:
            snapshot_source: returns the newest snapshot; used by every call.
            paths: paths on this node, for its certificates.
            term: the term of this master, sent with each call.
            port: port of all node daemons, by default that of the services file.
            use_tls: false only in tests without certificates.
        """
        super().__init__(paths, term, use_tls=use_tls)
        self._snapshot_source = snapshot_source
        self._port = node_port() if port is None else port

    def _target(self, node: str) -> Target | None:
        snapshot = self._snapshot_source()
        record = snapshot.nodes.get(node)
        if record is None:
            return None
        is_silent = params.is_silent(snapshot, record)
        return Target(node, record.name, record.primary_ip, self._port, is_silent)


class StaticRunner(_Runner):
    """A runner for given addresses, without a term, for bootstrap tools."""

    def __init__(
        self,
        targets: Iterable[Target],
        paths: Paths,
        term: Term | None = None,
        *,
        use_tls: bool = True,
        shared: client.Client | None = None,
    ) -> None:
        """Prepare a runner for targets, by uuid or name."""
        super().__init__(paths, term, use_tls=use_tls, shared=shared)
        self._targets: dict[str, Target] = {}
        for target in targets:
            self._targets[target.name] = target
            self._targets[target.uuid] = target

    def _target(self, node: str) -> Target | None:
        return self._targets.get(node)


def _time_limit(row: Procedure[..., Any], args: Arguments) -> float:
    limit = float(TIMEOUTS[row.timeout])
    # The first argument of these calls is the time that they take.
    if row.timeout == "duration" and not callable(args) and args:
        return limit + float(args[0])
    return limit


def _bodies(args: Arguments, nodes: Sequence[str]) -> list[bytes]:
    """Return one body per node; nodes with the same arguments share one object.

    A verification of a group has the addresses of all its nodes in each.
    """
    if not callable(args) and not wire.differs_by_node(args):
        return [_encode(args)] * len(nodes)
    made: dict[bytes, bytes] = {}
    bodies = (
        _encode(wire.resolve(args(node) if callable(args) else args, node))
        for node in nodes
    )
    return [made.setdefault(body, body) for body in bodies]


def _encode(args: Sequence[Any]) -> bytes:
    return msgspec.json.encode(list(args))


def read_answer(procedure: str, node: str, response: client.Response) -> Result:
    """Return the result of a response."""
    if response.error is not None:
        return Result(
            procedure,
            node,
            fail_msg=response.error,
            is_lost=response.is_lost,
            refused=response.is_refused,
            is_silent=True,
        )
    if response.status == wire.STATUS_BUSY:
        # Neither silent nor lost: a busy node has not executed the call.
        return Result(procedure, node, fail_msg=_message(response), is_rejected=True)
    if response.status != _HTTP_OK:
        is_deposed = response.status == wire.STATUS_DEPOSED
        return Result(
            procedure,
            node,
            fail_msg=_http_error(response),
            deposed=is_deposed,
            is_rejected=not is_deposed,
        )
    try:
        is_good, payload = msgspec.json.decode(response.body, type=tuple[bool, Any])
    except _NOT_JSON as err:
        # A node that answers with success may have executed the call.
        text = f"RPC layer error: unexpected answer: {err}"
        return Result(procedure, node, fail_msg=text, is_lost=True)
    if is_good:
        return calls.PROCEDURES[procedure].read(Result(procedure, node, payload))
    text = str(payload)[:MAX_REASON]
    return Result(procedure, node, fail_msg=text or "the call failed without a reason")


def _ignore_silence(_thread: threading.Thread, _is_silent: bool) -> None:
    """Ignore that a node is frozen."""


def _ignore_refusal() -> None:
    """Ignore that a node has refused the term."""


def _log_abort(response: client.Response) -> None:
    if response.error is not None:
        _log.warning("cannot end the programs of a call: %s", response.error)


def _http_error(response: client.Response) -> str:
    """Return the error text of an HTTP answer without a result."""
    return f"HTTP error {response.status}: {_message(response)}"


def _message(response: client.Response) -> str:
    try:
        text = str(msgspec.json.decode(response.body)["message"])
    except (*_NOT_JSON, TypeError, KeyError):
        text = response.body[:200].decode(errors="replace")
    return text[:MAX_REASON]
