"""Which servers are alive, and when to ask those that are silent; decides, never acts.

The kernel of a machine whose server is frozen acknowledges what is sent to it, so a
request on a kept connection would wait for its whole time limit. A new connection
shows it: its handshake needs the server itself. Our server makes handshakes in a
thread of its own, however many long calls it is busy with, so a server that does not
make one within the time that any new connection has is as good as gone.
"""

import heapq
import itertools
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

T = TypeVar("T", bound=Hashable)

#: Address and port of a server.
Host = tuple[str, int]

#: Seconds between questions during one long request.
ASK_EVERY_S: Final = 5.0
#: After this many seconds without an answer a kept connection is no longer a sign of
#: life of its server.
STALE_S: Final = 10.0


class Liveness(Generic[T]):
    """What is known of servers, and the requests that wait for them.

    Times are those of one clock, passed in. Not thread-safe.
    """

    def __init__(self) -> None:
        self._serial = itertools.count()
        self._due: list[tuple[float, int, T]] = []
        self._hosts: dict[T, Host] = {}
        self._asked: dict[Host, list[T]] = {}
        self._silent: set[Host] = set()
        self._heard: dict[Host, float] = {}

    def watch(self, item: T, host: Host, due: float) -> None:
        """Ask a request's server at some time, unless the request ends before."""
        self._hosts[item] = host
        heapq.heappush(self._due, (due, next(self._serial), item))

    def forget(self, item: T) -> None:
        """Note that a request is over."""
        self._hosts.pop(item, None)

    def wait_s(self, now: float) -> float | None:
        """Return in how many seconds `due` will have something, None for never."""
        while self._due and self._due[0][2] not in self._hosts:
            heapq.heappop(self._due)
        return max(0.0, self._due[0][0] - now) if self._due else None

    def due(self, now: float) -> list[tuple[Host, T]]:
        """Return servers to ask now, each with one request that waits for it.

        `alive` or `silent` must be called with the outcome.
        """
        to_ask = []
        while self.wait_s(now) == 0.0:
            item = heapq.heappop(self._due)[2]
            host = self._hosts[item]
            if host not in self._asked:
                self._asked[host] = []
                to_ask.append((host, item))
            self._asked[host].append(item)
        return to_ask

    def alive(self, host: Host, now: float) -> None:
        """Note that a server that was asked lives."""
        self.heard(host, now)
        for item in self._asked.pop(host, ()):
            if item in self._hosts:
                self.watch(item, host, now + ASK_EVERY_S)

    def silent(self, host: Host) -> list[T]:
        """Note that a server makes no handshake; return the requests to give up."""
        self._silent.add(host)
        return [item for item in self._asked.pop(host, ()) if item in self._hosts]

    def heard(self, host: Host, now: float) -> None:
        """Note that a server said something."""
        self._silent.discard(host)
        self._heard[host] = now

    def is_silent(self, host: Host) -> bool:
        """Return whether a server made no handshake when it last had to."""
        return host in self._silent

    def is_stale(self, host: Host, now: float) -> bool:
        """Return whether a server said nothing for so long that it may be frozen."""
        return host in self._silent or now - self._heard.get(host, now) > STALE_S
