"""Waits for job changes, without a thread per waiter.

One thread compares and answers: neither the worker that logs a line nor the store's
thread, which reports the end of a commit, does anything per waiter. All waits for one
job that are due together share one reading of its record and its log. Waiters are
notified of log lines at most every tenth of a second, also if they come back earlier,
and of changes of state at once.
"""

import bisect
import contextlib
import enum
import logging
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, Final, NamedTuple

from ganeti.base import errors
from ganeti.base.constants import misc
from ganeti.decisions.jobs.entry import Entry, Known, Watch, attach_logs, to_json_form
from ganeti.decisions.jobs.records import Job, LogEntry
from ganeti.master.jqueue.core import Core

_log = logging.getLogger(__name__)

#: Seconds within which log lines are reported together.
_BURST_S: Final = 0.1

Change = tuple[Any, tuple[LogEntry, ...]]
#: Job ids with their changes; None for a job that is not in the queue.
Changes = list[tuple[int, Change | None]]


class _Reason(enum.Enum):
    """Why a wait is examined."""

    ARRIVED = "arrived"
    NOTIFIED = "notified"
    TIME_OVER = "time over"


class _Due(NamedTuple):
    """A wait to be examined."""

    watch: Watch
    reason: _Reason


class _View:
    """One reading of a job, shared by all waits that are examined with it."""

    def __init__(
        self, job: Job, record: Job | None = None, *, is_quiet: bool = True
    ) -> None:
        """Prepare a reading.

        Args:
            job: the record with its log.
            record: the record without its log; None for a job that has ended.
            is_quiet: nothing was reported within the last tenth of a second.
        """
        self.job = job
        self.record = record
        self.is_quiet = is_quiet
        self._log = job.log_after(None)
        self._values: dict[Callable[[Job], Any], Any] = {}
        self._tails: dict[int, tuple[LogEntry, ...]] = {}

    def change(self, watch: Watch) -> Change:
        """Return the values for a wait and the log entries that are new to it."""
        fields = watch.fields
        if fields not in self._values:
            self._values[fields] = fields(self.job)
        return self._values[fields], self._after(watch.serial or 0)

    def _after(self, serial: int) -> tuple[LogEntry, ...]:
        if serial not in self._tails:
            first = bisect.bisect_right(self._log, serial, key=lambda line: line.serial)
            self._tails[serial] = self._log[first:]
        return self._tails[serial]


class Watching:
    """The waits for changes of jobs; the thread starts with the first one."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._inbox: queue.SimpleQueue[Sequence[_Due] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._start_lock = threading.Lock()
        #: The ended job that was read last: its log may be long, and all who wait for
        #: it read it at about the same time.
        self._ended: _View | None = None
        core.notify_locked = self._changed_locked

    def wait(
        self,
        job_id: int,
        fields: Callable[[Job], Any],
        *,
        previous: Any,
        serial: int | None,
        timeout_s: float,
    ) -> Future[Change]:
        """See `JobQueue.wait_for_change`."""
        watch = Watch(job_id, fields, previous, serial)
        limit = min(max(0.0, timeout_s), float(misc.LUXI_WFJC_TIMEOUT))
        watch.future.add_done_callback(lambda _future: self._forget(watch))
        watch.timer = self._core.timers.after(
            limit, lambda: self._inbox.put([_Due(watch, _Reason.TIME_OVER)])
        )
        self._start()
        self._inbox.put([_Due(watch, _Reason.ARRIVED)])
        return watch.future

    def wait_any(
        self, jobs: Sequence[Known], fields: Callable[[Job], Any], timeout_s: float
    ) -> Future[Changes]:
        """See `JobQueue.wait_for_changes`."""
        watches = [Watch(job.job_id, fields, job.previous, job.serial) for job in jobs]
        limit = min(max(0.0, timeout_s), float(misc.LUXI_WFJC_TIMEOUT))
        answer: Future[Changes] = Future()

        def finish() -> None:
            changes = _answered(watches)
            with contextlib.suppress(InvalidStateError):
                answer.set_result(changes)

        def end(_answer: Future[Changes]) -> None:
            timer.cancel()
            for watch in watches:
                watch.future.cancel()
                self._forget(watch)

        for watch in watches:
            watch.on_answer = finish
        timer = self._core.timers.after(limit, finish)
        answer.add_done_callback(end)
        self._start()
        self._inbox.put([_Due(watch, _Reason.ARRIVED) for watch in watches])
        return answer

    def stop(self) -> None:
        """Examine the waits that are due, and end the thread."""
        self._inbox.put(None)
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        with self._start_lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._loop, name="jq-watch", daemon=True
                )
                self._thread.start()

    # Called by the threads that change jobs
    def _changed_locked(self, entry: Entry, only_log: bool) -> None:
        if only_log:
            self._wake_soon_locked(entry)
        else:
            self._wake_locked(entry)

    def _wake_soon_locked(self, entry: Entry) -> None:
        if entry.news_timer is None:
            entry.news_timer = self._core.timers.after(
                _BURST_S, lambda: self._burst_over(entry)
            )

    def _burst_over(self, entry: Entry) -> None:
        with self._core.lock:
            self._wake_locked(entry)

    def _wake_locked(self, entry: Entry) -> None:
        if entry.news_timer is not None:
            entry.news_timer.cancel()
            entry.news_timer = None
        watches, entry.watches = entry.watches, {}
        self._inbox.put([_Due(watch, _Reason.NOTIFIED) for watch in watches])

    # The thread
    def _loop(self) -> None:
        is_open = True
        while is_open:
            due, is_open = self._take_all()
            by_job: dict[int, list[_Due]] = {}
            for item in due:
                by_job.setdefault(item.watch.job_id, []).append(item)
            for job_id, waits in by_job.items():
                try:
                    self._examine(job_id, waits)
                except Exception as err:  # noqa: BLE001 - the thread must survive
                    _log.exception("job %d: cannot be watched", job_id)
                    for item in waits:
                        _settle(item.watch.future, error=errors.GenericError(str(err)))
            for finish in dict.fromkeys(
                item.watch.on_answer for item in due if item.watch.future.done()
            ):
                if finish is not None:
                    finish()

    def _take_all(self) -> tuple[list[_Due], bool]:
        """Wait until something is due; return all of it, and whether to continue."""
        taken: list[_Due] = []
        while not taken or not self._inbox.empty():
            items = self._inbox.get()
            if items is None:
                return taken, False
            taken.extend(items)
        return taken, True

    def _examine(self, job_id: int, due: Iterable[_Due]) -> None:
        """Answer the waits whose values have changed; the others continue."""
        left = [item for item in due if not item.watch.future.done()]
        while left:
            view = self._read(job_id)
            if view is None:
                for item in left:
                    self._lost(item.watch)
                return
            waiting = [item for item in left if not _answer(item, view)]
            if len(waiting) < len(left):
                self._note_report(job_id)
            left = [item for item in waiting if not self._keep(item.watch, view)]

    def _note_report(self, job_id: int) -> None:
        with self._core.lock:
            entry = self._core.live.get(job_id)
            if entry is not None:
                entry.reported = self._core.clock.monotonic()

    def _read(self, job_id: int) -> _View | None:
        core = self._core
        with core.lock:
            entry = core.live.get(job_id)
            is_ended = entry is None and job_id in core.ended
            if entry is not None:
                job, logs = entry.shown, entry.logs.copy()
                is_quiet = core.clock.monotonic() - entry.reported >= _BURST_S
        if entry is not None:
            return _View(attach_logs(job, logs), job, is_quiet=is_quiet)
        if is_ended and self._ended is not None and self._ended.job.id == job_id:
            return self._ended
        stored = core.find_live(job_id)
        if stored is None:
            return None
        view = _View(stored)
        if stored.is_final:
            self._ended = view
        return view

    def _keep(self, watch: Watch, view: _View) -> bool:
        """Continue to wait, unless the record has changed since it was read.

        Newer log lines are reported soon, with those of the burst.
        """
        with self._core.lock:
            entry = self._core.live.get(watch.job_id)
            if entry is None or entry.shown is not view.record:
                return False
            entry.watches[watch] = None
            if entry.log_serial > (watch.serial or 0):
                self._wake_soon_locked(entry)
            if watch.future.done():
                # It was canceled before it could be found in the entry.
                del entry.watches[watch]
            return True

    def _lost(self, watch: Watch) -> None:
        if watch.previous is None:
            text = f"job {watch.job_id} is not in the queue"
            _settle(watch.future, error=errors.JobLost(text))
        else:
            _settle(watch.future, (None, ()))

    def _forget(self, watch: Watch) -> None:
        if watch.timer is not None:
            watch.timer.cancel()
        with self._core.lock:
            entry = self._core.live.get(watch.job_id)
            if entry is not None:
                entry.watches.pop(watch, None)


def _answered(watches: Iterable[Watch]) -> Changes:
    """Return the changes of the waits that have been answered."""
    changes: Changes = []
    for watch in watches:
        future = watch.future
        if not future.done() or future.cancelled():
            continue
        if isinstance(future.exception(), errors.JobLost):
            changes.append((watch.job_id, None))
        else:
            changes.append((watch.job_id, future.result()))
    return changes


def _answer(item: _Due, view: _View) -> bool:
    """Answer a wait, unless nothing has changed; return whether it has ended."""
    watch = item.watch
    if watch.future.done():
        return True
    try:
        change = view.change(watch)
    except Exception as err:  # noqa: BLE001 - a function of the waiting side
        _settle(watch.future, error=err)
        return True
    may_report = item.reason is _Reason.NOTIFIED or view.is_quiet
    if (
        item.reason is _Reason.TIME_OVER
        or view.job.is_final
        or _has_new_values(watch, change)
        or (change[1] and may_report)
    ):
        _settle(watch.future, change)
        return True
    return False


def _has_new_values(watch: Watch, change: Change) -> bool:
    if watch.previous is None:
        return True
    return bool(to_json_form(change[0]) != watch.previous)


def _settle(
    future: Future[Change], change: Change | None = None, error: Exception | None = None
) -> None:
    """Answer, unless the wait was answered or canceled already."""
    try:
        if error is not None:
            future.set_exception(error)
        elif change is not None:
            future.set_result(change)
    except InvalidStateError:
        return
