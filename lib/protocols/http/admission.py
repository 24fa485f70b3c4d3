"""Room for connections that have no request: decisions without effects.

A peer proves its identity in the handshake. Until then it costs a descriptor and some
memory, so such *half-open* connections are limited: in total, per address, and for
addresses outside of the cluster. The oldest one gives way to a new one: an honest peer
needs milliseconds, and one that stays silent gains nothing.

*Idle* connections, between two requests, are limited per address, and in total. The one
that was used least recently gives way, of the address that has the most: its client
connects again if it needs to.
"""

import collections
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

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
