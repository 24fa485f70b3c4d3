"""The server side of LUXI: one event loop for all clients.

The loop reads requests, passes each to the handler as a `Call`, and writes the answers,
in order per connection. The handler runs in the loop's thread and must not block; a
`Call` may be answered at once, or later from any thread. Clients cannot harm the loop:
messages have a size limit, idle and stuck connections are closed, and a connection is
not read while its request is being processed. Calls that wait for an event never take
the last connections, which remain for administration; many of them can share one
connection if they have numbers. The methods do not belong here.
"""

import collections
import functools
import logging
import resource
import socket
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants import misc
from ganeti.protocols.luxi import framing
from ganeti.protocols.luxi.loop import GONE, READ, WRITE, Listeners, Loop, peer

_log = logging.getLogger(__name__)

#: Largest number of connections; later ones wait in the backlog.
MAX_CONNECTIONS: Final = 4000
#: Connections that calls which wait for events never take.
RESERVED: Final = 64
#: Seconds that a connection may be idle while less than half of the reserve is free.
_CROWDED_IDLE_S: Final = 5.0
#: Total bytes of incomplete requests of all clients.
MAX_BUFFERED_BYTES: Final = 8 * framing.MAX_MESSAGE_BYTES
_CHUNK: Final = 1 << 18
#: Seconds between checks for idle connections.
_SWEEP_S: Final = 5.0
#: Numbered calls that one connection may have at a time.
MAX_NUMBERED: Final = 4096
_encoder: Final = msgspec.json.Encoder()


class Request(msgspec.Struct):
    """The relevant keys of a request; others are ignored."""

    method: str
    args: list[Any]
    call_id: int | None = None
    origin: dict[str, str] | None = None


_decoder: Final = msgspec.json.Decoder(Request)


class Encoded(NamedTuple):
    """A result that is JSON text already; several answers may share it."""

    text: bytes


def _encode(
    success: bool, result: Any, call_id: int | None, warning: str = ""
) -> bytearray:
    """Return an encoded answer; large ones are not copied."""
    data = bytearray()
    answer = {"success": success, "result": result}
    if call_id is not None:
        answer[framing.KEY_CALL_ID] = call_id
    if warning:
        answer[framing.KEY_WARNING] = warning
    _encoder.encode_into(answer, data)
    data += framing.END
    return data


class Call:
    """One request in progress. Answer it exactly once, from any thread."""

    __slots__ = (
        *("_server", "args", "connection", "id", "method", "on_close"),
        *("origin", "rewrite"),
    )

    def __init__(
        self, server: "Server", connection: "Connection", request: Request
    ) -> None:
        self._server = server
        self.connection = connection
        self.method = request.method
        self.args = request.args
        #: Who asks, as the client claims.
        self.origin = request.origin
        #: Its answer repeats this number; None for calls that are answered in order.
        self.id = request.call_id
        #: Called in the loop's thread if the client disconnects before the answer.
        self.on_close: Callable[[], None] | None = None
        #: Returns what the client gets instead of the JSON text of a result.
        self.rewrite: Callable[[bytes], bytes] | None = None

    def succeed(self, result: Any) -> None:
        """Answer with a result, which is encoded in the caller's thread.

        A result that is `Encoded` is neither encoded nor copied.
        """
        rewrite = self.rewrite or bytes
        if isinstance(result, Encoded) and self.id is None:
            text = rewrite(result.text)
            parts = (framing.RESULT_FOLLOWS, text, framing.RESULT_ENDS)
            self._server.answer(self, *parts)
            return
        if isinstance(result, Encoded):
            result = msgspec.Raw(rewrite(result.text))
        try:
            if self.rewrite is not None and not isinstance(result, msgspec.Raw):
                result = msgspec.Raw(self.rewrite(_encoder.encode(result)))
            is_submitting = self.method.startswith(_SUBMITTING)
            warning = self._server.warning() if is_submitting else ""
            data = _encode(True, result, self.id, warning)
        except (TypeError, ValueError, OverflowError) as err:
            _log.exception("%s: the result cannot be sent", self.method)
            self.fail(errors.GenericError(f"{self.method}: {err}"))
            return
        self._server.answer(self, data)

    def fail(self, err: BaseException) -> None:
        """Answer with an error."""
        name, args = errors.encode(err)
        try:
            data = _encode(False, [name, args], self.id)
        except (TypeError, ValueError, OverflowError):
            texts = [str(arg) for arg in args]
            data = _encode(False, [name, texts], self.id)
        self._server.answer(self, data)

    def reject(self, text: str) -> None:
        """Answer that the request is malformed, and close the connection.

        A connection with numbered calls stays open: the others are not at fault.
        """
        data = _encode(False, text, self.id)
        self._server.answer(self, data, close=self.id is None)


Handler = Callable[[Call], None]
#: Prefix of the methods whose answers acknowledge a job.
_SUBMITTING: Final = "Submit"


class Connection:
    """The state of one client's connection, private to the loop's thread."""

    __slots__ = (
        *("call", "closing", "deadline", "events", "fd", "handler", "numbered"),
        *("peer", "queued", "received", "searched", "sock", "unsent"),
    )

    def __init__(self, sock: socket.socket, deadline: float, handler: Handler) -> None:
        self.sock = sock
        self.handler = handler
        self.fd = sock.fileno()
        #: Process and user of the client.
        self.peer = peer(sock)
        self.received = bytearray()
        #: Received bytes that are known to have no end of a request.
        self.searched = 0
        self.unsent = memoryview(b"")
        #: Answers after the unsent one.
        self.queued: collections.deque[memoryview] = collections.deque()
        self.call: Call | None = None
        #: Calls that are answered in any order, by number.
        self.numbered: dict[int, Call] = {}
        self.closing = False
        self.deadline = deadline
        self.events = READ

    @property
    def is_idle(self) -> bool:
        """Return whether the client must act within the time limit."""
        is_moving = bool(self.unsent or self.received)
        return self.call is None and (is_moving or not self.numbered)

    @property
    def wanted(self) -> int:
        """The event that can be used next; none during a call."""
        if self.unsent:
            return WRITE
        return READ if self.call is None else 0

    def drop_received(self) -> int:
        """Drop what was received; return the number of bytes."""
        count = len(self.received)
        self.received.clear()
        self.searched = 0
        return count

    def send(self) -> bool:
        """Send as much as the client takes now; return whether it took anything."""
        has_sent = False
        while self.unsent or self.queued:
            if not self.unsent:
                self.unsent = self.queued.popleft()
            try:
                count = self.sock.send(self.unsent)
            except BlockingIOError:
                break
            self.unsent = self.unsent[count:]
            has_sent = True
        return has_sent

    def has(self, call: Call) -> bool:
        """Return whether a call waits for its answer."""
        if call.id is None:
            return self.call is call
        return self.numbered.get(call.id) is call

    def remove(self, call: Call) -> None:
        """Forget a call that is answered now."""
        if call.id is None:
            self.call = None
        else:
            del self.numbered[call.id]

    def remove_all(self) -> list[Call]:
        """Remove and return all calls that wait for answers."""
        calls = [*([self.call] if self.call else []), *self.numbered.values()]
        self.call = None
        self.numbered.clear()
        return calls


class Limits(NamedTuple):
    """Limits of a server.

    Attributes:
        message_bytes: size of a request.
        buffered_bytes: total size of all incomplete requests.
        connections: number of connected clients.
        reserved: connections among them that waiting methods never take.
    """

    message_bytes: int = framing.MAX_MESSAGE_BYTES
    buffered_bytes: int = MAX_BUFFERED_BYTES
    connections: int = MAX_CONNECTIONS
    reserved: int = RESERVED

    @property
    def waiting(self) -> int:
        """Number of clients whose answers may wait for events."""
        return max(1, self.connections - self.reserved)

    @property
    def crowded_from(self) -> int:
        """Number of connections from which idle clients must leave early."""
        return self.connections - self.reserved // 2


class Restricted(NamedTuple):
    """A socket for one user, with requests that are handled apart.

    Attributes:
        path: of the socket, made with mode 0660.
        uid: the user; connections of others than this one and root are closed.
        gid: group of the socket.
        handler: called with each request, as the handler of a `Server`.
    """

    path: str
    uid: int
    gid: int
    handler: Handler


class Server:
    """A LUXI server on some sockets, with one thread of its own.

    It owns the connections and what they may take. `Loop` owns the waits and timers of
    the thread, `Listeners` the sockets that clients connect to.

    Attributes:
        loop: runs functions in the thread; it ends when the server stops.
    """

    def __init__(
        self,
        handler: Handler,
        paths: Sequence[str],
        *,
        clock: Clock,
        idle_timeout_s: float = misc.LUXI_DEF_RWTO,
        limits: Limits | None = None,
        waiting_methods: Collection[str] = (),
        restricted: Restricted | None = None,
    ) -> None:
        """Bind the sockets; clients are served from `start` on.

        Args:
            handler: called with each request in the loop's thread; must not block.
            paths: sockets to listen on, made with mode 0660.
            clock: the clock of deadlines.
            idle_timeout_s: time limit of a client to send the next request, and to read
                an answer.
            limits: of sizes and numbers; None for the usual ones.
            waiting_methods: methods whose answers wait for events. A client that calls
                one while too many others wait is disconnected; it may try again later.
            restricted: a further socket.
        """
        #: Returns a text for clients that submit jobs, mostly empty.
        self.warning: Callable[[], str] = str
        self._clock = clock
        self._idle_timeout_s = idle_timeout_s
        self._limits = limits or Limits()
        self._waiting_methods = frozenset(waiting_methods)
        #: Descriptors of connections with a call of a waiting method.
        self._waiting: set[int] = set()
        self._connections: dict[int, Connection] = {}
        self._buffered = 0
        self.loop = Loop(clock)
        self._listeners = Listeners(self.loop)
        self._thread = threading.Thread(target=self._run, name="luxi", daemon=True)
        try:
            for path in paths:
                self._listeners.add(path, functools.partial(self._admit, handler))
            if restricted is not None:
                admit = functools.partial(self._admit, restricted.handler)
                uids = frozenset({0, restricted.uid})
                self._listeners.add(restricted.path, admit, uids, restricted.gid)
        except OSError:
            self._close_everything()
            raise

    # For other threads
    def start(self) -> None:
        """Start to serve clients."""
        self._thread.start()

    def stop_accepting(self) -> None:
        """Accept no new connections; continue to serve existing ones."""
        self.loop.run_soon(self._listeners.close)

    def stop(self, linger_s: float = 2.0) -> None:
        """Send the pending answers, for at most some seconds; then end."""
        deadline = self._clock.monotonic() + linger_s
        self.loop.run_soon(lambda: self._begin_stop(deadline))
        if self._thread.is_alive():
            self._thread.join()
        else:
            self._close_everything()

    def answer(
        self, call: Call, *parts: bytes | bytearray, close: bool = False
    ) -> None:
        """Send the parts of an encoded answer, with its last byte; thread-safe."""
        if threading.current_thread() is self._thread:
            self._answer(call, parts, close=close)
        else:
            self.loop.run_soon(lambda: self._answer(call, parts, close=close))

    @property
    def connection_count(self) -> int:
        """The number of connected clients."""
        return len(self._connections)

    # In the loop's thread
    def _run(self) -> None:
        self.loop.call_later(_SWEEP_S, self._sweep)
        self.loop.run()
        self._close_everything()

    def _admit(self, handler: Handler, sock: socket.socket) -> bool:
        """Take a new connection; return whether there is room for others."""
        connection = Connection(sock, self._new_deadline(), handler)
        self._connections[connection.fd] = connection
        self.loop.register(connection.fd, self._serve)
        count = len(self._connections)
        if count >= self._limits.connections:
            _log.warning("luxi: limit of %d clients, others wait", count)
            return False
        return True

    def _serve(self, fd: int, events: int) -> None:
        connection = self._connections[fd]
        try:
            if events & READ:
                self._read(connection)
            elif events & WRITE:
                self._write(connection)
            elif events & GONE:
                self._close(connection)
        except OSError as err:
            _log.debug("luxi: connection %d: %s", fd, err)
            self._close(connection)

    def _resume_accepting(self) -> None:
        if len(self._connections) < self._limits.connections:
            self._listeners.resume()

    def _new_deadline(self) -> float:
        return self._clock.monotonic() + self._idle_timeout_s

    def _sweep(self) -> None:
        """Close connections that were idle or stuck for too long."""
        now = self._clock.monotonic()
        if len(self._connections) >= self._limits.crowded_from:
            now += max(0.0, self._idle_timeout_s - _CROWDED_IDLE_S)
        for connection in list(self._connections.values()):
            if connection.is_idle and connection.deadline < now:
                _log.debug("luxi: connection %d timed out", connection.fd)
                self._close(connection)
        self._resume_accepting()
        self.loop.call_later(_SWEEP_S, self._sweep)

    # One connection
    def _read(self, connection: Connection) -> None:
        try:
            data = connection.sock.recv(_CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._close(connection)
            return
        if not connection.received:
            # A whole message must arrive within one period, even if parts of it arrive.
            connection.deadline = self._new_deadline()
        connection.received += data
        self._buffered += len(data)
        self._take_request(connection)
        is_over = self._buffered > self._limits.buffered_bytes
        if is_over and connection.received and connection.call is None:
            self._refuse(
                connection,
                "the requests of all clients together are too large, try again later",
            )

    def _take_request(self, connection: Connection) -> None:
        """Start to process the next request, if one is complete."""
        received = connection.received
        end = received.find(framing.END, connection.searched)
        if (end if end >= 0 else len(received)) > self._limits.message_bytes:
            self._refuse(
                connection, f"it is longer than {self._limits.message_bytes} bytes"
            )
            return
        if end < 0:
            connection.searched = len(received)
            return
        connection.searched = 0
        message = bytes(received[:end])
        del received[: end + 1]
        self._buffered -= end + 1
        try:
            request = _decoder.decode(message)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
            self._refuse(connection, str(err))
            return
        is_waiting = request.method in self._waiting_methods
        if is_waiting and not self._may_wait(connection):
            return
        if is_waiting and request.call_id is not None:
            self._take_numbered(connection, request)
            return
        request.call_id = None
        call = connection.call = Call(self, connection, request)
        self._watch(connection)
        _handle(call)

    def _take_numbered(self, connection: Connection, request: Request) -> None:
        """Start to process a call whose connection is read further."""
        call = Call(self, connection, request)
        if call.id is None or call.id in connection.numbered:
            self._refuse(connection, f"call_id {call.id} is in use")
            return
        is_full = len(connection.numbered) >= MAX_NUMBERED
        connection.numbered[call.id] = call
        if is_full:
            text = f"the connection has {MAX_NUMBERED} waiting calls already"
            call.fail(errors.GenericError(text))
        else:
            _handle(call)
        if connection.received:
            self.loop.run_soon(lambda: self._take_early(connection))

    def _may_wait(self, connection: Connection) -> bool:
        """Count a call that waits; disconnect the client if too many others wait."""
        is_counted = connection.fd in self._waiting
        if not is_counted and len(self._waiting) >= self._limits.waiting:
            _log.warning(
                "luxi: limit of %d waiting clients, disconnected another one",
                self._limits.waiting,
            )
            self._close(connection)
            return False
        self._waiting.add(connection.fd)
        return True

    def _refuse(self, connection: Connection, why: str) -> None:
        call = connection.call = Call(self, connection, Request("", []))
        self._buffered -= connection.drop_received()
        call.reject(f"Failed to parse request: {why}")

    def _answer(
        self, call: Call, parts: Sequence[bytes | bytearray], *, close: bool
    ) -> None:
        """Send an answer, unless the client has gone or was answered already."""
        connection = call.connection
        if not connection.has(call):
            return
        connection.remove(call)
        if not connection.numbered:
            self._waiting.discard(connection.fd)
        connection.closing = connection.closing or close
        connection.queued.extend(map(memoryview, parts))
        if connection.unsent:
            return
        connection.deadline = self._new_deadline()
        self._serve(connection.fd, WRITE)

    def _write(self, connection: Connection) -> None:
        if connection.send():
            connection.deadline = self._new_deadline()
        if connection.closing and not connection.unsent:
            self._close(connection)
            return
        self._watch(connection)
        if connection.received and not connection.unsent:
            # The next request is here already; process it later, to limit the stack's
            # depth.
            self.loop.run_soon(lambda: self._take_early(connection))

    def _take_early(self, connection: Connection) -> None:
        is_open = self._connections.get(connection.fd) is connection
        if is_open and connection.call is None and not connection.unsent:
            self._take_request(connection)

    def _watch(self, connection: Connection) -> None:
        """Wait for the next possible event; for none during a call."""
        events = connection.wanted
        if events != connection.events:
            connection.events = events
            self.loop.wait_for(connection.fd, events)

    def _close(self, connection: Connection) -> None:
        if self._connections.pop(connection.fd, None) is None:
            return
        self._waiting.discard(connection.fd)
        self.loop.unregister(connection.fd)
        connection.sock.close()
        self._buffered -= connection.drop_received()
        for call in connection.remove_all():
            # The answering thread may clear it at any moment.
            on_close = call.on_close
            if on_close is not None:
                self.loop.guard(on_close)
        self._resume_accepting()

    # The end
    def _begin_stop(self, deadline: float) -> None:
        self._listeners.close()
        busy = any(connection.unsent for connection in self._connections.values())
        if busy and self._clock.monotonic() < deadline:
            self.loop.call_later(0.02, lambda: self._begin_stop(deadline))
        else:
            self.loop.end()

    def _close_everything(self) -> None:
        self._listeners.close()
        for connection in list(self._connections.values()):
            self._close(connection)
        self.loop.close()


def _handle(call: Call) -> None:
    try:
        call.connection.handler(call)
    except errors.GenericError as err:
        call.fail(err)
    except Exception as err:  # noqa: BLE001 - logged
        _log.exception("luxi: %s failed", call.method)
        call.fail(errors.GenericError(f"{type(err).__name__}: {err}"))


def connection_limit() -> int:
    """Return the number of connections that the limit of open files permits."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(2 * RESERVED, min(MAX_CONNECTIONS, soft // 2))
