"""Recovery of an earlier daemon's jobs, once, before any job runs.

Queued jobs continue to wait, in the order of their ids; `transitions.recover` decides
on jobs in other states. An unreadable record moves to the archive.
"""

import logging
import threading

from ganeti.base import errors
from ganeti.decisions.jobs import records, transitions
from ganeti.decisions.jobs.entry import Entry
from ganeti.decisions.jobs.records import Job
from ganeti.master.jqueue.core import Core
from ganeti.master.jqueue.documents import ARCHIVE, DRAIN, JOBS, META, SERIAL, Document
from ganeti.model import opcodes

_log = logging.getLogger(__name__)


def recover(core: Core) -> None:
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
    entry.logs = core.read_logs(job.id)
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
        core.commit_locked(documents, on_done)
    finished.wait()
    if failures:
        raise failures[0]
