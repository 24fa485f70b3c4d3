"""Room for connections whose peer is not known yet: decisions without effects.

A peer proves its identity in the handshake. Until then it costs a descriptor and some
memory, so such *half-open* connections are limited: in total, per address, and for
addresses outside of the cluster. The oldest one gives way to a new one: an honest peer
needs milliseconds, and one that stays silent gains nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

#: Half-open connections; without an attack there are a few at a time.
MAX_HALF_OPEN: Final = 512
#: Of these, the part that only addresses of the cluster may use.
RESERVED: Final = 128
#: Half-open connections of one address. A busy master opens some dozens at once.
PER_ADDRESS: Final = 128
#: Seconds between two lines of the log about refused or dropped connections.
LOG_EVERY_S: Final = 10.0
_MAPPED: Final = "::ffff:"


class HalfOpen(NamedTuple):
    """A half-open connection: its start, the peer's address, and the connection."""

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
    waiting: Sequence[HalfOpen], address: str, is_known: Callable[[str], bool]
) -> HalfOpen | None:
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


def _age(item: HalfOpen) -> float:
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
