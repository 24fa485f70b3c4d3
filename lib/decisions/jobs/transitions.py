"""Transitions of a whole job for events of its opcodes.

Pure: job in, job out; *now* is an argument. The end time of a job is set with its last
opcode. An opcode that fails or is canceled also ends all later ones.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.decisions.jobs import records
from ganeti.decisions.jobs.records import (
    Event,
    Job,
    JobOp,
    Status,
    Timestamp,
    encode_value,
)
from ganeti.model import opcodes

_replace = msgspec.structs.replace

CANCELED_TEXT: Final = "Job canceled by request"
UNCLEAN_TEXT: Final = "Unclean master daemon shutdown"
EARLIER_TEXT: Final = "Preceding opcode failed"
LOST_TEXT: Final = (
    "secret parameters are never stored, so they were lost when the master daemon"
    " ended; submit the job again"
)


def new_job(job_id: int, ops: Sequence[opcodes.Opcode], now: Timestamp) -> Job:
    """Return a queued job; hidden values that must not be stored are removed."""
    return Job(
        id=job_id,
        ops=tuple(
            JobOp(
                input=encode_value(opcodes.redact(opcodes.encode(op), for_disk=True)),
                priority=op.priority,
            )
            for op in ops
        ),
        received_timestamp=now,
    )


def next_index(job: Job) -> int | None:
    """Return the index of the first unfinished opcode, None if there is none."""
    for index, op in enumerate(job.ops):
        if op.status not in records.FINAL:
            return index
    return None


# One opcode advances
def start(job: Job, index: int, now: Timestamp) -> Job:
    """Let an opcode leave the queue and begin to request its locks."""
    op = job.ops[index]
    op = _step(op, Event.START, start_timestamp=op.start_timestamp or now)
    return _put(job, index, op, start_timestamp=job.start_timestamp or now)


def retry(job: Job, index: int, priority: int) -> Job:
    """Let an opcode that did not get its locks in time try again."""
    return _put(job, index, _step(job.ops[index], Event.RETRY, priority=priority))


def execute(job: Job, index: int, now: Timestamp) -> Job:
    """Mark an opcode as running, with its locks held."""
    return _put(job, index, _step(job.ops[index], Event.EXECUTE, exec_timestamp=now))


def resume(job: Job, index: int) -> Job:
    """Let an opcode continue that ran when the last daemon ended."""
    return _put(job, index, _step(job.ops[index], Event.RESUME))


def with_resumption(job: Job, index: int, value: msgspec.Raw) -> Job:
    """Replace what a running opcode needs in order to be continued."""
    return _put(job, index, _replace(job.ops[index], resumption=value))


def requeue(job: Job, index: int) -> Job:
    """Return an opcode that waits for locks to the queue, because the queue stops."""
    return _put(job, index, _step(job.ops[index], Event.REQUEUE))


# One opcode ends
def succeed(job: Job, index: int, result: msgspec.Raw, now: Timestamp) -> Job:
    """Mark an opcode as successful."""
    op = _end(job.ops[index], Event.SUCCEED, result, now)
    if index + 1 == len(job.ops):
        return _put(job, index, op, end_timestamp=now)
    return _put(job, index, op)


def fail(job: Job, index: int, error: BaseException, now: Timestamp) -> Job:
    """Mark an opcode and all later ones as failed."""
    result = encode_error(error)
    op = _end(job.ops[index], Event.FAIL, result, now)
    return abort(_put(job, index, op), errors.OpExecError(EARLIER_TEXT), now)


def abort(job: Job, reason: errors.GenericError | str, now: Timestamp) -> Job:
    """End every unfinished opcode with an error, for an outside reason."""
    if isinstance(reason, str):
        return _end_rest(job, Event.ABORT, encode_value(reason), now)
    return _end_rest(job, Event.ABORT, encode_error(reason), now)


def cancel(job: Job, now: Timestamp, text: str = CANCELED_TEXT) -> Job:
    """Cancel a queued or waiting job; ``text`` is the result of its opcodes.

    A queued job is final at once; a waiting one when its worker notices the request.
    """
    index = next_index(job)
    if index is not None and job.ops[index].status is Status.WAITING:
        return _put(job, index, _step(job.ops[index], Event.CANCEL))
    return _end_rest(job, Event.CANCEL, encode_value(text), now)


def cancel_rest(job: Job, now: Timestamp) -> Job:
    """Cancel the opcodes that have not been executed; none is running."""
    index = next_index(job)
    if index is not None and job.ops[index].status is Status.WAITING:
        job = requeue(job, index)
    return _end_rest(job, Event.CANCEL, encode_value(CANCELED_TEXT), now)


def confirm_cancel(
    job: Job, index: int, now: Timestamp, text: str = CANCELED_TEXT
) -> Job:
    """Cancel an opcode that its worker gave up on request, and all later ones."""
    result = encode_value(text)
    op = _end(job.ops[index], Event.CONFIRM, result, now)
    return _end_rest(_put(job, index, op), Event.CANCEL, result, now)


# The rest
def with_priority(job: Job, priority: int) -> Job:
    """Change the priority of the opcodes that are queued or waiting."""
    changeable = (Status.QUEUED, Status.WAITING)
    return _replace(
        job,
        ops=tuple(
            _replace(op, priority=priority) if op.status in changeable else op
            for op in job.ops
        ),
    )


def recover(job: Job, now: Timestamp) -> Job:
    """Return the recovered form of a job that a dead daemon left behind.

    Queued jobs stay queued; opcodes that waited are queued again; opcodes that ran
    continue if they are resumable, and have failed otherwise. A job with a parameter
    that was never stored and is still needed fails, unless an earlier opcode continues.
    """
    if job.status in records.FINAL:
        return job
    index = next_index(job)
    if index is not None and job.ops[index].is_resumable:
        job = resume(job, index)
        if not has_lost_secrets(job.ops[index]):
            return job
    elif job.status in (Status.RUNNING, Status.CANCELING):
        return abort(job, UNCLEAN_TEXT, now)
    elif index is not None and job.ops[index].status is Status.WAITING:
        job = requeue(job, index)
    if any(map(has_lost_secrets, job.ops)):
        return abort(job, errors.OpExecError(LOST_TEXT), now)
    return job


def has_lost_secrets(op: JobOp) -> bool:
    """Return whether an opcode of an earlier daemon needs what was never stored.

    The unit of an opcode that continues may say that it can do without.
    """
    left = op.resumption_value() if op.is_resumable else None
    if isinstance(left, dict) and left.get("without_secrets"):
        return False
    return op.status not in records.FINAL and opcodes.lost_secrets(op.decoded_input())


def encode_error(error: BaseException) -> msgspec.Raw:
    """Return the JSON of an error; arguments without a JSON form become text."""
    name, args = errors.encode(error)
    try:
        return encode_value([name, args])
    except errors.OpResultError:
        return encode_value([name, [str(arg) for arg in args]])


def _step(op: JobOp, event: Event, **changes: Any) -> JobOp:
    return _replace(op, status=records.advance(op.status, event), **changes)


def _end(op: JobOp, event: Event, result: msgspec.Raw, now: Timestamp) -> JobOp:
    """Return an opcode after an event that ends it."""
    return _step(
        op, event, result=result, end_timestamp=now, resumption=encode_value(None)
    )


def _put(job: Job, index: int, op: JobOp, **changes: Any) -> Job:
    ops = (*job.ops[:index], op, *job.ops[index + 1 :])
    return _replace(job, ops=ops, **changes)


def _end_rest(job: Job, event: Event, result: msgspec.Raw, now: Timestamp) -> Job:
    return _replace(
        job,
        ops=tuple(
            op if op.status in records.FINAL else _end(op, event, result, now)
            for op in job.ops
        ),
        end_timestamp=now,
    )
