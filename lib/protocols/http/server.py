"""An HTTP server for WSGI applications: cheroot with our TLS rules and limits.

Threads serve requests, not forked children: threads keep the memory lock that the node
daemon needs, and calls do not cost a process. A connection uses a thread only during a
request. The thread that watches all sockets makes the handshakes, so unauthenticated
peers use no worker; it also assigns each request to a lane, see
`ganeti.protocols.http.admission`.
"""

import contextlib
import logging
import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from cheroot import connections, wsgi
from cheroot import server as http_server
from OpenSSL import SSL

from ganeti.protocols.http import admission, limits, parking, sockets, strict, tls
from ganeti.protocols.http.admission import CONNECTION_KEY, Lanes, Plan

_log = logging.getLogger(__name__)

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

#: WSGI key of a function that gets the connection of a request for good: it is called
#: with a function of the connection, and the application returns an empty answer.
HAND_OVER_KEY: Final = "ganeti.hand_over"
#: Length of the kernel's queue of connections to accept.
BACKLOG: Final = 1024
MAX_HEADERS: Final = 64 * 1024
#: Bytes of a request that are enough to assign it to a lane.
_PEEK_SIZE: Final = 512
#: Status of a request whose body did not arrive in time.
_LATE: Final = "408 "
#: Status by which the library refuses CONNECT; a method is unknown here, as others are.
_NO_TUNNEL: Final = "405 "
_TOO_LARGE: Final = "413 "
#: Digits of a stated length that an error repeats.
_DIGITS: Final = 20
#: Bytes of a body nobody reads that are in memory at a time.
_DISCARDED: Final = 64 * 1024
#: Largest number of connections, including idle ones.
MAX_CONNECTIONS: Final = 1000
#: Seconds until the server's own socket must accept a connection.
_WAKE_S: Final = 1.0
#: Locked memory is scarce, and calls need no deep stacks.
_STACK_SIZE: Final = 1024 * 1024


class _Selector(connections._ThreadsafeSelector):  # noqa: SLF001
    """A selector whose events may be of connections that are dropped before their turn.

    The descriptor of such a connection may already be that of a new one.
    """

    _selector: Any
    _lock: Any

    def select(self, timeout: float | None = None) -> Iterator[tuple[int, Any]]:
        """Return the descriptors and connections that are ready."""
        return self._current(self._selector.select(timeout=timeout))

    def _current(self, ready: list[Any]) -> Iterator[tuple[int, Any]]:
        for key, _events in ready:
            with self._lock:
                present = self._selector.get_map().get(key.fd)
            if present is not None and present.data is key.data:
                yield key.fd, key.data


class _Connections(connections.ConnectionManager):
    """Connections; idle ones are kept longer than half-open ones."""

    _selector: Any
    _num_connections: int

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self._selector.close()
        self._selector = _Selector()
        self._selector.register(
            server.socket.fileno(), selectors.EVENT_READ, data=server
        )

    def put(self, conn: Any) -> None:
        """Watch a connection, or serve it at once if its next request is here."""
        if conn.socket.has_pending:
            # Decrypted data does not make the descriptor ready.
            conn.last_used = time.time()
            self.server.process_conn(conn)
        else:
            super().put(conn)

    def _expire(self, threshold: float) -> None:
        for conn in self.server.requests.expire():
            _close(conn)
        idle = threshold + limits.STEP_TIMEOUT_S - limits.IDLE_TIMEOUT_S
        for fd, conn in list(self._selector.connections):
            if conn is self.server:
                continue
            if conn.last_used < (idle if _is_established(conn) else threshold):
                self._selector.unregister(fd)
                conn.close()

    def stop(self) -> None:
        """End `run` at once instead of at the end of its interval."""
        self._stop_requested = True
        with contextlib.suppress(OSError):
            # A connection wakes the loop, and is closed with the others.
            socket.create_connection(self.server.bind_addr, _WAKE_S).close()
        super().stop()

    def count(self) -> int:
        """Return the number of waiting connections."""
        return int(self._num_connections)

    def waiting(self, *, established: bool) -> list[admission.Waiting]:
        """Return the idle connections, or those before the end of their handshake."""
        return [
            admission.Waiting(conn.last_used, _address(conn), conn)
            for _fd, conn in self._selector.connections
            if conn is not self.server and _is_established(conn) is established
        ]

    def drop(self, conn: Any) -> None:
        """Close a waiting connection."""
        self._selector.unregister(conn.socket.fileno())
        _close(conn)


def _address(conn: Any) -> str:
    return admission.plain_address(str(conn.remote_addr))


def _is_established(conn: Any) -> bool:
    """Return whether a connection has completed its handshake or begun a request."""
    return bool(conn.socket.is_established)


class _Request(http_server.HTTPRequest):
    """A request whose end is not in doubt, and whose errors have the server's form."""

    header_reader = strict.HeaderReader()
    server: "Server"
    inheaders: dict[bytes, bytes]
    chunked_read: bool
    rfile: Any
    close_connection: bool
    conn: "_Connection"
    chunked_write: bool
    #: Set when the answer of a parked request is written.
    is_resumed = False
    #: Set when the body did not come in time.
    is_late = False

    def parse_request(self) -> None:
        """Read the request, unless it was parked."""
        if not self.is_resumed:
            super().parse_request()

    def respond(self) -> None:
        """Call the application, or write the answer of a parked request."""
        ticket = self.conn.ticket
        if not self.is_resumed or ticket is None or ticket.answer is None:
            super().respond()
        else:
            self._respond_late(ticket.gateway, ticket.answer)
        self.conn.wfile.release()

    def _respond_late(self, gateway: Any, answer: Callable[..., Any]) -> None:
        for chunk in filter(None, answer(gateway.start_response)):
            gateway.write(chunk)
        self.ensure_headers_sent()
        if self.chunked_write:
            self.conn.wfile.write(b"0\r\n\r\n")

    def ensure_headers_sent(self) -> None:
        """Send the headers, unless the request is parked or handed over."""
        if self.is_resumed or not self.conn.is_left:
            super().ensure_headers_sent()

    def send_headers(self) -> None:
        """Send the headers together with the first part of the body."""
        # A body that the application did not read is never whole in memory. It is read,
        # since many clients look for the answer only after they have sent all of it.
        is_read = self.chunked_read or self.is_late
        while not is_read and (rest := getattr(self.rfile, "remaining", 0)):
            is_read = not self.rfile.read(min(rest, _DISCARDED))
        with self.conn.wfile.holding():
            super().send_headers()

    def read_request_headers(self) -> bool:
        """Read the headers; refuse a body whose length is stated twice or negative."""
        if not super().read_request_headers():  # type: ignore[no-untyped-call]
            return False
        length = self.inheaders.get(b"Content-Length")
        if b"Transfer-Encoding" in self.inheaders:
            # The application may answer without reading the body, whose rest must not
            # be taken for a request.
            self.close_connection = True
            if length is not None:
                self.simple_response("400 Bad Request", "two lengths of one body")
                return False
        if length is not None and not length.isdigit():
            self.simple_response("400 Bad Request", "Content-Length: not a number")
            return False
        return True

    def simple_response(self, status: Any, msg: str = "") -> None:
        """Send an error that the application does not see, and close the connection."""
        content = self.server.error_content
        size = self.inheaders.get(b"Content-Length", b"")[:_DIGITS]
        most = self.server.max_request_body_size
        # The library also refuses long headers so, which may have no length.
        is_body = str(status).startswith(_TOO_LARGE) and size.isdigit()
        if is_body and int(size) > most:
            msg = f"the body has {int(size)} bytes, at most {most} are possible"
        if str(status).startswith(_NO_TUNNEL):
            status = "501 Not Implemented"
        if content is None:
            super().simple_response(status, msg)
        else:
            self._answer_with(str(status), *content(int(str(status)[:3]), msg))
        if is_body:
            self.conn.socket.linger()

    def _answer_with(self, status: str, kind: str, body: bytes) -> None:
        self.close_connection = True
        lines = [
            f"{self.server.protocol} {status}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        head = "".join(f"{line}\r\n" for line in lines) + "\r\n"
        with contextlib.suppress(OSError):
            self.conn.wfile.write(head.encode("latin-1") + body)


class _Gateway(wsgi.Gateway_10):
    """The gateway to the application, which may park the request."""

    req: _Request
    env: dict[str, Any]

    def get_environ(self) -> dict[str, Any]:  # type: ignore[override]
        """Return the environment with the function that parks the request."""
        if self.req.chunked_read:
            limit = self.req.server.max_request_body_size
            self.req.rfile = strict.Chunks(self.req.conn.rfile, limit)
        environ: dict[str, Any] = super().get_environ()  # type: ignore[no-untyped-call]
        environ[parking.KEY] = self.req.conn.park
        environ[HAND_OVER_KEY] = self.req.conn.hand_over
        return environ

    def start_response(
        self, status: str, headers: Any, exc_info: Any = None
    ) -> Callable[[bytes], None]:
        """Take the status; do not wait for the rest of a body that did not come."""
        if status.startswith(_LATE):
            self.req.close_connection = self.req.is_late = True
        write: Callable[[bytes], None] = super().start_response(
            status, headers, exc_info
        )
        return write

    def respond(self) -> None:
        """Call the application."""
        # The environment must not refer to this object: a cycle would keep both until
        # the next garbage collection.
        conn = self.req.conn
        conn.gateway = self
        try:
            super().respond()
        finally:
            conn.gateway = None


class _Connection(http_server.HTTPConnection):
    """A connection whose request may be parked."""

    RequestHandlerClass: Any = _Request
    server: "Server"
    gateway: _Gateway | None = None
    ticket: parking.Ticket | None = None
    taker: Callable[[Any], None] | None = None

    @property
    def is_left(self) -> bool:
        """Whether the worker leaves the connection without an answer of its own."""
        return self.ticket is not None or self.taker is not None

    def hand_over(self, taker: Callable[[Any], None]) -> None:
        """Give the connection away when the worker leaves it; see `HAND_OVER_KEY`."""
        self.taker = taker

    def park(self) -> parking.Ticket:
        """Leave the request that is served until its answer comes.

        Call it in the application, which must not fail afterwards.
        """
        self.ticket = self.server.parking.issue(self, self.gateway)
        return self.ticket

    def communicate(self) -> bool:
        """Serve a request, or write the answer of a parked one.

        Returns:
            whether the connection stays open.
        """
        ticket = self.ticket
        if ticket is None:
            keep = super().communicate()  # type: ignore[no-untyped-call]
            return bool(keep) or self.is_left
        request = ticket.gateway.req
        request.is_resumed = True
        self.RequestHandlerClass = lambda *_args: request
        try:
            return bool(super().communicate())  # type: ignore[no-untyped-call]
        finally:
            self.ticket = None
            del self.RequestHandlerClass


class Server(wsgi.Server):
    """A server of an application on one address.

    The constructor sets the attributes of cheroot's servers; use `start_serving` and
    `stop`.
    """

    ConnectionClass = _Connection
    max_request_header_size = MAX_HEADERS
    keep_alive_conn_limit = MAX_CONNECTIONS
    expiration_interval = 0.5
    _connections: Any
    requests: Lanes

    def __init__(
        self,
        address: tuple[str, int],
        app: WsgiApp,
        *,
        context: SSL.Context | Callable[[], SSL.Context] | None,
        threads: int | Plan,
        max_body: int = limits.MAX_BODY,
        is_known: Callable[[str], bool] = lambda _address: False,
        error_content: Callable[[int, str], tuple[str, bytes]] | None = None,
    ) -> None:
        """Prepare a server.

        Args:
            address: host address and port to bind to; port 0 for any.
            app: the application, called by many threads at once.
            context: see `tls.server_context`, or a function that returns the context
                of each new connection; None for plain HTTP.
            threads: requests served at once, further ones wait; or the lanes.
            max_body: size limit of a request's body, in bytes; larger ones get status
                413.
            is_known: returns whether an address belongs to the cluster; room is
                reserved for those.
            error_content: returns content type and body of errors that the
                application does not see, from status and text; plain text by default.
        """
        super().__init__(
            address,
            app,
            numthreads=1,
            max=1,
            server_name="ganeti",
            request_queue_size=BACKLOG,
            timeout=limits.STEP_TIMEOUT_S,
        )
        plan = threads if isinstance(threads, Plan) else Plan.single(threads)
        # The pool that the constructor made has not started any thread.
        self.requests = Lanes(self, plan)
        self.gateway = _Gateway
        self.parking = parking.Parking(_peek, self._serve_parked, _close_parked)
        self.max_request_body_size = max_body
        self._is_known = is_known
        self.error_content = error_content
        self._dropped = admission.LogLimit()
        self._refused = admission.LogLimit()
        self.ssl_adapter = (
            sockets.PlainAdapter()
            if context is None
            else tls.Adapter(
                (lambda: context) if isinstance(context, SSL.Context) else context
            )
        )

    def prepare(self) -> None:
        """Bind and start the workers; see `start_serving`."""
        before = threading.stack_size(_STACK_SIZE)
        try:
            super().prepare()
        finally:
            threading.stack_size(before)
        replaced, self._connections = self._connections, _Connections(self)
        replaced._selector.close()  # noqa: SLF001

    def start_serving(self) -> int:
        """Bind, serve from other threads, and return the port.

        Raises:
            OSError: the address cannot be bound.
        """
        started: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

        def live() -> None:
            try:
                self.prepare()
            except BaseException as err:  # noqa: BLE001 - raised in the waiting thread
                started.put(err)
                return
            started.put(None)
            self.serve()

        # Workers inherit the daemon flag of this thread: a call that never ends must
        # not keep the process alive.
        threading.Thread(target=live, name="http", daemon=True).start()
        trouble = started.get()
        if trouble is not None:
            raise trouble
        return int(self.bind_addr[1])

    @staticmethod
    def bind_socket(socket_: socket.socket, bind_addr: Any) -> socket.socket:
        """Bind a new socket, or close it."""
        try:
            socket_.bind(bind_addr)
        except OSError:
            socket_.close()
            raise
        return socket_

    def process_conn(self, conn: Any) -> None:
        """Pass a connection with a request to a worker; let others wait."""
        sock = conn.socket
        if isinstance(sock, tls.TlsSocket) and not sock.is_established:
            self._shake_hands(conn, sock)
            return
        if conn.last_used is None:
            self._watch(conn)
            return
        sock.begin_request()
        # After a pipelined request the next one may have been read already.
        start = conn.rfile.peek() if conn.rfile.has_data() else _peek(sock)
        if start is None:
            self._watch(conn)
        elif not start or not self.requests.put(conn, start):
            _close(conn)

    def put_conn(self, conn: _Connection) -> None:
        """Take a connection from a worker."""
        if conn.taker is not None:
            conn.taker(conn)
        elif conn.ticket is not None:
            self.parking.enter(conn.ticket)
        else:
            super().put_conn(conn)

    def _serve_parked(self, conn: Any) -> None:
        """Let a worker write the answer of a parked request."""
        conn.socket.begin_request()
        if not self.requests.put_back(conn):
            _close(conn)

    def stop(self) -> None:
        """Finish the running requests, and end; parked requests get no answer."""
        super().stop()
        self.parking.stop()

    def _shake_hands(self, conn: Any, sock: tls.TlsSocket) -> None:
        try:
            if sock.is_refused:
                if not sock.discard():
                    _close(conn)
                    return
            elif sock.handshake():
                conn.ssl_env[tls.PEER_KEY] = sock.peer_digest()
            self._watch(conn)
        except ConnectionAbortedError as err:
            count = self._refused.note(time.monotonic())
            if count:
                _log.info(
                    "refused %d connections, the last one from %s: %s",
                    count,
                    conn.remote_addr,
                    err,
                )
            self._refuse(conn, sock)
        except OSError as err:
            # Port checks close their connections at once, so this is frequent.
            _log.debug("connection from %s: %s", conn.remote_addr, err)
            _close(conn)

    def _refuse(self, conn: Any, sock: tls.TlsSocket) -> None:
        """Let the peer read the reason, and drop the connection soon."""
        try:
            sock.refuse()
            self._watch(conn)
        except OSError:
            _close(conn)
            return
        conn.last_used -= limits.STEP_TIMEOUT_S - limits.CLOSE_TIMEOUT_S

    def _watch(self, conn: Any) -> None:
        if conn.last_used is None and not self._make_room(conn):
            _close(conn)
            return
        started = conn.last_used
        self._connections.put(conn)
        # A handshake must end within one step limit, whatever the number of its pieces.
        if started is not None and not _is_established(conn):
            conn.last_used = started

    def _make_room(self, conn: Any) -> bool:
        """Drop a waiting connection if there are too many; return whether it fits."""
        count = self._connections.count()
        if count < admission.PER_ADDRESS:
            return True
        waiting = self._connections.waiting(established=False)
        loser = admission.victim(waiting, _address(conn), self._is_known)
        is_full = count >= MAX_CONNECTIONS
        if loser is None:
            idle = self._connections.waiting(established=True)
            loser = admission.idle_victim(idle, _address(conn), is_full=is_full)
        if loser is None and not is_full:
            return True
        if loser is None and waiting:
            loser = min(waiting, key=lambda item: item.since)
        if loser is not None:
            self._connections.drop(loser.conn)
        number = self._dropped.note(time.monotonic())
        if number:
            _log.warning(
                "too many connections, dropped %d, the last one from %s",
                number,
                conn.remote_addr if loser is None else loser.address,
            )
        return loser is not None

    def error_log(
        self, msg: str = "", level: int = logging.INFO, traceback: bool = False
    ) -> None:
        """Log a message of cheroot."""
        _log.log(level, "%s", msg, exc_info=traceback)


def _peek(sock: sockets.ServerSocket) -> bytes | None:
    """Return the first bytes of a request; empty at the end, None if there are none."""
    return sock.peek(_PEEK_SIZE)


def is_abandoned(environ: Mapping[str, Any]) -> bool:
    """Return whether the caller has closed the connection of a request.

    Call it when the body has been read: a request that arrived while this machine was
    frozen must not act after its caller has given it up.
    """
    conn = environ.get(CONNECTION_KEY)
    return conn is not None and _peek(conn.socket) == b""


def _close(conn: Any) -> None:
    try:
        conn.close()
    except OSError as err:
        _log.debug("closing: %s", err)


def _close_parked(conn: _Connection) -> None:
    conn.ticket = None
    _close(conn)


def wait_until_stopped(server: Server, timeout_s: float) -> bool:
    """Stop a server; return false if requests still run after the time limit."""
    worker = threading.Thread(target=server.stop, name="stop", daemon=True)
    worker.start()
    deadline = time.monotonic() + timeout_s
    worker.join(max(0.0, deadline - time.monotonic()))
    return not worker.is_alive()
