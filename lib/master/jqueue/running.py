"""Execution of a job by a worker: one opcode after another, through the executor."""

import contextlib
import dataclasses
import functools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from ganeti.base import clock, errors
from ganeti.decisions.jobs import records, schedule, transitions
from ganeti.decisions.jobs.entry import Entry, Place, to_json_form
from ganeti.decisions.jobs.records import Job, LogEntry, Status
from ganeti.master.jqueue import documents
from ganeti.master.jqueue.core import Core
from ganeti.master.jqueue.effects import Canceled, CarriedLog, Executor, LockTimeout
from ganeti.model import opcodes

_log = logging.getLogger(__name__)

SubmitMany = Callable[
    [Sequence[Sequence[opcodes.Opcode]]], list[tuple[bool, int | str]]
]

#: Number of log entries that may wait for the next change of state to be stored.
_UNSAVED_MAX: Final = 100
#: Seconds that an act on a node waits for the log lines before it.
_SAVE_LIMIT_S: Final = 10.0
#: Seconds between attempts without a time limit.
_REST_S: Final = 1.0
#: Seconds between looks at locks that other jobs hold. The end of their opcodes is
#: noticed at once; this is for locks that they release earlier.
_LOOK_S: Final = 2.0
_KILLED_TEXT: Final = "killed on request"


class OpCallbacks:
    """The queue's callbacks for a running opcode, see `executor.Callbacks`."""

    def __init__(
        self, core: Core, submit_many: SubmitMany, entry: Entry, index: int
    ) -> None:
        self.owner = f"{entry.job.id}/{index}"
        self.submitted_at = entry.submitted_at
        self._core = core
        self._submit_many = submit_many
        self._entry = entry
        self._index = index
        #: A resumed opcode is running from the beginning, but without its locks.
        self._is_started = False
        self._was_killed = False
        #: The commit of the opcode's start.
        self._start = _CommitWait()
        self.resumption = entry.job.ops[index].resumption_value()

    def check_canceled(self) -> None:
        """Raise Canceled if the opcode must end now."""
        entry = self._entry
        if self._is_started:
            if entry.must_die:
                # Only once for log lines: the opcode's cleanup may log.
                self._was_killed = True
                raise Canceled(f"job {self.owner}: {_KILLED_TEXT}")
        elif entry.must_cancel or self._core.is_stopping:
            raise Canceled(f"job {self.owner}: canceled before execution")

    def started(self, *, durable: bool = True) -> None:
        """Mark the opcode as running, with all locks held."""
        core, entry = self._core, self._entry
        if self._is_started:
            return
        with core.transaction():
            self.check_canceled()
            core.dispatcher.resuming.discard(entry.job.id)
            job = entry.job
            if job.ops[self._index].status is not Status.RUNNING:
                job = transitions.execute(job, self._index, core.now())
            core.show_locked(entry, job)
            if durable:
                core.documents.save_locked(entry, self._start.finish)
            else:
                core.documents.save_start_locked(entry, self._start.finish)
            core.dispatcher.lock_waiters.pop(entry.job.id, None)
            entry.interrupt = None
            entry.must_hurry = entry.was_tried = False
            core.dispatcher.rest_until_unblocked_locked(entry, set())
            self._is_started = True
        if durable:
            self._start.wait()

    def on_interrupt(self, call: Callable[[], None]) -> None:
        """Register a callback that ends a wait for locks early."""
        core, entry = self._core, self._entry
        with core.transaction():
            entry.interrupt = call
            core.dispatcher.lock_waiters[entry.job.id] = entry
            if entry.must_cancel or entry.must_hurry or core.is_stopping:
                core.dispatcher.interrupt_locked(entry)

    def on_kill(self, call: Callable[[], None]) -> None:
        """Register a callback that ends a wait of the running opcode for nodes."""
        with self._core.lock:
            self._entry.kill = call

    def log(self, kind: str, payload: Any) -> None:
        """Add an entry to the job's log; the first one after a kill raises instead."""
        core, entry = self._core, self._entry
        if entry.must_die and not self._was_killed:
            self.check_canceled()
        if not isinstance(payload, str):
            payload = to_json_form(payload)
        # Not a transaction: the caller may hold the store's lock, which a transaction
        # needs.
        with core.lock:
            line = LogEntry(entry.log_serial + 1, core.now(), kind, payload)
            entry.logs.append((self._index, line))
            entry.unsaved += 1
            if entry.unsaved % _UNSAVED_MAX == 0:
                core.timers.after(0.0, self._save_logs)
            elif entry.unsaved == 1:
                core.timers.after(documents.SAVE_LOG_S, self._save_logs)
            core.changed_locked(entry, only_log=True)

    def save_log(self) -> None:
        """Return when all log entries so far are on disk, see `Callbacks`."""
        core, entry = self._core, self._entry
        self._leave_to_next_daemon()
        with core.lock:
            is_stored = entry.stored == entry.log_serial
        if is_stored and (self._start.has_ended or not self._is_started):
            self._start.check()
            return
        stored = _CommitWait()
        with core.transaction():
            # Even without log entries it takes the start of the opcode along.
            core.documents.save_logs_locked(entry, stored.finish)
        if self._is_started:
            self._start.wait()
        try:
            stored.wait(core.clock, _SAVE_LIMIT_S)
        except errors.JobQueueError as err:
            _log.warning("job %s: goes on without its log on disk: %s", self.owner, err)

    @contextlib.contextmanager
    def carry_log(self) -> Iterator[CarriedLog]:
        """Give the log entries that are not on disk to a commit of the caller."""
        core, entry = self._core, self._entry
        # The caller's commit follows that of the start, and fails with it.
        self._start.check()
        with core.lock:
            serial, carried = entry.log_serial, CarriedLog()
            # While others are on their way, these could become durable before them.
            if entry.unsaved and entry.stored + entry.unsaved == serial:
                carried.documents = core.documents.new_logs_locked(entry)
        try:
            yield carried
        finally:
            if carried.documents:
                with core.lock:
                    core.documents.note_logs_locked(
                        entry, serial, is_stored=carried.is_stored
                    )
                    if entry.unsaved:
                        # An earlier timer may have come while the entries were away.
                        core.timers.after(documents.SAVE_LOG_S, self._save_logs)

    def save_resumption(self, value: Any) -> None:
        """Store what a restarted daemon needs to continue the opcode."""
        core, entry = self._core, self._entry
        self._leave_to_next_daemon()
        encoded = records.encode_value(value)
        stored = _CommitWait()
        with core.transaction():
            job = transitions.with_resumption(entry.job, self._index, encoded)
            core.show_locked(entry, job)
            core.documents.save_locked(entry, stored.finish)
        stored.wait()

    def _leave_to_next_daemon(self) -> None:
        """Never return if the daemon is stopping and the next one can go on."""
        op = self._entry.job.ops[self._index]
        if self._core.is_stopping and op.is_resumable and self._is_started:
            # As if the daemon had been killed here. The thread ends with the process.
            _log.info("job %s: left to the next master daemon", self.owner)
            threading.Event().wait()

    def _save_logs(self) -> None:
        with self._core.transaction():
            if self._entry.unsaved:
                self._core.documents.save_logs_locked(self._entry)

    def submit_jobs(
        self, jobs: Sequence[Sequence[opcodes.Opcode]]
    ) -> list[tuple[bool, int | str]]:
        """Queue jobs on behalf of the opcode."""
        return self._submit_many(jobs)


class _CommitWait:
    """A wait for one commit."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._error: BaseException | None = None

    def finish(self, error: BaseException | None) -> None:
        self._error = error
        self._event.set()

    def wait(self, clk: clock.Clock | None = None, limit_s: float = 0.0) -> None:
        """Wait for the end of the commit, with a clock for a limited time.

        Raises:
            JobQueueError: it failed, or has not ended in time.
        """
        if clk is None:
            self._event.wait()
        elif not clk.wait(self._event, limit_s):
            raise errors.JobQueueError(f"the store has not answered in {limit_s:g} s")
        self.check()

    @property
    def has_ended(self) -> bool:
        """Return whether the commit has ended."""
        return self._event.is_set()

    def check(self) -> None:
        """Raise JobQueueError if the commit has failed."""
        if self._error is not None:
            raise errors.JobQueueError(
                f"the state of the job cannot be stored: {self._error}"
            ) from self._error


@dataclasses.dataclass
class _OpAttempt:
    """One attempt at one opcode."""

    entry: Entry
    index: int
    limit_s: float | None
    priority: int


class Runner:
    """The function of worker threads: runs jobs opcode by opcode."""

    def __init__(
        self,
        core: Core,
        executor: Executor,
        submit_many: SubmitMany,
        chance: Callable[[], float],
    ) -> None:
        self._core = core
        self._executor = executor
        self._submit_many = submit_many
        self._chance = chance

    def run(self, entry: Entry) -> None:
        """Run a job until it ends or must wait without a worker."""
        try:
            while (attempt := self._begin(entry)) is not None:
                if not self._carry_out(attempt):
                    return
        except Exception as err:  # noqa: BLE001 - the worker must survive
            _log.exception("job %d: queue failure", entry.job.id)
            with self._core.transaction():
                if entry.place is Place.WORKING:
                    self._core.dispatcher.running -= 1
                    error = errors.OpExecError(f"job queue failure: {err!r}")
                    now = self._core.now()
                    self._core.end_locked(
                        entry, transitions.abort(entry.job, error, now)
                    )

    def _begin(self, entry: Entry) -> _OpAttempt | None:
        """Prepare the next opcode; None if the worker is done with the job."""
        core = self._core
        index = transitions.next_index(entry.job)
        verdict = schedule.Verdict()
        # A resumed opcode has been found free of dependencies before.
        is_resumed = index is not None and entry.job.ops[index].is_resumable
        if index is not None and entry.ops[index].depends and not is_resumed:
            op = entry.ops[index]
            verdict = schedule.check_dependencies(entry.job.id, op, core.status_of)
        with core.transaction():
            # The job may have been canceled since it was assigned to this worker.
            if index is None or entry.place is Place.ENDED:
                core.dispatcher.running -= 1
                return None
            if core.is_stopping:
                self._put_back_locked(entry, index)
                return None
            if verdict.is_canceled:
                self._end_locked(entry, transitions.cancel_rest(entry.job, core.now()))
                return None
            if index in entry.lost_secrets:
                error = errors.OpExecError(transitions.LOST_TEXT)
                self._end_locked(entry, transitions.abort(entry.job, error, core.now()))
                return None
            status = entry.job.ops[index].status
            if status is Status.QUEUED:
                core.show_locked(entry, transitions.start(entry.job, index, core.now()))
            if verdict.error is not None:
                job = transitions.fail(entry.job, index, verdict.error, core.now())
                self._end_locked(entry, job)
                return None
            priority = entry.job.ops[index].priority
        if status is Status.RUNNING:
            # A resumed opcode had its locks before: others wait until it has them.
            return _OpAttempt(entry, index, None, priority)
        attempt = schedule.Attempt(entry.attempt, priority)
        # While the jobs run that hold the locks, waiting in the queue of a lock would
        # only hold up others: only look whether the locks are free.
        limit_s = 0.0 if entry.blocked_by else attempt.limit_s(self._chance())
        entry.began = core.clock.monotonic()
        return _OpAttempt(entry, index, limit_s, priority)

    def _carry_out(self, attempt: _OpAttempt) -> bool:
        """Execute an opcode; return whether the worker continues with the job."""
        entry, index = attempt.entry, attempt.index
        op = entry.ops[index]
        me = threading.current_thread()
        worker = me.name.split("/", 1)[0]
        me.name = f"{worker}/Job{entry.job.id}/{opcodes.short_summary(op)}"
        callbacks = OpCallbacks(self._core, self._submit_many, entry, index)
        with self._core.lock:
            self._core.dispatcher.working[me] = entry.job.id
        outcome: Callable[[], bool]
        try:
            result = self._executor.execute(
                op, callbacks, timeout_s=attempt.limit_s, priority=attempt.priority
            )
            encoded = records.encode_value(result)
            outcome = functools.partial(self._succeeded, attempt, encoded)
        except LockTimeout as err:
            outcome = functools.partial(self._timed_out, attempt, err.blockers)
        except Canceled:
            outcome = functools.partial(self._gave_up, attempt)
        except Exception as err:  # noqa: BLE001 - any error fails the job
            if not isinstance(err, errors.GenericError):
                _log.exception("job %s: unexpected error", callbacks.owner)
            outcome = functools.partial(self._failed, attempt, err)
        finally:
            me.name = worker
            with self._core.lock:
                entry.interrupt = entry.kill = None
                self._core.dispatcher.opcode_ended_locked(entry.job.id, me)
        # Only now: the transaction of the outcome starts the jobs that waited for the
        # end of this opcode. Nothing else would, if its commit ended before.
        return outcome()

    def _succeeded(self, attempt: _OpAttempt, result: Any) -> bool:
        core, entry, index = self._core, attempt.entry, attempt.index
        with core.transaction():
            now = core.now()
            job = entry.job
            if job.ops[index].status is Status.CANCELING:
                self._end_locked(
                    entry,
                    transitions.confirm_cancel(job, index, now, entry.cancel_text),
                )
                return False
            if job.ops[index].status is Status.WAITING:
                job = transitions.execute(job, index, now)
            job = transitions.succeed(job, index, result, now)
            if entry.must_die and not job.is_final:
                job = transitions.cancel_rest(job, now)
            if job.is_final:
                self._end_locked(entry, job)
                return False
            entry.attempt = 0
            core.end_opcode_locked(entry, job)
            return True

    def _failed(self, attempt: _OpAttempt, error: Exception) -> bool:
        core, entry = self._core, attempt.entry
        with core.transaction():
            job = transitions.fail(entry.job, attempt.index, error, core.now())
            self._end_locked(entry, job)
        return False

    def _gave_up(self, attempt: _OpAttempt) -> bool:
        core, entry, index = self._core, attempt.entry, attempt.index
        with core.transaction():
            status = entry.job.ops[index].status
            if status is Status.CANCELING:
                job = transitions.confirm_cancel(
                    entry.job, index, core.now(), entry.cancel_text
                )
                self._end_locked(entry, job)
            elif core.is_stopping and self._may_run_again(entry, index):
                self._put_back_locked(entry, index)
            else:
                error = errors.OpExecError(_KILLED_TEXT)
                job = transitions.fail(entry.job, index, error, core.now())
                self._end_locked(entry, job)
        return False

    @staticmethod
    def _may_run_again(entry: Entry, index: int) -> bool:
        """Return whether the next daemon may run an opcode that has not begun here."""
        op = entry.job.ops[index]
        return op.status is Status.WAITING or op.is_resumable

    def _timed_out(
        self, attempt: _OpAttempt, blockers: frozenset[threading.Thread]
    ) -> bool:
        core, entry, index = self._core, attempt.entry, attempt.index
        with core.transaction():
            if entry.must_cancel:
                job = transitions.confirm_cancel(
                    entry.job, index, core.now(), entry.cancel_text
                )
                self._end_locked(entry, job)
                return False
            if core.is_stopping:
                self._put_back_locked(entry, index)
                return False
            core.dispatcher.running -= 1
            entry.was_tried = True
            if entry.job.ops[index].is_resumable:
                core.schedule.push(entry)
                return False
            if entry.must_hurry:
                entry.must_hurry = False
                core.schedule.push(entry)
                return False
            if attempt.limit_s == 0.0:
                self._looked_locked(entry, self._holders_locked(entry, blockers))
                return False
            priority = entry.job.ops[index].priority
            following = schedule.next_attempt(schedule.Attempt(entry.attempt, priority))
            entry.attempt = following.place
            job = transitions.retry(entry.job, index, following.priority)
            core.show_locked(entry, job)
            if following.priority != priority:
                core.documents.save_locked(entry)
            self._rest_locked(attempt, self._holders_locked(entry, blockers))
        return False

    def _holders_locked(
        self, entry: Entry, blockers: frozenset[threading.Thread]
    ) -> set[int]:
        """Return the other jobs that these workers run."""
        working = self._core.dispatcher.working
        return {working[each] for each in blockers if each in working} - {entry.job.id}

    def _looked_locked(self, entry: Entry, holders: set[int]) -> None:
        """Continue after a look at the locks, which were not free."""
        core = self._core
        if holders & entry.blocked_by:
            core.dispatcher.rest_until_unblocked_locked(entry, holders)
            self._wake_later_locked(entry, _LOOK_S)
            return
        # The former holders have finished: this job may queue for the locks.
        core.dispatcher.rest_until_unblocked_locked(entry, set())
        core.schedule.push(entry)

    def _rest_locked(self, attempt: _OpAttempt, holders: set[int]) -> None:
        """Let a job rest after an attempt: until the holders of its locks finish.

        Without holders, only until the end of the attempt's time limit.
        """
        entry = attempt.entry
        if holders:
            self._core.dispatcher.rest_until_unblocked_locked(entry, holders)
            self._wake_later_locked(entry, _LOOK_S)
            return
        limit_s = _REST_S if attempt.limit_s is None else attempt.limit_s
        elapsed = self._core.clock.monotonic() - entry.began
        self._wake_later_locked(entry, limit_s - elapsed)

    def _wake_later_locked(self, entry: Entry, rest_s: float) -> None:
        core = self._core
        if rest_s <= 0:
            core.schedule.push(entry)
            return
        entry.place = Place.RESTING
        entry.rest_timer = core.timers.after(rest_s, lambda: self._rested(entry))

    def _rested(self, entry: Entry) -> None:
        with self._core.transaction():
            if entry.place is Place.RESTING:
                self._core.schedule.push(entry)

    def _end_locked(self, entry: Entry, job: Job) -> None:
        self._core.dispatcher.running -= 1
        self._core.end_locked(entry, job)

    def _put_back_locked(self, entry: Entry, index: int) -> None:
        """Return a job to the queue, for the next start of the daemon."""
        core = self._core
        core.dispatcher.running -= 1
        entry.place = Place.READY
        if entry.job.ops[index].status is Status.WAITING:
            core.show_locked(entry, transitions.requeue(entry.job, index))
            core.documents.save_locked(entry)
