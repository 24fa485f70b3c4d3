"""Sockets of a server whose peers have time limits for whole requests and answers.

They have cheroot's socket interface. The descriptor never blocks; reading and writing
wait with poll(2). `PlainSocket` is for plain HTTP, `ganeti.protocols.http.tls` has the
one with TLS.
"""

import contextlib
import select
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Final

from cheroot.makefile import StreamReader, StreamWriter
from cheroot.ssl import Adapter

from ganeti.base.net import netutils
from ganeti.protocols.http import limits

_FOREVER: Final = float("inf")
#: Seconds that a connection lasts after a refusal while its request still comes, and
#: bytes of it that are discarded at a time.
_LINGER_S: Final = 2.0
_LINGER_SIZE: Final = 256 * 1024
#: Longest head and part of a body, in bytes, that are joined: a record of TLS.
_JOINED: Final = 16 * 1024


class ServerSocket(ABC):
    """The server's side of a connection.

    Attributes:
        is_established: whether the peer is more than a connection: it has completed the
            handshake of TLS, or has begun a request.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._timeout_s: float | None = None
        self._request_since: float | None = None
        self._request_bytes = 0
        self._answer_bytes = 0
        #: Seconds that the peer did not take the present answer.
        self._answer_waited_s = 0.0
        self.is_established = False

    @abstractmethod
    def peek(self, size: int) -> bytes | None:
        """Return the next bytes without removing them; never waits.

        Returns:
            at most ``size`` bytes, empty if the peer has closed the connection or it
            broke, None if no data has arrived.
        """

    @abstractmethod
    def receive_now(self, size: int) -> bytes | None:
        """Return the next bytes; never waits.

        Returns:
            at most ``size`` bytes, empty at the end, None if no data has arrived.

        Raises:
            OSError: the connection broke.
        """

    @abstractmethod
    def send_now(self, data: bytes | memoryview) -> int:
        """Write what the peer takes now, never waits; return the number of bytes.

        Data that was not taken comes first in the next call.

        Raises:
            OSError: the connection broke.
        """

    @abstractmethod
    def _receive(self, buffer: Any) -> int:
        """Read at least one byte; 0 at the end."""

    @abstractmethod
    def _write(self, data: memoryview) -> int:
        """Write some of the data; return the number of bytes."""

    def limit_unsent(self, size: int) -> None:
        """Have the kernel keep less of what the peer has not taken, in bytes."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)

    @property
    def has_pending(self) -> bool:
        """Return whether there is data to read that the descriptor does not show."""
        return False

    def recv_into(self, buffer: Any) -> int:
        """Read at least one byte; 0 at the end.

        Raises:
            TimeoutError: no data arrived, or the whole request is late.
            ConnectionResetError: the connection broke.
        """
        if self._request_since is None:
            self._request_since = time.monotonic()
        count = self._receive(buffer)
        self._request_bytes += count
        return count

    def begin_request(self) -> None:
        """Start new time limits; that of the request begins with its first read."""
        self._request_since, self._request_bytes = None, 0
        self._answer_bytes, self._answer_waited_s = 0, 0.0

    def send(self, data: Any) -> int:
        """Write all of the data; raises the same errors as `recv_into`.

        OpenSSL takes one record of 16 KiB at a time, and the caller copies what is
        left after each call.
        """
        left = memoryview(data)
        while left:
            count = self._write(left)
            self._answer_bytes += count
            left = left[count:]
        return len(data)

    def _wait_for_data(self) -> None:
        """Wait until there is data to read.

        Raises:
            TimeoutError: there was none in time, or the whole request is late.
        """
        left_s = _FOREVER
        if self._request_since is not None:
            allowed = limits.REQUEST_TIMEOUT_S + self._request_bytes / limits.MIN_RATE
            left_s = self._request_since + allowed - time.monotonic()
        self._wait(select.POLLIN, left_s)

    def _wait_for_reader(self) -> None:
        """Wait until the peer has read some of the answer.

        Raises:
            TimeoutError: it has not in time, or has let the server wait for too long.
        """
        allowed = limits.ANSWER_TIMEOUT_S + self._answer_bytes / limits.MIN_ANSWER_RATE
        since = time.monotonic()
        self._wait(select.POLLOUT, allowed - self._answer_waited_s)
        self._answer_waited_s += time.monotonic() - since

    def _wait(self, event: int, left_s: float = _FOREVER) -> None:
        poll = select.poll()
        poll.register(self._sock, event)
        limit_s = min(left_s, _FOREVER if self._timeout_s is None else self._timeout_s)
        limit = None if limit_s == _FOREVER else max(0.0, limit_s * 1000)
        if not poll.poll(limit):
            raise TimeoutError("timed out")

    def settimeout(self, timeout_s: float | None) -> None:
        """Set how long one read or write may wait."""
        self._timeout_s = timeout_s

    def gettimeout(self) -> float | None:
        """Return how long one read or write may wait."""
        return self._timeout_s

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._sock.fileno()

    def getsockname(self) -> Any:
        """Return the local address."""
        return self._sock.getsockname()

    def probe_when_idle(self) -> None:
        """Have the kernel notice a peer that has vanished from a long connection."""
        netutils.probe_when_idle(self._sock)

    def linger(self) -> None:
        """Discard what the peer still sends, for a limited time, after the last answer.

        Closing at once would reset the connection, and the peer might not receive the
        answer, as RFC 9112, section 9.6, describes.
        """
        end = time.monotonic() + _LINGER_S
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
            while (left_s := end - time.monotonic()) > 0:
                self._wait(select.POLLIN, left_s)
                if not self._sock.recv(_LINGER_SIZE):
                    return

    def shutdown(self, how: int = socket.SHUT_RDWR) -> None:
        """Shut down the socket."""
        self._sock.shutdown(how)

    def close(self) -> None:
        """Close the descriptor."""
        self._sock.close()

    def _decref_socketios(self) -> None:  # noqa: B027 - it has nothing to do
        """Do nothing: file objects of this socket are closed before it."""


class PlainSocket(ServerSocket):
    """The server's side of a connection without TLS."""

    def peek(self, size: int) -> bytes | None:
        """See `ServerSocket.peek`."""
        try:
            return self._sock.recv(size, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        except OSError:  # it is broken, or closed
            return b""

    def receive_now(self, size: int) -> bytes | None:
        """See `ServerSocket.receive_now`."""
        try:
            return self._sock.recv(size)
        except BlockingIOError:
            return None

    def send_now(self, data: bytes | memoryview) -> int:
        """See `ServerSocket.send_now`."""
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0

    def begin_request(self) -> None:
        """See `ServerSocket.begin_request`."""
        self.is_established = True
        super().begin_request()

    def _receive(self, buffer: Any) -> int:
        while True:
            try:
                return self._sock.recv_into(buffer)
            except BlockingIOError:
                self._wait_for_data()

    def _write(self, data: memoryview) -> int:
        while True:
            try:
                return self._sock.send(data)
            except BlockingIOError:
                self._wait_for_reader()


class Writer(StreamWriter):
    """A connection's file for answers, which joins a head and the body that follows.

    A short answer so takes one record of TLS and one system call, and wakes its reader
    once.
    """

    _head = b""
    _is_holding = False

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Keep what is written until the next write, or `release`."""
        self._is_holding = True
        try:
            yield
        finally:
            self._is_holding = False

    def write(self, val: Any) -> int:
        """Write data, with what was kept before it; return the length of the data."""
        if self._is_holding:
            self._head += val
            return len(val)
        head, self._head = self._head, b""
        if head and len(head) + len(val) <= _JOINED:
            super().write(head + val)  # type: ignore[no-untyped-call]
        else:
            if head:
                super().write(head)  # type: ignore[no-untyped-call]
            super().write(val)  # type: ignore[no-untyped-call]
        return len(val)

    def release(self) -> None:
        """Write what was kept, for an answer without a body."""
        if self._head:
            self.write(b"")


def make_file(sock: ServerSocket, mode: str, size: int) -> Any:
    """Return a file of a connection to read requests or to write answers."""
    return StreamReader(sock, mode, size) if "r" in mode else Writer(sock, mode, size)


class PlainAdapter(Adapter):
    """Makes cheroot use `PlainSocket`; its name for this place is an SSL adapter."""

    def __init__(self) -> None:
        """Prepare the adapter: plain HTTP has no certificates."""
        super().__init__(None, None)

    def bind(self, sock: socket.socket) -> socket.socket:
        """Return the listening socket unchanged."""
        return sock

    def wrap(self, sock: socket.socket) -> tuple[PlainSocket, dict[str, Any]]:
        """Wrap an accepted connection."""
        return PlainSocket(sock), self.get_environ()

    def get_environ(self) -> dict[str, Any]:
        """Return the entries of each request's environment."""
        return {"wsgi.url_scheme": "http"}

    def makefile(self, sock: PlainSocket, mode: str = "r", bufsize: int = -1) -> Any:
        """Return a file object of a connection."""
        return make_file(sock, mode, bufsize)
