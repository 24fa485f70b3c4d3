"""Parked requests: their answers come later, and no thread waits for them.

An application that gets `KEY` in its environment may call that function and return an
empty answer. The worker then leaves the connection here. One thread watches all parked
connections for clients that close them. `Ticket.resume` passes a connection back to a
worker, which writes the answer and serves the next request of the connection. An answer
without an end has a thread of its own, see `Ticket.hand_over`.
"""

import collections
import contextlib
import dataclasses
import functools
import logging
import os
import select
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

_log = logging.getLogger(__name__)

#: WSGI key of the function that parks a request and returns its `Ticket`.
KEY: Final = "ganeti.park"

#: Gets ``start_response``, calls it, and returns the parts of the answer.
Answer = Callable[[Callable[..., Any]], Iterable[bytes]]

_GONE: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


@dataclasses.dataclass(slots=True, eq=False)
class Ticket:
    """One parked request.

    Attributes:
        conn: its connection.
        gateway: cheroot's gateway of the request.
        answer: writes the answer; None until there is one.
        taker: gets the connection instead; see `hand_over`.
    """

    _parking: "Parking"
    conn: Any
    gateway: Any
    answer: Answer | None = None
    taker: Callable[[Any], None] | None = None

    def hand_over(self, take: Callable[[Any], None]) -> None:
        """Give the connection away once the worker has left it.

        Call it in the application. No answer was begun; nothing else uses the
        connection any more.

        Args:
            take: gets the connection in another thread; must not block. It closes it.
        """
        self.taker = take

    def resume(self, answer: Answer) -> None:
        """Let a worker write the answer; thread-safe, call it once."""
        self._parking.resume(self, answer)


class Parking:
    """The parked connections of a server; the thread starts with the first one."""

    def __init__(
        self,
        peek: Callable[[Any], bytes | None],
        serve: Callable[[Any], None],
        close: Callable[[Any], None],
    ) -> None:
        """Prepare an empty place.

        Args:
            peek: returns the next bytes from a socket, empty at the end, None for none.
            serve: passes a connection to a worker.
            close: closes a connection.
        """
        self._peek = peek
        self._serve = serve
        self._close = close
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        self._todo: collections.deque[Callable[[], None]] = collections.deque()
        self._epoll: select.epoll
        self._wake_fd = -1
        #: Tickets without an answer; all of them, and those whose connections are here.
        self._open: set[Ticket] = set()
        self._watched: dict[int, Ticket] = {}

    @property
    def count(self) -> int:
        """The number of requests without an answer."""
        return len(self._open)

    # For workers and for those who have an answer
    def issue(self, conn: Any, gateway: Any) -> Ticket:
        """Return a ticket; its connection follows when the worker has left it."""
        ticket = Ticket(self, conn, gateway)
        with self._changed:
            self._open.add(ticket)
            if self._thread is None:
                self._epoll = select.epoll()
                self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
                self._epoll.register(self._wake_fd, select.EPOLLIN)
                self._thread = threading.Thread(
                    target=self._run, name="parking", daemon=True
                )
                self._thread.start()
        return ticket

    def enter(self, ticket: Ticket) -> None:
        """Take the connection of a ticket from a worker."""
        self._run_soon(lambda: self._enter(ticket))

    def resume(self, ticket: Ticket, answer: Answer) -> None:
        """See `Ticket.resume`."""
        self._run_soon(lambda: self._resume(ticket, answer))

    def wait_until_empty(self, timeout_s: float) -> bool:
        """Wait until all requests have answers; return whether that was in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._open, timeout_s)

    def stop(self) -> None:
        """Close the connections and end the thread."""
        with self._changed:
            if self._is_stopping:
                return
            self._is_stopping = True
            thread = self._thread
        if thread is not None:
            self._wake()
            thread.join()
            self._epoll.close()
            os.close(self._wake_fd)

    def _run_soon(self, function: Callable[[], None]) -> None:
        self._todo.append(function)
        with self._changed:
            if self._thread is not None and not self._is_stopping:
                self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self._wake_fd, 1)

    # The thread
    def _run(self) -> None:
        while not self._is_stopping:
            for fd, events in self._epoll.poll():
                if fd == self._wake_fd:
                    with contextlib.suppress(BlockingIOError):
                        os.eventfd_read(fd)
                elif (ticket := self._watched.get(fd)) is not None:
                    self._guard(functools.partial(self._look, fd, events, ticket))
            while self._todo:
                self._guard(self._todo.popleft())
        for fd, ticket in list(self._watched.items()):
            self._remove(fd)
            self._close(ticket.conn)

    def _guard(self, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception:  # noqa: BLE001 - logged; the thread must survive
            _log.exception("a parked request failed")

    def _enter(self, ticket: Ticket) -> None:
        if ticket.taker is not None:
            self._finish(ticket)
            ticket.conn.ticket = None
            ticket.taker(ticket.conn)
            return
        if ticket.answer is not None:
            self._serve(ticket.conn)
            return
        fd = ticket.conn.socket.fileno()
        self._watched[fd] = ticket
        self._epoll.register(fd, select.EPOLLIN | select.EPOLLRDHUP)
        # The client may have closed the connection, or sent more, before that.
        self._look(fd, select.EPOLLIN, ticket)

    def _look(self, fd: int, events: int, ticket: Ticket) -> None:
        """Notice a client that has gone, or that has sent its next request."""
        conn = ticket.conn
        start = b"x" if conn.rfile.has_data() else self._peek(conn.socket)
        if start == b"" or events & _GONE:
            _log.debug("%s has closed a parked connection", conn.remote_addr)
            self._remove(fd)
            self._finish(ticket)
            self._close(conn)
        elif start is not None:
            # The next request waits until this one is answered.
            self._epoll.modify(fd, select.EPOLLRDHUP)

    def _resume(self, ticket: Ticket, answer: Answer) -> None:
        ticket.answer = answer
        self._finish(ticket)
        fd = ticket.conn.socket.fileno()
        if self._watched.get(fd) is ticket:
            self._remove(fd)
            self._serve(ticket.conn)

    def _remove(self, fd: int) -> None:
        del self._watched[fd]
        with contextlib.suppress(OSError):
            self._epoll.unregister(fd)

    def _finish(self, ticket: Ticket) -> None:
        with self._changed:
            self._open.discard(ticket)
            self._changed.notify_all()
