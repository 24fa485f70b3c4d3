"""An HTTP client for many requests at once over kept-alive connections.

All transfers of a `Client` are driven by one thread with one pycurl multi handle; a
call to 200 nodes is one loop, not 200 threads.

A request is never sent twice unless the server said that it did not execute it: the
body can be read only once, so that the library's own repetition fails instead.
"""

import contextlib
import dataclasses
import io
import logging
import os
import queue
import selectors
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pycurl

from ganeti.constants import ssh, timeouts
from ganeti.http import limits

_log = logging.getLogger(__name__)

#: Idle connections kept; more than nodes of any cluster.
_MAX_CONNECTIONS: Final = 2000
#: A dead peer is noticed after about a minute, however long the call may take.
_KEEPALIVE_IDLE_S: Final = 30
_KEEPALIVE_INTERVAL_S: Final = 10
#: Milliseconds that sent data may stay unacknowledged before a connection is given up.
_UNACKNOWLEDGED_MS: Final = 10_000
#: How the library words that a connection broke while it was sending.
_SEND_FAILURE: Final = "Send failure:"
_FORBIDDEN: Final = 403
_EVENTS: Final = {
    pycurl.POLL_IN: selectors.EVENT_READ,
    pycurl.POLL_OUT: selectors.EVENT_WRITE,
    pycurl.POLL_INOUT: selectors.EVENT_READ | selectors.EVENT_WRITE,
}


@dataclasses.dataclass(frozen=True)
class Credentials:
    """Files for TLS: own certificate with key, and the certificate to trust."""

    certificate: str
    authority: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """One POST request.

    Attributes:
        address: of the server, without brackets.
        port: of the server.
        path: with its slash.
        body: JSON text.
        headers: more headers, as ``Name: value``.
        credentials: None for plain HTTP.
        timeout_s: for the whole answer.
        connect_timeout_s: for connection and handshake.
    """

    address: str
    port: int
    path: str
    body: bytes
    headers: tuple[str, ...] = ()
    credentials: Credentials | None
    timeout_s: float
    connect_timeout_s: float = timeouts.RPC_CONNECT_TIMEOUT


class Response(NamedTuple):
    """An answer, or why there is none.

    ``error`` is None or a text; ``is_lost`` tells that the server may have received
    the request all the same.
    """

    status: int
    body: bytes
    error: str | None = None
    is_lost: bool = False


Done = Callable[[Response], None]


class _Transfer:
    """One request under way."""

    def __init__(self, request: Request, done: Done) -> None:
        self.request = request
        self.done = done
        self.sent = 0
        self.answer = io.BytesIO()
        self._body = io.BytesIO(request.body)

    def read(self, size: int) -> bytes:
        """Hand out the body, once."""
        data = self._body.read(size)
        self.sent += len(data)
        return data

    def seek(self, offset: int, _origin: int) -> int:
        """Refuse to send again what was sent."""
        if offset or self.sent:
            return int(pycurl.SEEKFUNC_FAIL)
        return int(pycurl.SEEKFUNC_OK)

    def write(self, data: bytes) -> int:
        """Take a piece of the answer; a short count breaks the transfer off."""
        if self.answer.tell() + len(data) > limits.MAX_ANSWER:
            return 0
        return self.answer.write(data)

    def configure(self, curl: Any, *, fresh: bool) -> None:
        """Set all options of a handle."""
        request = self.request
        host = f"[{request.address}]" if ":" in request.address else request.address
        scheme = "http" if request.credentials is None else "https"
        curl.reset()
        for option, value in (
            (pycurl.URL, f"{scheme}://{host}:{request.port}{request.path}"),
            (pycurl.POST, 1),
            (pycurl.POSTFIELDSIZE_LARGE, len(request.body)),
            (pycurl.READFUNCTION, self.read),
            (pycurl.SEEKFUNCTION, self.seek),
            (pycurl.WRITEFUNCTION, self.write),
            (
                pycurl.HTTPHEADER,
                ["Content-Type: application/json", "Expect:", *request.headers],
            ),
            (pycurl.CONNECTTIMEOUT_MS, int(request.connect_timeout_s * 1000)),
            (pycurl.TIMEOUT_MS, int(request.timeout_s * 1000)),
            (pycurl.FRESH_CONNECT, int(fresh)),
            *_FIXED_OPTIONS,
        ):
            curl.setopt(option, value)
        if request.credentials is not None:
            _set_credentials(curl, request.credentials)

    def result(self, curl: Any, error: str | None) -> Response:
        """Return what came of it."""
        if error is None:
            return Response(curl.getinfo(pycurl.RESPONSE_CODE), self.answer.getvalue())
        # In TLS 1.3 a refusal of our certificate comes after we began to send.
        refused = "alert" in error and curl.getinfo(pycurl.NUM_CONNECTS) > 0
        return Response(0, b"", error, is_lost=self.sent > 0 and not refused)


def _limit_silence(fd: int, _purpose: int) -> int:
    """Let the kernel give up a connection whose other end acknowledges nothing.

    Without this a kept-alive connection to a node that lost power or network looks
    like a slow node until the time limit of the whole call.
    """
    with socket.socket(fileno=os.dup(fd)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
    return int(pycurl.SOCKOPT_OK)


_FIXED_OPTIONS: Final = (
    (pycurl.NOSIGNAL, 1),
    (pycurl.FOLLOWLOCATION, 0),
    (pycurl.PROXY, ""),
    (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),
    (pycurl.TCP_NODELAY, 1),
    (pycurl.SSL_SESSIONID_CACHE, 0),
    (pycurl.TCP_KEEPALIVE, 1),
    (pycurl.TCP_KEEPIDLE, _KEEPALIVE_IDLE_S),
    (pycurl.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL_S),
    (pycurl.MAXAGE_CONN, limits.REUSE_S),
    (pycurl.SOCKOPTFUNCTION, _limit_silence),
)


def _set_credentials(curl: Any, credentials: Credentials) -> None:
    curl.setopt(pycurl.SSLVERSION, pycurl.SSLVERSION_TLSv1_2)
    curl.setopt(pycurl.SSL_CIPHER_LIST, ssh.OPENSSL_CIPHERS)
    curl.setopt(pycurl.SSLCERT, credentials.certificate)
    curl.setopt(pycurl.SSLKEY, credentials.certificate)
    curl.setopt(pycurl.CAINFO, credentials.authority)
    curl.setopt(pycurl.SSL_VERIFYPEER, 1)
    # The cluster has one certificate for all nodes; names would say nothing.
    curl.setopt(pycurl.SSL_VERIFYHOST, 0)


class Client:
    """Sends requests; thread-safe. Its thread starts with the first request.

    After a fork the child starts anew and leaves the parent's connections alone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: _Loop | None = None
        self._inherited: list[_Loop | None] = []

    def start(self, request: Request, done: Done) -> None:
        """Send a request; ``done`` is called with the answer from the client's thread.

        ``done`` must not block.
        """
        with self._lock:
            transfer = _Transfer(request, done)
            if self._loop is None or not self._loop.submit(transfer):
                # Freeing an inherited loop would say goodbye on connections that are
                # still the parent's.
                self._inherited.append(self._loop)
                self._loop = _Loop()
                self._loop.submit(transfer)

    def perform(self, requests: Sequence[Request]) -> list[Response]:
        """Send requests in parallel; return the answers in the same order."""
        answers: list[Response | None] = [None] * len(requests)
        finished: queue.SimpleQueue[None] = queue.SimpleQueue()
        for position, request in enumerate(requests):

            def done(response: Response, position: int = position) -> None:
                answers[position] = response
                finished.put(None)

            self.start(request, done)
        for _ in requests:
            finished.get()
        return [answer for answer in answers if answer is not None]

    def close(self) -> None:
        """Break off what is under way and end the thread."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.stop()


class _Loop:
    """The thread that drives all transfers; one per process and client."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._is_over = False
        self._queue: queue.SimpleQueue[_Transfer | None] = queue.SimpleQueue()
        self._waker, self._wakee = socket.socketpair()
        self._wakee.setblocking(False)
        self._waker.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wakee, selectors.EVENT_READ)
        self._running: dict[Any, _Transfer] = {}
        self._spare: list[Any] = []
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_MAXCONNECTS, _MAX_CONNECTIONS)
        self._thread = threading.Thread(target=self._run, name="rpc", daemon=True)
        self._thread.start()

    def submit(self, transfer: _Transfer | None) -> bool:
        """Hand a transfer to the thread; None ends it. Return false if it is gone."""
        if self._pid != os.getpid():
            return False
        with self._lock:
            if self._is_over:
                return False
            self._queue.put(transfer)
            with contextlib.suppress(BlockingIOError):
                self._waker.send(b"x")
        return True

    def stop(self) -> None:
        """End the thread and wait for it; in a forked child do nothing."""
        if self.submit(None):
            self._thread.join()

    def _on_socket(self, event: int, fd: int, _multi: Any, _data: Any) -> None:
        known = fd in self._selector.get_map()
        if event == pycurl.POLL_REMOVE:
            if known:
                self._selector.unregister(fd)
            return
        mask = _EVENTS.get(event)
        if mask is None:
            return
        if known:
            self._selector.modify(fd, mask)
        else:
            self._selector.register(fd, mask)

    def _run(self) -> None:
        try:
            while self._take_new():
                self._step()
        except Exception as err:  # noqa: BLE001 - whoever waits must be answered
            _log.critical("the thread of the HTTP client broke", exc_info=err)
        finally:
            self._release()

    def _take_new(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            self._wakee.recv(4096)
        while not self._queue.empty():
            transfer = self._queue.get()
            if transfer is None:
                return False
            self._add(transfer, fresh=False)
        return True

    def _add(self, transfer: _Transfer, *, fresh: bool) -> None:
        curl = self._spare.pop() if self._spare else pycurl.Curl()
        try:
            transfer.configure(curl, fresh=fresh)
            self._multi.add_handle(curl)
        except pycurl.error as err:
            transfer.done(Response(0, b"", f"Error {err.args[0]}: {err.args[-1]}"))
            return
        self._running[curl] = transfer

    def _step(self) -> None:
        """Wait for sockets, time and new work; let the library act; collect."""
        timeout_ms = self._multi.timeout()
        ready = self._selector.select(None if timeout_ms < 0 else timeout_ms / 1000)
        self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        for key, mask in ready:
            if key.fd != self._wakee.fileno():
                self._multi.socket_action(key.fd, _to_curl(mask))
        self._collect()

    def _collect(self) -> None:
        left = 1
        while left:
            left, good, bad = self._multi.info_read()
            for curl in good:
                self._finish(curl, None)
            for curl, number, text in bad:
                self._finish(curl, f"Error {number}: {text}")

    def _finish(self, curl: Any, error: str | None) -> None:
        transfer = self._running.pop(curl)
        response = transfer.result(curl, error)
        reused = curl.getinfo(pycurl.NUM_CONNECTS) == 0
        self._multi.remove_handle(curl)
        self._spare.append(curl)
        # A kept connection was made with a certificate that is no longer listed; or it
        # broke before all was sent, as the server was started anew. What was cut off
        # was not carried out, but a request that was sent must never be sent again.
        is_cut = error is not None and _SEND_FAILURE in error
        if reused and (response.status == _FORBIDDEN or is_cut):
            self._add(_Transfer(transfer.request, transfer.done), fresh=True)
            return
        transfer.done(response)

    def _release(self) -> None:
        """Answer everything that is left and free the library's objects."""
        with self._lock:
            self._is_over = True
        for curl, transfer in self._running.items():
            self._multi.remove_handle(curl)
            curl.close()
            transfer.done(Response(0, b"", "the client was closed", transfer.sent > 0))
        self._running.clear()
        while not self._queue.empty():
            waiting = self._queue.get()
            if waiting is not None:
                waiting.done(Response(0, b"", "the client was closed"))
        for curl in self._spare:
            curl.close()
        self._multi.close()
        self._selector.close()
        self._waker.close()
        self._wakee.close()


def _to_curl(mask: int) -> int:
    value = 0
    if mask & selectors.EVENT_READ:
        value |= pycurl.CSELECT_IN
    if mask & selectors.EVENT_WRITE:
        value |= pycurl.CSELECT_OUT
    return value
