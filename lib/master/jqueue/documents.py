"""The documents of jobs: commits of them, in order, and their reading.

Records and log lines change in memory, under the lock of the queue; what a commit of a
job contains, and which of its log lines are on disk, is decided here. The store is
called without the lock.
"""

import collections
import logging
import threading
from collections.abc import Callable, Container, Sequence
from typing import Final

from ganeti.base import errors
from ganeti.decisions.jobs import records
from ganeti.decisions.jobs.entry import Entry, attach_logs
from ganeti.decisions.jobs.records import Job, LogEntry
from ganeti.master.jqueue.effects import ARCHIVE, JOBS, LOGS, Document, Documents

_log = logging.getLogger(__name__)

_Done = Callable[[int, BaseException | None], None]
#: Called when a commit has ended: with None, or with the error.
OnDone = Callable[[BaseException | None], None]

#: Seconds until a log line is stored: at most 1 s may be lost in a crash, and the
#: commit takes its time.
SAVE_LOG_S: Final = 0.5
#: Seconds for which the start of an opcode waits for a commit that takes it along: it
#: is shown before, and nothing is done before it is stored.
START_WAIT_S: Final = 1.0
#: The same for the end of an opcode that another one follows, which is shown after
#: that: the start of the next one usually comes sooner.
NEXT_WAIT_S: Final = 0.2


class JobDocuments:
    """The documents of jobs; methods that end in ``_locked`` need the queue's lock.

    It owns the commits that the store does not have yet. Of an `Entry` it changes only
    ``unsaved`` and ``stored``; the records and log lines belong to `Core` and to the
    workers.
    """

    def __init__(
        self,
        store: Documents,
        lock: threading.Lock,
        on_failure: Callable[[BaseException], None] | None,
    ) -> None:
        """Take the store, the queue's lock, and a function for errors of commits."""
        self._store = store
        self._lock = lock
        self._on_failure = on_failure
        #: Commits that the holder of `_sending` passes to the store.
        self._commits: collections.deque[tuple[Sequence[Document], _Done, float]] = (
            collections.deque()
        )
        self._sending = threading.Lock()

    def commit_locked(
        self, documents: Sequence[Document], on_done: OnDone, *, wait_s: float = 0.0
    ) -> None:
        """Request a commit; ``on_done`` is called without the lock.

        One that can wait does so for others, see `ganeti.store.Store.commit_soon`.
        """

        def done(_revision: int, error: BaseException | None) -> None:
            if error is not None:
                self._failed(error)
            on_done(error)

        # Only queued here: the store may call ``done`` at once, which takes the lock.
        self._commits.append((documents, done, wait_s))

    def send(self) -> None:
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
                        self._store.commit_soon(documents, done, wait_s=wait_s)
                    except errors.GenericError as err:
                        done(0, err)
            finally:
                self._sending.release()

    def _failed(self, error: BaseException) -> None:
        """Report a failed commit."""
        _log.error("job queue: commit failed: %s", error)
        if self._on_failure is not None:
            self._on_failure(error)

    def save_locked(
        self, entry: Entry, on_done: OnDone | None = None, *, wait_s: float = 0.0
    ) -> None:
        """Store a job with its new log entries."""
        documents = [_document(entry.job), *self.new_logs_locked(entry)]
        done = self._tracked(entry, on_done or ignore)
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
        self.commit_locked(documents, self._tracked(entry, on_done or ignore))

    def _tracked(self, entry: Entry, on_done: OnDone) -> OnDone:
        """Return a callback that notes which log entries a commit has stored."""
        # A commit that fails leaves its log entries unsaved, so the next one has them.
        serial = entry.log_serial
        if serial == entry.stored:
            return on_done

        def done(error: BaseException | None) -> None:
            with self._lock:
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

    # Reading, without the lock
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
            for _key, data in self._store.scan(LOGS, f"{job_id}/")
        ]
        for _key, data in self._store.scan(ARCHIVE, f"{job_id}/"):
            lines += records.unpack_logs(data)
        by_serial = {line.serial: (index, line) for index, line in lines}
        return [by_serial[serial] for serial in sorted(by_serial)]

    def read_all_logs(
        self, job_ids: Container[int]
    ) -> dict[int, list[tuple[int, LogEntry]]]:
        """Return the log entries of many jobs, see `read_logs`."""
        logs: dict[int, list[tuple[int, LogEntry]]] = {}
        for key, data in self._store.scan(LOGS):
            job_id = int(key.partition("/")[0])
            if job_id in job_ids:
                logs.setdefault(job_id, []).append(records.decode_log(data))
        return logs

    def read_stored(self, table: str, job_id: int) -> Job | None:
        """Return a stored job without its log; None if absent or unreadable."""
        data = self._store.read(table, str(job_id))
        if data is None:
            return None
        try:
            return records.decode_job(data)
        except errors.JobFileCorrupted as err:
            _log.error("%s/%d: %s", table, job_id, err)
            return None


def _document(job: Job) -> Document:
    return Document(JOBS, str(job.id), records.encode_job(job))


def ignore(_error: BaseException | None) -> None:
    """Ignore the end of a commit; errors are reported already."""
