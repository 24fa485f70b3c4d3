"""The order in which jobs start, their dependencies, and attempts to get locks.

No threads; a `Schedule` is guarded by the queue's lock. Jobs that may start are in two
heaps, sorted by priority and arrival: fresh jobs, and jobs that have failed to get
their locks. At equal priority, fresh jobs go first, because most of them can run, but
every fourth start is of a tried job. A job held by a rule or a full slot is parked
under that slot's key, and costs nothing until the slot is released or the rules change.
A started job keeps its slots until it ends.

Each attempt of an opcode has one time limit for all locks; the limits grow along a
table. After the end of the table, the priority becomes one step more urgent and the
table starts again. At the highest priority the opcode waits without limit.

A job can depend only on jobs submitted before it, so there are no cycles.
"""

import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes, jobqueue
from ganeti.decisions.jobs import filters
from ganeti.decisions.jobs.entry import Entry, Place
from ganeti.decisions.jobs.records import Status
from ganeti.model import opcodes
from ganeti.model.objects import FilterRule

#: At equal priority, one of this many starts is of a job that has tried before.
_TRIED_SHARE: Final = 4
#: Key under which jobs are parked that a rule pauses.
_PAUSED: Final = "paused"


#: The same for jobs of the remote API that have no worker.
_REMOTE: Final = "remote"

#: Priority, arrival, and a unique number so that entries are never compared.
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
        self._remote_room = 0
        self._filters: object = None
        self._rules = filters.Rules(())

    def push(self, entry: Entry, *, arrived: bool = True) -> None:
        """Add a job to those that may start.

        Args:
            entry: the job.
            arrived: the job goes behind the others of its priority.
        """
        if arrived:
            entry.arrival = next(self._arrivals)
        entry.place = Place.READY
        heap = self._tried if entry.was_tried else self._fresh
        heapq.heappush(heap, self._item(entry))

    def changed_priority(self, entry: Entry) -> None:
        """Move a job to its new priority's position; a parked one may try again."""
        if entry.place in (Place.READY, Place.PARKED):
            self._pass_on(entry)
            self.push(entry, arrived=False)

    def use_rules(self, rules: Iterable[FilterRule], token: object) -> bool:
        """Use the present rules; return whether they are new.

        Args:
            rules: read only if the token is a different object than before.
            token: identifies the state of the rules.
        """
        if token is self._filters:
            return False
        self._filters = token
        self._rules = filters.Rules(rules)
        for key in list(self._parked):
            self._unpark(key, everything=True)
        return True

    def decide(self, entry: Entry) -> filters.Decision:
        """Return the decision of the rules on a job."""
        return self._rules.decide(entry.facts()) if self._rules else filters.Decision()

    def pop(self, reject: Callable[[Entry, filters.Decision], None]) -> Entry | None:
        """Return the next job that may start, with its slots taken.

        Args:
            reject: called for jobs that a rule refuses, with the decision.
        """
        while (heap := self._choose()) is not None:
            entry = heapq.heappop(heap)[-1]
            if entry.requester and self._remote_room <= 0:
                self._park(entry, _REMOTE)
                continue
            if entry.is_admitted:
                return self._taken_out(entry)
            decision = self.decide(entry)
            if decision.action == "REJECT":
                self._pass_on(entry)
                reject(entry, decision)
                continue
            held_by = self._held_by(entry, decision)
            if held_by is None:
                self._admit(entry, decision)
                return self._taken_out(entry)
            self._park(entry, held_by)
        return None

    def _taken_out(self, entry: Entry) -> Entry:
        entry.released_by = None
        if entry.requester:
            self._remote_room -= 1
        return entry

    def use_remote_room(self, room: int) -> None:
        """Set how many more jobs of the remote API may start now."""
        self._remote_room = room
        for _ in range(room):
            self._unpark(_REMOTE)

    def leave(self, entry: Entry) -> None:
        """Release the slots of an ended job."""
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
        """Return the heap of the next job."""
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
                self._pass_on(entry)  # for example, it was canceled

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
        """Pass on a released slot that the job woken by it does not use."""
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


#: Each limit varies by this fraction, so competing jobs do not collide repeatedly.
VARIATION: Final = 0.05


def _limits() -> tuple[float, ...]:
    """Return limits in seconds that grow from 5 to 75; their sum is at least 1800."""
    limits = [5.0]
    while sum(limits) < 1800:
        limits.append(min(75.0, max(5.0, (limits[-1] * 1.05) ** 1.25)))
    return tuple(limits)


#: Time limits of the attempts at one priority.
LIMITS_S: Final = _limits()


class Attempt(NamedTuple):
    """The next attempt: its index in the table (None: no limit), and its priority."""

    place: int | None
    priority: int

    def limit_s(self, chance: float) -> float | None:
        """Return the limit in seconds.

        Args:
            chance: a random number from 0 to 1.
        """
        if self.place is None:
            return None
        return LIMITS_S[self.place] * (1 - VARIATION + 2 * VARIATION * chance)


def next_attempt(attempt: Attempt) -> Attempt:
    """Return the attempt that follows a failed one."""
    if attempt.place is None:
        return attempt
    if attempt.place + 1 < len(LIMITS_S):
        return Attempt(attempt.place + 1, attempt.priority)
    if attempt.priority > jobqueue.OP_PRIO_HIGHEST:
        return Attempt(0, attempt.priority - 1)
    return Attempt(None, attempt.priority)


#: The state of a job, live or archived; None if it is unknown.
Lookup = Callable[[int], Status | None]


class Verdict(NamedTuple):
    """The present state of an opcode's dependencies.

    Attributes:
        waits_for: jobs that must end first.
        is_canceled: a dependency was canceled, so this job is canceled too.
        error: the error of the opcode if a dependency failed.
    """

    waits_for: tuple[int, ...] = ()
    is_canceled: bool = False
    error: errors.GenericError | None = None


def resolve_dependencies(
    job_id: int, ops: Sequence[opcodes.Opcode]
) -> list[opcodes.Opcode]:
    """Return the opcodes with dependencies as absolute job ids.

    Relative ids count back from the job's own id: -1 is the previous job.

    Raises:
        OpPrereqError: a relative id points before the first job.
    """
    return [_resolve_op(job_id, op) for op in ops]


def _resolve_op(job_id: int, op: opcodes.Opcode) -> opcodes.Opcode:
    if not op.depends:
        return op
    resolved = []
    for given, allowed in op.depends:
        number = int(given)
        target = number if number >= 0 else job_id + number
        if target < 1:
            raise errors.OpPrereqError(
                f"job dependency {given} of job {job_id}: there is no such job",
                ecodes.ECODE_INVAL,
            )
        resolved.append((target, list(allowed)))
    return msgspec.structs.replace(op, depends=resolved)


def dependencies(job_id: int, ops: Sequence[opcodes.Opcode]) -> set[int]:
    """Return the earlier jobs that must end before the job may start."""
    jobs = {int(dep) for op in ops for dep, _ in op.depends or ()}
    return {dep for dep in jobs if dep < job_id}


def check_dependencies(job_id: int, op: opcodes.Opcode, lookup: Lookup) -> Verdict:
    """Return whether the dependencies of an opcode allow its start."""
    waits: list[int] = []
    for target, allowed in op.depends or ():
        dep = int(target)
        if dep >= job_id:
            which = "itself" if dep == job_id else f"the later job {dep}"
            return _refused(f"job {job_id} depends on {which}")
        status = lookup(dep)
        if status is None:
            return _refused(f"job {job_id} depends on job {dep}, which does not exist")
        if not status.is_final:
            waits.append(dep)
        elif status is Status.CANCELED and status.value not in allowed:
            return Verdict(is_canceled=True)
        elif allowed and status.value not in allowed:
            return _refused(
                f"job {job_id} depends on job {dep} ending as"
                f" {' or '.join(allowed)}, it ended as {status}"
            )
    return Verdict(waits_for=tuple(waits))


def _refused(text: str) -> Verdict:
    return Verdict(error=errors.OpPrereqError(text, ecodes.ECODE_STATE))
