"""The job queue: states, scheduling, workers, waiting, archive.

A job whose id was returned survives any crash. ``ganeti.decisions.jobs`` decides;
`JobQueue` keeps jobs in the store, passes them to worker threads when they may run, and
notifies waiting clients. The execution of opcodes does not belong here, see `Executor`.
"""

from ganeti.decisions.jobs.entry import Known
from ganeti.decisions.jobs.records import (
    FINAL,
    Event,
    Job,
    JobOp,
    LogEntry,
    Status,
    Timestamp,
)
from ganeti.master.jqueue.core import Settings
from ganeti.master.jqueue.effects import (
    Callbacks,
    Canceled,
    Executor,
    LockTimeout,
    SubmitJobs,
)
from ganeti.master.jqueue.queue import JobQueue, Statistics

__all__ = [
    "FINAL",
    "Callbacks",
    "Canceled",
    "Event",
    "Executor",
    "Job",
    "JobOp",
    "JobQueue",
    "Known",
    "LockTimeout",
    "LogEntry",
    "Settings",
    "Statistics",
    "Status",
    "SubmitJobs",
    "Timestamp",
]
