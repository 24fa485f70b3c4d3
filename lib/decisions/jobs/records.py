"""Immutable records of jobs, their stored form, and the states of opcodes and jobs.

The stored form is the documented job object without the log entries. These are separate
documents, so a new line does not rewrite the job. Opcodes are kept as encoded, redacted
JSON, so a record never holds a secret and writing it needs no encoding.

Only `advance` changes an opcode's state. The effects of a change (time stamps, results
of later opcodes) are in `decisions.jobs.transitions`.
"""

import enum
import functools
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import jobqueue
from ganeti.model import opcodes


class Status(enum.StrEnum):
    """State of an opcode, and of a job as computed from its opcodes."""

    QUEUED = jobqueue.JOB_STATUS_QUEUED
    #: Started, waiting for locks.
    WAITING = jobqueue.JOB_STATUS_WAITING
    #: Waiting for locks, and asked to give up.
    CANCELING = jobqueue.JOB_STATUS_CANCELING
    RUNNING = jobqueue.JOB_STATUS_RUNNING
    CANCELED = jobqueue.JOB_STATUS_CANCELED
    SUCCESS = jobqueue.JOB_STATUS_SUCCESS
    ERROR = jobqueue.JOB_STATUS_ERROR

    @property
    def is_final(self) -> bool:
        """Whether nothing will change any more."""
        return self in FINAL


FINAL: Final = frozenset({Status.CANCELED, Status.SUCCESS, Status.ERROR})
#: These decide on the state of a job, regardless of later opcodes.
_DECISIVE: Final = frozenset({Status.ERROR, Status.CANCELING, Status.CANCELED})


class Event(enum.Enum):
    """An event of an opcode."""

    #: A worker begins to request its locks.
    START = "start"
    #: The locks were not acquired in time.
    RETRY = "retry"
    #: The queue stops, or was restarted, before the execution.
    REQUEUE = "requeue"
    #: All locks are held.
    EXECUTE = "execute"
    SUCCEED = "succeed"
    FAIL = "fail"
    #: A client asked to cancel it, or an earlier opcode was canceled.
    CANCEL = "cancel"
    #: The worker noticed the request to cancel.
    CONFIRM = "confirm"
    #: A restarted master continues it.
    RESUME = "resume"
    #: It cannot continue for an outside reason: earlier failure, end of the daemon.
    ABORT = "abort"


TABLE: Final[dict[tuple[Status, Event], Status]] = {
    (Status.QUEUED, Event.START): Status.WAITING,
    (Status.QUEUED, Event.CANCEL): Status.CANCELED,
    (Status.QUEUED, Event.ABORT): Status.ERROR,
    (Status.WAITING, Event.RETRY): Status.WAITING,
    (Status.WAITING, Event.REQUEUE): Status.QUEUED,
    (Status.WAITING, Event.EXECUTE): Status.RUNNING,
    (Status.WAITING, Event.FAIL): Status.ERROR,
    (Status.WAITING, Event.CANCEL): Status.CANCELING,
    (Status.WAITING, Event.ABORT): Status.ERROR,
    (Status.CANCELING, Event.CONFIRM): Status.CANCELED,
    (Status.CANCELING, Event.FAIL): Status.ERROR,
    (Status.CANCELING, Event.ABORT): Status.ERROR,
    (Status.RUNNING, Event.RESUME): Status.RUNNING,
    (Status.RUNNING, Event.SUCCEED): Status.SUCCESS,
    (Status.RUNNING, Event.FAIL): Status.ERROR,
    (Status.RUNNING, Event.ABORT): Status.ERROR,
}


def advance(status: Status, event: Event) -> Status:
    """Return the state after an event.

    Raises:
        ProgrammerError: the event is not possible in this state.
    """
    following = TABLE.get((status, event))
    if following is None:
        raise errors.ProgrammerError(f"an opcode that is {status} cannot {event.value}")
    return following


def job_status(statuses: Iterable[Status]) -> Status:
    """Return the state of a job with opcodes in these states, in order.

    The first opcode in error, canceling or canceled decides, else the last one that
    waits or runs. If all opcodes succeeded, the job did. Otherwise it is queued.
    """
    result = Status.QUEUED
    all_success = True
    for status in statuses:
        if status in _DECISIVE:
            return status
        if status is not Status.SUCCESS:
            all_success = False
        if status in (Status.WAITING, Status.RUNNING):
            result = status
    return Status.SUCCESS if all_success else result


def job_priority(opcodes: Iterable[tuple[Status, int]]) -> int:
    """Return the most urgent priority of unfinished opcodes, or the default."""
    return min(
        (priority for status, priority in opcodes if status not in FINAL),
        default=jobqueue.OP_PRIO_DEFAULT,
    )


#: Seconds and microseconds.
Timestamp = tuple[int, int]

_NULL: Final = msgspec.Raw(b"null")
#: Summaries that are kept, because lists of jobs are queried again and again; and the
#: longest opcode, in bytes of JSON, whose summary is.
_KEPT_SUMMARIES: Final = 2048
_LONGEST_KEPT: Final = 2048


class LogEntry(msgspec.Struct, frozen=True, array_like=True):
    """One line of a job's log; ``serial`` counts over the whole job from 1."""

    serial: int
    timestamp: Timestamp
    kind: str
    payload: Any


class JobOp(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One opcode of a job. ``input`` and ``result`` are encoded JSON."""

    input: msgspec.Raw
    status: Status = Status.QUEUED
    result: msgspec.Raw = _NULL
    priority: int = 0
    log: tuple[LogEntry, ...] = ()
    #: Time when it first left the queue.
    start_timestamp: Timestamp | None = None
    #: Time when it got its locks.
    exec_timestamp: Timestamp | None = None
    end_timestamp: Timestamp | None = None
    #: Encoded JSON of a running opcode that a restarted master can continue, see
    #: `ganeti.master.jqueue.effects.Callbacks.save_resumption`; null for all others.
    resumption: msgspec.Raw = _NULL

    @property
    def is_resumable(self) -> bool:
        """Whether a restarted master can continue the opcode."""
        return self.status is Status.RUNNING and self.resumption != _NULL

    def resumption_value(self) -> Any:
        """Return what the opcode stored in order to be continued, None if nothing."""
        return msgspec.json.decode(self.resumption)

    def decoded_input(self) -> dict[str, Any]:
        """Return the stored wire form, which may hold hidden values."""
        value: dict[str, Any] = msgspec.json.decode(self.input)
        return value

    def input_value(self) -> dict[str, Any]:
        """Return the wire form of the opcode without its hidden values."""
        return opcodes.redact(self.decoded_input())

    def result_value(self) -> Any:
        """Return the result; of a failed opcode ``[class name, [arguments]]``."""
        return msgspec.json.decode(self.result)

    def summary(self) -> str:
        """Return the text for job lists, ``INVALID_OP`` if the opcode is unknown."""
        if len(self.input) > _LONGEST_KEPT:
            return _summary_of(self.input)
        return _kept_summary(bytes(self.input))


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job: opcodes that run one after another."""

    id: int
    ops: tuple[JobOp, ...]
    received_timestamp: Timestamp | None = None
    start_timestamp: Timestamp | None = None
    end_timestamp: Timestamp | None = None
    #: Not stored, but set for queries.
    is_archived: bool = False

    @property
    def status(self) -> Status:
        """The state, computed from the opcodes."""
        return job_status(op.status for op in self.ops)

    @property
    def priority(self) -> int:
        """The most urgent priority of the unfinished opcodes."""
        return job_priority((op.status, op.priority) for op in self.ops)

    @property
    def is_final(self) -> bool:
        """Whether the state is final."""
        return self.status.is_final

    def log_after(self, serial: int | None) -> tuple[LogEntry, ...]:
        """Return the log entries of all opcodes newer than a serial, in order."""
        least = serial or 0
        return tuple(
            sorted(
                (entry for op in self.ops for entry in op.log if entry.serial > least),
                key=lambda entry: entry.serial,
            )
        )


def _summary_of(data: bytes | msgspec.Raw) -> str:
    """Return the summary of an opcode in its stored form."""
    try:
        return opcodes.decode(msgspec.json.decode(data)).summary()
    except errors.OpPrereqError:
        return "INVALID_OP"


_kept_summary: Final = functools.lru_cache(maxsize=_KEPT_SUMMARIES)(_summary_of)
_JOB_DECODER: Final = msgspec.json.Decoder(Job)
_ENCODER: Final = msgspec.json.Encoder()


def encode_job(job: Job) -> bytes:
    """Return the stored form of a job; its log entries are not part of it."""
    if any(op.log for op in job.ops):
        job = with_logs(job, {})
    return _ENCODER.encode(job)


def decode_job(data: bytes) -> Job:
    """Return the job of a stored form.

    Raises:
        JobFileCorrupted: the data is not the stored form of a job.
    """
    try:
        return _JOB_DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise errors.JobFileCorrupted(f"job record cannot be read: {err}") from err


def with_logs(job: Job, logs: dict[int, tuple[LogEntry, ...]]) -> Job:
    """Return the job with these log entries by index of the opcode."""
    ops = tuple(
        msgspec.structs.replace(op, log=logs.get(index, ()))
        for index, op in enumerate(job.ops)
    )
    return msgspec.structs.replace(job, ops=ops)


def encode_value(value: Any) -> msgspec.Raw:
    """Return the JSON of a result.

    Raises:
        OpResultError: the result has no JSON form.
    """
    try:
        return msgspec.Raw(_ENCODER.encode(value))
    except (TypeError, ValueError, OverflowError) as err:
        raise errors.OpResultError(f"result has no JSON form: {err}") from err


def encode_log(index: int, entry: LogEntry) -> bytes:
    """Return the stored form of a log entry of the opcode at ``index``."""
    return _ENCODER.encode((index, entry))


def decode_log(data: bytes) -> tuple[int, LogEntry]:
    """Return the index of the opcode and the log entry of a stored form."""
    return msgspec.json.decode(data, type=tuple[int, LogEntry])


def pack_logs(rows: Sequence[bytes]) -> bytes:
    """Return the stored form of log entries of an archived job."""
    return b"[%b]" % b",".join(rows)


def unpack_logs(data: bytes) -> list[tuple[int, LogEntry]]:
    """Return what `pack_logs` has packed, see `decode_log`."""
    return msgspec.json.decode(data, type=list[tuple[int, LogEntry]])


def log_key(job_id: int, serial: int) -> str:
    """Return the document key of a log entry; keys of a job sort by serial."""
    return f"{job_id}/{serial:010d}"
