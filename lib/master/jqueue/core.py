"""The shared state of all parts of the queue, and their common steps.

One lock guards everything and is held only briefly: every change is a
`Core.transaction`. At the end of a transaction, free workers get jobs; after the
release of the lock, waiting clients get their answers. Nothing here waits for the disk:
commits are passed to the store in the order of the changes, and the store's thread
reports their end.

The lock is never held during a call of the store: a thread that edits the configuration
holds the store's lock and may log a line, which needs this lock.

Invariant: a final state and the end of an opcode that are *shown*, and any answer to a
client, are durable.
"""

import collections
import contextlib
import dataclasses
import logging
import threading
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Protocol

from ganeti.base import clock, errors
from ganeti.base.constants import jobqueue
from ganeti.base.timers import Timer, Timers
from ganeti.decisions.jobs import depends, filters, records, remote, transitions
from ganeti.decisions.jobs.entry import Entry, Place, attach_logs
from ganeti.decisions.jobs.records import Job, LogEntry, Timestamp
from ganeti.decisions.jobs.schedule import Schedule
from ganeti.decisions.jobs.state import Status
from ganeti.master.jqueue.documents import ARCHIVE, JOBS, LOGS, Document, Documents
from ganeti.master.jqueue.pool import WorkerPool
from ganeti.model.objects.snapshot import CLUSTER_KEY

_log = logging.getLogger(__name__)

_Done = Callable[[int, BaseException | None], None]
#: Called when a commit has ended: with None, or with the error.
OnDone = Callable[[BaseException | None], None]

#: Jobs waiting for frozen nodes that may run in addition. They are rarely many, since
#: a call to a node that is known to be frozen ends after seconds.
_MAX_SILENCED = 200
#: Shortest attempt to get locks in seconds, even if other jobs could start.
_CHANCE_S = 0.1
#: Seconds until a final state that could not be stored is stored again.
_RETRY_S = 5.0
#: Seconds until a log line is stored: at most 1 s may be lost in a crash, and the
#: commit takes its time.
SAVE_LOG_S = 0.5
#: Seconds for which the start of an opcode waits for a commit that takes it along: it
#: is shown before, and nothing is done before it is stored.
START_WAIT_S = 1.0
#: The same for the end of an opcode that another one follows, which is shown after
#: that: the start of the next one usually comes sooner.
NEXT_WAIT_S = 0.2
#: Ended jobs kept in memory, because clients read the result just after the end.
_RECENT = 1000
#: Ended jobs with longer logs are not kept in memory but read from the store.
_RECENT_LINES = 1000


class Observer(Protocol):
    """Takes note of jobs, see `ganeti.daemons.masterd.audit`; must not block."""

    def submitted(self, jobs: Sequence[Job]) -> Callable[[], None]:
        """Take note of new jobs, in the thread that submits them.

        Returns:
            A function that is called when they are durable.
        """

    def ended(self, job: Job) -> None:
        """Take note of a job whose end is durable."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """Limits of a queue.

    Attributes:
        workers: jobs that run at once if there is no cluster record.
        hard_limit: unfinished jobs beyond which submissions are refused.
        archive_age_s: archived jobs that ended longer ago are deleted, once a day;
            None keeps them.
        on_failure: called with the error of a commit that failed; the daemon ends
            on a TermError.
        observer: takes note of jobs.
    """

    workers: int = 25
    hard_limit: int = jobqueue.JOB_QUEUE_SIZE_HARD_LIMIT
    archive_age_s: float | None = 21 * 86400.0
    on_failure: Callable[[BaseException], None] | None = None
    observer: Observer | None = None


class Core:
    """See the module. Methods whose names end in ``_locked`` need the lock held."""

    def __init__(
        self,
        store: Documents,
        clk: clock.Clock,
        settings: Settings,
        timers: Timers | None = None,
    ) -> None:
        self.store = store
        self.clock = clk
        self.settings = settings
        self.lock = threading.Lock()
        self.timers = timers or Timers(clk)
        self.schedule = Schedule()
        #: Called when a watched job has changed, with the job and whether only its log
        #: has changed; see `ganeti.master.jqueue.watching`.
        self.notify_locked: Callable[[Entry, bool], None] = _ignore_change
        self.pool: WorkerPool[Entry] | None = None
        self.live: dict[int, Entry] = {}
        self.remote = remote.Share(settings.hard_limit)
        #: Jobs of the remote API that have a worker; some may have left it.
        self._remote_working: set[Entry] = set()
        #: Live jobs that have ended: state and time of the end.
        self.ended: dict[int, tuple[Status, Timestamp]] = {}
        #: Ended jobs that are being archived.
        self.archiving: set[int] = set()
        self.recent: collections.OrderedDict[int, Job] = collections.OrderedDict()
        self.dependents: dict[int, set[int]] = {}
        self.serial = 0
        #: Jobs whose first commit has not ended.
        self.arriving = 0
        self.running = 0
        #: Jobs whose worker may be waiting for locks, by id.
        self.lock_waiters: dict[int, Entry] = {}
        #: Resumed jobs that do not have their locks yet, by id. No other job may start
        #: before: it could take these locks and find a half-finished operation.
        self.resuming: set[int] = set()
        #: Jobs that `start` resumes.
        self.to_resume: list[Entry] = []
        #: Workers that only wait for the answer of a frozen node.
        self.silenced: set[threading.Thread] = set()
        #: The job whose opcode a worker executes.
        self.working: dict[threading.Thread, int] = {}
        #: Job that holds locks -> resting jobs that wait for the end of its opcode.
        self.blocked: dict[int, set[Entry]] = {}
        self._room_timer: Timer | None = None
        self.is_drained = False
        self.is_started = False
        self.is_stopping = False
        self._outbox: list[Callable[[], None]] = []
        #: Commits that the holder of `_sending` passes to the store.
        self._commits: collections.deque[tuple[Sequence[Document], _Done, float]] = (
            collections.deque()
        )
        self._sending = threading.Lock()

    def now(self) -> Timestamp:
        """Return the time in the form of job records."""
        return clock.split_time(self.clock.time())

    # Transactions
    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the lock during a change; then start jobs, and call the callbacks."""
        outbox: list[Callable[[], None]] = []
        try:
            # Callbacks run after the release of the lock: they commit, answer clients
            # and take other locks, and may begin a transaction of their own.
            with self.lock:
                try:
                    yield
                finally:
                    if self.is_started and not self.is_stopping:
                        self._dispatch_locked()
                    outbox, self._outbox = self._outbox, outbox
        finally:
            # Also after an error: the dispatch may have changed other jobs.
            self._send()
            for call in outbox:
                _call_safely(call)

    def later_locked(self, call: Callable[[], None]) -> None:
        """Register a callback for the time after the release of the lock."""
        self._outbox.append(call)

    def start_locked(self) -> None:
        """Start jobs, first of all those that an earlier daemon began."""
        self.is_started = True
        self.resuming = {entry.job.id for entry in self.to_resume}
        for entry in self.to_resume:
            self._work_locked(entry)
        self.to_resume.clear()

    def is_left(self, worker: threading.Thread) -> bool:
        """Return whether the next daemon can continue the opcode of a worker."""
        with self.lock:
            entry = self.live.get(self.working.get(worker, 0))
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

    def _dispatch_locked(self) -> None:
        if self.resuming:
            return
        snapshot = self.store.snapshot()
        cluster = snapshot.table("cluster").get(CLUSTER_KEY)
        workers = cluster.max_running_jobs if cluster else self.settings.workers
        limit = max(1, workers)
        self._remote_working = {
            each for each in self._remote_working if each.place is Place.WORKING
        }
        room = remote.workers(limit) - len(self._remote_working)
        self.schedule.use_remote_room(max(0, room))
        rules = snapshot.filters
        if self.schedule.use_rules(rules.values(), rules):
            self._reject_waiting_locked()
        # A job that only waits for a frozen node does no work: another one may run.
        # Fewer jobs than workers may run: the limit can be lowered while jobs run, and
        # jobs whose node answers again run in addition.
        while self.running - min(len(self.silenced), _MAX_SILENCED) < limit:
            entry = self.schedule.pop(self._reject_locked)
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
        priority = self.schedule.fresh_priority()
        surplus = len(self.lock_waiters) - limit // 2
        if priority is None or surplus <= 0:
            return
        youngest = sorted(self.lock_waiters.values(), key=_seniority, reverse=True)
        since = self.clock.monotonic() - _CHANCE_S
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
            self._room_timer = self.timers.after(_CHANCE_S, self._room_again)

    def _room_again(self) -> None:
        with self.transaction():
            self._room_timer = None

    def _reject_waiting_locked(self) -> None:
        for entry in list(self.live.values()):
            if entry.shown.status is Status.WAITING:
                decision = self.schedule.decide(entry)
                if decision.action == "REJECT":
                    self._reject_locked(entry, decision)

    def _reject_locked(self, entry: Entry, decision: filters.Decision) -> None:
        """Cancel a job that a filter rule refuses; its result names the rule."""
        entry.cancel_text = (
            f"{jobqueue.REJECTED_TEXT} {decision.rule}; 'gnt-filter info"
            f" {decision.rule}' shows it"
        )
        self.cancel_locked(entry)

    # Storing
    def commit_locked(
        self, documents: Sequence[Document], on_done: OnDone, *, wait_s: float = 0.0
    ) -> None:
        """Request a commit; ``on_done`` is called without the lock.

        One that can wait does so for others, see `ganeti.store.Store.commit_soon`.
        """

        def done(_revision: int, error: BaseException | None) -> None:
            if error is not None:
                self.failed(error)
            on_done(error)

        # Only queued here: the store may call ``done`` at once, which takes the lock.
        self._commits.append((documents, done, wait_s))

    def _send(self) -> None:
        """Pass commits to the store in order, unless another thread is doing so."""
        # A thread that finds the lock taken can leave: the holder looks at the queue
        # again after it has released the lock, so no commit is left behind. Commits of
        # a job must reach the store in their order, or an older record would replace a
        # newer one.
        while self._commits and self._sending.acquire(blocking=False):
            try:
                while self._commits:
                    documents, done, wait_s = self._commits.popleft()
                    try:
                        self.store.commit_soon(documents, done, wait_s=wait_s)
                    except errors.GenericError as err:
                        done(0, err)
            finally:
                self._sending.release()

    def failed(self, error: BaseException) -> None:
        """Report a failed commit."""
        _log.error("job queue: commit failed: %s", error)
        if self.settings.on_failure is not None:
            self.settings.on_failure(error)

    def save_locked(
        self, entry: Entry, on_done: OnDone | None = None, *, wait_s: float = 0.0
    ) -> None:
        """Store a job with its new log entries."""
        documents = [_document(entry.job), *self.new_logs_locked(entry)]
        done = self._tracked(entry, on_done or _ignore)
        self.commit_locked(documents, done, wait_s=wait_s)

    def save_start_locked(self, entry: Entry, on_done: OnDone) -> None:
        """Store a job with the next commit.

        Its log entries are left to that commit, or to their timer.
        """
        self.commit_locked([_document(entry.job)], on_done, wait_s=START_WAIT_S)

    def save_logs_locked(self, entry: Entry, on_done: OnDone | None = None) -> None:
        """Store the new log entries of a job.

        ``on_done`` is called when these and all earlier ones are on disk.
        """
        documents = self.new_logs_locked(entry)
        self.commit_locked(documents, self._tracked(entry, on_done or _ignore))

    def _tracked(self, entry: Entry, on_done: OnDone) -> OnDone:
        """Return a callback that notes which log entries a commit has stored."""
        # A commit that fails leaves its log entries unsaved, so the next one has them.
        serial = entry.log_serial
        if serial == entry.stored:
            return on_done

        def done(error: BaseException | None) -> None:
            with self.lock:
                self.note_logs_locked(entry, serial, is_stored=error is None)
            on_done(error)

        return done

    @staticmethod
    def note_logs_locked(entry: Entry, serial: int, *, is_stored: bool) -> None:
        """Note whether the log entries of a job up to a number are on disk."""
        if is_stored:
            entry.stored = max(entry.stored, serial)
        else:
            # Commits of this job that are under way repeat some, which is harmless.
            entry.unsaved = entry.log_serial - entry.stored

    @staticmethod
    def new_logs_locked(entry: Entry) -> list[Document]:
        """Return the log entries that no commit contains yet, for one."""
        count, entry.unsaved = entry.unsaved, 0
        if not count:
            return []
        key = entry.job.id
        return [
            Document(
                LOGS, records.log_key(key, line.serial), records.encode_log(index, line)
            )
            for index, line in entry.logs[-count:]
        ]

    # Steps in the life of a job
    def admit_locked(self, entry: Entry) -> None:
        """Add a durable job to the queue."""
        self.live[entry.job.id] = entry
        self.remote.add(entry.requester, entry.size)
        entry.submitted_at = self.clock.monotonic()
        # A dependency that is not live has ended already: its result is looked up when
        # the job starts.
        targets = depends.targets(entry.job.id, entry.ops)
        entry.waits_for = {dep for dep in targets if dep in self.live}
        for dep in entry.waits_for:
            self.dependents.setdefault(dep, set()).add(entry.job.id)
        if entry.waits_for:
            entry.place = Place.DEPENDENT
        else:
            self.schedule.push(entry)

    def admit_resumed_locked(self, entry: Entry) -> None:
        """Add a job whose opcode an earlier daemon began; `start_locked` starts it."""
        self.live[entry.job.id] = entry
        self.remote.add(entry.requester, entry.size)
        self.to_resume.append(entry)

    def changed_locked(self, entry: Entry, *, only_log: bool = False) -> None:
        """Notify the watchers of a job of a change."""
        if entry.watches:
            self.notify_locked(entry, only_log)

    def show_locked(self, entry: Entry, job: Job) -> None:
        """Replace a job's record by an unfinished one, and notify its watchers.

        If the end of an opcode is still on its way to the disk, all this is shown after
        that.
        """
        _log.debug("job %d: %s -> %s", job.id, entry.job.status, job.status)
        entry.job = job
        if entry.hidden is None:
            entry.shown = job
            self.changed_locked(entry)

    def end_opcode_locked(self, entry: Entry, job: Job) -> None:
        """Replace a job's record after an opcode that another one follows.

        The end is shown once it is durable.
        """
        _log.debug("job %d: an opcode ended", job.id)
        entry.job = job
        self._save_opcode_locked(entry)

    def _save_opcode_locked(self, entry: Entry) -> None:
        job = entry.hidden = entry.job

        def again() -> None:
            with self.transaction():
                if entry.hidden is job and entry.place is not Place.ENDED:
                    self._save_opcode_locked(entry)

        def done(error: BaseException | None) -> None:
            if error is not None:
                if not isinstance(error, errors.TermError):
                    self.timers.after(_RETRY_S, again)
                return
            with self.lock:
                is_newest = entry.hidden is job
                if is_newest:
                    entry.hidden = None
                # A final record is shown by `_ended`, which may have come before.
                if entry.shown is not entry.job:
                    is_over = entry.place is Place.ENDED
                    entry.shown = entry.job if is_newest and not is_over else job
                    self.changed_locked(entry)

        self.save_locked(entry, done, wait_s=NEXT_WAIT_S)

    def end_locked(self, entry: Entry, job: Job, on_done: OnDone | None = None) -> None:
        """Replace a job's record by a final one, which is shown once it is durable.

        Args:
            entry: the job.
            job: its final record.
            on_done: called when the record is durable, or when the first commit failed.
        """
        _log.debug("job %d: %s -> %s", job.id, entry.job.status, job.status)
        entry.job = job
        entry.place = Place.ENDED
        self.schedule.leave(entry)
        if entry.rest_timer is not None:
            entry.rest_timer.cancel()
        self._save_end_locked(entry, on_done or _ignore)

    def _save_end_locked(self, entry: Entry, on_done: OnDone) -> None:
        def again() -> None:
            with self.transaction():
                entry.unsaved = len(entry.logs)
                self._save_end_locked(entry, _ignore)

        def done(error: BaseException | None) -> None:
            if error is None:
                self._ended(entry)
            elif not isinstance(error, errors.TermError):
                self.timers.after(_RETRY_S, again)
            on_done(error)

        # The result of a job is not shown before it is durable, so the write is
        # repeated until it succeeds. A TermError is final: another master has the job
        # now.
        self.save_locked(entry, done)

    def _ended(self, entry: Entry) -> None:
        job_id = entry.job.id
        with self.transaction():
            # Clients see the end only now, after the commit.
            entry.shown = entry.job
            if self.live.pop(job_id, None) is not None:
                self.remote.add(entry.requester, entry.size, -1)
            self.note_ended_locked(entry.job)
            if len(entry.logs) <= _RECENT_LINES:
                self.recent[job_id] = entry.view()
            if len(self.recent) > _RECENT:
                self.recent.popitem(last=False)
            self.changed_locked(entry)
            for waiting in sorted(self.dependents.pop(job_id, ())):
                self._freed_locked(waiting, job_id)
        if self.settings.observer is not None:
            self.settings.observer.ended(entry.job)

    def note_ended_locked(self, job: Job) -> None:
        """Record that a live job has ended."""
        when = job.end_timestamp or job.start_timestamp or job.received_timestamp
        self.ended[job.id] = (job.status, when or (0, 0))

    def _freed_locked(self, waiting: int, job_id: int) -> None:
        entry = self.live.get(waiting)
        if entry is None:
            return
        entry.waits_for.discard(job_id)
        if not entry.waits_for and entry.place is Place.DEPENDENT:
            self.schedule.push(entry)

    def cancel_locked(self, entry: Entry, on_done: OnDone | None = None) -> None:
        """Cancel a queued or waiting job; a worker gives up its job later."""
        text = entry.cancel_text
        job = transitions.cancel(entry.job, self.now(), text)
        # A worker confirms the cancellation of its job itself. Without a worker nobody
        # else would, so it is done here.
        if not job.is_final and entry.place is not Place.WORKING:
            # Between two attempts to get its locks.
            index = transitions.next_index(job)
            if index is not None:
                job = transitions.confirm_cancel(job, index, self.now(), text)
        if job.is_final:
            self.end_locked(entry, job, on_done)
            return
        entry.must_cancel = True
        self.interrupt_locked(entry)
        self.show_locked(entry, job)
        self.save_locked(entry, on_done)

    def interrupt_locked(self, entry: Entry) -> None:
        """End a wait for locks of the worker that has a job."""
        self.lock_waiters.pop(entry.job.id, None)
        if entry.interrupt is not None:
            self.later_locked(entry.interrupt)
            entry.interrupt = None

    # Jobs that hold locks, and jobs that wait for them
    def rest_until_unblocked_locked(self, entry: Entry, blockers: set[int]) -> None:
        """Remember the jobs that must end before a job tries again."""
        for job_id in blockers - entry.blocked_by:
            self.blocked.setdefault(job_id, set()).add(entry)
        entry.blocked_by = blockers

    def opcode_ended_locked(self, job_id: int) -> None:
        """Let jobs try again that only waited for the locks of this job's opcode."""
        waiting = self.blocked.pop(job_id, ())
        for entry in sorted(waiting, key=lambda entry: entry.job.id):
            entry.blocked_by.discard(job_id)
            if entry.place is Place.RESTING and not entry.blocked_by:
                if entry.rest_timer is not None:
                    entry.rest_timer.cancel()
                self.schedule.push(entry)

    # Frozen nodes
    def note_silence(self, worker: threading.Thread, is_silent: bool) -> None:
        """Record whether a worker waits for a frozen node; never blocks for long.

        Threads that are no workers are ignored.
        """
        if not is_silent and worker not in self.silenced:
            return  # the usual case: at the end of each call
        with self.lock:
            was_silent = worker in self.silenced
            if is_silent and worker in self.working:
                self.silenced.add(worker)
            else:
                self.silenced.discard(worker)
            is_changed = (worker in self.silenced) != was_silent
        if is_changed and is_silent:
            self.timers.after(0.0, self._dispatch)

    def _dispatch(self) -> None:
        with self.transaction():
            pass  # Its end starts the jobs that may start now.

    # Questions
    def status_of(self, job_id: int) -> Status | None:
        """Return the state of a job, live or archived; None if it is unknown."""
        with self.lock:
            entry = self.live.get(job_id)
            if entry is not None:
                return entry.shown.status
            ended = self.ended.get(job_id)
        if ended is not None:
            return ended[0]
        archived = self.read_stored(ARCHIVE, job_id)
        return archived.status if archived is not None else None

    def find_live(self, job_id: int) -> Job | None:
        """Return a live job with its log, ended or not."""
        with self.lock:
            entry = self.live.get(job_id)
            if entry is not None:
                job, logs = entry.shown, entry.logs.copy()
            elif job_id not in self.ended:
                return None
            known = self.recent.get(job_id)
        if entry is not None:
            return attach_logs(job, logs)
        return known if known is not None else self.read_with_logs(JOBS, job_id)

    def read_with_logs(self, table: str, job_id: int) -> Job | None:
        """Return a stored job with its log."""
        job = self.read_stored(table, job_id)
        if job is None:
            return None
        return attach_logs(job, self.read_logs(job_id))

    def read_logs(self, job_id: int) -> list[tuple[int, LogEntry]]:
        """Return (index of the opcode, log entry) pairs, in order."""
        # In this order, a log that moves to the archive at this moment is found, and
        # may be found twice.
        lines = [
            records.decode_log(data)
            for _key, data in self.store.scan(LOGS, f"{job_id}/")
        ]
        for _key, data in self.store.scan(ARCHIVE, f"{job_id}/"):
            lines += records.unpack_logs(data)
        by_serial = {line.serial: (index, line) for index, line in lines}
        return [by_serial[serial] for serial in sorted(by_serial)]

    def read_all_logs(
        self, job_ids: Container[int]
    ) -> dict[int, list[tuple[int, LogEntry]]]:
        """Return the log entries of many jobs, see `read_logs`."""
        logs: dict[int, list[tuple[int, LogEntry]]] = {}
        for key, data in self.store.scan(LOGS):
            job_id = int(key.partition("/")[0])
            if job_id in job_ids:
                logs.setdefault(job_id, []).append(records.decode_log(data))
        return logs

    def read_stored(self, table: str, job_id: int) -> Job | None:
        """Return a stored job without its log; None if absent or unreadable."""
        data = self.store.read(table, str(job_id))
        if data is None:
            return None
        try:
            return records.decode_job(data)
        except errors.JobFileCorrupted as err:
            _log.error("%s/%d: %s", table, job_id, err)
            return None


def _ignore_change(_entry: Entry, _only_log: bool) -> None:
    """Ignore a change of a job without watchers."""


def _seniority(entry: Entry) -> tuple[Timestamp, int]:
    return entry.job.start_timestamp or (0, 0), entry.job.id


def _call_safely(call: Callable[[], None]) -> None:
    """Call a callback; its failure must not prevent the calls of others."""
    try:
        call()
    except Exception:  # noqa: BLE001 - whatever it is
        _log.exception("job queue: a callback failed")


def _document(job: Job) -> Document:
    return Document(JOBS, str(job.id), records.encode_job(job))


def _ignore(_error: BaseException | None) -> None:
    """Ignore the end of a commit; `Core.failed` has reported errors."""
