"""The event loop of a LUXI server, and its listening sockets.

One thread runs it. What clients send and get does not belong here.
"""

import collections
import contextlib
import functools
import heapq
import itertools
import logging
import os
import select
import socket
import struct
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from ganeti.base.clock import Clock
from ganeti.protocols.luxi import framing

_log = logging.getLogger(__name__)

#: Length of the backlog; old clients do not retry when it is full.
_BACKLOG: Final = 1024
#: Connections accepted per round, so that many new clients do not delay the others.
_ACCEPT_AT_ONCE: Final = 32
_SOCKET_MODE: Final = 0o660
#: Form of SO_PEERCRED: process, user, group.
_CREDENTIALS: Final = struct.Struct("iII")

READ: Final = select.EPOLLIN
WRITE: Final = select.EPOLLOUT
GONE: Final = select.EPOLLHUP | select.EPOLLERR

#: Gets a descriptor and its events.
OnEvents = Callable[[int, int], None]


class Timer:
    """A function that the loop will call; see `Loop.call_later`."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[], None]) -> None:
        self.function: Callable[[], None] | None = function

    def cancel(self) -> None:
        """Cancel the timer; has no effect when it has run already."""
        self.function = None


class Loop:
    """An event loop; threads other than that of `run` may only call `run_soon`.

    A function that fails is logged, and does not end the loop.
    """

    def __init__(self, clock: Clock) -> None:
        """Prepare a loop, with the clock of its timers."""
        self._clock = clock
        self._todo: collections.deque[Callable[[], None]] = collections.deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._serial = itertools.count()
        self._is_ending = False
        #: Guards the descriptor: its number may belong to another file after `close`.
        self._closing = threading.Lock()
        self._on_events: dict[int, OnEvents] = {}
        self._epoll = select.epoll()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.register(self._wake_fd, self._woken)

    def run_soon(self, function: Callable[[], None]) -> None:
        """Run a function in the loop's thread, never after `close`; thread-safe."""
        self._todo.append(function)
        with self._closing, contextlib.suppress(BlockingIOError):
            if not self._epoll.closed:
                os.eventfd_write(self._wake_fd, 1)

    # For the loop's thread
    def call_later(self, delay_s: float, function: Callable[[], None]) -> Timer:
        """Run a function in the loop's thread after some seconds; loop thread only."""
        timer = Timer(function)
        when = self._clock.monotonic() + delay_s
        heapq.heappush(self._timers, (when, next(self._serial), timer))
        return timer

    def register(self, fd: int, on_events: OnEvents) -> None:
        """Wait until a descriptor can be read, and call a function of its events."""
        self._on_events[fd] = on_events
        self._epoll.register(fd, READ)

    def wait_for(self, fd: int, events: int) -> None:
        """Wait for other events of a registered descriptor; `GONE` always counts."""
        self._epoll.modify(fd, events)

    def unregister(self, fd: int) -> None:
        """Forget a descriptor before it is closed, with its events of this round."""
        self._on_events.pop(fd, None)
        self._epoll.unregister(fd)

    def guard(self, function: Callable[[], None]) -> None:
        """Run a step of the loop, which must survive any error."""
        try:
            function()
        except Exception:  # noqa: BLE001 - logged
            _log.exception("luxi: a step of the loop failed")

    def run(self) -> None:
        """Run the loop in this thread until `end`."""
        while not self._is_ending:
            for fd, events in self._epoll.poll(self._next_timeout()):
                on_events = self._on_events.get(fd)
                if on_events is not None:
                    self.guard(functools.partial(on_events, fd, events))
            for _ in range(len(self._todo)):
                self.guard(self._todo.popleft())
            self._run_timers()

    def end(self) -> None:
        """End `run` after this round."""
        self._is_ending = True

    def close(self) -> None:
        """Close the loop's own descriptors, once it does not run any more."""
        with self._closing:
            if not self._epoll.closed:
                self._epoll.close()
                os.close(self._wake_fd)

    def _woken(self, fd: int, _events: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(fd)

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
                self.guard(function)


#: Takes a new connection, and returns whether there is room for others.
Admit = Callable[[socket.socket], bool]


class Listener(NamedTuple):
    """A listening socket.

    Attributes:
        path: of the socket.
        sock: the socket, see `listen`.
        admit: gets each connection.
        uids: the users who may connect, None for all.
    """

    path: str
    sock: socket.socket
    admit: Admit
    uids: frozenset[int] | None = None


class Listeners:
    """The listening sockets of a server, private to the thread of its loop.

    They pause together: clients wait in the backlogs until `resume`.
    """

    def __init__(self, loop: Loop) -> None:
        """Begin with no socket; a loop waits for those of `add`."""
        self._loop = loop
        self._listeners: dict[int, Listener] = {}
        self._is_paused = False

    def add(
        self, path: str, admit: Admit, uids: frozenset[int] | None = None, gid: int = -1
    ) -> None:
        """Listen, and accept connections as soon as the loop runs; see `listen`."""
        sock = listen(path, gid)
        self._listeners[sock.fileno()] = Listener(path, sock, admit, uids)
        self._loop.register(sock.fileno(), self._accept)

    def resume(self) -> None:
        """Accept connections again after a pause."""
        if self._is_paused:
            self._is_paused = False
            for fd in self._listeners:
                self._loop.wait_for(fd, READ)

    def close(self) -> None:
        """Close the sockets and remove their files; has no effect a second time."""
        for fd, listener in self._listeners.items():
            self._loop.unregister(fd)
            listener.sock.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(listener.path)
        self._listeners.clear()

    def _accept(self, fd: int, _events: int) -> None:
        listener = self._listeners[fd]
        for _ in range(_ACCEPT_AT_ONCE):
            try:
                sock, _address = listener.sock.accept()
            except BlockingIOError:
                return
            except OSError as err:
                # No descriptor is free: the client waits in the backlog until the next
                # sweep.
                _log.warning("luxi: cannot accept: %s", err)
                self._pause()
                return
            uid = peer(sock)[1]
            if listener.uids is not None and uid not in listener.uids:
                _log.warning("luxi: refused a connection of user %d", uid)
                sock.close()
                continue
            sock.setblocking(False)
            if not listener.admit(sock):
                self._pause()
                return

    def _pause(self) -> None:
        self._is_paused = True
        for fd in self._listeners:
            self._loop.wait_for(fd, 0)


def peer(sock: socket.socket) -> tuple[int, int]:
    """Return the process and the user that have connected to a socket."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _gid = _CREDENTIALS.unpack(data)
    return int(pid), int(uid)


def listen(path: str, gid: int = -1) -> socket.socket:
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
