"""Room for further instances, for the metrics of the master.

Nodes are asked for it, so the number is kept for some minutes, and computed beside the
request that finds it old: reading the metrics never waits for a node.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ganeti.base import errors
from ganeti.base.clock import Clock

_log = logging.getLogger(__name__)

#: Seconds for which a number is kept.
FRESH_S: Final = 300.0
#: Most instances that are counted; a larger cluster has room enough.
MOST: Final = 1000

#: Calls a method of the master daemon.
Call = Callable[[str, Sequence[Any]], Any]
#: Runs a function beside the caller.
Start = Callable[[Callable[[], None]], object]


class Room(NamedTuple):
    """An answer: how many instances still fit.

    Attributes:
        template: their disk template, the first enabled one.
        instances: number of those of the usual size, at most `MOST`.
        time: seconds since 1970.
    """

    template: str
    instances: int
    time: float


class _Answer(msgspec.Struct):
    disk_template: str
    count: int


def _start(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="capacity", daemon=True).start()


class Capacity:
    """The last known room. For use by many threads."""

    def __init__(self, call: Call, clock: Clock, start: Start = _start) -> None:
        self._call = call
        self._clock = clock
        self._start = start
        self._lock = threading.Lock()
        self._room: Room | None = None
        self._asked: float | None = None
        self._is_asking = False

    def room(self) -> Room | None:
        """Return the last answer, and ask again if it is old; None before the first.

        A number that could not be renewed is not returned any more.
        """
        with self._lock:
            now = self._clock.monotonic()
            is_old = self._asked is None or now - self._asked >= FRESH_S
            starts = is_old and not self._is_asking
            if starts:
                self._asked, self._is_asking = now, True
        if starts:
            self._start(self._ask)
        with self._lock:
            return self._room

    def _ask(self) -> None:
        room = None
        try:
            answer = self._call("QueryCapacity", [{"limit": MOST}])
            row = msgspec.convert(answer, _Answer)
            room = Room(row.disk_template, row.count, self._clock.time())
        except (errors.GenericError, OSError, msgspec.ValidationError) as err:
            _log.warning("metrics: the capacity is not known: %s", err)
        finally:
            with self._lock:
                self._room, self._is_asking = room, False
