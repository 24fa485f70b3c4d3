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
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from ganeti.base import clock, errors
from ganeti.base.timers import Timers
from ganeti.decisions.jobs import filters, schedule, transitions
from ganeti.decisions.jobs.entry import Entry, Place, attach_logs
from ganeti.decisions.jobs.records import Job, Status, Timestamp
from ganeti.decisions.jobs.schedule import Schedule
from ganeti.master.jqueue import documents
from ganeti.master.jqueue.dispatching import Dispatcher
from ganeti.master.jqueue.effects import ARCHIVE, JOBS, Documents

_JOB_QUEUE_SIZE_HARD_LIMIT: Final = 5000

_log = logging.getLogger(__name__)

#: Seconds until a final state that could not be stored is stored again.
_RETRY_S = 5.0
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
    hard_limit: int = _JOB_QUEUE_SIZE_HARD_LIMIT
    archive_age_s: float | None = 21 * 86400.0
    on_failure: Callable[[BaseException], None] | None = None
    observer: Observer | None = None


class Core:
    """See the module. Methods whose names end in ``_locked`` need the lock held.

    Under this lock, `JobDocuments` owns what a commit contains, and `Dispatcher` who
    runs next and who waits for locks. The rest is owned here: the tables of jobs, what
    is shown of them, their dependencies, and the callbacks of a transaction.
    """

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
        self.documents = documents.JobDocuments(store, self.lock, settings.on_failure)
        self.timers = timers or Timers(clk)
        self.schedule = Schedule()
        self.dispatcher = Dispatcher(self, settings.workers)
        #: Called when a watched job has changed, with the job and whether only its log
        #: has changed; see `ganeti.master.jqueue.watching`.
        self.notify_locked: Callable[[Entry, bool], None] = _ignore_change
        self.live: dict[int, Entry] = {}
        self.remote = filters.RemoteShare(settings.hard_limit)
        #: Live jobs that have ended: state and time of the end.
        self.ended: dict[int, tuple[Status, Timestamp]] = {}
        #: Ended jobs that are being archived.
        self.archiving: set[int] = set()
        self.recent: collections.OrderedDict[int, Job] = collections.OrderedDict()
        self.dependents: dict[int, set[int]] = {}
        self.serial = 0
        #: Jobs whose first commit has not ended.
        self.arriving = 0
        self.is_drained = False
        self.is_stopping = False
        self._outbox: list[Callable[[], None]] = []

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
                    if not self.is_stopping:
                        self.dispatcher.dispatch_locked()
                    outbox, self._outbox = self._outbox, outbox
        finally:
            # Also after an error: the dispatch may have changed other jobs.
            self.documents.send()
            for call in outbox:
                _call_safely(call)

    def later_locked(self, call: Callable[[], None]) -> None:
        """Register a callback for the time after the release of the lock."""
        self._outbox.append(call)

    # Steps in the life of a job
    def admit_locked(self, entry: Entry) -> None:
        """Add a durable job to the queue."""
        self.live[entry.job.id] = entry
        self.remote.add(entry.requester, entry.size)
        entry.submitted_at = self.clock.monotonic()
        # A dependency that is not live has ended already: its result is looked up when
        # the job starts.
        targets = schedule.dependencies(entry.job.id, entry.ops)
        entry.waits_for = {dep for dep in targets if dep in self.live}
        for dep in entry.waits_for:
            self.dependents.setdefault(dep, set()).add(entry.job.id)
        if entry.waits_for:
            entry.place = Place.DEPENDENT
        else:
            self.schedule.push(entry)

    def admit_resumed_locked(self, entry: Entry) -> None:
        """Add a job whose opcode an earlier daemon began; `Dispatcher` starts it."""
        self.live[entry.job.id] = entry
        self.remote.add(entry.requester, entry.size)
        self.dispatcher.to_resume.append(entry)

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

        self.documents.save_locked(entry, done, wait_s=documents.NEXT_WAIT_S)

    def end_locked(
        self, entry: Entry, job: Job, on_done: documents.OnDone | None = None
    ) -> None:
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
        self._save_end_locked(entry, on_done or documents.ignore)

    def _save_end_locked(self, entry: Entry, on_done: documents.OnDone) -> None:
        def again() -> None:
            with self.transaction():
                entry.unsaved = len(entry.logs)
                self._save_end_locked(entry, documents.ignore)

        def done(error: BaseException | None) -> None:
            if error is None:
                self._ended(entry)
            elif not isinstance(error, errors.TermError):
                self.timers.after(_RETRY_S, again)
            on_done(error)

        # The result of a job is not shown before it is durable, so the write is
        # repeated until it succeeds. A TermError is final: another master has the job
        # now.
        self.documents.save_locked(entry, done)

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

    def cancel_locked(
        self, entry: Entry, on_done: documents.OnDone | None = None
    ) -> None:
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
        self.dispatcher.interrupt_locked(entry)
        self.show_locked(entry, job)
        self.documents.save_locked(entry, on_done)

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
        archived = self.documents.read_stored(ARCHIVE, job_id)
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
        return (
            known if known is not None else self.documents.read_with_logs(JOBS, job_id)
        )


def _ignore_change(_entry: Entry, _only_log: bool) -> None:
    """Ignore a change of a job without watchers."""


def _call_safely(call: Callable[[], None]) -> None:
    """Call a callback; its failure must not prevent the calls of others."""
    try:
        call()
    except Exception:  # noqa: BLE001 - whatever it is
        _log.exception("job queue: a callback failed")
