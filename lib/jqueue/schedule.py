"""Which job starts next. Knows no threads; guarded by the queue's lock.

Jobs that may start stand in two heaps by priority and arrival: fresh ones, and those
that have tried to get their locks in vain. Fresh ones go first among equals, because
they mostly can run, but every fourth time a tried one does. A job that a rule or a
full slot holds is parked under that slot's key, and costs nothing until the slot is
given back or the rules change. A started job keeps its slots until it ends.
"""

import heapq
import itertools
from collections.abc import Callable, Iterable
from typing import Final

from ganeti.jqueue import filters
from ganeti.jqueue.entry import Entry, Place
from ganeti.objects import FilterRule

#: Among jobs of one priority, one in so many that start is one that has tried before.
_TRIED_SHARE: Final = 4
#: Where jobs are parked that a rule pauses.
_PAUSED: Final = "paused"


#: Priority, arrival, and a number against comparing entries.
_Item = tuple[int, int, int, Entry]


class Schedule:
    """The jobs that wait for a worker."""

    def __init__(self) -> None:
        self._fresh: list[_Item] = []
        self._tried: list[_Item] = []
        self._choices = itertools.count(1)
        self._parked: dict[str, list[_Item]] = {}
        self._taken: dict[str, int] = {}
        self._arrivals = itertools.count(1)
        self._pushes = itertools.count(1)
        self._filters: object = None
        self._rules = filters.Rules(())

    def push(self, entry: Entry, *, arrived: bool = True) -> None:
        """Let a job start when its turn comes.

        Args:
            entry: the job.
            arrived: it goes behind the others of its priority.
        """
        if arrived:
            entry.arrival = next(self._arrivals)
        entry.place = Place.READY
        heap = self._tried if entry.was_tried else self._fresh
        heapq.heappush(heap, self._item(entry))

    def changed_priority(self, entry: Entry) -> None:
        """Put a job at the place of its new priority; a parked one may try again."""
        if entry.place in (Place.READY, Place.PARKED):
            self._pass_on(entry)
            self.push(entry, arrived=False)

    def use_rules(self, rules: Iterable[FilterRule], token: object) -> bool:
        """Take the present rules; return whether they are new.

        Args:
            rules: read only if the token is another object than the last one.
            token: stands for the state of the rules.
        """
        if token is self._filters:
            return False
        self._filters = token
        self._rules = filters.Rules(rules)
        for key in list(self._parked):
            self._unpark(key, everything=True)
        return True

    def decide(self, entry: Entry) -> filters.Decision:
        """Return what the rules say about a job."""
        return self._rules.decide(entry.facts()) if self._rules else filters.Decision()

    def pop(self, reject: Callable[[Entry], None]) -> Entry | None:
        """Return the next job that may start, with its slots taken.

        Args:
            reject: called for jobs that a rule refuses.
        """
        while (heap := self._choose()) is not None:
            entry = heapq.heappop(heap)[-1]
            if entry.is_admitted:
                return entry
            decision = self.decide(entry)
            if decision.action == "REJECT":
                self._pass_on(entry)
                reject(entry)
                continue
            held_by = self._held_by(entry, decision)
            if held_by is None:
                self._admit(entry, decision)
                return entry
            self._park(entry, held_by)
        return None

    def leave(self, entry: Entry) -> None:
        """Give back the slots of a job that has ended."""
        if not entry.is_admitted:
            return
        entry.is_admitted = False
        for slot in entry.slots:
            self._taken[slot.key] -= 1
            if not self._taken[slot.key]:
                del self._taken[slot.key]
            self._unpark(slot.key)

    def fresh_priority(self) -> int | None:
        """Return the priority of the first fresh job that is ready, None if none."""
        self._drop_stale(self._fresh)
        return self._fresh[0][0] if self._fresh else None

    def _choose(self) -> list[_Item] | None:
        """Return the heap that the next job comes from."""
        self._drop_stale(self._fresh)
        self._drop_stale(self._tried)
        if not self._fresh or not self._tried:
            return self._fresh or self._tried or None
        if self._fresh[0][0] != self._tried[0][0]:
            return min(self._fresh, self._tried, key=lambda heap: heap[0][0])
        is_turn = next(self._choices) % _TRIED_SHARE == 0
        return self._tried if is_turn else self._fresh

    def _drop_stale(self, heap: list[_Item]) -> None:
        while heap:
            priority, arrival, _, entry = heap[0]
            is_ready = entry.place is Place.READY
            if is_ready and (priority, arrival) == (entry.job.priority, entry.arrival):
                return
            heapq.heappop(heap)
            if not is_ready:
                self._pass_on(entry)  # was canceled, for instance

    def _held_by(self, entry: Entry, decision: filters.Decision) -> str | None:
        if decision.action == "PAUSE":
            return _PAUSED
        by_rule = (decision.slot,) if decision.slot is not None else ()
        for slot in entry.slots + by_rule:
            if self._taken.get(slot.key, 0) >= slot.limit:
                return slot.key
        return None

    def _admit(self, entry: Entry, decision: filters.Decision) -> None:
        if decision.slot is not None:
            entry.slots = (*entry.slots, decision.slot)
        entry.is_admitted = True
        entry.released_by = None
        for slot in entry.slots:
            self._taken[slot.key] = self._taken.get(slot.key, 0) + 1

    def _park(self, entry: Entry, key: str) -> None:
        entry.place = Place.PARKED
        heapq.heappush(self._parked.setdefault(key, []), self._item(entry))
        if entry.released_by != key:
            self._pass_on(entry)
        entry.released_by = None

    def _pass_on(self, entry: Entry) -> None:
        """Let another job try the slot that woke this one, which does not use it."""
        key, entry.released_by = entry.released_by, None
        if key is not None:
            self._unpark(key)

    def _item(self, entry: Entry) -> _Item:
        return entry.job.priority, entry.arrival, next(self._pushes), entry

    def _unpark(self, key: str, *, everything: bool = False) -> None:
        parked = self._parked.get(key)
        while parked:
            priority, arrival, _, entry = heapq.heappop(parked)
            is_here = entry.place is Place.PARKED
            if is_here and (priority, arrival) == (entry.job.priority, entry.arrival):
                entry.released_by = key
                self.push(entry, arrived=False)
                if not everything:
                    break
        if not parked:
            self._parked.pop(key, None)
