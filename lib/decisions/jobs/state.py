"""States of opcodes and jobs, and all transitions between them.

Pure: only `advance` changes an opcode's state. The effects of a change (time stamps,
results of later opcodes) are in `ganeti.decisions.jobs.transitions`.
"""

import enum
from collections.abc import Iterable
from typing import Final

from ganeti.base import errors
from ganeti.base.constants import jobqueue


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
