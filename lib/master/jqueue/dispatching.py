"""Which job runs next: workers, waits for locks, and rests until they are free.

Nothing here stores or shows the state of a job. The order of jobs that may start is
that of `ganeti.decisions.jobs.schedule`.
"""

import contextlib
import threading
from collections.abc import Callable
from typing import Final, Protocol

from ganeti.base.clock import Clock
from ganeti.base.constants import jobqueue
from ganeti.base.timers import Timer, Timers
from ganeti.decisions.jobs import filters
from ganeti.decisions.jobs.entry import Entry, Place
from ganeti.decisions.jobs.records import Status, Timestamp
from ganeti.decisions.jobs.schedule import Schedule
from ganeti.master.jqueue.effects import Documents, WorkerPool
from ganeti.model.objects.snapshot import CLUSTER_KEY

#: Jobs waiting for frozen nodes that may run in addition. They are rarely many, since
#: a call to a node that is known to be frozen ends after seconds.
_MAX_SILENCED: Final = 200
#: Shortest attempt to get locks in seconds, even if other jobs could start.
_CHANCE_S: Final = 0.1


class QueueState(Protocol):
    """The part of `ganeti.master.jqueue.core.Core` that a `Dispatcher` uses."""

    store: Documents
    clock: Clock
    lock: threading.Lock
    timers: Timers
    schedule: Schedule
    live: dict[int, Entry]

    def transaction(self) -> contextlib.AbstractContextManager[None]:
        """Hold the lock during a change; its end calls `Dispatcher.dispatch_locked`."""

    def later_locked(self, call: Callable[[], None]) -> None:
        """Register a callback for the time after the release of the lock."""

    def cancel_locked(self, entry: Entry) -> None:
        """Cancel a queued or waiting job."""


class Dispatcher:
    """See the module. Methods whose names end in ``_locked`` need the queue's lock.

    It owns the number of running jobs, the threads that work or are silent, and the
    jobs that wait for locks of others. The order of jobs that may start belongs to
    `Core.schedule`: it takes jobs out, and puts back those whose locks are free.
    """

    def __init__(self, core: QueueState, workers: int) -> None:
        """Prepare; the number of workers is for clusters without a record."""
        self._core = core
        self._workers = workers
        self.pool: WorkerPool[Entry] | None = None
        #: Jobs of the remote API that have a worker; some may have left it.
        self._remote_working: set[Entry] = set()
        self.running = 0
        #: Jobs whose worker may be waiting for locks, by id.
        self.lock_waiters: dict[int, Entry] = {}
        #: Resumed jobs that do not have their locks yet, by id. No other job may start
        #: before: it could take these locks and find a half-finished operation.
        self.resuming: set[int] = set()
        #: Jobs that `start_locked` resumes.
        self.to_resume: list[Entry] = []
        #: Workers that only wait for the answer of a frozen node.
        self.silenced: set[threading.Thread] = set()
        #: The job whose opcode a worker executes.
        self.working: dict[threading.Thread, int] = {}
        #: Job that holds locks -> resting jobs that wait for the end of its opcode.
        self.blocked: dict[int, set[Entry]] = {}
        self._room_timer: Timer | None = None
        self.is_started = False

    def start_locked(self) -> None:
        """Start jobs, first of all those that an earlier daemon began."""
        self.is_started = True
        self.resuming = {entry.job.id for entry in self.to_resume}
        for entry in self.to_resume:
            self._work_locked(entry)
        self.to_resume.clear()

    def is_left(self, worker: threading.Thread) -> bool:
        """Return whether the next daemon can continue the opcode of a worker."""
        with self._core.lock:
            entry = self._core.live.get(self.working.get(worker, 0))
            if entry is None or entry.job.id in self.resuming:
                return False
            return any(op.is_resumable for op in entry.job.ops)

    def _work_locked(self, entry: Entry) -> None:
        """Pass a job to a worker."""
        # Counted before the worker starts, so the next transaction does not start too
        # many.
        entry.place = Place.WORKING
        if entry.requester:
            self._remote_working.add(entry)
        self.running += 1
        if self.pool is not None:
            self.pool.put(entry, self.running)

    def dispatch_locked(self) -> None:
        """Pass jobs that may run now to free workers."""
        if not self.is_started or self.resuming:
            return
        schedule = self._core.schedule
        snapshot = self._core.store.snapshot()
        cluster = snapshot.table("cluster").get(CLUSTER_KEY)
        workers = cluster.max_running_jobs if cluster else self._workers
        limit = max(1, workers)
        self._remote_working = {
            each for each in self._remote_working if each.place is Place.WORKING
        }
        room = filters.remote_workers(limit) - len(self._remote_working)
        schedule.use_remote_room(max(0, room))
        rules = snapshot.filters
        if schedule.use_rules(rules.values(), rules):
            self._reject_waiting_locked()
        # A job that only waits for a frozen node does no work: another one may run.
        # Fewer jobs than workers may run: the limit can be lowered while jobs run, and
        # jobs whose node answers again run in addition.
        while self.running - min(len(self.silenced), _MAX_SILENCED) < limit:
            entry = schedule.pop(self._reject_locked)
            if entry is None or self.pool is None:
                return
            self._work_locked(entry)
        self._make_room_locked(limit)

    def _make_room_locked(self, limit: int) -> None:
        """Interrupt waits for locks in favour of fresh jobs that may not wait.

        All workers are busy. Half of them, those with the oldest jobs, may continue to
        wait for locks. The others give up early, which does not count as an attempt: at
        once for a more urgent job, after a minimum time for an equally urgent one.
        """
        priority = self._core.schedule.fresh_priority()
        surplus = len(self.lock_waiters) - limit // 2
        if priority is None or surplus <= 0:
            return
        youngest = sorted(self.lock_waiters.values(), key=_seniority, reverse=True)
        since = self._core.clock.monotonic() - _CHANCE_S
        is_early = False
        for entry in youngest[:surplus]:
            if entry.job.priority < priority:
                continue
            if entry.job.priority == priority and entry.began > since:
                is_early = True
                continue
            entry.must_hurry = True
            self.interrupt_locked(entry)
            return
        if is_early and self._room_timer is None:
            self._room_timer = self._core.timers.after(_CHANCE_S, self._room_again)

    def _room_again(self) -> None:
        with self._core.transaction():
            self._room_timer = None

    def _reject_waiting_locked(self) -> None:
        for entry in list(self._core.live.values()):
            if entry.shown.status is Status.WAITING:
                decision = self._core.schedule.decide(entry)
                if decision.action == "REJECT":
                    self._reject_locked(entry, decision)

    def _reject_locked(self, entry: Entry, decision: filters.Decision) -> None:
        """Cancel a job that a filter rule refuses; its result names the rule."""
        entry.cancel_text = (
            f"{jobqueue.REJECTED_TEXT} {decision.rule}; 'gnt-filter info"
            f" {decision.rule}' shows it"
        )
        self._core.cancel_locked(entry)

    def interrupt_locked(self, entry: Entry) -> None:
        """End a wait for locks of the worker that has a job."""
        self.lock_waiters.pop(entry.job.id, None)
        if entry.interrupt is not None:
            self._core.later_locked(entry.interrupt)
            entry.interrupt = None

    # Jobs that hold locks, and jobs that wait for them
    def rest_until_unblocked_locked(self, entry: Entry, blockers: set[int]) -> None:
        """Remember the jobs that must end before a job tries again."""
        for job_id in blockers - entry.blocked_by:
            self.blocked.setdefault(job_id, set()).add(entry)
        entry.blocked_by = blockers

    def opcode_ended_locked(self, job_id: int, worker: threading.Thread) -> None:
        """Let jobs try again that only waited for the locks of a worker's opcode."""
        self.resuming.discard(job_id)
        self.lock_waiters.pop(job_id, None)
        self.working.pop(worker, None)
        self.silenced.discard(worker)
        waiting = self.blocked.pop(job_id, ())
        for entry in sorted(waiting, key=lambda entry: entry.job.id):
            entry.blocked_by.discard(job_id)
            if entry.place is Place.RESTING and not entry.blocked_by:
                if entry.rest_timer is not None:
                    entry.rest_timer.cancel()
                self._core.schedule.push(entry)

    # Frozen nodes
    def note_silence(self, worker: threading.Thread, is_silent: bool) -> None:
        """Record whether a worker waits for a frozen node; never blocks for long.

        Threads that are no workers are ignored.
        """
        if not is_silent and worker not in self.silenced:
            return  # the usual case: at the end of each call
        with self._core.lock:
            was_silent = worker in self.silenced
            if is_silent and worker in self.working:
                self.silenced.add(worker)
            else:
                self.silenced.discard(worker)
            is_changed = (worker in self.silenced) != was_silent
        if is_changed and is_silent:
            self._core.timers.after(0.0, self._dispatch)

    def _dispatch(self) -> None:
        with self._core.transaction():
            pass  # Its end starts the jobs that may start now.


def _seniority(entry: Entry) -> tuple[Timestamp, int]:
    return entry.job.start_timestamp or (0, 0), entry.job.id
