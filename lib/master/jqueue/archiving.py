"""Archiving of ended jobs: they stay readable until they are purged.

The job moves with its log. Commits follow each other without a thread of their own: the
end of one commit starts the next.

Software of earlier releases left the logs where they were, and cannot read them in the
archive. So they move when the releases of all candidates know that
(`ganeti.store.features`); those that were left behind follow then.
"""

import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Final

from ganeti.base import errors
from ganeti.decisions.jobs import records
from ganeti.master.jqueue.core import Core
from ganeti.master.jqueue.effects import ARCHIVE, ARCHIVED_LOGS, JOBS, LOGS, Document
from ganeti.master.jqueue.submitting import settle

_log = logging.getLogger(__name__)

#: Bytes of one row of logs in the archive: far below the greatest value that a store
#: of another kind, such as etcd, takes.
_LOGS_BYTES: Final = 256 * 1024
#: Seconds until it is looked again whether logs may move.
_LOOK_AGAIN_S: Final = 60.0
#: Jobs per commit: enough for good throughput, few enough not to delay others.
_BATCH: Final = 50
#: Archived jobs examined at once, about 5 ms, and seconds between two such slices.
_SLICE: Final = 100
_SLICE_PAUSE_S: Final = 0.01


def archive_one(core: Core, job_id: int) -> Future[bool]:
    """Archive a job; false if it is unknown, archived or unfinished."""
    future: Future[bool] = Future()
    _move(core, [job_id], lambda moved: settle(future, moved == 1, None))
    return future


def auto_archive(core: Core, age_s: float, timeout_s: float) -> Future[tuple[int, int]]:
    """Archive ended jobs by age, see `JobQueue.autoarchive`."""
    sweep = _Sweep(core, age_s, timeout_s)
    sweep.step(0)
    return sweep.future


def purge(core: Core, age_s: float) -> Future[int]:
    """Delete archived jobs that ended longer ago, and their logs.

    Unreadable ones are deleted too. Their ids are never used again. The future has the
    number of deleted jobs.
    """
    run = _Purge(core, core.clock.time() - age_s)
    run.step()
    return run.future


class _Purge:
    """One deletion of archived jobs, in slices.

    Each slice after the first is an action of a timer, so other timers are late by at
    most one slice, and the store's thread does not read the archive.
    """

    def __init__(self, core: Core, oldest: float) -> None:
        self.future: Future[int] = Future()
        self._core = core
        self._oldest = oldest
        self._rows = core.store.scan(ARCHIVE)
        self._count = 0

    def step(self) -> None:
        """Examine some jobs, and delete the old ones among them."""
        try:
            rows = list(itertools.islice(self._rows, _SLICE))
            old = [
                key
                for key, data in rows
                if "/" not in key and _is_older(data, self._oldest)
            ]
            documents = [Document(ARCHIVE, key, None) for key in old]
            for table, key in itertools.product((ARCHIVE, LOGS), old):
                logs = self._core.store.scan(table, f"{key}/")
                documents += [Document(table, log_key, None) for log_key, _ in logs]
        except errors.GenericError as err:
            settle(self.future, self._count, err)
            return
        is_last = len(rows) < _SLICE

        def done(error: BaseException | None) -> None:
            if error is None:
                self._count += len(old)
            if error is not None or is_last:
                settle(self.future, self._count, error)
            else:
                self._core.timers.after(_SLICE_PAUSE_S, self.step)

        with self._core.transaction():
            if documents:
                self._core.documents.commit_locked(documents, done)
            else:
                self._core.later_locked(lambda: done(None))


def _is_older(data: bytes, oldest: float) -> bool:
    """Return whether a job ended before a time; true for an unreadable one."""
    try:
        job = records.decode_job(data)
    except errors.JobFileCorrupted:
        return True
    when = job.end_timestamp or job.received_timestamp or (0, 0)
    return when[0] + when[1] / 1e6 < oldest


class _Sweep:
    """One run over all ended jobs, in the order of their ids."""

    def __init__(self, core: Core, age_s: float, timeout_s: float) -> None:
        self.future: Future[tuple[int, int]] = Future()
        self._core = core
        self._deadline = core.clock.monotonic() + timeout_s
        newest = None if age_s < 0 else core.clock.time() - age_s
        with core.lock:
            known = sorted(core.ended.items())
        self._todo = [
            job_id
            for job_id, (_status, (seconds, micros)) in known
            if newest is None or seconds + micros / 1e6 < newest
        ]
        self._archived = 0

    def step(self, moved: int) -> None:
        """Count the jobs moved by the last commit, and request the next one."""
        self._archived += moved
        is_over = self._core.clock.monotonic() > self._deadline
        if is_over or not self._todo:
            settle(self.future, (self._archived, len(self._todo)), None)
            return
        batch, self._todo = self._todo[:_BATCH], self._todo[_BATCH:]
        _move(self._core, batch, self.step)


def _move(core: Core, job_ids: Sequence[int], on_done: Callable[[int], None]) -> None:
    """Move ended jobs to the archive; ``on_done`` gets their number."""
    with core.lock:
        moving = [i for i in job_ids if i in core.ended and i not in core.archiving]
        core.archiving.update(moving)
    documents: list[Document] = []
    count = 0
    moves_logs = core.store.may_use(ARCHIVED_LOGS)
    for job_id in moving:
        data = core.store.read(JOBS, str(job_id))
        if data is not None:
            count += 1
            documents.append(Document(ARCHIVE, str(job_id), data))
            documents.append(Document(JOBS, str(job_id), None))
            if moves_logs:
                documents += _moved_logs(core, job_id)

    def done(error: BaseException | None) -> None:
        with core.transaction():
            core.archiving.difference_update(moving)
            for job_id in moving if error is None else ():
                core.ended.pop(job_id, None)
                core.recent.pop(job_id, None)
        on_done(count if error is None else 0)

    with core.transaction():
        if documents:
            core.documents.commit_locked(documents, done)
        else:
            core.later_locked(lambda: done(None))


def _moved_logs(core: Core, job_id: int) -> list[Document]:
    """Return the documents that move the log of a job to the archive."""
    documents: list[Document] = []
    rows: list[tuple[str, bytes]] = []
    size = 0

    def pack() -> None:
        if rows:
            data = records.pack_logs([data for _key, data in rows])
            documents.append(Document(ARCHIVE, rows[0][0], data))
        documents.extend(Document(LOGS, key, None) for key, _data in rows)

    for key, data in core.store.scan(LOGS, f"{job_id}/"):
        if size + len(data) > _LOGS_BYTES:
            pack()
            rows, size = [], 0
        rows.append((key, data))
        size += len(data)
    pack()
    return documents


def move_old_logs(core: Core) -> None:
    """Move the logs of archived jobs that an earlier release left behind.

    Returns at once; goes on until all are moved, or the store takes no more changes.
    """
    _OldLogs(core).step()


class _OldLogs:
    """One pass over the logs, in slices, each after the first by a timer."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._rows = core.store.scan(LOGS)
        self._last = ""

    def step(self) -> None:
        """Move the logs of some jobs, if that is possible now."""
        core = self._core
        if not core.store.may_use(ARCHIVED_LOGS):
            core.timers.after(_LOOK_AGAIN_S, self.step)
            return
        try:
            keys = [key for key, _data in itertools.islice(self._rows, _SLICE)]
            documents = self._moved(key.partition("/")[0] for key in keys)
        except errors.GenericError as err:
            _log.error("logs of archived jobs: %s", err)
            return
        if documents:
            with core.transaction():
                core.documents.commit_locked(documents, self._done)
        elif keys:
            core.timers.after(_SLICE_PAUSE_S, self.step)

    def _moved(self, jobs: Iterable[str]) -> list[Document]:
        """Return the documents that move the logs of those jobs that are archived.

        A job that is being archived takes its log along, in the commit that makes its
        record in the archive.
        """
        documents: list[Document] = []
        for job in dict.fromkeys(jobs):
            is_new, self._last = job != self._last, job
            if is_new and self._core.store.read(ARCHIVE, job) is not None:
                documents += _moved_logs(self._core, int(job))
        return documents

    def _done(self, error: BaseException | None) -> None:
        if error is None:
            self._core.timers.after(_SLICE_PAUSE_S, self.step)
        elif not isinstance(error, errors.TermError):
            # From the beginning: logs that were moved are not found again.
            again = _OldLogs(self._core)
            self._core.timers.after(_LOOK_AGAIN_S, again.step)
