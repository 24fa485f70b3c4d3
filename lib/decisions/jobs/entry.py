"""A live job in memory: the newest record, and its transient state.

Entries are guarded by the queue's lock and private to `JobQueue` and its parts.
"""

import enum
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import msgspec

from ganeti.base.timers import Timer
from ganeti.decisions.jobs import filters, records
from ganeti.decisions.jobs.records import Job, LogEntry
from ganeti.decisions.jobs.transitions import CANCELED_TEXT
from ganeti.model import opcodes


class Place(enum.Enum):
    """The place of a live job in the queue."""

    #: May start as soon as a worker is free.
    READY = "ready"
    #: Held by a filter rule or a rate limit.
    PARKED = "parked"
    #: Waits for other jobs to end.
    DEPENDENT = "dependent"
    #: Waits for the time of its next attempt to get locks.
    RESTING = "resting"
    #: Assigned to a worker.
    WORKING = "working"
    #: Final, but not durable yet.
    ENDED = "ended"


class Watch:
    """A wait for a change of a job.

    Attributes:
        fields: returns the values to compare, from the record.
        previous: the values known to the waiting side, in JSON form.
        serial: newest log entry known to the waiting side.
        future: receives the values and the newer log entries.
        timer: timer of the time limit.
        on_answer: called when the wait has been answered, at the end of the round in
            which other waits may be answered too.
    """

    __slots__ = (
        "fields",
        "future",
        "job_id",
        "on_answer",
        "previous",
        "serial",
        "timer",
    )

    def __init__(
        self,
        job_id: int,
        fields: Callable[[Job], Any],
        previous: Any,
        serial: int | None,
    ) -> None:
        self.job_id = job_id
        self.fields = fields
        self.previous = previous
        self.serial = serial
        self.future: Future[tuple[Any, tuple[LogEntry, ...]]] = Future()
        self.timer: Timer | None = None
        self.on_answer: Callable[[], None] | None = None


class Known(NamedTuple):
    """A job, and the state of it that a waiting client knows."""

    job_id: int
    previous: Any = None
    serial: int | None = None


class Entry:
    """One live job.

    Attributes:
        job: the newest record, without log entries.
        shown: the visible record; the end of an opcode is shown once it is durable.
        hidden: the record with the newest such end that is not durable.
        ops: the opcodes with their secrets.
        logs: (index of the opcode, log entry), in order.
        unsaved: number of the last ``logs`` that no commit contains yet.
        stored: serial of the newest log entry that is on disk.
        place: the place in the queue.
        submitted_at: monotonic time at which the queue took the job in.
        arrival: order among jobs of the same priority.
        attempt: index in the table of lock timeouts; None is without limit.
        blocked_by: running jobs that hold locks which the job needs.
        waits_for: unfinished jobs that the job depends on.
        requester: who asked the remote API for the job, see
            `ganeti.decisions.jobs.filters`.
        size: bytes of its opcodes.
        slots: slots that the job takes while it runs, from its reasons and the rules.
        is_admitted: whether the job holds its slots.
        released_by: key of the slot whose release ended the parking.
        must_cancel: the job was canceled while a worker had it.
        cancel_text: the result of its opcodes after a cancellation.
        was_tried: the present opcode has failed to get its locks at least once.
        began: monotonic time at which the present attempt began.
        must_hurry: the next attempt to get the locks must begin at once.
        interrupt: ends a wait for locks of the worker that has the job.
        kill: ends a wait of the running opcode for nodes.
        lost_secrets: indexes of opcodes whose secrets ended with an earlier daemon.
        must_die: a client asked to kill the job while it ran.
        watches: the waits for changes, in order.
        reported: monotonic time at which log lines were last reported.
    """

    __slots__ = (
        "arrival",
        "attempt",
        "began",
        "blocked_by",
        "cancel_text",
        "hidden",
        "interrupt",
        "is_admitted",
        "job",
        "kill",
        "logs",
        "lost_secrets",
        "must_cancel",
        "must_die",
        "must_hurry",
        "news_timer",
        "ops",
        "place",
        "released_by",
        "reported",
        "requester",
        "rest_timer",
        "shown",
        "size",
        "slots",
        "stored",
        "submitted_at",
        "unsaved",
        "waits_for",
        "was_tried",
        "watches",
    )

    def __init__(self, job: Job, ops: Sequence[opcodes.Opcode]) -> None:
        self.job = self.shown = job
        self.hidden: Job | None = None
        self.ops = ops
        self.logs: list[tuple[int, LogEntry]] = []
        self.unsaved = 0
        self.stored = 0
        self.place = Place.READY
        self.submitted_at = float("inf")
        self.arrival = 0
        self.attempt: int | None = 0
        self.blocked_by: set[int] = set()
        self.waits_for: set[int] = set()
        self.slots: tuple[filters.Slot, ...] = filters.buckets(
            reason for op in ops for reason in op.reason
        )
        self.requester = filters.requester(reason for op in ops for reason in op.reason)
        self.size = sum(len(op.input) for op in job.ops)
        self.is_admitted = False
        self.released_by: str | None = None
        self.must_cancel = False
        self.cancel_text = CANCELED_TEXT
        self.must_die = False
        self.must_hurry = False
        self.was_tried = False
        self.began = 0.0
        self.interrupt: Callable[[], None] | None = None
        self.kill: Callable[[], None] | None = None
        self.lost_secrets: frozenset[int] = frozenset()
        self.reported = float("-inf")
        self.watches: dict[Watch, None] = {}
        self.news_timer: Timer | None = None
        self.rest_timer: Timer | None = None

    def facts(self) -> filters.JobFacts:
        """Return the data that filter rules use."""
        return filters.JobFacts(
            self.job.id,
            [opcodes.encode(op) for op in self.ops],
            [reason for op in self.ops for reason in op.reason],
        )

    def view(self) -> Job:
        """Return the visible record, with the log entries."""
        return attach_logs(self.shown, self.logs)

    @property
    def log_serial(self) -> int:
        """The serial of the newest log entry, 0 if there is none."""
        return self.logs[-1][1].serial if self.logs else 0


def attach_logs(job: Job, logs: Sequence[tuple[int, LogEntry]]) -> Job:
    """Return a record with its log entries."""
    if not logs:
        return job
    by_index: dict[int, list[LogEntry]] = {}
    for index, entry in logs:
        by_index.setdefault(index, []).append(entry)
    return records.with_logs(job, {k: tuple(v) for k, v in by_index.items()})


def to_json_form(value: Any) -> Any:
    """Return a value in a client's form, for comparisons."""
    return msgspec.json.decode(msgspec.json.encode(value))
