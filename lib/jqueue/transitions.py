"""What happens to a whole job when something happens to one of its opcodes.

Pure: job in, job out; *now* is an argument. The job's end is set with its last
opcode, and an opcode that fails or is canceled takes all later ones along.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ganeti import errors, opcodes
from ganeti.jqueue import state
from ganeti.jqueue.records import Job, JobOp, Timestamp, encode_value
from ganeti.jqueue.state import Event, Status

_replace = msgspec.structs.replace

CANCELED_TEXT: Final = "Job canceled by request"
UNCLEAN_TEXT: Final = "Unclean master daemon shutdown"
EARLIER_TEXT: Final = "Preceding opcode failed"


def new_job(job_id: int, ops: Sequence[opcodes.Opcode], now: Timestamp) -> Job:
    """Return a queued job; hidden values that may not be stored are blanked."""
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
        if op.status not in state.FINAL:
            return index
    return None


# One opcode goes on
def start(job: Job, index: int, now: Timestamp) -> Job:
    """An opcode leaves the queue and begins to get its locks."""
    op = job.ops[index]
    op = _step(op, Event.START, start_timestamp=op.start_timestamp or now)
    return _put(job, index, op, start_timestamp=job.start_timestamp or now)


def retry(job: Job, index: int, priority: int) -> Job:
    """An opcode did not get its locks in time and tries again."""
    return _put(job, index, _step(job.ops[index], Event.RETRY, priority=priority))


def execute(job: Job, index: int, now: Timestamp) -> Job:
    """An opcode has its locks."""
    return _put(job, index, _step(job.ops[index], Event.EXECUTE, exec_timestamp=now))


def requeue(job: Job, index: int) -> Job:
    """An opcode that waits for locks goes back to the queue: the queue stops."""
    return _put(job, index, _step(job.ops[index], Event.REQUEUE))


# One opcode ends
def succeed(job: Job, index: int, result: msgspec.Raw, now: Timestamp) -> Job:
    """An opcode has done its work."""
    op = _step(job.ops[index], Event.SUCCEED, result=result, end_timestamp=now)
    if index + 1 == len(job.ops):
        return _put(job, index, op, end_timestamp=now)
    return _put(job, index, op)


def fail(job: Job, index: int, error: BaseException, now: Timestamp) -> Job:
    """An opcode failed, and all later ones with it."""
    result = encode_error(error)
    op = _step(job.ops[index], Event.FAIL, result=result, end_timestamp=now)
    return abort(_put(job, index, op), errors.OpExecError(EARLIER_TEXT), now)


def abort(job: Job, reason: errors.GenericError | str, now: Timestamp) -> Job:
    """Every unfinished opcode ends as an error for an outside reason."""
    if isinstance(reason, str):
        return _end_rest(job, Event.ABORT, encode_value(reason), now)
    return _end_rest(job, Event.ABORT, encode_error(reason), now)


def cancel(job: Job, now: Timestamp) -> Job:
    """Somebody asked to cancel a queued or waiting job.

    A queued one is final at once; a waiting one only when its worker noticed.
    """
    index = next_index(job)
    if index is not None and job.ops[index].status is Status.WAITING:
        return _put(job, index, _step(job.ops[index], Event.CANCEL))
    return _end_rest(job, Event.CANCEL, encode_value(CANCELED_TEXT), now)


def cancel_rest(job: Job, now: Timestamp) -> Job:
    """The opcodes that have not been executed are canceled; no one is running."""
    index = next_index(job)
    if index is not None and job.ops[index].status is Status.WAITING:
        job = requeue(job, index)
    return _end_rest(job, Event.CANCEL, encode_value(CANCELED_TEXT), now)


def confirm_cancel(job: Job, index: int, now: Timestamp) -> Job:
    """The worker gave up an opcode on request; the later ones are canceled too."""
    result = encode_value(CANCELED_TEXT)
    op = _step(job.ops[index], Event.CONFIRM, result=result, end_timestamp=now)
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
    """Return what becomes of a job that a dead daemon left behind.

    Queued jobs stay; opcodes that waited are queued again; what ran has failed.
    A queued job with a parameter that was never stored cannot run any more.
    """
    if job.status in state.FINAL:
        return job
    if job.status in (Status.RUNNING, Status.CANCELING):
        return abort(job, UNCLEAN_TEXT, now)
    index = next_index(job)
    if index is not None and job.ops[index].status is Status.WAITING:
        job = requeue(job, index)
    if any(
        opcodes.lost_secrets(op.decoded_input())
        for op in job.ops
        if op.status is Status.QUEUED
    ):
        text = (
            "secret parameters are not stored and were lost when the master daemon"
            " ended; submit the job again"
        )
        return abort(job, errors.OpExecError(text), now)
    return job


def encode_error(error: BaseException) -> msgspec.Raw:
    """Return the JSON of an error; arguments without a JSON form become text."""
    name, args = errors.encode(error)
    try:
        return encode_value([name, args])
    except errors.OpResultError:
        return encode_value([name, [str(arg) for arg in args]])


def _step(op: JobOp, event: Event, **changes: Any) -> JobOp:
    return _replace(op, status=state.advance(op.status, event), **changes)


def _put(job: Job, index: int, op: JobOp, **changes: Any) -> Job:
    ops = (*job.ops[:index], op, *job.ops[index + 1 :])
    return _replace(job, ops=ops, **changes)


def _end_rest(job: Job, event: Event, result: msgspec.Raw, now: Timestamp) -> Job:
    return _replace(
        job,
        ops=tuple(
            op
            if op.status in state.FINAL
            else _step(op, event, result=result, end_timestamp=now)
            for op in job.ops
        ),
        end_timestamp=now,
    )
