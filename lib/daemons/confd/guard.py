"""Counters of a confd server, its limit of replies, and its cache of requests.

Decisions without effects: the time is an argument.
"""

import collections
from typing import Final

from ganeti.protocols.confd.wire import REASONS

#: Replies and bytes of replies per second: a key holder, or a recorded request with a
#: forged sender, must not turn this node into a flood.
MAX_REPLIES_PER_S: Final = 50_000
MAX_BYTES_PER_S: Final = 32 * 1024 * 1024
#: Salts that the replay cache keeps; the oldest ones go first.
_MAX_SALTS: Final = 100_000


class Counters:
    """Numbers since the start: requests answered, and datagrams dropped by reason."""

    def __init__(self) -> None:
        self.answered = 0
        self.reloads = 0
        self.dropped = dict.fromkeys(REASONS, 0)

    def as_text(self) -> str:
        """Return them as text; reasons without a drop are left out.

        >>> Counters().as_text()
        'answered 0, dropped 0, reloads 0'
        """
        total = sum(self.dropped.values())
        reasons = [f"{name} {count}" for name, count in self.dropped.items() if count]
        shown = f" ({', '.join(reasons)})" if reasons else ""
        return (
            f"answered {self.answered}, dropped {total}{shown}, reloads {self.reloads}"
        )


class ReplyLimit:
    """Bound of replies per second, counted in whole seconds."""

    def __init__(
        self, replies: int = MAX_REPLIES_PER_S, size: int = MAX_BYTES_PER_S
    ) -> None:
        self._limits = replies, size
        self._second = -1
        self._replies = self._bytes = 0

    def admits(self, size: int, now: float) -> bool:
        """Return whether a reply may be sent, and count it if so.

        Args:
            size: of the reply in bytes.
            now: seconds of any clock.
        """
        second = int(now)
        if second != self._second:
            self._second = second
            self._replies = self._bytes = 0
        if self._replies >= self._limits[0] or self._bytes + size > self._limits[1]:
            return False
        self._replies += 1
        self._bytes += size
        return True


class ReplayCache:
    """Salts of the requests that were answered while their times are acceptable."""

    def __init__(self, window_s: float, size: int = _MAX_SALTS) -> None:
        """Make an empty cache.

        Args:
            window_s: seconds for which a recorded request would be accepted again.
            size: entries at most.
        """
        self._window_s = window_s
        self._size = size
        self._seen: collections.OrderedDict[str, float] = collections.OrderedDict()

    def is_new(self, salt: str, now: float) -> bool:
        """Return whether a salt was not seen before, and remember it.

        Args:
            salt: of the request, its ``rsalt``.
            now: seconds of a monotonic clock.
        """
        seen = self._seen
        while seen and next(iter(seen.values())) + self._window_s < now:
            seen.popitem(last=False)
        if salt in seen:
            return False
        if len(seen) >= self._size:
            seen.popitem(last=False)
        seen[salt] = now
        return True
