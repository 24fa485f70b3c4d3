"""An HTTP client for many requests at once over kept-alive connections.

One thread with one pycurl multi handle drives all transfers of a `Client`: a call of
200 nodes needs one loop, not 200 threads.

A server that is silent for long is probed, see `ganeti.protocols.http.liveness`. If the
probe fails, requests that change nothing are given up. Other requests continue to wait
for a time that fits them, because their answers may still arrive. They are never sent
over a connection that was silent for long, so a frozen server does not receive them.

A request is never sent twice unless the server reported that it was not executed: the
body can be read only once, so a repetition by the library fails.
"""

import collections
import contextlib
import functools
import itertools
import logging
import os
import queue
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import pycurl

from ganeti.protocols.http import transfer as transfers
from ganeti.protocols.http.liveness import Host, Liveness
from ganeti.protocols.http.transfer import (
    Credentials,
    Done,
    Request,
    Response,
    Transfer,
)

# The sockets of kept connections, of which a server may have closed some.
#
# The HTTP library notices a connection that its server has closed, but not each one of
# several: after the restart of a server it sent requests over the next one. A request
# that must not be repeated is lost then, and nobody knows that it was not executed.


class KeptSockets:
    """The sockets of a client by server. Not thread-safe."""

    def __init__(self) -> None:
        #: Descriptor -> inode, as the library may have closed it since.
        self._sockets: dict[Host, dict[int, int]] = {}

    def note(self, host: Host, fd: int) -> None:
        """Note a new socket for a connection to a server."""
        self._sockets.setdefault(host, {})[fd] = os.fstat(fd).st_ino

    def has_closed(self, host: Host) -> bool:
        """Return whether a server has closed a connection that is still kept here."""
        sockets = self._sockets.get(host, {})
        poll = select.poll()
        for fd, inode in list(sockets.items()):
            if _inode(fd) == inode:
                poll.register(fd, select.POLLRDHUP)
            else:
                del sockets[fd]
        return bool(sockets and poll.poll(0))


def _inode(fd: int) -> int | None:
    try:
        return os.fstat(fd).st_ino
    except OSError:
        return None


__all__ = ["Client", "Credentials", "Request", "Response", "Transfer"]

_log = logging.getLogger(__name__)

#: Number of idle connections kept; more than any cluster has nodes.
_MAX_CONNECTIONS: Final = 2000
#: Requests that connect, or have a large body to deliver, at a time: the handshakes of
#: more than a thousand nodes together take a busy master longer than the time limit of
#: each, and so do their bodies if they share the bandwidth of its network. With its
#: share of a processor being a twentieth, a master makes 16 handshakes in 2 s.
_MAX_BEGINNING: Final = 16
#: Seconds after which a machine that does not accept a connection counts no more, and
#: one that accepts it and makes no handshake: others are slowed down, not stopped.
_CONNECTING_S: Final = 0.1
_HANDSHAKE_S: Final = 2.0
#: Seconds without progress after which a body under way counts no more, and bytes per
#: second that a server reads: the kernels take much of a body before its program does.
_DELIVERY_S: Final = 5.0
_READ_RATE: Final = 2 * 1024 * 1024
#: Text of the library for a connection that broke during sending.
_SEND_FAILURE: Final = "Send failure:"
_FORBIDDEN: Final = 403
_EVENTS: Final = {
    pycurl.POLL_IN: selectors.EVENT_READ,
    pycurl.POLL_OUT: selectors.EVENT_WRITE,
    pycurl.POLL_INOUT: selectors.EVENT_READ | selectors.EVENT_WRITE,
}


class Client:
    """A sender of requests; thread-safe. Its thread starts with the first request.

    After a fork, the child has no thread and does not use the parent's connections.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: _Loop | None = None
        self._inherited: list[_Loop | None] = []

    def start(self, request: Request, done: Done) -> Transfer:
        """Send a request; ``done`` is called with the answer from the client's thread.

        ``done`` must not block.

        Returns:
            The transfer, for `abort`.
        """
        return self.start_all([(request, done)])[0]

    def start_all(self, requests: Sequence[tuple[Request, Done]]) -> list[Transfer]:
        """Send requests together, see `start`: the thread is woken once for all."""
        if not requests:
            return []
        with self._lock:
            made = [Transfer(request, done) for request, done in requests]
            if self._loop is None or not self._loop.submit(*made):
                # Freeing an inherited loop would close TLS sessions that the parent
                # still uses.
                self._inherited.append(self._loop)
                self._loop = _Loop()
                self._loop.submit(*made)
            return made

    def abort(self, transfer: Transfer) -> None:
        """End a transfer early, with an error; does nothing if it has ended."""
        with self._lock:
            transfer.is_aborted = True
            if self._loop is not None:
                self._loop.submit(transfer)

    def perform(
        self,
        requests: Sequence[Request],
        on_start: Callable[[list[Transfer]], None] = lambda _transfers: None,
        on_answer: Callable[[Response], None] = lambda _response: None,
    ) -> list[Response]:
        """Send requests in parallel; return the answers in the same order.

        Args:
            requests: the requests.
            on_start: called with the transfers when all are under way.
            on_answer: called with each answer when it arrives, from the client's
                thread, so it must not block.
        """
        answers: list[Response | None] = [None] * len(requests)
        left = len(requests)
        finished: queue.SimpleQueue[None] = queue.SimpleQueue()

        def done(position: int, response: Response) -> None:
            nonlocal left
            answers[position] = response
            on_answer(response)
            # One thread answers all of them, so this needs no lock.
            left -= 1
            if not left:
                finished.put(None)

        on_start(
            self.start_all(
                [
                    (request, functools.partial(done, position))
                    for position, request in enumerate(requests)
                ]
            )
        )
        if requests:
            finished.get()
        return [answer for answer in answers if answer is not None]

    def close(self) -> None:
        """Abort all transfers and end the thread."""
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
        self._queue: queue.SimpleQueue[Transfer | None] = queue.SimpleQueue()
        self._waker, self._wakee = socket.socketpair()
        self._wakee.setblocking(False)
        self._waker.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wakee, selectors.EVENT_READ)
        self._running: dict[Any, Transfer] = {}
        #: Transfers that wait for others to begin, and those that begin.
        self._waiting: collections.deque[Transfer] = collections.deque()
        self._beginning: set[Transfer] = set()
        self._probes: dict[Any, Host] = {}
        self._liveness: Liveness[Transfer] = Liveness()
        self._kept = KeptSockets()
        #: Idle handles by the credentials that they have.
        self._spare: dict[Credentials | None, list[Any]] = {}
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_MAXCONNECTS, _MAX_CONNECTIONS)
        self._thread = threading.Thread(target=self._run, name="rpc", daemon=True)
        self._thread.start()

    def submit(self, *items: Transfer | None) -> bool:
        """Pass transfers to the thread; None ends it. Return false if it has ended."""
        if self._pid != os.getpid():
            return False
        with self._lock:
            if self._is_over:
                return False
            for item in items:
                self._queue.put(item)
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
        except Exception as err:  # noqa: BLE001 - waiting callers must be answered
            _log.critical("the thread of the HTTP client failed", exc_info=err)
        finally:
            self._release()

    def _take_new(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            self._wakee.recv(4096)
        while not self._queue.empty():
            transfer = self._queue.get()
            if transfer is None:
                return False
            if transfer.is_aborted:
                self._abort(transfer)
            elif transfer.request.goes_first:
                self._add(transfer, fresh=self._needs_fresh(transfer.request))
            else:
                self._waiting.append(transfer)
        self._start_waiting()
        return True

    def _start_waiting(self) -> None:
        """Start transfers while not too many begin."""
        while self._waiting and self._may_begin():
            transfer = self._waiting.popleft()
            if not transfer.is_aborted:
                self._add(transfer, fresh=self._needs_fresh(transfer.request))

    def _may_begin(self) -> bool:
        if len(self._beginning) >= _MAX_BEGINNING:
            now = time.monotonic()
            self._beginning = {
                transfer
                for transfer in self._beginning
                if self._running.get(transfer.curl) is transfer
                and _begins(transfer, now)
            }
        return len(self._beginning) < _MAX_BEGINNING

    def _abort(self, transfer: Transfer) -> None:
        """End a transfer, or its repetition, wherever it is."""
        current = transfer.repetition or transfer
        if self._running.get(current.curl) is current:
            self._give_up(current, current.aborted())
        else:
            # It was not sent yet, or has ended.
            current.end(current.aborted())

    def _needs_fresh(self, request: Request) -> bool:
        """Return whether kept connections to its server cannot be trusted."""
        if self._kept.has_closed(request.host):
            return True
        if request.probe_after_s is not None and request.silence_s == 0.0:
            return self._liveness.is_silent(request.host)
        return self._liveness.is_stale(request.host, time.monotonic())

    def _add(self, transfer: Transfer, *, fresh: bool) -> None:
        request = transfer.request
        spare = self._spare.get(request.credentials)
        curl = spare.pop() if spare else transfers.handle(request.credentials)
        connect_s = request.connect_timeout_s
        is_silent = self._liveness.is_silent(request.host)
        if is_silent:
            connect_s = min(connect_s, request.silent_connect_s)
        try:
            transfer.configure(
                curl,
                fresh=fresh,
                connect_s=connect_s,
                on_socket=functools.partial(self._kept.note, request.host),
            )
            self._multi.add_handle(curl)
        except pycurl.error as err:
            transfer.end(Response(0, b"", f"Error {err.args[0]}: {err.args[-1]}"))
            return
        transfer.curl = curl
        self._running[curl] = transfer
        transfer.moved = time.monotonic()
        self._beginning.add(transfer)
        if request.probe_after_s is not None and request.credentials is not None:
            # A silent server that is slow, not dead, needs longer than a request waits.
            due = time.monotonic() + (0.0 if is_silent else request.probe_after_s)
            self._liveness.watch(transfer, request.host, due, request.silence_s)

    def _step(self) -> None:
        """Wait for sockets, timers and transfers; run the library; collect results."""
        timeout_ms = self._multi.timeout()
        times = [None if timeout_ms < 0 else timeout_ms / 1000]
        times.append(self._liveness.wait_s(time.monotonic()))
        times.append(_CONNECTING_S if self._waiting else None)
        wait_s = min((each for each in times if each is not None), default=None)
        ready = self._selector.select(wait_s)
        self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        for key, mask in ready:
            if key.fd != self._wakee.fileno():
                self._multi.socket_action(key.fd, _to_curl(mask))
        self._collect()
        for host, transfer in self._liveness.due(time.monotonic()):
            if transfer.sent or transfer.is_hurried:
                self._start_probe(host, transfer.request)
            else:
                # Its own handshake shows the same; a second one would slow it down.
                self._liveness.later(host, time.monotonic())

    def _collect(self) -> None:
        left = 1
        while left:
            left, good, bad = self._multi.info_read()
            ended = [(curl, self._running.get(curl), 0, "") for curl in good]
            ended += [(curl, self._running.get(curl), n, text) for curl, n, text in bad]
            for curl, transfer, number, text in ended:
                error = f"Error {number}: {text}" if number else None
                if curl in self._probes:
                    self._end_probe(curl, is_alive=_shows_life(curl, error or ""))
                # An earlier one of the same batch may have shown that the server is
                # frozen, so that this one was given up and its handle used again.
                elif transfer is not None and self._running.get(curl) is transfer:
                    self._finish(curl, error)

    # Probes
    def _start_probe(self, host: Host, request: Request) -> None:
        """Start a probe: does the server make a handshake?"""
        try:
            curl = transfers.probe(request)
            self._multi.add_handle(curl)
        except pycurl.error as err:
            _log.warning("%s port %d: cannot start a liveness probe: %s", *host, err)
            self._liveness.alive(host, time.monotonic())
            return
        self._probes[curl] = host

    def _end_probe(self, curl: Any, *, is_alive: bool) -> None:
        """Process the outcome of a probe."""
        host = self._probes.pop(curl)
        self._multi.remove_handle(curl)
        curl.close()
        if is_alive:
            self._report_alive(host)
            self._liveness.alive(host, time.monotonic())
        else:
            self._note_silence(host)

    def _note_silence(self, host: Host) -> None:
        """Give up requests to a server that failed a probe."""
        _log.warning(
            "%s port %d: no handshake on a new connection, it may be frozen", *host
        )
        for transfer in self._liveness.silent(host, time.monotonic()):
            self._give_up(transfer, transfer.given_up())
        self._report(host, is_silent=True)

    def _report_alive(self, host: Host) -> None:
        """Report to waiting requests that a silent server is alive again."""
        if self._liveness.is_silent(host):
            self._report(host, is_silent=False)

    def _report(self, host: Host, *, is_silent: bool) -> None:
        for transfer in self._liveness.waiting_for(host):
            if transfer.request.on_silence is not None:
                transfer.request.on_silence(is_silent)

    def _give_up(self, transfer: Transfer, response: Response) -> None:
        curl = transfer.curl
        del self._running[curl]
        self._liveness.forget(transfer)
        self._keep(transfer)
        transfer.end(response)

    def _finish(self, curl: Any, error: str | None) -> None:
        transfer = self._running.pop(curl)
        self._liveness.forget(transfer)
        host = transfer.request.host
        if error is None:
            self._report_alive(host)
            self._liveness.answered(host, time.monotonic())
        elif not transfer.is_hurried and (
            transfers.is_unanswered(curl, error)
            or transfers.is_unreachable(curl, error)
        ):
            self._note_silence(host)
        response = transfer.result(curl, error)
        reused = curl.getinfo(pycurl.NUM_CONNECTS) == 0
        self._keep(transfer)
        # The certificate of a kept connection is no longer listed, or that of a new one
        # was replaced since its handshake; or the connection broke before the whole
        # request was sent, because the server was restarted. A refused or incomplete
        # request was not executed, but any other must never be repeated.
        is_cut = error is not None and _SEND_FAILURE in error
        is_refused = response.status == _FORBIDDEN
        if (reused and (is_refused or is_cut)) or (
            is_refused and transfer.has_new_certificate
        ):
            self._add(transfer.repeat(), fresh=True)
            return
        transfer.end(response)

    def _keep(self, transfer: Transfer) -> None:
        """Keep the handle of a transfer that ended."""
        self._beginning.discard(transfer)
        self._multi.remove_handle(transfer.curl)
        self._spare.setdefault(transfer.request.credentials, []).append(transfer.curl)

    def _release(self) -> None:
        """Answer all remaining transfers and free the library's objects."""
        with self._lock:
            self._is_over = True
        for curl, transfer in self._running.items():
            self._multi.remove_handle(curl)
            curl.close()
            transfer.end(
                Response(0, b"", "the HTTP client was closed", transfer.sent > 0)
            )
        self._running.clear()
        for curl in self._probes:
            self._multi.remove_handle(curl)
            curl.close()
        self._probes.clear()
        left: list[Transfer | None] = [*self._waiting]
        while not self._queue.empty():
            left.append(self._queue.get())
        for waiting in left:
            if waiting is not None:
                waiting.end(Response(0, b"", "the HTTP client was closed"))
        for curl in itertools.chain.from_iterable(self._spare.values()):
            curl.close()
        self._multi.close()
        self._selector.close()
        self._waker.close()
        self._wakee.close()


def _begins(transfer: Transfer, now: float) -> bool:
    """Return whether a running transfer keeps others from their start."""
    idle_s = now - transfer.moved
    if transfer.sent:
        size = len(transfer.request.body)
        return idle_s < (size / _READ_RATE if transfer.sent == size else _DELIVERY_S)
    # The kernel of the server accepts a connection before its program does.
    is_accepted = bool(transfer.curl.getinfo(pycurl.PRIMARY_IP))
    return idle_s < (_HANDSHAKE_S if is_accepted else _CONNECTING_S)


def _shows_life(curl: Any, error: str) -> bool:
    """Return whether a probe reached a server, which may have refused it."""
    return not (
        error.startswith(transfers.TIMED_OUT) or transfers.is_unreachable(curl, error)
    )


def _to_curl(mask: int) -> int:
    value = 0
    if mask & selectors.EVENT_READ:
        value |= pycurl.CSELECT_IN
    if mask & selectors.EVENT_WRITE:
        value |= pycurl.CSELECT_OUT
    return value
