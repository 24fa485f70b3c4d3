"""Waits for job changes, without a thread per waiter.

Values are computed from records outside of the queue's lock, by the thread that made
the change. Waiters are notified of log lines at most every tenth of a second, and of
changes of state at once.
"""

from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, Final

from ganeti import errors
from ganeti.constants import timeouts
from ganeti.jqueue.core import Core
from ganeti.jqueue.entry import Entry, Watch, to_json_form
from ganeti.jqueue.records import Job, LogEntry

#: Seconds within which log lines are reported together.
_BURST_S: Final = 0.1

Change = tuple[Any, tuple[LogEntry, ...]]


class Watching:
    """The waits for changes of jobs."""

    def __init__(self, core: Core) -> None:
        self._core = core
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
        limit = min(max(0.0, timeout_s), float(timeouts.LUXI_WFJC_TIMEOUT))
        watch.future.add_done_callback(lambda _future: self._forget(watch))
        watch.timer = self._core.timers.after(limit, lambda: self._expired(watch))
        self._examine(watch)
        return watch.future

    def _changed_locked(self, entry: Entry, only_log: bool) -> None:
        if not only_log:
            self._wake_locked(entry)
        elif entry.news_timer is None:
            entry.news_timer = self._core.timers.after(
                _BURST_S, lambda: self._burst_over(entry)
            )

    def _burst_over(self, entry: Entry) -> None:
        with self._core.transaction():
            self._wake_locked(entry)

    def _wake_locked(self, entry: Entry) -> None:
        if entry.news_timer is not None:
            entry.news_timer.cancel()
            entry.news_timer = None
        watches, entry.watches = entry.watches, []
        for watch in watches:
            self._core.later_locked(lambda watch=watch: self._examine(watch))  # type: ignore[misc]

    def _examine(self, watch: Watch, *, is_over: bool = False) -> None:
        """Answer if the values have changed, else continue to wait."""
        while not watch.future.done():
            with self._core.lock:
                entry = self._core.live.get(watch.job_id)
                version = entry.version if entry is not None else 0
                job = entry.view() if entry is not None else None
            if job is None:
                job = self._core.find_live(watch.job_id)
            if job is None:
                self._lost(watch)
                return
            try:
                change = (watch.fields(job), job.log_after(watch.serial))
            except Exception as err:  # noqa: BLE001 - a function of the waiting side
                _settle(watch.future, error=err)
                return
            if is_over or job.is_final or _is_news(watch, change):
                _settle(watch.future, change)
                return
            if self._keep(watch, version):
                return

    def _keep(self, watch: Watch, version: int) -> bool:
        """Continue to wait, unless the job has changed since the comparison."""
        with self._core.lock:
            entry = self._core.live.get(watch.job_id)
            if entry is None or entry.version != version:
                return False
            entry.watches.append(watch)
            return True

    def _lost(self, watch: Watch) -> None:
        if watch.previous is None:
            text = f"job {watch.job_id} is not in the queue"
            _settle(watch.future, error=errors.JobLost(text))
        else:
            _settle(watch.future, (None, ()))

    def _expired(self, watch: Watch) -> None:
        self._examine(watch, is_over=True)

    def _forget(self, watch: Watch) -> None:
        if watch.timer is not None:
            watch.timer.cancel()
        with self._core.lock:
            entry = self._core.live.get(watch.job_id)
            if entry is not None and watch in entry.watches:
                entry.watches.remove(watch)


def _is_news(watch: Watch, change: Change) -> bool:
    if watch.previous is None or change[1]:
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
