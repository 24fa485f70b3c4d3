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

from ganeti.base import clock
from ganeti.base.timers import Timers
from ganeti.decisions.jobs import records
from ganeti.decisions.jobs.entry import Entry, Known, Place, attach_logs
from ganeti.decisions.jobs.records import Job, LogEntry
from ganeti.master.jqueue import archiving, control, recovery
from ganeti.master.jqueue.control import Answer
from ganeti.master.jqueue.core import Core, Settings
from ganeti.master.jqueue.documents import ARCHIVE, JOBS, Document, Documents
from ganeti.master.jqueue.executor import Executor
from ganeti.master.jqueue.pool import WorkerPool
from ganeti.master.jqueue.running import Runner
from ganeti.master.jqueue.submitting import Answers, Ops, Submitter
from ganeti.master.jqueue.watching import Watching

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
        runner = Runner(self._core, executor, self._submit_inside, chance)
        self._core.pool = make_pool(runner.run)

    # Life
    def recover(self) -> None:
        """Load the jobs of an earlier daemon; blocks. Raises StorageError."""
        recovery.recover(self._core)

    def start(self) -> None:
        """Start to run jobs."""
        core = self._core
        core.timers.start()
        if core.settings.archive_age_s is not None:
            core.timers.after(_FIRST_PURGE_S, self._purge_daily)
        core.timers.after(_FIRST_LOGS_S, lambda: archiving.move_old_logs(core))
        with core.transaction():
            core.start_locked()

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
                core.interrupt_locked(entry)
        # Opcodes that the next daemon continues are not waited for.
        ended = core.pool is None or core.pool.stop(
            core.clock, timeout_s, is_left=core.is_left
        )
        if not ended:
            self._save_running()
        core.timers.stop()
        self._watching.stop()
        return ended

    def _save_running(self) -> None:
        """Store the log lines of opcodes that are not waited for any longer."""
        core = self._core
        with core.transaction():
            for entry in core.live.values():
                if entry.place is not Place.WORKING:
                    continue
                _log.warning("job %d still runs; it is not waited for", entry.job.id)
                if entry.unsaved:
                    core.save_logs_locked(entry)

    def _purge_daily(self) -> None:
        core = self._core
        core.timers.after(_PURGE_EVERY_S, self._purge_daily)
        if core.settings.archive_age_s is not None:
            archiving.purge(core, core.settings.archive_age_s)

    def note_silence(self, worker: threading.Thread, is_silent: bool) -> None:
        """Record whether a worker only waits for the answer of a frozen node.

        Its job does not count then, so another one may run. Threads that are no workers
        of this queue are ignored. Does not block.
        """
        self._core.note_silence(worker, is_silent)

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

    def submit_many(self, jobs: Sequence[Ops], *, to_drained: bool = False) -> Answers:
        """Queue jobs; see `submit_many_later`."""
        return self.submit_many_later(jobs, to_drained=to_drained).result()

    def _submit_inside(self, jobs: Sequence[Ops]) -> Answers:
        """Queue jobs on behalf of a running job, even if the queue is drained."""
        return self.submit_many(jobs, to_drained=True)

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
        return control.cancel(self._core, job_id, kill=kill)

    def cancel(self, job_id: int, *, kill: bool = False) -> Answer:
        """Ask to cancel a job; see `cancel_later`."""
        return self.cancel_later(job_id, kill=kill).result()

    def change_priority_later(self, job_id: int, priority: int) -> Future[Answer]:
        """Change the priority of a job's queued and waiting opcodes.

        A present attempt to get locks begins again with the new priority.

        Returns:
            Whether the priority was changed, and a text for the user.

        Raises:
            OpPrereqError: the priority is not from -20 to 19.
        """
        return control.change_priority(self._core, job_id, priority)

    def change_priority(self, job_id: int, priority: int) -> Answer:
        """Change a job's priority; see `change_priority_later`."""
        return self.change_priority_later(job_id, priority).result()

    def archive_later(self, job_id: int) -> Future[bool]:
        """Archive a job; false if it is unknown, unfinished or archived already."""
        return archiving.archive_one(self._core, job_id)

    def archive(self, job_id: int) -> bool:
        """Archive a job; see `archive_later`."""
        return self.archive_later(job_id).result()

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

    def autoarchive(self, age_s: float, timeout_s: float) -> tuple[int, int]:
        """Archive ended jobs; see `autoarchive_later`."""
        return self.autoarchive_later(age_s, timeout_s).result()

    def purge_archive(self, age_s: float) -> int:
        """Delete archived jobs that ended longer ago, and their logs; blocks.

        Unreadable ones are deleted too. Their ids are never used again.

        Returns:
            The number of deleted jobs.
        """
        return archiving.purge(self._core, age_s).result()

    def leave_out(self, job_id: int) -> None:
        """Give each later job a higher id than this one; blocks.

        Raises:
            StorageError: that is not durable yet, but holds.
            TermError: another master has taken over.
        """
        control.leave_out(self._core, job_id).result()

    def set_drain_later(self, flag: bool) -> Future[bool]:
        """Refuse submissions, or accept them again; the future has the flag."""
        return control.set_drain(self._core, flag)

    def set_drain(self, flag: bool) -> bool:
        """Refuse submissions, or accept them again."""
        return self.set_drain_later(flag).result()

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
            workers = core.pool.size if core.pool is not None else 0
            return Statistics(len(core.live), len(core.ended), core.running, workers)

    def job(self, job_id: int) -> Job | None:
        """Return a job with its log, live or archived; None if it is unknown."""
        live = self._core.find_live(job_id)
        if live is not None:
            return live
        archived = self._core.read_with_logs(ARCHIVE, job_id)
        if archived is None:
            return None
        return msgspec.structs.replace(archived, is_archived=True)

    def jobs(self, *, with_logs: bool = True) -> list[Job]:
        """Return all live jobs, by id.

        Args:
            with_logs: add the log entries; those of ended jobs are read from the store.
        """
        core = self._core
        with core.lock:
            jobs = {entry.job.id: entry.view() for entry in core.live.values()}
            jobs.update((i, job) for i, job in core.recent.items() if i in core.ended)
            missing = core.ended.keys() - jobs.keys()
        logs = core.read_all_logs(missing) if missing and with_logs else {}
        for key, data in core.store.scan(JOBS) if missing else ():
            job_id = int(key)
            if job_id in missing:
                job = records.decode_job(data)
                jobs[job_id] = attach_logs(job, logs.get(job_id, ()))
        return [jobs[job_id] for job_id in sorted(jobs)]

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
