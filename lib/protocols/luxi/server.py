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
import contextlib
import functools
import heapq
import itertools
import logging
import os
import resource
import select
import socket
import struct
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants import timeouts
from ganeti.protocols.luxi import framing

_log = logging.getLogger(__name__)

#: Length of the backlog; old clients do not retry when it is full.
_BACKLOG: Final = 1024
#: Largest number of connections; later ones wait in the backlog.
MAX_CONNECTIONS: Final = 4000
#: Connections that calls which wait for events never take.
RESERVED: Final = 64
#: Seconds that a connection may be idle while less than half of the reserve is free.
_CROWDED_IDLE_S: Final = 5.0
#: Total bytes of incomplete requests of all clients.
MAX_BUFFERED_BYTES: Final = 8 * framing.MAX_MESSAGE_BYTES
#: Connections accepted per round, so that many new clients do not delay the others.
_ACCEPT_AT_ONCE: Final = 32
_CHUNK: Final = 1 << 18
#: Seconds between checks for idle connections.
_SWEEP_S: Final = 5.0
#: Numbered calls that one connection may have at a time.
MAX_NUMBERED: Final = 4096
_SOCKET_MODE: Final = 0o660
#: Form of SO_PEERCRED: process, user, group.
_CREDENTIALS: Final = struct.Struct("iII")
_READ: Final = select.EPOLLIN
_WRITE: Final = select.EPOLLOUT
_GONE: Final = select.EPOLLHUP | select.EPOLLERR
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
            warning = self._server.warning_for(self.method)
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
        "call",
        "closing",
        "deadline",
        "events",
        "fd",
        "handler",
        "numbered",
        "peer",
        "queued",
        "received",
        "searched",
        "sock",
        "unsent",
    )

    def __init__(self, sock: socket.socket, deadline: float, handler: Handler) -> None:
        self.sock = sock
        self.handler = handler
        self.fd = sock.fileno()
        #: Process and user of the client.
        self.peer = _peer(sock)
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
        self.events = _READ

    @property
    def is_idle(self) -> bool:
        """Return whether the client must act within the time limit."""
        is_moving = bool(self.unsent or self.received)
        return self.call is None and (is_moving or not self.numbered)

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


class Timer:
    """A function that the loop will call; see `Server.call_later`."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[], None]) -> None:
        self.function: Callable[[], None] | None = function

    def cancel(self) -> None:
        """Cancel the timer; has no effect when it has run already."""
        self.function = None


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


class _Listener(NamedTuple):
    """A listening socket, its handler, and the users who may connect, None for all."""

    sock: socket.socket
    handler: Handler
    uids: frozenset[int] | None = None


class Server:
    """A LUXI server on some sockets, with one thread of its own."""

    def __init__(
        self,
        handler: Handler,
        paths: Sequence[str],
        *,
        clock: Clock,
        idle_timeout_s: float = timeouts.LUXI_DEF_RWTO,
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
        listeners = [_Listener(_listen(path), handler) for path in paths]
        self._paths = tuple(paths)
        if restricted is not None:
            uids = frozenset({0, restricted.uid})
            sock = _listen(restricted.path, restricted.gid)
            listeners.append(_Listener(sock, restricted.handler, uids))
            self._paths += (restricted.path,)
        self._connections: dict[int, Connection] = {}
        self._buffered = 0
        self._todo: collections.deque[Callable[[], None]] = collections.deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._serial = itertools.count()
        self._stopping = False
        self._is_accepting = True
        self._epoll = select.epoll()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake_fd, _READ)
        self._listeners = {each.sock.fileno(): each for each in listeners}
        for fd in self._listeners:
            self._epoll.register(fd, _READ)
        self._thread = threading.Thread(target=self._run, name="luxi", daemon=True)

    # For other threads
    def warning_for(self, method: str) -> str:
        """Return the warning that an answer to a method carries, empty if none."""
        return self.warning() if method.startswith(_SUBMITTING) else ""

    def start(self) -> None:
        """Start to serve clients."""
        self._thread.start()

    def stop_accepting(self) -> None:
        """Accept no new connections; continue to serve existing ones."""
        self.run_soon(self._close_listeners)

    def stop(self, linger_s: float = 2.0) -> None:
        """Send the pending answers, for at most some seconds; then end."""
        deadline = self._clock.monotonic() + linger_s
        self.run_soon(lambda: self._begin_stop(deadline))
        if self._thread.is_alive():
            self._thread.join()
        else:
            self._close_everything()

    def run_soon(self, function: Callable[[], None]) -> None:
        """Run a function in the loop's thread; thread-safe."""
        self._todo.append(function)
        with contextlib.suppress(BlockingIOError, OSError):
            os.eventfd_write(self._wake_fd, 1)

    def answer(
        self, call: Call, *parts: bytes | bytearray, close: bool = False
    ) -> None:
        """Send the parts of an encoded answer, with its last byte; thread-safe."""
        if threading.current_thread() is self._thread:
            self._answer(call, parts, close=close)
        else:
            self.run_soon(lambda: self._answer(call, parts, close=close))

    def call_later(self, delay_s: float, function: Callable[[], None]) -> Timer:
        """Run a function in the loop's thread after some seconds; loop thread only."""
        timer = Timer(function)
        when = self._clock.monotonic() + delay_s
        heapq.heappush(self._timers, (when, next(self._serial), timer))
        return timer

    @property
    def connection_count(self) -> int:
        """The number of connected clients."""
        return len(self._connections)

    # The loop
    def _run(self) -> None:
        self.call_later(_SWEEP_S, self._sweep)
        while not self._stopping:
            for fd, events in self._epoll.poll(self._next_timeout()):
                self._guard(functools.partial(self._dispatch, fd, events))
            for _ in range(len(self._todo)):
                self._guard(self._todo.popleft())
            self._run_timers()
        self._close_everything()

    def _guard(self, function: Callable[[], None]) -> None:
        """Run a step of the loop, which must survive any error."""
        try:
            function()
        except Exception:  # noqa: BLE001 - logged
            _log.exception("luxi: a step of the loop failed")

    def _next_timeout(self) -> float:
        if self._todo:
            return 0.0
        if not self._timers:
            return -1
        return max(0.0, self._timers[0][0] - self._clock.monotonic())

    def _run_timers(self) -> None:
        now = self._clock.monotonic()
        while self._timers and self._timers[0][0] <= now:
            function = heapq.heappop(self._timers)[2].function
            if function is not None:
                self._guard(function)

    def _dispatch(self, fd: int, events: int) -> None:
        if fd == self._wake_fd:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(fd)
        elif fd in self._listeners:
            self._accept(self._listeners[fd])
        elif (connection := self._connections.get(fd)) is not None:
            self._serve(connection, events)

    def _serve(self, connection: Connection, events: int) -> None:
        try:
            if events & _READ:
                self._read(connection)
            elif events & _WRITE:
                self._write(connection)
            elif events & _GONE:
                self._close(connection)
        except OSError as err:
            _log.debug("luxi: connection %d: %s", connection.fd, err)
            self._close(connection)

    def _accept(self, listener: _Listener) -> None:
        for _ in range(_ACCEPT_AT_ONCE):
            try:
                sock, _address = listener.sock.accept()
            except BlockingIOError:
                return
            except OSError as err:
                # No descriptor is free: the client waits in the backlog until the next
                # sweep.
                _log.warning("luxi: cannot accept: %s", err)
                self._pause_accepting()
                return
            uid = _peer(sock)[1]
            if listener.uids is not None and uid not in listener.uids:
                _log.warning("luxi: refused a connection of user %d", uid)
                sock.close()
                continue
            sock.setblocking(False)
            connection = Connection(sock, self._new_deadline(), listener.handler)
            self._connections[connection.fd] = connection
            self._epoll.register(connection.fd, _READ)
            if len(self._connections) >= self._limits.connections:
                _log.warning(
                    "luxi: limit of %d clients, others wait", len(self._connections)
                )
                self._pause_accepting()
                return

    def _pause_accepting(self) -> None:
        self._is_accepting = False
        for fd in self._listeners:
            self._epoll.modify(fd, 0)

    def _resume_accepting(self) -> None:
        if not self._is_accepting and len(self._connections) < self._limits.connections:
            self._is_accepting = True
            for fd in self._listeners:
                self._epoll.modify(fd, _READ)

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
        self.call_later(_SWEEP_S, self._sweep)

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
        if max(end, len(received) if end < 0 else 0) > self._limits.message_bytes:
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
        self._handle(call)

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
            self._handle(call)
        if connection.received:
            self.run_soon(lambda: self._take_early(connection))

    def _handle(self, call: Call) -> None:
        try:
            call.connection.handler(call)
        except errors.GenericError as err:
            call.fail(err)
        except Exception as err:  # noqa: BLE001 - logged
            _log.exception("luxi: %s failed", call.method)
            call.fail(errors.GenericError(f"{type(err).__name__}: {err}"))

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
        self._buffered -= len(connection.received)
        connection.received.clear()
        connection.searched = 0
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
        try:
            self._write(connection)
        except OSError as err:
            _log.debug("luxi: connection %d: %s", connection.fd, err)
            self._close(connection)

    def _write(self, connection: Connection) -> None:
        while connection.unsent or connection.queued:
            if not connection.unsent:
                connection.unsent = connection.queued.popleft()
            try:
                count = connection.sock.send(connection.unsent)
            except BlockingIOError:
                break
            connection.unsent = connection.unsent[count:]
            connection.deadline = self._new_deadline()
        if connection.unsent:
            self._watch(connection)
        elif connection.closing:
            self._close(connection)
        elif connection.received:
            # The next request is here already; process it later, to limit the stack's
            # depth.
            self._watch(connection)
            self.run_soon(lambda: self._take_early(connection))
        else:
            self._watch(connection)

    def _take_early(self, connection: Connection) -> None:
        is_open = self._connections.get(connection.fd) is connection
        if is_open and connection.call is None and not connection.unsent:
            self._take_request(connection)

    def _watch(self, connection: Connection) -> None:
        """Wait for the next possible event; for none during a call."""
        events = 0
        if connection.unsent:
            events = _WRITE
        elif connection.call is None:
            events = _READ
        if events != connection.events:
            connection.events = events
            self._epoll.modify(connection.fd, events)

    def _close(self, connection: Connection) -> None:
        if self._connections.pop(connection.fd, None) is None:
            return
        self._waiting.discard(connection.fd)
        self._epoll.unregister(connection.fd)
        connection.sock.close()
        self._buffered -= len(connection.received)
        connection.received.clear()
        connection.searched = 0
        for call in connection.remove_all():
            # The answering thread may clear it at any moment.
            on_close = call.on_close
            if on_close is not None:
                self._guard(on_close)
        self._resume_accepting()

    # The end
    def _close_listeners(self) -> None:
        for listener in self._listeners.values():
            self._epoll.unregister(listener.sock.fileno())
            listener.sock.close()
        self._listeners.clear()
        for path in self._paths:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        self._paths = ()

    def _begin_stop(self, deadline: float) -> None:
        self._close_listeners()
        busy = any(connection.unsent for connection in self._connections.values())
        if busy and self._clock.monotonic() < deadline:
            self.call_later(0.02, lambda: self._begin_stop(deadline))
        else:
            self._stopping = True

    def _close_everything(self) -> None:
        self._close_listeners()
        for connection in list(self._connections.values()):
            self._close(connection)
        if not self._epoll.closed:
            self._epoll.close()
            os.close(self._wake_fd)


def connection_limit() -> int:
    """Return the number of connections that the limit of open files permits."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(2 * RESERVED, min(MAX_CONNECTIONS, soft // 2))


def _peer(sock: socket.socket) -> tuple[int, int]:
    """Return the process and the user that have connected to a socket."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _gid = _CREDENTIALS.unpack(data)
    return int(pid), int(uid)


def _listen(path: str, gid: int = -1) -> socket.socket:
    """Return a listening socket, which gets its name when it is ready."""
    new = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        with framing.reachable(new) as place:
            sock.bind(place)
        os.chown(new, -1, gid)
        os.chmod(new, _SOCKET_MODE)
        sock.listen(_BACKLOG)
        os.rename(new, path)
    except OSError:
        sock.close()
        raise
    return sock
