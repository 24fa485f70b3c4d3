"""Limits of rates per key, such as failed logins per address.

A bucket of tokens per key: each event takes one, and they come back at a constant rate.
Time is an argument. The number of keys is bounded; the one that was used least recently
is forgotten first.
"""

import collections
from typing import Final

_MAX_KEYS: Final = 10_000


class Buckets:
    """Buckets of tokens by key; not for use by two threads at once."""

    def __init__(self, size: float, per_s: float, *, keys: int = _MAX_KEYS) -> None:
        """Prepare full buckets.

        Args:
            size: events that may follow each other at once.
            per_s: events per second that may go on.
            keys: largest number of keys that are remembered.
        """
        self._size = size
        self._per_s = per_s
        self._keys = keys
        self._levels: collections.OrderedDict[str, tuple[float, float]] = (
            collections.OrderedDict()
        )

    def wait_s(self, key: str, now: float) -> float:
        """Return after how many seconds an event is permitted; 0 for at once."""
        missing = 1.0 - self._level(key, now)
        return max(0.0, missing / self._per_s)

    def take(self, key: str, now: float) -> None:
        """Count an event."""
        level = max(0.0, self._level(key, now) - 1.0)
        self._levels[key] = (level, now)
        self._levels.move_to_end(key)
        if len(self._levels) > self._keys:
            self._levels.popitem(last=False)

    def _level(self, key: str, now: float) -> float:
        level, since = self._levels.get(key, (self._size, now))
        return min(self._size, level + (now - since) * self._per_s)
