"""Query fields of jobs and locks."""

import functools
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ganeti.base import errors
from ganeti.base.constants import ecodes, query
from ganeti.base.text import units
from ganeti.master import jqueue
from ganeti.master.locking import LockInfo
from ganeti.master.query.model import (
    UNAVAIL,
    Cell,
    Field,
    Getter,
    Jobs,
    QueryContext,
    Resource,
    Sources,
    by_name,
    normal,
    plain,
)
from ganeti.model.objects import Snapshot


class _Row(NamedTuple):
    """A requested job id, and its job if it exists."""

    id: int
    job: "jqueue.Job | None"


def _job(
    name: str,
    title: str,
    kind: str,
    doc: str,
    get: Callable[["jqueue.Job"], Any],
    *,
    match: str = "",
) -> Field:
    def cell(row: _Row) -> Cell:
        return UNAVAIL if row.job is None else normal(get(row.job))

    return Field(name, title, kind, doc, lambda _ctx: cell, match=match)


def _per_op(name: str, title: str, doc: str, get: Callable[[Any], Any]) -> Field:
    return _job(
        name, title, query.QFT_OTHER, doc, lambda job: [get(op) for op in job.ops]
    )


_JOB_FIELDS: Final = by_name(
    (
        plain(
            "id",
            "ID",
            query.QFT_NUMBER,
            "Job id",
            lambda row: row.id,
            match="jobid",
        ),
        _job("status", "Status", query.QFT_TEXT, "Job status", lambda job: job.status),
        _job(
            "priority",
            "Priority",
            query.QFT_NUMBER,
            "Most urgent priority of the remaining opcodes",
            lambda job: job.priority,
        ),
        _job(
            "archived",
            "Archived",
            query.QFT_BOOL,
            "Is archived",
            lambda job: job.is_archived,
        ),
        _job(
            "received_ts",
            "Received",
            query.QFT_OTHER,
            "When it was submitted",
            lambda job: job.received_timestamp,
            match="seconds",
        ),
        _job(
            "start_ts",
            "Start",
            query.QFT_OTHER,
            "When it started",
            lambda job: job.start_timestamp,
            match="seconds",
        ),
        _job(
            "end_ts",
            "End",
            query.QFT_OTHER,
            "When it ended",
            lambda job: job.end_timestamp,
            match="seconds",
        ),
        _per_op("ops", "OpCodes", "The opcodes", lambda op: op.input_value()),
        _per_op("opresult", "OpCode_result", "Results", lambda op: op.result_value()),
        _per_op("opstatus", "OpCode_status", "States", lambda op: op.status),
        _per_op("oplog", "OpCode_log", "Log entries", lambda op: op.log),
        _per_op("oppriority", "OpCode_prio", "Priorities", lambda op: op.priority),
        _per_op(
            "opstart",
            "OpCode_start",
            "When each opcode began to wait for locks",
            lambda op: op.start_timestamp,
        ),
        _per_op(
            "opexec",
            "OpCode_exec",
            "When each opcode got its locks",
            lambda op: op.exec_timestamp,
        ),
        _per_op(
            "opend", "OpCode_end", "When each opcode ended", lambda op: op.end_timestamp
        ),
        _per_op(
            "summary", "Summary", "Summary of each opcode", lambda op: op.summary()
        ),
    )
)


_NO_SOURCES: Final = QueryContext(Sources(Snapshot()))


def job_values(names: Sequence[str]) -> "Callable[[jqueue.Job], list[Any] | None]":
    """Return a function from a job to its values of some fields.

    If a field is unknown, the function returns None instead of the list. The same names
    give the same function, so that its values can be shared.
    """
    return _job_values(tuple(names))


@functools.lru_cache(maxsize=128)
def _job_values(names: tuple[str, ...]) -> "Callable[[jqueue.Job], list[Any] | None]":
    fields = [_JOB_FIELDS.get(name) for name in names]
    getters = [field.bind(_NO_SOURCES) for field in fields if field is not None]
    if len(getters) < len(fields):
        return lambda _job: None
    return lambda job: [get(_Row(job.id, job))[1] for get in getters]


def parse_job_id(value: Any) -> int:
    """Return a job id from a number or a text.

    Raises:
        OpPrereqError: wrong_input, it is not a job id.
    """
    number = units.whole_number(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise errors.OpPrereqError(f"{value!r} is not a job id", ecodes.ECODE_INVAL)
    return number


def _job_rows(context: QueryContext, names: Sequence[Any] | None) -> list[_Row]:
    source = _source(context)
    if names is not None:
        ids = [parse_job_id(name) for name in names]
        return [_Row(job_id, source.job(job_id)) for job_id in ids]
    jobs = list(source.jobs(with_logs="oplog" in context.asked))
    if "archived" in context.asked:
        jobs += source.archived_jobs()
    return [_Row(job.id, job) for job in sorted(jobs, key=lambda job: job.id)]


def _source(context: QueryContext) -> Jobs:
    """Return the job queue.

    Raises:
        OpPrereqError: there is none.
    """
    source = context.sources.jobs
    if source is None:
        raise errors.OpPrereqError(
            "jobs cannot be queried: there is no job queue", ecodes.ECODE_STATE
        )
    return source


def rows_without_jobs(context: QueryContext) -> list[_Row]:
    """Return a row with the id alone per live job, for `with_jobs`."""
    return [_Row(job_id, None) for job_id in _source(context).ids()]


def with_jobs(context: QueryContext, rows: Sequence[_Row]) -> list[_Row]:
    """Return rows with their jobs, without those that are gone by now."""
    known = _job_rows(context, [row.id for row in rows])
    return [row for row in known if row.job is not None]


JOB: Final = Resource(query.QR_JOB, "id", _JOB_FIELDS, _job_rows)

#: Names of workers contain the job; other threads are shown by their own name.
_JOB_IN_NAME: Final = re.compile(r"(?:^|/)Job(\d+)(?:/|$)")


def _owner(name: str) -> str:
    """Return the JSON text of the job id or name of an owner."""
    match = _JOB_IN_NAME.search(name)
    return match[1] if match else json.dumps(name)


def _owners(names: Sequence[str]) -> list[str]:
    return [_owner(name) for name in names]


def _lock_rows(context: QueryContext, names: Sequence[Any] | None) -> list[LockInfo]:
    rows = list(context.sources.locks())
    if names is None:
        return rows
    by_name = {row.name: row for row in rows}
    missing = [name for name in names if name not in by_name]
    if missing:
        raise errors.OpPrereqError(
            f"no such lock in use: {', '.join(map(str, missing))}", ecodes.ECODE_NOENT
        )
    return [by_name[name] for name in names]


def _bind_pending(_context: QueryContext) -> Getter:
    return lambda row: normal([[mode, _owners(names)] for mode, names in row.pending])


LOCK: Final = Resource(
    query.QR_LOCK,
    "name",
    by_name(
        (
            plain("name", "Name", query.QFT_OTHER, "Lock name", lambda row: row.name),
            plain(
                "mode",
                "Mode",
                query.QFT_OTHER,
                "How it is held",
                lambda row: row.mode,
            ),
            plain(
                "owner",
                "Owner",
                query.QFT_OTHER,
                "Who holds it",
                lambda row: _owners(row.owners),
            ),
            plain(
                "held",
                "Held",
                query.QFT_OTHER,
                "Seconds that each holder has held it; not in Ganeti",
                lambda row: [round(seconds, 3) for seconds in row.held_s],
            ),
            Field(
                "pending",
                "Pending",
                query.QFT_OTHER,
                "Who waits for it",
                _bind_pending,
            ),
        )
    ),
    _lock_rows,
)
