"""States of opcodes and jobs, and the only ways between them.

Pure: `advance` is the one function that changes an opcode's state. What a change
brings along (time stamps, results of later opcodes) is in `ganeti.jqueue.transitions`.
"""

import enum
from collections.abc import Iterable
from typing import Final

from ganeti import errors
from ganeti.constants import jobqueue


class Status(enum.StrEnum):
    """State of an opcode, and of a job as computed from its opcodes."""

    QUEUED = jobqueue.JOB_STATUS_QUEUED
    #: Started, waiting for locks.
    WAITING = jobqueue.JOB_STATUS_WAITING
    #: Waiting for locks, but asked to give up.
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
#: These decide about a job at once, whatever the later opcodes are.
_DECISIVE: Final = frozenset({Status.ERROR, Status.CANCELING, Status.CANCELED})


class Event(enum.Enum):
    """What can happen to an opcode."""

    #: A worker begins to get its locks.
    START = "start"
    #: The locks were not had in time.
    RETRY = "retry"
    #: The queue stops, or has been restarted, before it was executed.
    REQUEUE = "requeue"
    #: It has its locks.
    EXECUTE = "execute"
    SUCCEED = "succeed"
    FAIL = "fail"
    #: Somebody asked to cancel it, or an earlier opcode was canceled.
    CANCEL = "cancel"
    #: The worker noticed the request to cancel.
    CONFIRM = "confirm"
    #: It cannot go on for an outside reason: earlier failure, death of the daemon.
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
    (Status.RUNNING, Event.SUCCEED): Status.SUCCESS,
    (Status.RUNNING, Event.FAIL): Status.ERROR,
    (Status.RUNNING, Event.ABORT): Status.ERROR,
}


def advance(status: Status, event: Event) -> Status:
    """Return the state after an event.

    Raises:
        ProgrammerError: the event cannot happen in that state.
    """
    following = TABLE.get((status, event))
    if following is None:
        raise errors.ProgrammerError(f"an opcode that is {status} cannot {event.value}")
    return following


def job_status(statuses: Iterable[Status]) -> Status:
    """Return the state of a job with opcodes in these states, in order.

    The first error, canceling or canceled decides; else the last that waits or runs;
    all success is success; anything else is queued.
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
    """Return the most urgent priority of unfinished opcodes, the default if none."""
    return min(
        (priority for status, priority in opcodes if status not in FINAL),
        default=jobqueue.OP_PRIO_DEFAULT,
    )
