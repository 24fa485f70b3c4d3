"""Liveness of servers, and times to probe silent ones: decisions without effects.

If a server is frozen, the kernel of its machine still acknowledges received data. A
request on a kept connection would wait for its whole time limit. A *probe* is a new
connection, whose handshake needs the server itself. Our server makes handshakes in a
thread of its own, independent of long calls. A server without a handshake within the
usual connection time limit is treated as dead. Requests that change nothing are then
given up; others after a longer silence, see `Liveness.watch`.
"""

import heapq
import itertools
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

T = TypeVar("T", bound=Hashable)

#: Address and port of a server.
Host = tuple[str, int]

#: Seconds between probes during one long request.
PROBE_EVERY_S: Final = 5.0
#: Seconds without an answer after which a kept connection does not prove liveness.
STALE_S: Final = 10.0


class Liveness(Generic[T]):
    """The liveness of servers, and the requests that wait for them.

    All times come from the caller's clock. Not thread-safe.
    """

    def __init__(self) -> None:
        self._serial = itertools.count()
        self._due: list[tuple[float, int, T]] = []
        self._hosts: dict[T, Host] = {}
        self._probed: dict[Host, list[T]] = {}
        self._patience: dict[T, float] = {}
        #: Silent servers, since the first failed probe.
        self._silent: dict[Host, float] = {}
        self._answered: dict[Host, float] = {}

    def watch(self, item: T, host: Host, due: float, patience_s: float = 0.0) -> None:
        """Plan a probe of a request's server, unless the request ends before.

        Args:
            item: the request.
            host: its server.
            due: time of the probe.
            patience_s: seconds of silence after a failed probe until the request is
                given up.
        """
        self._hosts[item] = host
        self._patience[item] = patience_s
        heapq.heappush(self._due, (due, next(self._serial), item))

    def forget(self, item: T) -> None:
        """Record the end of a request."""
        self._hosts.pop(item, None)
        self._patience.pop(item, None)

    def wait_s(self, now: float) -> float | None:
        """Return the seconds until `due` returns a server, None without limit."""
        while self._due and self._due[0][2] not in self._hosts:
            heapq.heappop(self._due)
        return max(0.0, self._due[0][0] - now) if self._due else None

    def due(self, now: float) -> list[tuple[Host, T]]:
        """Return servers to probe now, each with one request that waits for it.

        The caller must report each outcome to `alive` or `silent`, or call `later`.
        """
        to_probe = []
        while self.wait_s(now) == 0.0:
            item = heapq.heappop(self._due)[2]
            host = self._hosts[item]
            if host not in self._probed:
                self._probed[host] = []
                to_probe.append((host, item))
            self._probed[host].append(item)
        return to_probe

    def alive(self, host: Host, now: float) -> None:
        """Record that a probe of a server succeeded."""
        self.answered(host, now)
        self.later(host, now)

    def later(self, host: Host, now: float) -> None:
        """Plan the next probes of a server of which nothing new is known."""
        for item in self._probed.pop(host, ()):
            if item in self._hosts:
                self._watch_again(item, now)

    def silent(self, host: Host, now: float) -> list[T]:
        """Record that a probe failed; return the requests to give up."""
        silent_s = now - self._silent.setdefault(host, now)
        over = []
        for item in self._probed.pop(host, ()):
            if item not in self._hosts:
                continue
            if self._patience[item] <= silent_s:
                over.append(item)
            else:
                self._watch_again(item, now)
        return over

    def _watch_again(self, item: T, now: float) -> None:
        host, patience_s = self._hosts[item], self._patience[item]
        self.watch(item, host, now + PROBE_EVERY_S, patience_s)

    def answered(self, host: Host, now: float) -> None:
        """Record an answer of a server."""
        self._silent.pop(host, None)
        self._answered[host] = now

    def waiting_for(self, host: Host) -> list[T]:
        """Return the unfinished requests that are watched, of one server."""
        return [item for item, its_host in self._hosts.items() if its_host == host]

    def is_silent(self, host: Host) -> bool:
        """Return whether a server failed its last handshake."""
        return host in self._silent

    def is_stale(self, host: Host, now: float) -> bool:
        """Return whether a server has been silent for so long that it may be frozen."""
        return host in self._silent or now - self._answered.get(host, now) > STALE_S
