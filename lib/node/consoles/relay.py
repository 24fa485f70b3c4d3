"""The relay: passes bytes between viewers and the consoles of this node's guests.

One thread serves all viewers, and nothing in it waits for one of them. A console that
is one line, such as a serial line, has one connection, which all its viewers share: one
may be in control, others watch. Of a display, each viewer has a connection of its own,
and `rfb` takes out of that of a watcher what would change something.

Memory is bounded: while the viewer in control does not take what it was sent, its
console is not read. It is closed when it has taken nothing for `STALL_S`. A watcher
that does not keep up is closed at once, so that it never delays the others.
"""

import collections
import contextlib
import dataclasses
import logging
import os
import select
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.node.consoles.lines import Line, Opener
from ganeti.node.consoles.tickets import Ticket, Tickets
from ganeti.protocols.console import rfb, stream

_log = logging.getLogger(__name__)

#: Viewers at a time: with their buffers they take some 20 MiB of locked memory.
MOST_VIEWERS: Final = 64
#: Bytes for a viewer, or for a console, that wait before its source is not read.
_ENOUGH: Final = 64 * 1024
#: Bytes for a watcher that wait before it is closed.
_TOO_MUCH: Final = 256 * 1024
#: Seconds without progress after which a viewer is closed, and for the last words.
STALL_S: Final = 30.0
_LAST_WORDS_S: Final = 5.0
#: Longest pause between two looks at the clock, in seconds.
_LOOK_S: Final = 1.0
_STACK_SIZE: Final = 512 * 1024
_IN: Final = select.EPOLLIN
_OUT: Final = select.EPOLLOUT
_GONE: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


@dataclasses.dataclass(eq=False)
class _Viewer:
    """One viewer.

    Attributes:
        conn: its connection, of the server; ``conn.socket`` never waits.
        ticket: what it may see.
        source: of its console; None before it has one, and after its end.
        is_gone: whether its peer has closed the connection, with or without last words.
        waits_since: when its peer has last taken something, None if nothing waits.
        ends_at: when it is closed, whether or not it has read why; None if it goes on.
    """

    conn: Any
    ticket: Ticket
    role: str = "control"
    source: "_Source | None" = None
    filter: rfb.ReadOnly | None = None
    out: bytearray = dataclasses.field(default_factory=bytearray)
    decoder: stream.Decoder = dataclasses.field(default_factory=stream.Decoder)
    has_ended_input: bool = False
    is_gone: bool = False
    waits_since: float | None = None
    ends_at: float | None = None

    @property
    def line(self) -> Any:
        """The connection that is read and written."""
        return self.conn.socket

    @property
    def who(self) -> str:
        return self.ticket.holder

    def interest(self) -> int:
        """Return the events that something would follow from."""
        source = self.source
        reads = source is not None and not self.has_ended_input
        takes = reads and source is not None and len(source.out) < _ENOUGH
        # A viewer may leave while its console takes no input.
        return select.EPOLLRDHUP | (_IN if takes else 0) | (_OUT if self.out else 0)


@dataclasses.dataclass(eq=False)
class _Source:
    """The line of a console with those who see it.

    Attributes:
        is_closing: whether the viewer in control sends nothing more.
        knows_end: whether the console has been notified.
    """

    line: Line
    viewers: list[_Viewer] = dataclasses.field(default_factory=list)
    out: bytearray = dataclasses.field(default_factory=bytearray)
    is_closing: bool = False
    knows_end: bool = False

    def interest(self) -> int:
        """Return the events that something would follow from."""
        return (_IN if self.is_wanted() else 0) | (_OUT if self.out else 0)

    def is_wanted(self) -> bool:
        """Return whether those who may delay it have room for more."""
        slow = (v for v in self.viewers if v.role == "control")
        return all(len(viewer.out) < _ENOUGH for viewer in slow)


_End = _Viewer | _Source


class Relay:
    """All viewers of this node's consoles; see `start` and `enter`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._epoll = select.epoll()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake_fd, _IN)
        self._lock = threading.Lock()
        self._is_closed = False
        self._todo: collections.deque[Callable[[], None]] = collections.deque()
        self._is_stopping = False
        #: Ends by descriptor, with the events that epoll waits for.
        self._ends: dict[int, _End] = {}
        self._interests: dict[int, int] = {}
        #: Ends that may have more to do although no event says so.
        self._busy: set[_End] = set()
        self._thread = threading.Thread(target=self._run, name="consoles", daemon=True)

    # For other threads
    def start(self) -> None:
        """Start the thread."""
        before = threading.stack_size(_STACK_SIZE)
        try:
            self._thread.start()
        finally:
            threading.stack_size(before)

    def enter(
        self, conn: Any, ticket: Ticket, mode: stream.Mode, open_line: Opener
    ) -> None:
        """Take a connection whose ticket was valid: answer its request, and serve it.

        Args:
            conn: of the server; closed in the end.
            ticket: what it permits.
            mode: what to do if the console has a viewer.
            open_line: opens the console, in the thread.
        """
        if not self.run_soon(lambda: self._enter(conn, ticket, mode, open_line)):
            conn.close()

    def run_soon(self, function: Callable[[], None]) -> bool:
        """Have the thread call a function, and look at the clock.

        Returns:
            whether the thread still runs.
        """
        with self._lock:
            if not self._is_closed:
                self._todo.append(function)
                os.eventfd_write(self._wake_fd, 1)
            return not self._is_closed

    def count(self) -> int:
        """Return the number of viewers."""
        return len(self._viewers())

    def stop(self) -> None:
        """Notify all viewers, close them, and end the thread."""
        if not self.run_soon(lambda: setattr(self, "_is_stopping", True)):
            return
        self._thread.join(_LAST_WORDS_S)
        if self._thread.is_alive():
            return  # it waits for a disk that hangs; the process ends
        with self._lock:
            self._is_closed = True
            os.close(self._wake_fd)
        self._epoll.close()

    # The thread
    def _run(self) -> None:
        while not self._is_stopping:
            pause_s = 0 if self._busy else _LOOK_S if self._ends else None
            for fd, events in self._epoll.poll(pause_s):
                if fd == self._wake_fd:
                    os.eventfd_read(fd)
                elif (end := self._ends.get(fd)) is not None:
                    self._busy.add(end)
                    if isinstance(end, _Viewer) and events & _GONE:
                        end.is_gone = True
            while self._todo:
                self._todo.popleft()()
            self._look_at_clock()
            for end in tuple(self._busy):
                self._busy.discard(end)
                self._serve(end)
        for viewer in self._viewers():
            self._end(viewer, "stopping", "the node daemon stops")
            with contextlib.suppress(OSError):
                viewer.line.send_now(bytes(viewer.out))
            self._close(viewer)

    def _viewers(self) -> list[_Viewer]:
        ends = tuple(self._ends.values())
        return [end for end in ends if isinstance(end, _Viewer)]

    def _serve(self, end: _End) -> None:
        """Pass on what an end has, and what waits for it; guard the others from it."""
        if self._ends.get(end.line.fileno()) is not end:
            return  # it has been closed since
        try:
            if isinstance(end, _Viewer):
                has_moved = self._move_viewer(end)
            else:
                has_moved = self._move_source(end)
        except OSError as err:
            _log.debug("console: %s", err)
            self._lose(end)
        except Exception:  # noqa: BLE001 - logged; the thread must survive
            _log.exception("a console failed")
            self._lose(end)
        else:
            if has_moved:
                self._busy.add(end)
            self._watch(end)

    def _lose(self, end: _End) -> None:
        """Close an end that is broken, or at its end."""
        if isinstance(end, _Viewer):
            self._leave(end)
            self._close(end)
            return
        viewers, end.viewers = end.viewers, []
        for viewer in viewers:
            viewer.source = None
            _log.info("console of %s: %s has left with it", *_names(viewer))
            why = (
                "after the end of its input"
                if end.is_closing
                else "on this node: the instance has stopped or moved"
            )
            name, kind = viewer.ticket.name, viewer.ticket.kind
            text = f"the {kind} console of instance {name} has ended {why}"
            self._end(viewer, "ended", text)
        self._close(end)

    def _watch(self, end: _End) -> None:
        """Have epoll report what something would follow from."""
        fd = end.line.fileno()
        if self._ends.get(fd) is not end:
            return
        wanted, present = end.interest(), self._interests[fd]
        if wanted == present:
            return
        # A line that nobody reads is not registered: its end would be reported forever.
        if not wanted:
            self._epoll.unregister(fd)
        elif not present:
            self._epoll.register(fd, wanted)
        else:
            self._epoll.modify(fd, wanted)
        self._interests[fd] = wanted

    def _add(self, end: _End) -> None:
        fd = end.line.fileno()
        self._ends[fd], self._interests[fd] = end, 0
        self._busy.add(end)

    def _close(self, end: _End) -> None:
        fd = end.line.fileno()
        if self._ends.get(fd) is not end:
            return
        del self._ends[fd]
        if self._interests.pop(fd):
            self._epoll.unregister(fd)
        self._busy.discard(end)
        with contextlib.suppress(OSError):
            (end.conn if isinstance(end, _Viewer) else end.line).close()

    def _look_at_clock(self) -> None:
        now = self._clock.monotonic()
        for viewer in self._viewers():
            if viewer.ends_at is not None:
                if now >= viewer.ends_at:
                    self._close(viewer)
            elif viewer.waits_since is not None and now - viewer.waits_since > STALL_S:
                _log.info("console of %s: %s does not read", *_names(viewer))
                text = f"the viewer has read nothing for {STALL_S:g} seconds"
                self._end(viewer, "slow", text)

    # Viewers
    def _enter(
        self, conn: Any, ticket: Ticket, mode: stream.Mode, open_line: Opener
    ) -> None:
        viewer = _Viewer(conn, ticket)
        self._add(viewer)
        try:
            conn.socket.probe_when_idle()
            self._admit(viewer, mode, self._sharing(ticket), open_line)
        except stream.Refused as err:
            self._refuse(viewer, HTTPStatus(err.status), str(err))
        except errors.GenericError as err:
            text = f"the {ticket.kind} console of instance {ticket.name}: {err}"
            self._refuse(viewer, HTTPStatus.SERVICE_UNAVAILABLE, text)
        except Exception:  # noqa: BLE001 - logged; the thread must survive
            _log.exception("console of %s: cannot serve %s", *_names(viewer))
            self._lose(viewer)

    def _sharing(self, ticket: Ticket) -> list[_Viewer]:
        """Return the viewers of the console that a ticket is for."""
        key = (ticket.instance, ticket.kind)
        present = [viewer for viewer in self._viewers() if viewer.source is not None]
        return [v for v in present if (v.ticket.instance, v.ticket.kind) == key]

    def _admit(
        self,
        viewer: _Viewer,
        mode: stream.Mode,
        present: list[_Viewer],
        open_line: Opener,
    ) -> None:
        """Give a viewer its console; raises Refused or another GenericError."""
        if len(self._viewers()) > MOST_VIEWERS:
            raise stream.Refused(
                f"this node has {MOST_VIEWERS} viewers of consoles, the most that are"
                " possible",
                HTTPStatus.SERVICE_UNAVAILABLE,
            )
        others = [other for other in present if other.role == "control"]
        if others and mode == "refuse":
            raise stream.Refused(_in_use(viewer.ticket, others[0]), HTTPStatus.CONFLICT)
        is_display = viewer.ticket.kind == "vnc"
        source = present[0].source if present and not is_display else None
        if source is None:
            source = _Source(open_line())
            self._add(source)
        if mode == "watch":
            viewer.role = "watch"
            viewer.filter = rfb.ReadOnly() if is_display else None
        viewer.source = source
        source.viewers.append(viewer)
        self._send(viewer, stream.accepted_head())
        taken = others if mode == "take" else []
        text = _greeting(viewer, [each for each in present if each not in taken])
        self._send(viewer, stream.message(stream.NOTICE, "open", text, viewer.role))
        for other in taken:
            self._end(other, "taken", f"{viewer.who} has taken over this console")
        self._notify(viewer, "joined", present)
        _log.info("console of %s: %s, %s", *_names(viewer), viewer.role)

    def _refuse(self, viewer: _Viewer, status: HTTPStatus, text: str) -> None:
        _log.info("console of %s: refused %s: %s", *_names(viewer), text)
        self._send(viewer, stream.refusal(status, text))
        self._finish(viewer)

    def _end(self, viewer: _Viewer, event: str, text: str) -> None:
        """Send a viewer its last word, and close it when it has read that."""
        if viewer.ends_at is None:
            self._leave(viewer)
            self._send(viewer, stream.message(stream.END, event, text))
            self._finish(viewer)

    def _finish(self, viewer: _Viewer) -> None:
        viewer.ends_at = self._clock.monotonic() + _LAST_WORDS_S

    def _leave(self, viewer: _Viewer) -> None:
        """Take a viewer from its console, and close a console that nobody sees."""
        source, viewer.source = viewer.source, None
        if source is None:
            return
        source.viewers.remove(viewer)
        _log.info("console of %s: %s has left", *_names(viewer))
        if not source.viewers:
            self._close(source)
        else:
            self._busy.add(source)
            self._notify(viewer, "left", source.viewers)

    def _notify(self, about: _Viewer, event: str, viewers: list[_Viewer]) -> None:
        what = "watches" if about.role == "watch" else "has"
        verb = f"{what} this console now" if event == "joined" else "has left"
        for viewer in viewers:
            if viewer.source is not None:
                text = f"{about.who} {verb}"
                self._send(viewer, stream.message(stream.NOTICE, event, text))

    def _send(self, viewer: _Viewer, data: bytes) -> None:
        if viewer.waits_since is None:
            viewer.waits_since = self._clock.monotonic()
        viewer.out += data
        self._busy.add(viewer)

    # Bytes
    def _move_viewer(self, viewer: _Viewer) -> bool:
        """Move a bounded number of bytes from and to a viewer; return whether any."""
        has_moved = self._write(viewer)
        if viewer.out:
            if has_moved:
                viewer.waits_since = self._clock.monotonic()
        else:
            viewer.waits_since = None
            if viewer.ends_at is not None:
                self._close(viewer)
                return False
        if has_moved and viewer.source is not None:
            self._busy.add(viewer.source)
        if not viewer.interest() & _IN:
            if viewer.is_gone:
                self._lose(viewer)
            return has_moved
        data = viewer.line.receive_now(stream.MAX_DATA)
        if data is None:
            return has_moved
        if not data:
            self._lose(viewer)
            return False
        try:
            self._take(viewer, data)
        except errors.GenericError as err:
            _log.info("console of %s: %s: %s", *_names(viewer), err)
            self._end(viewer, "protocol", str(err))
        return True

    def _take(self, viewer: _Viewer, data: bytes) -> None:
        """Pass on what a viewer has sent; raises GenericError for what is malformed."""
        for kind, content in viewer.decoder.feed(data):
            source = viewer.source
            if source is None or viewer.has_ended_input:
                return
            if kind == stream.EOF:
                viewer.has_ended_input = True
                source.is_closing = source.is_closing or viewer.role == "control"
            elif kind != stream.DATA:
                raise stream.Malformed(f"viewers send no frames of kind {kind}")
            elif viewer.filter is not None:
                source.out += viewer.filter.feed(content)
            elif viewer.role == "control":
                source.out += content
            self._busy.add(source)

    def _move_source(self, source: _Source) -> bool:
        """Move a bounded number of bytes from and to a console; return whether any."""
        has_moved = self._write(source)
        if has_moved:
            self._busy.update(source.viewers)
        if source.is_closing and not source.knows_end and not source.out:
            source.knows_end = True
            source.line.end_input()
        if not source.is_wanted():
            return has_moved
        data = source.line.receive_now(stream.MAX_DATA)
        if data is None:
            return has_moved
        if not data:
            self._lose(source)
            return False
        framed = stream.frame(stream.DATA, data)
        for viewer in tuple(source.viewers):
            if viewer.role == "watch" and len(viewer.out) > _TOO_MUCH:
                text = "the viewer reads too slowly to watch this console"
                self._end(viewer, "slow", text)
            else:
                self._send(viewer, framed)
        return True

    def _write(self, end: _End) -> bool:
        if not end.out:
            return False
        count = end.line.send_now(bytes(end.out[: stream.MAX_DATA]))
        del end.out[:count]
        return count > 0


def _names(viewer: _Viewer) -> tuple[str, str]:
    return f"{viewer.ticket.name} ({viewer.ticket.kind})", viewer.who


def _in_use(ticket: Ticket, other: _Viewer) -> str:
    return (
        f"the {ticket.kind} console of instance {ticket.name} is in use by {other.who};"
        " watch it, or take it over"
    )


def _greeting(viewer: _Viewer, others: list[_Viewer]) -> str:
    ticket = viewer.ticket
    what = "watching" if viewer.role == "watch" else "connected to"
    text = f"{what} the {ticket.kind} console of instance {ticket.name}"
    if not others:
        return text
    names = ", ".join(f"{other.who} ({other.role})" for other in others[:8])
    return f"{text}; other viewers: {names}"


class Consoles:
    """The consoles of this node: tickets and viewers."""

    def __init__(self, clock: Clock) -> None:
        self.tickets = Tickets(clock)
        self.relay = Relay(clock)
