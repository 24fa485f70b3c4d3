"""The interface of the queue for the master daemon.

Methods whose name ends in ``_later`` return a future at once and never block, for event
loops; the plain ones wait for the future. Neither may be called from a commit's
callback in the store. Futures are resolved in the store's thread, so their callbacks
must be short.
"""

import logging
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

import msgspec

from ganeti.base import clock, errors
from ganeti.base.constants import ecodes, jobqueue
from ganeti.base.timers import Timers
from ganeti.decisions.jobs import records, transitions
from ganeti.decisions.jobs.entry import Entry, Known, Place, attach_logs
from ganeti.decisions.jobs.records import Job, LogEntry, Status
from ganeti.master.jqueue import archiving
from ganeti.master.jqueue.core import Core, Settings
from ganeti.master.jqueue.effects import (
    ARCHIVE,
    DRAIN,
    JOBS,
    META,
    SERIAL,
    Document,
    Documents,
    Executor,
    WorkerPool,
)
from ganeti.master.jqueue.running import Runner
from ganeti.master.jqueue.submitting import Answers, Ops, Submitter, settle
from ganeti.master.jqueue.watching import Watching
from ganeti.model import opcodes

# Recovery of an earlier daemon's jobs, once, before any job runs.
#
# Queued jobs continue to wait, in the order of their ids; `transitions.recover` decides
# on jobs in other states. An unreadable record moves to the archive.


def recover_jobs(core: Core) -> None:
    """Load jobs, serial and drain flag; block until all changes are durable.

    Raises:
        JobQueueError: the serial is not a number.
        StorageError: the store refused the changes.
    """
    core.serial = _read_serial(core)
    core.is_drained = core.store.read(META, DRAIN) is not None
    documents: list[Document] = []
    entries: list[Entry] = []
    ended: list[Job] = []
    for key, data in sorted(core.store.scan(JOBS), key=lambda item: int(item[0])):
        # Ids are never used twice, even if the stored serial is older than a job.
        core.serial = max(core.serial, int(key))
        try:
            stored = records.decode_job(data)
            job, entry = _take_over(core, stored)
        except errors.GenericError as err:
            _log.error("job %s: moved to the archive: %s", key, err)
            # Kept as it is: a job that this release cannot read must not stop the
            # queue.
            documents += [Document(ARCHIVE, key, data), Document(JOBS, key, None)]
            continue
        if job is not stored:
            documents.append(Document(JOBS, key, records.encode_job(job)))
        if entry is not None:
            entries.append(entry)
        else:
            core.note_ended_locked(job)
            if job is not stored:
                ended.append(job)
    # The state after recovery is durable before any job runs: a second crash finds
    # it, and does not run an opcode again that the first one interrupted.
    _commit(core, documents)
    if core.settings.observer is not None:
        for job in ended:
            core.settings.observer.ended(job)
    with core.transaction():
        for entry in entries:
            if any(op.is_resumable for op in entry.job.ops):
                _log.info("job %d: continues what it did before", entry.job.id)
                core.admit_resumed_locked(entry)
            else:
                core.admit_locked(entry)
    _log.info("job queue: %d unfinished jobs, last id %d", len(entries), core.serial)


def _take_over(core: Core, stored: Job) -> tuple[Job, Entry | None]:
    """Return the recovered job, and its entry if the job is unfinished."""
    now = core.now()
    job = transitions.recover(stored, now)
    if job.is_final:
        return job, None
    try:
        ops = [opcodes.decode(op.decoded_input()) for op in job.ops]
    except errors.OpPrereqError as err:
        return transitions.abort(job, err, now), None
    entry = Entry(job, ops)
    entry.logs = core.documents.read_logs(job.id)
    entry.lost_secrets = frozenset(
        index for index, op in enumerate(job.ops) if transitions.has_lost_secrets(op)
    )
    return job, entry


def _read_serial(core: Core) -> int:
    data = core.store.read(META, SERIAL)
    if data is None:
        return 0
    if not data.strip().isdigit():
        raise errors.JobQueueError(f"job serial: wanted a number, found {data!r}")
    return int(data)


def _commit(core: Core, documents: list[Document]) -> None:
    if not documents:
        return
    finished = threading.Event()
    failures: list[BaseException] = []

    def on_done(error: BaseException | None) -> None:
        if error is not None:
            failures.append(error)
        finished.set()

    with core.transaction():
        core.documents.commit_locked(documents, on_done)
    finished.wait()
    if failures:
        raise failures[0]


# Requests of clients to jobs and to the queue: cancel, change priority, drain.
#
# Every answer is sent when its effect is durable.

#: Whether the request succeeded, and a text for the user.
Answer = tuple[bool, str]


def cancel_job(core: Core, job_id: int, *, kill: bool) -> Future[Answer]:
    """See `JobQueue.cancel_later`."""
    future: Future[Answer] = Future()
    with core.transaction():
        entry = core.live.get(job_id)
        if entry is None or entry.job.is_final:
            known = entry is not None or job_id in core.ended
            why = "is no longer in the queue" if known else "not found"
            answer = (False, f"Job {job_id} {why}")
        elif entry.job.status in (Status.QUEUED, Status.WAITING):
            _cancel_locked(core, entry, future)
            return future
        elif entry.job.status is Status.CANCELING:
            answer = (True, f"Job {job_id} will be canceled")
        else:
            answer = _kill_locked(core, entry, kill=kill)
        core.later_locked(lambda: settle(future, answer, None))
    return future


def _cancel_locked(core: Core, entry: Entry, future: Future[Answer]) -> None:
    is_later = entry.job.status is Status.WAITING and entry.place is Place.WORKING
    text = "will be canceled" if is_later else "canceled"
    answer = (True, f"Job {entry.job.id} {text}")
    core.cancel_locked(entry, lambda error: settle(future, answer, error))


def _kill_locked(core: Core, entry: Entry, *, kill: bool) -> Answer:
    if not kill:
        return False, f"Job {entry.job.id} is running, it cannot be canceled"
    entry.must_die = True
    if entry.kill is not None:
        core.later_locked(entry.kill)
    return True, f"Job {entry.job.id} is running and will end as soon as possible"


def change_job_priority(core: Core, job_id: int, priority: int) -> Future[Answer]:
    """See `JobQueue.change_priority_later`."""
    lowest, highest = jobqueue.OP_PRIO_LOWEST, jobqueue.OP_PRIO_HIGHEST
    if not highest <= priority <= lowest:
        raise errors.OpPrereqError(
            f"job {job_id}: priority {priority} is not from {highest} to {lowest}",
            ecodes.ECODE_INVAL,
        )
    future: Future[Answer] = Future()
    with core.transaction():
        entry = core.live.get(job_id)
        refusal = _refusal(core, job_id, entry)
        if entry is None or refusal is not None:
            answer = (False, refusal or "")
            core.later_locked(lambda: settle(future, answer, None))
            return future
        core.show_locked(entry, transitions.with_priority(entry.job, priority))
        core.schedule.changed_priority(entry)
        if entry.place is Place.WORKING and entry.job.status is Status.WAITING:
            entry.must_hurry = True
            core.dispatcher.interrupt_locked(entry)
        text = f"Priority of the pending opcodes of job {job_id} is now {priority}"
        answer = (True, text)
        core.documents.save_locked(entry, lambda error: settle(future, answer, error))
    return future


def _refusal(core: Core, job_id: int, entry: Entry | None) -> str | None:
    if entry is None:
        known = job_id in core.ended
        return f"Job {job_id} {'is finished' if known else 'not found'}"
    if entry.job.is_final:
        return f"Job {job_id} is finished"
    if entry.job.status is Status.CANCELING:
        return f"Job {job_id} is being canceled"
    pending = (Status.QUEUED, Status.WAITING)
    if not any(op.status in pending for op in entry.job.ops):
        return f"Job {job_id} has no pending opcodes"
    return None


def leave_jobs_out(core: Core, job_id: int) -> Future[None]:
    """See `JobQueue.leave_out`."""
    future: Future[None] = Future()
    with core.transaction():
        core.serial = max(core.serial, job_id)
        document = Document(META, SERIAL, b"%d" % core.serial)
        core.documents.commit_locked(
            [document], lambda error: settle(future, None, error)
        )
    return future


def set_drain_flag(core: Core, flag: bool) -> Future[bool]:
    """See `JobQueue.set_drain_later`."""
    future: Future[bool] = Future()
    with core.transaction():
        before, core.is_drained = core.is_drained, flag

        def on_done(error: BaseException | None) -> None:
            if error is not None:
                core.is_drained = before
            settle(future, flag, error)

        document = Document(META, DRAIN, b"1" if flag else None)
        core.documents.commit_locked([document], on_done)
    return future


_log = logging.getLogger(__name__)

#: Seconds after the start; the releases of all candidates are known then.
_FIRST_LOGS_S: Final = 30.0
#: Seconds: an hour after the start, then daily.
_FIRST_PURGE_S: Final = 3600.0
_PURGE_EVERY_S: Final = 86400.0


class Statistics(NamedTuple):
    """Present numbers of jobs (not ended, ended but live, running) and of threads."""

    unfinished: int
    ended: int
    running: int
    workers: int


class PresentJobs(NamedTuple):
    """Jobs under way, and recent failures; without their logs.

    Attributes:
        unfinished: by id.
        failures: number of jobs that failed within the time.
        failed: the newest of these, by the time of their end.
    """

    unfinished: list[Job]
    failures: int
    failed: list[Job]


class JobQueue:
    """The job queue of the master daemon; thread-safe.

    Args:
        store: the store of jobs; the queue is the only writer of its documents.
        executor: executes opcodes in worker threads.
        clk: the clock.
        settings: limits, see `Settings`.
        chance: returns random numbers from 0 to 1, for waiting times.
        make_pool: returns the workers; a simulation has its own.
        timers: those of the queue; a simulation has its own.

    Call `recover` before anything else, then `start`.
    """

    def __init__(
        self,
        store: Documents,
        executor: Executor,
        clk: clock.Clock,
        settings: Settings | None = None,
        *,
        chance: Callable[[], float] = random.random,
        make_pool: Callable[[Callable[[Entry], None]], WorkerPool[Entry]] = WorkerPool,
        timers: Timers | None = None,
    ) -> None:
        self._core = Core(store, clk, settings or Settings(), timers)
        self._submitter = Submitter(self._core)
        self._watching = Watching(self._core)
        # A running job may submit others even if the queue is drained.
        runner = Runner(
            self._core,
            executor,
            lambda jobs: self.submit_many_later(jobs, to_drained=True).result(),
            chance,
        )
        self._core.dispatcher.pool = make_pool(runner.run)

    # Life
    def recover(self) -> None:
        """Load the jobs of an earlier daemon; blocks. Raises StorageError."""
        recover_jobs(self._core)

    def start(self) -> None:
        """Start to run jobs."""
        core = self._core
        core.timers.start()
        if core.settings.archive_age_s is not None:
            core.timers.after(_FIRST_PURGE_S, lambda: _purge_daily(core))
        core.timers.after(_FIRST_LOGS_S, lambda: archiving.move_old_logs(core))
        with core.transaction():
            core.dispatcher.start_locked()

    def stop(self, timeout_s: float | None = None) -> bool:
        """Refuse jobs, wait for running opcodes, and return waiting ones to the queue.

        Args:
            timeout_s: seconds for all workers together; None waits without limit.

        Returns:
            Whether all workers have ended. If not, the log lines of the opcodes that
            still run have been passed to the store. At the next start, `recover` ends
            their jobs, or lets those continue that can be resumed.
        """
        core = self._core
        with core.transaction():
            core.is_stopping = True
            for entry in core.live.values():
                core.dispatcher.interrupt_locked(entry)
        # Opcodes that the next daemon continues are not waited for.
        pool = core.dispatcher.pool
        ended = pool is None or pool.stop(
            core.clock, timeout_s, is_left=core.dispatcher.is_left
        )
        if not ended:
            _save_running(core)
        core.timers.stop()
        self._watching.stop()
        return ended

    def note_silence(self, worker: threading.Thread, is_silent: bool) -> None:
        """Record whether a worker only waits for the answer of a frozen node.

        Its job does not count then, so another one may run. Threads that are no workers
        of this queue are ignored. Does not block.
        """
        self._core.dispatcher.note_silence(worker, is_silent)

    def poke(self) -> None:
        """Check again which jobs may start, after changes of the rules or limits."""
        with self._core.transaction():
            pass  # Its end starts every job that may start now.

    # Submitting
    def submit_later(self, ops: Ops, *, to_drained: bool = False) -> Future[int]:
        """Queue a job; the future has its id once the job is durable.

        Args:
            ops: its opcodes, with their secrets.
            to_drained: accept the job even if the queue is drained.

        Raises:
            JobQueueDrainError, JobQueueFull, JobQueueError: refused.
            OpPrereqError: no opcodes, or an invalid priority or dependency.
        """
        return self._submitter.submit(ops, to_drained=to_drained)

    def submit(self, ops: Ops, *, to_drained: bool = False) -> int:
        """Queue a job and return its id; see `submit_later`."""
        return self.submit_later(ops, to_drained=to_drained).result()

    def submit_many_later(
        self, jobs: Sequence[Ops], *, to_drained: bool = False
    ) -> Future[Answers]:
        """Queue jobs with consecutive ids; one bad job does not stop the others.

        The future has (true, id) or (false, reason) per job, in order.

        Raises:
            JobQueueDrainError, JobQueueError: all refused.
            OpPrereqError: all refused, because of an invalid priority.
        """
        return self._submitter.submit_many(jobs, to_drained=to_drained)

    def submit_all_later(
        self,
        jobs: Sequence[Ops],
        also: Callable[[Sequence[int]], Sequence[Document]],
        *,
        to_drained: bool = False,
    ) -> Future[list[int]]:
        """Queue all jobs or none, and commit documents with them.

        Args:
            jobs: opcodes of each; there may be none.
            also: returns the documents, from the ids of the jobs.
            to_drained: queue them although the queue is drained.

        Raises:
            JobQueueDrainError, JobQueueFull, JobQueueError, OpPrereqError: refused.
        """
        return self._submitter.submit_all(jobs, also, to_drained=to_drained)

    # Changing
    def cancel_later(self, job_id: int, *, kill: bool = False) -> Future[Answer]:
        """Ask to cancel a job.

        A queued job, or one between two attempts to get its locks, is canceled at once;
        a job that waits for locks gives up. A running job continues, unless it must be
        killed: then its opcode fails when it logs a line or calls
        `Callbacks.check_canceled`, and no later opcode begins. A thread cannot be ended
        at any other point without leaving locks behind.

        Returns:
            Whether the job will be canceled, and a text for the user.
        """
        return cancel_job(self._core, job_id, kill=kill)

    def change_priority_later(self, job_id: int, priority: int) -> Future[Answer]:
        """Change the priority of a job's queued and waiting opcodes.

        A present attempt to get locks begins again with the new priority.

        Returns:
            Whether the priority was changed, and a text for the user.

        Raises:
            OpPrereqError: the priority is not from -20 to 19.
        """
        return change_job_priority(self._core, job_id, priority)

    def archive_later(self, job_id: int) -> Future[bool]:
        """Archive a job; false if it is unknown, unfinished or archived already."""
        return archiving.archive_one(self._core, job_id)

    def autoarchive_later(
        self, age_s: float, timeout_s: float
    ) -> Future[tuple[int, int]]:
        """Archive ended jobs.

        Args:
            age_s: archive jobs that ended longer ago; negative for all.
            timeout_s: begin no further commit after this many seconds.

        Returns:
            The number of archived jobs, and of jobs not checked yet.
        """
        return archiving.auto_archive(self._core, age_s, timeout_s)

    def leave_out(self, job_id: int) -> None:
        """Give each later job a higher id than this one; blocks.

        Raises:
            StorageError: that is not durable yet, but holds.
            TermError: another master has taken over.
        """
        leave_jobs_out(self._core, job_id).result()

    def set_drain_later(self, flag: bool) -> Future[bool]:
        """Refuse submissions, or accept them again; the future has the flag."""
        return set_drain_flag(self._core, flag)

    # Queries
    @property
    def is_drained(self) -> bool:
        """Whether submissions are refused."""
        return self._core.is_drained

    @property
    def last_id(self) -> int:
        """The last job id in use, 0 at first."""
        return self._core.serial

    def statistics(self) -> Statistics:
        """Return numbers for monitoring."""
        core = self._core
        with core.lock:
            pool, running = core.dispatcher.pool, core.dispatcher.running
            workers = pool.size if pool is not None else 0
            return Statistics(len(core.live), len(core.ended), running, workers)

    def job(self, job_id: int) -> Job | None:
        """Return a job with its log, live or archived; None if it is unknown."""
        live = self._core.find_live(job_id)
        if live is not None:
            return live
        archived = self._core.documents.read_with_logs(ARCHIVE, job_id)
        if archived is None:
            return None
        return msgspec.structs.replace(archived, is_archived=True)

    def jobs(self, *, with_logs: bool = True) -> list[Job]:
        """Return all live jobs, by id.

        Args:
            with_logs: add the log entries; those of ended jobs are read from the store.
        """
        return _all_jobs(self._core, with_logs=with_logs)

    def present_jobs(self, since: float, most: int) -> PresentJobs:
        """Return unfinished jobs, and live ones that failed since a time.

        Args:
            since: seconds since 1970.
            most: failed jobs that are returned; all are counted.
        """
        return _present_jobs(self._core, since, most)

    def live_ids(self) -> list[int]:
        """Return the ids of all live jobs, sorted."""
        core = self._core
        with core.lock:
            return sorted(core.live.keys() | core.ended.keys())

    def archived_ids(self) -> list[int]:
        """Return the ids of all archived jobs, sorted."""
        keys = (key for key, _data in self._core.store.scan(ARCHIVE))
        return sorted(int(key) for key in keys if "/" not in key)

    def dependencies(self) -> list[tuple[int, list[int]]]:
        """Return unfinished jobs, each with the jobs that wait for it, by id."""
        core = self._core
        with core.lock:
            return sorted(
                (dep, sorted(waiting & core.live.keys()))
                for dep, waiting in core.dependents.items()
            )

    def wait_for_change(
        self,
        job_id: int,
        fields: Callable[[Job], Any],
        *,
        previous: Any = None,
        serial: int | None = None,
        timeout_s: float,
    ) -> Future[tuple[Any, tuple[LogEntry, ...]]]:
        """Wait until a job changes, without a thread.

        Args:
            job_id: a live job.
            fields: returns the values of interest of a record; runs in any thread.
            previous: the last known values, in JSON form; None answers at once.
            serial: the newest known log entry.
            timeout_s: time limit in seconds, at most 89; then the answer has the
                present values.

        Returns:
            A future with values and newer log entries: at once if the job has ended.
            The future fails with JobLost if the job is not in the live queue. If the
            job leaves the live queue later, the values are None. Cancel the future
            when it is not needed any more.
        """
        return self._watching.wait(
            job_id, fields, previous=previous, serial=serial, timeout_s=timeout_s
        )

    def wait_for_changes(
        self, jobs: Sequence[Known], fields: Callable[[Job], Any], *, timeout_s: float
    ) -> Future[list[tuple[int, tuple[Any, tuple[LogEntry, ...]] | None]]]:
        """Wait until at least one of some jobs changes, without a thread.

        Args:
            jobs: the jobs, each with its last known values and log entry.
            fields: as for `wait_for_change`.
            timeout_s: time limit in seconds, at most 89.

        Returns:
            A future with (job id, change) of the jobs that have changed, with a change
            as that of `wait_for_change`, or None if the job is not in the live queue.
            The list is empty if the time is over. Cancel the future when it is not
            needed any more.
        """
        return self._watching.wait_any(jobs, fields, timeout_s)


def _save_running(core: Core) -> None:
    """Store the log lines of opcodes that are not waited for any longer."""
    with core.transaction():
        for entry in core.live.values():
            if entry.place is not Place.WORKING:
                continue
            _log.warning("job %d still runs; it is not waited for", entry.job.id)
            if entry.unsaved:
                core.documents.save_logs_locked(entry)


def _purge_daily(core: Core) -> None:
    core.timers.after(_PURGE_EVERY_S, lambda: _purge_daily(core))
    if core.settings.archive_age_s is not None:
        archiving.purge(core, core.settings.archive_age_s)


def _present_jobs(core: Core, since: float, most: int) -> PresentJobs:
    with core.lock:
        unfinished = [core.live[job_id].shown for job_id in sorted(core.live)]
        ends = sorted(
            (end, job_id)
            for job_id, (status, end) in core.ended.items()
            if status is records.Status.ERROR and end[0] >= since
        )
        chosen = [job_id for _end, job_id in ends[-most:]]
        known = {job_id: core.recent.get(job_id) for job_id in chosen}
    stored = (
        known[job_id] or core.documents.read_stored(JOBS, job_id) for job_id in chosen
    )
    return PresentJobs(
        unfinished, len(ends), [job for job in stored if job is not None]
    )


def _all_jobs(core: Core, *, with_logs: bool) -> list[Job]:
    with core.lock:
        jobs = {entry.job.id: entry.view() for entry in core.live.values()}
        jobs.update((i, job) for i, job in core.recent.items() if i in core.ended)
        missing = core.ended.keys() - jobs.keys()
    logs = core.documents.read_all_logs(missing) if missing and with_logs else {}
    for key, data in core.store.scan(JOBS) if missing else ():
        job_id = int(key)
        if job_id in missing:
            job = records.decode_job(data)
            jobs[job_id] = attach_logs(job, logs.get(job_id, ()))
    return [jobs[job_id] for job_id in sorted(jobs)]
