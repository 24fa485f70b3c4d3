"""Answers without an end: connections that get texts as they come.

A stream is private to the thread of a loop. What its client does not take at once is
kept, up to a limit; then the connection is closed, so that a client which stops reading
costs little.
"""

import collections
import logging
import select
from collections.abc import Callable
from typing import Any, Final

from ganeti.protocols.luxi.loop import WRITE, Loop

_log = logging.getLogger(__name__)

#: Bytes that wait for a client here, and about half of those that wait in the kernel.
MAX_UNSENT: Final = 704 << 10
_IN_KERNEL: Final = 128 << 10
_HALF_CLOSED: Final = select.EPOLLRDHUP
_IN: Final = select.EPOLLIN


class Stream:
    """One connection.

    Attributes:
        unsent: bytes that the client has not taken.
        sent_at: monotonic time of the last text.
        on_drained: called once when the client has taken everything.
        is_ended: whether the connection is closed.
    """

    __slots__ = (
        *("_conn", "_events", "_fd", "_loop", "_on_end", "_queue", "_write"),
        "is_ended",
        *("on_drained", "sent_at", "unsent"),
    )

    def __init__(self, conn: Any, loop: Loop, on_end: Callable[[str], None]) -> None:
        """Take over a connection of the server.

        Args:
            conn: see `ganeti.protocols.http.parking.Ticket.hand_over`.
            loop: of this thread.
            on_end: called once with the reason when the connection is closed.
        """
        self._conn = conn
        self._write: Callable[[bytes | memoryview], int] = conn.socket.send_now
        self._loop = loop
        self._on_end = on_end
        self._queue: collections.deque[memoryview] = collections.deque()
        self.unsent = 0
        self.sent_at = 0.0
        self.on_drained: Callable[[], None] | None = None
        self.is_ended = False
        self._fd: int = conn.socket.fileno()
        conn.socket.limit_unsent(_IN_KERNEL)
        self._events = _IN
        loop.register(self._fd, self._on_ready)
        self._want(_IN | _HALF_CLOSED)
        self._look()

    def push(self, text: bytes, now: float) -> None:
        """Send a text; end the stream if too much waits for its client."""
        if self.is_ended:
            return
        self.sent_at = now
        if not self._queue:
            # Most clients take everything at once, and they may be many.
            try:
                count = self._write(text)
            except OSError as err:
                self.end(f"the connection broke: {err}")
                return
            if count == len(text):
                return
            self._queue.append(memoryview(text)[count:])
            self.unsent = len(text) - count
            self._flush()
        else:
            self._queue.append(memoryview(text))
            self.unsent += len(text)
        if self.unsent > MAX_UNSENT:
            self.end(f"{self.unsent} bytes wait for the client")

    def end(self, why: str) -> None:
        """Close the connection."""
        if self.is_ended:
            return
        self.is_ended = True
        self.on_drained = None
        self._queue.clear()
        self._loop.unregister(self._fd)
        try:
            self._conn.close()
        except OSError as err:
            _log.debug("closing a stream: %s", err)
        self._on_end(why)

    def _want(self, events: int) -> None:
        if events != self._events:
            self._events = events
            self._loop.wait_for(self._fd, events)

    def _on_ready(self, _fd: int, events: int) -> None:
        if events & ~(_IN | WRITE):
            self.end("the client has closed the connection")
            return
        if events & _IN:
            self._look()
        if events & WRITE and not self.is_ended:
            self._flush()

    def _look(self) -> None:
        """Notice a client that has gone; leave what it sends besides."""
        start = self._conn.socket.peek(1)
        if start == b"":
            self.end("the client has closed the connection")
        elif start is not None:
            self._want(self._events & ~_IN)

    def _flush(self) -> None:
        try:
            while self._queue:
                first = self._queue[0]
                count = self._write(first)
                if not count:
                    self._want(self._events | WRITE)
                    return
                self.unsent -= count
                self._queue.popleft()
                if count < len(first):
                    self._queue.appendleft(first[count:])
        except OSError as err:
            self.end(f"the connection broke: {err}")
            return
        self._want(self._events & ~WRITE)
        drained, self.on_drained = self.on_drained, None
        if drained is not None:
            drained()
