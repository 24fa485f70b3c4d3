"""Connections to the master daemon, shared by the threads of the server."""

import collections
import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.protocols.luxi import Client

#: Seconds that an idle connection is kept: the daemon closes it after 60.
_IDLE_S: Final = 30.0
#: Idle connections that are kept.
_MAX_IDLE: Final = 32


class Stream:
    """The parts of one result; the connection is another call's after the last one."""

    def __init__(
        self, first: bytes, others: Iterator[bytes], release: Callable[[], None]
    ) -> None:
        self._parts = itertools.chain([first], others)
        self._release: Callable[[], None] | None = release

    def __iter__(self) -> Iterator[bytes]:
        """Yield the parts.

        Raises:
            ProtocolError: the connection broke.
        """
        try:
            yield from self._parts
        finally:
            self.close()

    def close(self) -> None:
        """Leave the rest, if any, and release the connection."""
        release, self._release = self._release, None
        if release is not None:
            release()


class Pool:
    """Calls the master daemon; for use by many threads.

    A call takes an idle connection, or makes a new one. It is not repeated when its
    connection breaks, except on a connection that the daemon had closed before.
    """

    def __init__(self, connect: Callable[[], Client], clock: Clock) -> None:
        """Prepare an empty pool.

        Args:
            connect: returns a new client, which does not repeat calls.
            clock: measures how long connections are idle.
        """
        self._connect = connect
        self._clock = clock
        self._lock = threading.Lock()
        self._idle: collections.deque[tuple[float, Client]] = collections.deque()

    def call(
        self, method: str, args: Sequence[Any] = (), *, timeout_s: float | None = None
    ) -> Any:
        """Call a method and return its result; see `Client.call`."""
        with self._client() as client:
            return client.call(method, args, timeout_s=timeout_s)

    def stream(self, method: str, args: Sequence[Any]) -> "Stream":
        """Call a method and return the JSON text of its result in parts.

        Raises:
            GenericError: see `ganeti.protocols.luxi.Client.stream`.
        """
        client = self._take()
        parts = client.stream(method, args)

        def release() -> None:
            parts.close()
            self._put(client)

        try:
            first = next(parts)
        except BaseException:
            release()
            raise
        return Stream(first, parts, release)

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            clients = [client for _since, client in self._idle]
            self._idle.clear()
        for client in clients:
            client.close()

    @contextlib.contextmanager
    def _client(self) -> Iterator[Client]:
        client = self._take()
        try:
            yield client
        except errors.ProtocolError:
            # The connection is closed, or its next bytes are undefined.
            client.close()
            raise
        finally:
            self._put(client)

    def _take(self) -> Client:
        while True:
            with self._lock:
                if not self._idle:
                    break
                since, client = self._idle.pop()
            if self._clock.monotonic() - since < _IDLE_S and not client.is_stale():
                return client
            client.close()
        return self._connect()

    def _put(self, client: Client) -> None:
        with self._lock:
            self._idle.append((self._clock.monotonic(), client))
            oldest = self._idle.popleft() if len(self._idle) > _MAX_IDLE else None
        if oldest is not None:
            oldest[1].close()
