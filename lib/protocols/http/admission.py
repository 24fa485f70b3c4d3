"""Room for connections and requests: who waits, who is served, who gives way.

A peer proves its identity in the handshake. Until then it costs a descriptor and some
memory, so such *half-open* connections are limited: in total, per address, and for
addresses outside of the cluster. The oldest one gives way to a new one: an honest peer
needs milliseconds, and one that stays silent gains nothing.

*Idle* connections, between two requests, are limited per address, and in total. The one
that was used least recently gives way, of the address that has the most: its client
connects again if it needs to.

*Lanes* are groups of requests that never wait for each other's threads. Each lane has
worker threads of its own and a bounded queue of connections that wait for one of them.
A request is assigned by the path in its first bytes, before any thread reads it. A
request that finds the queue full, or waits in it for too long, is passed to the *busy*
lane with `BUSY` in its environment; the application answers it at once, without doing
what it asks.
"""

import collections
import dataclasses
import logging
import queue
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from cheroot.workers import threadpool

_log = logging.getLogger(__name__)

#: Half-open connections; without an attack there are a few at a time.
MAX_HALF_OPEN: Final = 512
#: Of these, the part that only addresses of the cluster may use.
RESERVED: Final = 128
#: Half-open connections of one address. A busy master opens some dozens at once.
PER_ADDRESS: Final = 128
#: Idle connections of one address.
IDLE_PER_ADDRESS: Final = 256
#: Seconds between two lines of the log about refused or dropped connections.
LOG_EVERY_S: Final = 10.0
_MAPPED: Final = "::ffff:"


class Waiting(NamedTuple):
    """A connection without a request: its start or last use, the address, itself."""

    since: float
    address: str
    conn: Any


def plain_address(address: str) -> str:
    """Return an address; one of IPv4 in IPv6 form becomes IPv4.

    >>> plain_address("::ffff:192.0.2.1")
    '192.0.2.1'
    """
    return address.removeprefix(_MAPPED) if "." in address else address


def victim(
    waiting: Sequence[Waiting], address: str, is_known: Callable[[str], bool]
) -> Waiting | None:
    """Return the connection that gives way to a new one, None if there is room.

    Args:
        waiting: the half-open connections, without the new one.
        address: of the new peer.
        is_known: returns whether an address belongs to the cluster.
    """
    same = [item for item in waiting if item.address == address]
    if len(same) >= PER_ADDRESS:
        return min(same, key=_age)
    strangers = [item for item in waiting if not is_known(item.address)]
    if not is_known(address):
        return (
            min(strangers, key=_age)
            if len(strangers) >= MAX_HALF_OPEN - RESERVED
            else None
        )
    if len(waiting) < MAX_HALF_OPEN:
        return None
    return min(strangers or waiting, key=_age)


def idle_victim(
    idle: Sequence[Waiting], address: str, *, is_full: bool
) -> Waiting | None:
    """Return the idle connection that gives way to a new one, None if there is room.

    Args:
        idle: the idle connections.
        address: of the new peer.
        is_full: whether the server has as many connections as it may have.
    """
    counts = collections.Counter(item.address for item in idle)
    if counts[address] >= IDLE_PER_ADDRESS:
        return min((item for item in idle if item.address == address), key=_age)
    if not is_full or not idle:
        return None
    most = max(counts.values())
    return min((item for item in idle if counts[item.address] == most), key=_age)


def _age(item: Waiting) -> float:
    return item.since


class LogLimit:
    """Counts events, and limits how often they are logged. Not thread-safe."""

    def __init__(self) -> None:
        self._count = 0
        self._last = float("-inf")

    def note(self, now: float) -> int:
        """Count an event; return the number to log, 0 to log nothing now."""
        self._count += 1
        if now - self._last < LOG_EVERY_S:
            return 0
        count, self._count, self._last = self._count, 0, now
        return count


#: WSGI key of the name of the lane that serves a request.
LANE_KEY: Final = "ganeti.lane"
#: WSGI key of the connection of a request, for
#: `ganeti.protocols.http.server.is_abandoned`.
CONNECTION_KEY: Final = "ganeti.connection"
#: The value of `LANE_KEY` for requests that must be answered without acting.
BUSY: Final = "busy"
_BUSY_THREADS: Final = 1
#: Connections that may wait for the answer "busy"; further ones are closed.
_BUSY_WAITING: Final = 400


@dataclasses.dataclass(frozen=True)
class Lane:
    """One lane.

    Attributes:
        name: appears in the environment of its requests.
        threads: requests that are served at once.
        waiting: connections that may wait for a thread.
        patience_s: seconds that a connection may wait.
    """

    name: str
    threads: int
    waiting: int = 1000
    patience_s: float = float("inf")


class Plan:
    """The lanes of a server, and the choice of the lane for a path.

    Args:
        lanes: all of them; the first one serves requests that cannot be assigned.
        choose: returns the name of a lane for a path such as ``/version``.
    """

    def __init__(self, lanes: Sequence[Lane], choose: Callable[[str], str]) -> None:
        self.lanes = tuple(lanes)
        self._choose = choose

    @classmethod
    def single(cls, threads: int) -> "Plan":
        """Return a plan with one lane for all requests."""
        return cls([Lane("all", threads)], lambda _path: "all")

    def lane_of(self, start: bytes) -> str:
        """Return the name of the lane for a request with these first bytes."""
        parts = start.split(b"\r\n", 1)[0].split(b" ")
        if len(parts) < 3:  # method, path, version
            return self.lanes[0].name
        return self._choose(parts[1].decode("latin-1"))


class _Workplace:
    """The server as the workers of one lane see it: with the queue of their lane."""

    requests: threadpool.ThreadPool

    def __init__(self, server: Any) -> None:
        self._server = server

    @property
    def stats(self) -> Any:
        return self._server.stats

    @property
    def interrupt(self) -> Any:
        return self._server.interrupt

    @interrupt.setter
    def interrupt(self, reason: Any) -> None:
        self._server.interrupt = reason

    def put_conn(self, conn: Any) -> None:
        self._server.put_conn(conn)

    def error_log(self, *args: Any, **options: Any) -> None:
        self._server.error_log(*args, **options)


class _Pool(threadpool.ThreadPool):
    """The workers and the queue of one lane."""

    _queue: "queue.Queue[Any]"
    _threads: list[Any]
    _spawn_worker: Callable[[], Any]

    def __init__(self, server: Any, lane: Lane) -> None:
        place = _Workplace(server)
        super().__init__(place, min=lane.threads, max=lane.threads)
        place.requests = self
        self.lane = lane

    def grow(self, amount: int) -> None:
        """Start workers; unlike cheroot's pools, do not wait until they run."""
        self._threads.extend(self._spawn_worker() for _ in range(amount))

    def offer(self, conn: Any) -> bool:
        """Queue a connection; return false if too many wait already."""
        if self.qsize >= self.lane.waiting + self.idle:
            return False
        conn.ssl_env[LANE_KEY] = self.lane.name
        conn.ssl_env[CONNECTION_KEY] = conn
        conn.queued = time.monotonic()
        self.put(conn)
        return True

    def overdue(self) -> list[Any]:
        """Remove and return the connections that have waited for too long."""
        since = time.monotonic() - self.lane.patience_s
        waiting = self._queue.queue
        expired = []
        with self._queue.mutex:
            while waiting and getattr(waiting[0], "queued", since) < since:
                expired.append(waiting.popleft())
        return expired

    def threads(self) -> list[Any]:
        """Return the workers."""
        return list(self._threads)


class Lanes:
    """The workers of all lanes; a server's ``requests`` in cheroot's sense."""

    def __init__(self, server: Any, plan: Plan) -> None:
        self._plan = plan
        self._pools = {lane.name: _Pool(server, lane) for lane in plan.lanes}
        self._busy = _Pool(server, Lane(BUSY, _BUSY_THREADS, _BUSY_WAITING))

    def put(self, conn: Any, start: bytes = b"") -> bool:
        """Assign a connection by the first bytes of its request.

        Returns:
            whether it was accepted; the caller closes a refused connection.
        """
        name = self._plan.lane_of(start)
        return self._pools[name].offer(conn) or self._refuse(conn, name)

    def put_back(self, conn: Any) -> bool:
        """Assign a connection whose parked request has an answer to its lane.

        Returns:
            whether it was accepted; the caller closes a refused connection.
        """
        pool = self._pools.get(conn.ssl_env.get(LANE_KEY), self._busy)
        return pool.offer(conn) or self._busy.offer(conn)

    def _refuse(self, conn: Any, name: str) -> bool:
        _log.info("lane %s: busy, refused a call from %s", name, conn.remote_addr)
        return self._busy.offer(conn)

    def expire(self) -> list[Any]:
        """Answer connections that waited for too long; return those to close."""
        return [
            conn
            for name, pool in self._pools.items()
            for conn in pool.overdue()
            if not self._refuse(conn, name)
        ]

    # The interface of cheroot's pools
    def start(self) -> None:
        """Start all workers."""
        for pool in self._all():
            pool.start()

    def stop(self, timeout: int = 5) -> None:
        """Wait until the workers have ended."""
        for pool in self._all():
            pool.stop(timeout)

    @property
    def qsize(self) -> int:
        """The number of waiting connections."""
        return sum(pool.qsize for pool in self._all())

    @property
    def idle(self) -> int:
        """The number of idle workers."""
        return sum(pool.idle for pool in self._all())

    @property
    def _threads(self) -> list[Any]:
        return [thread for pool in self._all() for thread in pool.threads()]

    def _all(self) -> list[_Pool]:
        return [*self._pools.values(), self._busy]
