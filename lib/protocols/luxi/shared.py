"""Many calls that wait, on one connection to the master daemon.

A waiting call does not take a thread or a connection of its own: it has a number, which
its answer repeats, and answers arrive in any order. One thread sends and receives. A
connection that breaks is made again and the calls are sent again, once; so only calls
that may be repeated belong here.
"""

import collections
import contextlib
import itertools
import logging
import os
import select
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants import versions
from ganeti.protocols.luxi import framing
from ganeti.protocols.luxi.client import Client, result_of

_log = logging.getLogger(__name__)

_CHUNK: Final = 1 << 16
#: Seconds between looks at the time limits of calls.
_TICK_S: Final = 1.0
#: How often a call is sent: a second time after the connection broke.
_ATTEMPTS: Final = 2
_encoder: Final = msgspec.json.Encoder()

#: Takes a result, or an error and the result None.
Done = Callable[[Any, Exception | None], None]


class _Waiting:
    """A call that has no answer yet."""

    __slots__ = ("args", "deadline", "done", "method", "sent")

    def __init__(
        self, method: str, args: Sequence[Any], done: Done, deadline: float
    ) -> None:
        self.method = method
        self.args = args
        self.done = done
        self.deadline = deadline
        self.sent = 0

    def encoded(self, number: int) -> bytes:
        """Return the request."""
        request = {
            framing.KEY_METHOD: self.method,
            framing.KEY_ARGS: self.args,
            framing.KEY_VERSION: versions.LUXI_VERSION,
            framing.KEY_CALL_ID: number,
        }
        return _encoder.encode(request) + framing.END

    def end(self, result: Any, error: Exception | None = None) -> None:
        """Pass on the outcome."""
        try:
            self.done(result, error)
        except Exception:  # noqa: BLE001 - logged; the other calls go on
            _log.exception("the answer to %s cannot be passed on", self.method)


class SharedClient:
    """Calls of waiting methods from many threads; the thread starts with the first."""

    def __init__(self, make: Callable[[], Client], clock: Clock) -> None:
        """Prepare a client; nothing is sent.

        Args:
            make: returns a client, which is used to connect.
            clock: measures time limits.
        """
        self._make = make
        self._clock = clock
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._todo: collections.deque[Callable[[], None]] = collections.deque()
        # Of the thread
        self._numbers = itertools.count(1)
        self._waiting: dict[int, _Waiting] = {}
        self._unsent: collections.deque[int] = collections.deque()
        self._client: Client | None = None
        self._socket: socket.socket | None = None
        self._outgoing = memoryview(b"")
        self._received = bytearray()

    # For other threads
    def submit(
        self, method: str, args: Sequence[Any], done: Done, *, timeout_s: float
    ) -> None:
        """Call a waiting method; never blocks.

        Args:
            method: a method whose answers wait, and which may be called twice.
            args: JSON values in documented order.
            done: called once in the thread of this client, with the result or the
                error; must not block.
            timeout_s: longest wait for the answer.
        """
        call = _Waiting(method, args, done, self._clock.monotonic() + timeout_s)
        with self._lock:
            if not self._is_closing:
                self._start_locked()
                self._run_soon(lambda: self._take(call))
                return
        call.end(None, errors.ConnectionClosedError(f"{method}: this daemon ends"))

    def change_all(self, change: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        """Call again with other arguments, made by a function of the old ones.

        The earlier calls get no answer of their own.
        """
        with self._lock:
            if self._thread is not None and not self._is_closing:
                self._run_soon(lambda: self._change_all(change))

    def close(self) -> None:
        """End the calls and the thread."""
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
            thread = self._thread
        if thread is not None:
            self._wake()
            thread.join()
        os.close(self._wake_fd)

    def _start_locked(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="luxi-shared", daemon=True
            )
            self._thread.start()

    def _run_soon(self, function: Callable[[], None]) -> None:
        self._todo.append(function)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self._wake_fd, 1)

    # The thread
    def _run(self) -> None:
        while not self._is_closing:
            try:
                self._step()
            except errors.GenericError as err:
                # The connection could not be made.
                self._disconnect()
                self._end_all(err)
            except OSError as err:
                self._broken(err)
            except Exception as err:  # noqa: BLE001 - logged; the thread must survive
                _log.exception("waiting calls failed")
                self._disconnect()
                self._end_all(errors.GenericError(f"{type(err).__name__}: {err}"))
        self._disconnect()
        while self._todo:
            self._todo.popleft()()
        self._end_all(errors.ConnectionClosedError("this daemon ends"))

    def _step(self) -> None:
        """Wait for an event and process it."""
        self._poll()
        while self._todo:
            self._todo.popleft()()
        self._end_overdue()
        if self._unsent and self._socket is None:
            self._connect()
        self._send()

    def _poll(self) -> None:
        poll = select.poll()
        poll.register(self._wake_fd, select.POLLIN)
        sock = self._socket
        if sock is not None:
            wants = select.POLLOUT if self._outgoing else 0
            poll.register(sock, select.POLLIN | wants)
        timeout_ms = None if not self._waiting else _TICK_S * 1000
        if self._todo:
            timeout_ms = 0
        for fd, events in poll.poll(timeout_ms):
            if fd == self._wake_fd:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(fd)
            elif sock is not None and events & ~select.POLLOUT:
                self._receive(sock)

    def _take(self, call: _Waiting) -> None:
        number = next(self._numbers)
        self._waiting[number] = call
        self._unsent.append(number)

    def _change_all(self, change: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        calls, self._waiting = list(self._waiting.values()), {}
        self._unsent.clear()
        for call in calls:
            call.args = change(call.args)
            call.sent = 0
            self._take(call)

    def _connect(self) -> None:
        """Connect.

        Raises:
            GenericError: nobody listens, or no access.
        """
        self._client = self._make()
        self._socket = self._client.connect()
        self._socket.setblocking(False)

    def _send(self) -> None:
        while self._outgoing or self._unsent:
            if not self._outgoing:
                self._outgoing = memoryview(self._next_requests())
                continue
            if self._socket is None:
                return
            try:
                count = self._socket.send(self._outgoing)
            except BlockingIOError:
                return
            self._outgoing = self._outgoing[count:]

    def _next_requests(self) -> bytes:
        """Return some requests that were not sent yet, and count their attempts."""
        parts: list[bytes] = []
        size = 0
        while self._unsent and size < _CHUNK:
            number = self._unsent.popleft()
            call = self._waiting.get(number)
            if call is not None:
                call.sent += 1
                parts.append(call.encoded(number))
                size += len(parts[-1])
        return b"".join(parts)

    def _receive(self, sock: socket.socket) -> None:
        try:
            data = sock.recv(_CHUNK)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionResetError("closed by the daemon")
        searched = len(self._received)
        self._received += data
        while (end := self._received.find(framing.END, searched)) >= 0:
            message = self._received[:end]
            del self._received[: end + len(framing.END)]
            searched = 0
            self._answered(message)

    def _answered(self, message: bytearray) -> None:
        try:
            answer = msgspec.json.decode(message)
        except (msgspec.DecodeError, RecursionError) as err:
            raise ConnectionResetError(f"the answer is not JSON: {err}") from err
        number = answer.get(framing.KEY_CALL_ID) if isinstance(answer, dict) else None
        if not isinstance(number, int):
            # A request was not understood, and which one is not known.
            text = f"wanted an answer, found {bytes(message)[:200]!r}"
            raise ConnectionResetError(text)
        call = self._waiting.pop(number, None)
        if call is None:
            return
        try:
            result = result_of(answer, lambda _text: None)
        except errors.GenericError as err:
            call.end(None, err)
            return
        call.end(result)

    def _end_overdue(self) -> None:
        now = self._clock.monotonic()
        overdue = [
            number for number, call in self._waiting.items() if call.deadline < now
        ]
        for number in overdue:
            call = self._waiting.pop(number)
            call.end(None, errors.LuxiTimeoutError(f"{call.method}: no answer in time"))

    def _broken(self, err: OSError) -> None:
        """Send the calls again over a new connection, each at most twice."""
        self._disconnect()
        self._unsent.clear()
        for number, call in list(self._waiting.items()):
            if call.sent < _ATTEMPTS:
                self._unsent.append(number)
                continue
            del self._waiting[number]
            text = f"{call.method}: the connection broke: {err}"
            call.end(None, errors.ConnectionClosedError(text))

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = self._socket = None
        self._outgoing = memoryview(b"")
        self._received.clear()

    def _end_all(self, err: Exception) -> None:
        calls, self._waiting = self._waiting, {}
        self._unsent.clear()
        for call in calls.values():
            call.end(None, err)
