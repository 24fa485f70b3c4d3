"""Tickets for consoles: the master announces one, and one viewer presents it.

A ticket is a secret of 256 bits that only its holder has; the master sends the node its
digest. It is bound to an instance, a kind of console and a session, is valid for
seconds on the clock of this node, and is consumed by the first attempt to use it, even
a wrong one. Those that were used or have expired are remembered for a while, so that
the log distinguishes a late viewer from one who guesses.
"""

import dataclasses
import hashlib
import hmac
import threading
from typing import Final

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.protocols.console.stream import Opening

#: Tickets that are remembered, and of these the ones that wait for their viewers: a web
#: console with a hundred users opens a few per second.
MOST: Final = 512
MOST_WAITING: Final = 256
#: Seconds for which a ticket is remembered after its end.
_REMEMBERED_S: Final = 300.0


class TicketError(errors.GenericError):
    """A ticket that is not valid for what it was presented for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ticket:
    """A ticket, and the console that it permits.

    Attributes:
        digest: SHA-256 of the ticket, in hexadecimal digits.
        instance: uuid of the instance.
        name: of the instance.
        hypervisor: of the instance.
        kind: of the console.
        session: for which it was issued.
        holder: who has asked for it, for logs and for other viewers.
        command: whose terminal is the console, empty if it is a socket.
    """

    digest: str
    instance: str
    name: str
    hypervisor: str
    kind: str
    session: str
    holder: str
    command: tuple[str, ...] = ()


@dataclasses.dataclass
class _Entry:
    ticket: Ticket
    ends_at: float
    is_used: bool = False

    def is_waiting(self, now: float) -> bool:
        return not self.is_used and now < self.ends_at


def digest(ticket: str) -> str:
    """Return the digest of a ticket."""
    return hashlib.sha256(ticket.encode(errors="replace")).hexdigest()


class Tickets:
    """The tickets of this node; thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: In the order of their announcement.
        self._entries: list[_Entry] = []

    def announce(self, ticket: Ticket, seconds: float) -> None:
        """Take a ticket that is valid for some seconds from now.

        Raises:
            TicketError: too many tickets wait for their viewers.
        """
        with self._lock:
            now = self._clock.monotonic()
            kept = [e for e in self._entries if now < e.ends_at + _REMEMBERED_S]
            waiting = [e for e in kept if e.is_waiting(now)]
            if len(waiting) >= MOST_WAITING:
                raise TicketError(
                    f"{len(waiting)} tickets for consoles of this node wait for their"
                    f" viewers, at most {MOST_WAITING} are possible; try again in"
                    " half a minute"
                )
            done = [e for e in kept if not e.is_waiting(now)]
            forgotten = {id(e) for e in done[: max(0, len(kept) + 1 - MOST)]}
            self._entries = [e for e in kept if id(e) not in forgotten]
            self._entries.append(_Entry(ticket, now + seconds))

    def redeem(self, opening: Opening) -> Ticket:
        """Consume a ticket and return what it permits.

        Raises:
            TicketError: it is unknown, was used, has expired, or was issued for
                something else.
        """
        presented = digest(opening.ticket)
        with self._lock:
            now = self._clock.monotonic()
            entry = None
            # All are compared, so the time depends on none of them.
            for each in self._entries:
                if hmac.compare_digest(each.ticket.digest, presented):
                    entry = each
            if entry is None:
                raise TicketError("the ticket is unknown, or ended long ago")
            was_used, entry.is_used = entry.is_used, True
        ticket = entry.ticket
        what = f"the ticket for the {ticket.kind} console of instance {ticket.name}"
        if was_used:
            raise TicketError(f"{what} was used before")
        if now >= entry.ends_at:
            raise TicketError(f"{what} has expired")
        for member in ("instance", "kind", "session"):
            if getattr(ticket, member) != getattr(opening, member):
                raise TicketError(f"{what} was presented for another {member}")
        return ticket
