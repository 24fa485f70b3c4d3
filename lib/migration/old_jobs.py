"""The job queue of another implementation of Ganeti 3: files, one per job.

Specified in the document on the job queue, sections 1 and 2. `read` converts ended jobs
to the archive of a store; `write` is the way back.
"""

import logging
import os
import re
from collections.abc import Iterator
from typing import Any, Final, Protocol

import msgspec

from ganeti.base import errors
from ganeti.base.constants import jobqueue
from ganeti.base.filesystem import files
from ganeti.decisions.jobs import records
from ganeti.master.jqueue import effects
from ganeti.store import Change, Document

_log = logging.getLogger(__name__)
_JOB_FILE: Final = re.compile(r"job-([1-9][0-9]{0,17})")
#: Bytes of one job file; larger ones are damaged.
_MAX_BYTES: Final = 64 * 1024 * 1024
_PER_DIRECTORY: Final = 10000
_FILE_MODE: Final = 0o640
_DIRECTORY_MODE: Final = 0o750
#: Index of the opcode, and one entry of its log.
_Row = tuple[int, records.LogEntry]


def unfinished(queue_dir: str) -> list[str]:
    """Return the jobs that have not ended, as ``812 (running)``, by number."""
    jobs = (_load(path) for _, path in _job_files(queue_dir))
    waiting = [job for job in jobs if job and not job.is_final]
    return [f"{job.id} ({job.status.value})" for job in waiting]


def read(queue_dir: str) -> list[Change]:
    """Return the documents of all ended jobs, as archived ones, and the last job id.

    Damaged files are left out, with a warning in the log.

    Raises:
        ConfigurationError: the last job id is damaged, or a job has not ended.
    """
    waiting = unfinished(queue_dir)
    if waiting:
        raise errors.ConfigurationError(
            f"{queue_dir}: jobs {', '.join(waiting[:10])} have not ended; let the queue"
            " become empty (gnt-cluster queue drain), or cancel them"
        )
    changes: list[Change] = []
    last = _serial(os.path.join(queue_dir, "serial"))
    for number, path in (*_job_files(queue_dir), *_archived(queue_dir)):
        job = _load(path)
        if job is None:
            _log.warning("%s: left out, it is damaged", path)
            continue
        last = max(last, number)
        changes += _documents(job)
    if last:
        changes.append(Document(effects.META, effects.SERIAL, str(last).encode()))
    return changes


def _documents(job: records.Job) -> list[Change]:
    rows: list[Change] = [
        Document(effects.ARCHIVE, str(job.id), records.encode_job(job))
    ]
    entries = [
        (entry.serial, records.encode_log(index, entry))
        for index, op in enumerate(job.ops)
        for entry in op.log
    ]
    if entries:
        entries.sort()
        packed = records.pack_logs([data for _serial_no, data in entries])
        key = records.log_key(job.id, entries[0][0])
        rows.append(Document(effects.ARCHIVE, key, packed))
    return rows


def _archived(queue_dir: str) -> Iterator[tuple[int, str]]:
    top = os.path.join(queue_dir, "archive")
    for name in _names(top):
        if name.isdigit():
            yield from _job_files(os.path.join(top, name))


def _job_files(directory: str) -> list[tuple[int, str]]:
    """Return (number, path) of the job files of one directory, by number."""
    matches = (_JOB_FILE.fullmatch(name) for name in _names(directory))
    return sorted(
        (int(match[1]), os.path.join(directory, match[0])) for match in matches if match
    )


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _load(path: str) -> records.Job | None:
    """Return the job of a file, None if the file is damaged."""
    try:
        if os.path.getsize(path) > _MAX_BYTES:
            return None
        job = records.decode_job(files.read_file(path))
    except (FileNotFoundError, errors.JobFileCorrupted):
        return None
    return job if f"job-{job.id}" == os.path.basename(path) and job.ops else None


def _serial(path: str) -> int:
    try:
        text = files.read_file(path).decode(errors="replace").strip()
    except FileNotFoundError:
        return 0
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise errors.ConfigurationError(f"{path}: wanted a job id, found {text!r:.80}")
    return int(text)


class Documents(Protocol):
    """The part of a store that is read."""

    def read(self, table: str, key: str) -> bytes | None:
        """Return one document."""

    def scan(self, table: str) -> Iterator[tuple[str, bytes]]:
        """Yield the documents of a table."""


def write(queue_dir: str, source: Documents) -> int:
    """Write ended jobs as files of the archive, and the last job id.

    Files that exist already are kept. Jobs that have not ended are left out, with a
    warning in the log.

    Returns:
        The number of files written.
    """
    os.makedirs(queue_dir, mode=_DIRECTORY_MODE, exist_ok=True)
    logs = _logs(source)
    written = 0
    for table in (effects.ARCHIVE, effects.JOBS):
        for key, data in source.scan(table):
            if "/" not in key:
                job = records.decode_job(data)
                written += _write_job(queue_dir, job, logs.get(job.id, []))
    serial = os.path.join(queue_dir, "serial")
    last = max(int(source.read(effects.META, effects.SERIAL) or 0), _serial(serial))
    files.write_file(serial, f"{last}\n", mode=_FILE_MODE)
    return written


def live(source: Documents) -> Iterator[records.Job]:
    """Yield the jobs of a store that are not archived."""
    for _key, data in source.scan(effects.JOBS):
        yield records.decode_job(data)


def _logs(source: Documents) -> dict[int, list[_Row]]:
    """Return the log entries of all jobs, with the indexes of their opcodes."""
    logs: dict[int, list[_Row]] = {}
    for key, data in source.scan(effects.ARCHIVE):
        number, _, is_log = key.partition("/")
        if is_log:
            logs.setdefault(int(number), []).extend(records.unpack_logs(data))
    for key, data in source.scan(effects.LOGS):
        number = key.partition("/")[0]
        logs.setdefault(int(number), []).append(records.decode_log(data))
    return logs


def _write_job(queue_dir: str, job: records.Job, log: list[_Row]) -> int:
    """Write one job unless it is there; return the number of written files."""
    name = f"job-{job.id}"
    archive = os.path.join(queue_dir, "archive", str(job.id // _PER_DIRECTORY))
    places = (os.path.join(queue_dir, name), os.path.join(archive, name))
    if any(os.path.exists(place) for place in places):
        return 0
    if not job.is_final:
        _log.warning("job %d: left out, it has not ended", job.id)
        return 0
    os.makedirs(archive, mode=_DIRECTORY_MODE, exist_ok=True)
    text = msgspec.json.encode(_file_form(job, log))
    files.write_file(places[1], text, mode=_FILE_MODE)
    return 1


def _file_form(job: records.Job, log: list[_Row]) -> dict[str, Any]:
    """Return the documented object of a job.

    Log entries of kinds that only this implementation knows are left out: others refuse
    the whole job.
    """
    by_op: dict[int, list[records.LogEntry]] = {}
    for index, entry in sorted(log, key=lambda row: row[1].serial):
        if entry.kind not in jobqueue.ELOG_ADDED:
            by_op.setdefault(index, []).append(entry)
    return {
        "id": job.id,
        "ops": [
            {
                "input": op.input_value(),
                "status": op.status.value,
                "result": op.result_value(),
                "log": by_op.get(index, []),
                "priority": op.priority,
                "start_timestamp": op.start_timestamp,
                "exec_timestamp": op.exec_timestamp,
                "end_timestamp": op.end_timestamp,
            }
            for index, op in enumerate(job.ops)
        ],
        "received_timestamp": job.received_timestamp,
        "start_timestamp": job.start_timestamp,
        "end_timestamp": job.end_timestamp,
    }
