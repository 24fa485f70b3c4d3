"""Archiving of ended jobs: they stay readable until they are purged.

Only the job record moves; the log entries keep their keys. Commits follow each other
without a thread of their own: the end of one commit starts the next.
"""

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final

from ganeti import errors
from ganeti.jqueue import records
from ganeti.jqueue.core import Core
from ganeti.jqueue.documents import ARCHIVE, JOBS, LOGS, Document
from ganeti.jqueue.submitting import settle

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
    """Delete archived jobs by age, with their logs; see `JobQueue.purge_archive`."""
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
            old = [key for key, data in rows if _is_older(data, self._oldest)]
            documents = [Document(ARCHIVE, key, None) for key in old]
            for key in old:
                logs = self._core.store.scan(LOGS, f"{key}/")
                documents += [Document(LOGS, log_key, None) for log_key, _ in logs]
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
                self._core.commit_locked(documents, done)
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
    for job_id in moving:
        data = core.store.read(JOBS, str(job_id))
        if data is not None:
            documents.append(Document(ARCHIVE, str(job_id), data))
            documents.append(Document(JOBS, str(job_id), None))

    def done(error: BaseException | None) -> None:
        with core.transaction():
            core.archiving.difference_update(moving)
            for job_id in moving if error is None else ():
                core.ended.pop(job_id, None)
                core.recent.pop(job_id, None)
        on_done(len(documents) // 2 if error is None else 0)

    with core.transaction():
        if documents:
            core.commit_locked(documents, done)
        else:
            core.later_locked(lambda: done(None))
