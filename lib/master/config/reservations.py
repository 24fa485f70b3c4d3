"""Values that a running job will write, so that no other job chooses them.

Reservations are in memory, belong to an owner (a job's execution id), and end with
the job. A restart of the master also ends the jobs that held them.
"""

import threading
from collections.abc import Callable, Collection, Hashable
from typing import TypeVar

from ganeti.base import errors

V = TypeVar("V", bound=Hashable)


class Reservations:
    """Reserved values by kind (``mac``, ``uuid``, ``lv``, …); thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[tuple[str, Hashable], str] = {}

    def copy(self) -> "Reservations":
        """Return an independent copy of the reservations."""
        copied = Reservations()
        with self._lock:
            copied._owners = self._owners.copy()
        return copied

    def reserve(
        self,
        owner: str,
        kind: str,
        value: Hashable,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Reserve a value; the same owner may reserve it twice.

        Args:
            owner: execution id.
            kind: of the value.
            value: the value.
            check: raises if the configuration has the value. It is called under the
                lock: an owner writes the value before it releases the reservation, so
                whoever looks at the reservations first misses neither.

        Raises:
            ReservationError: another owner has it.
        """
        with self._lock:
            check()
            holder = self._owners.setdefault((kind, value), owner)
        if holder != owner:
            raise errors.ReservationError(
                f"{kind} {value!r} is reserved by {holder}, wanted by {owner}"
            )

    def reserve_first(
        self, owner: str, kind: str, choose: Callable[[Collection[Hashable]], V]
    ) -> V:
        """Reserve the value that ``choose`` returns for the reserved ones.

        ``choose`` is called under the lock and looks at the configuration itself; see
        `reserve`.
        """
        with self._lock:
            taken = {value for known, value in self._owners if known == kind}
            value = choose(taken)
            self._owners[kind, value] = owner
        return value

    def held(self, kind: str) -> dict[Hashable, str]:
        """Return value -> owner for a kind."""
        with self._lock:
            return {
                value: owner
                for (known, value), owner in self._owners.items()
                if known == kind
            }

    def drop(self, owner: str, kind: str, value: Hashable) -> None:
        """Release one value; no error if the owner does not have it."""
        with self._lock:
            if self._owners.get((kind, value)) == owner:
                del self._owners[kind, value]

    def release(self, owner: str) -> None:
        """Release all values of an owner."""
        with self._lock:
            for key in [key for key, held in self._owners.items() if held == owner]:
                del self._owners[key]
