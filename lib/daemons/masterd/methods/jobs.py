"""LUXI methods of the job queue."""

from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import misc
from ganeti.daemons.masterd.deps import MasterDeps
from ganeti.daemons.masterd.methods.calls import JobId, Later, Malformed, method
from ganeti.master import query
from ganeti.master.jqueue import Known
from ganeti.model import opcodes
from ganeti.model.opcodes import Opcode

#: Methods whose answers wait for changes of jobs.
WAITING: Final = frozenset({"WaitForJobChange", "WaitForJobChanges"})
#: Jobs that one call may wait for.
_MAX_WATCHED: Final = 10_000
#: Decoding this many jobs takes too long for the event loop's thread.
_MANY: Final = 50
#: Jobs that an error names.
_MAX_NAMED: Final = 5
#: Requests that wait for a commit, as subjects of a sentence.
_SUBMISSION: Final = "The submission of jobs"
_CHANGE: Final = "The change of the job queue"


def _job_id(value: JobId) -> int:
    try:
        return query.parse_job_id(value)
    except errors.OpPrereqError as err:
        raise Malformed(str(err.args[0])) from err


def _decode(ops: list[Any]) -> list[Opcode]:
    try:
        return [opcodes.decode(op) for op in ops]
    except errors.OpPrereqError as err:
        raise Malformed(str(err.args[0])) from err


@method("SubmitJob")
def submit_job(deps: MasterDeps, ops: list[Any]) -> Later:
    """Queue a job; the answer is sent when the job is durable."""
    return Later(deps.queue.submit_later(_decode(ops)), committing=_SUBMISSION)


@method("SubmitJobToDrainedQueue")
def submit_job_to_drained_queue(deps: MasterDeps, ops: list[Any]) -> Later:
    """Queue a job although the queue is drained."""
    future = deps.queue.submit_later(_decode(ops), to_drained=True)
    return Later(future, committing=_SUBMISSION)


@method("SubmitManyJobs")
def submit_many_jobs(deps: MasterDeps, jobs: list[list[Any]]) -> Later:
    """Queue jobs with consecutive ids."""
    queue = deps.queue
    if len(jobs) <= _MANY:
        future = queue.submit_many_later([_decode(ops) for ops in jobs])
        return Later(future, committing=_SUBMISSION)
    return Later(
        # A commit waits for the copies on other candidates.
        deps.slow.submit(
            lambda: queue.submit_many_later([_decode(ops) for ops in jobs]).result()
        ),
        committing=_SUBMISSION,
    )


@method("PlanJob")
def plan_job(deps: MasterDeps, ops: list[Any]) -> Later:
    """Return the plan of a job of these opcodes; an addition to Ganeti."""
    decoded = _decode(ops)
    return Later(
        deps.planning.submit(deps.planner.plan, decoded),
        msgspec.to_builtins,
        can_cancel=True,
    )


@method("PickupJob")
def pickup_job(deps: MasterDeps, job_id: JobId) -> None:
    """Refuse: this daemon never hands jobs over."""
    del deps
    raise errors.GenericError(
        f"job {_job_id(job_id)}: this daemon runs its jobs"
        f" itself, they cannot be picked up"
    )


@method("ArchiveJob")
def archive_job(deps: MasterDeps, job_id: JobId) -> Later:
    """Archive an ended job."""
    future = deps.queue.archive_later(_job_id(job_id))
    return Later(future, committing=_CHANGE)


@method("AutoArchiveJobs")
def auto_archive_jobs(deps: MasterDeps, age_s: float, timeout_s: float) -> Later:
    """Archive jobs that ended longer ago than an age; a negative age means all."""
    future = deps.queue.autoarchive_later(age_s, timeout_s)
    return Later(future, committing=_CHANGE)


@method("CancelJob")
def cancel_job(deps: MasterDeps, job_id: JobId, kill: bool = False) -> Later:
    """Cancel a job."""
    future = deps.queue.cancel_later(_job_id(job_id), kill=kill)
    return Later(future, committing=_CHANGE)


@method("ChangeJobPriority")
def change_job_priority(deps: MasterDeps, job_id: JobId, priority: int) -> Later:
    """Change the priority of a job's unfinished opcodes."""
    future = deps.queue.change_priority_later(_job_id(job_id), priority)
    return Later(future, committing=_CHANGE)


@method("SetDrainFlag")
def set_drain_flag(deps: MasterDeps, flag: bool) -> Later:
    """Stop or resume accepting jobs."""
    future = deps.queue.set_drain_later(flag)
    return Later(future, lambda _none: True, committing=_CHANGE)


@method("QueryJobWaits")
def query_job_waits(deps: MasterDeps, job_id: JobId) -> list[list[Any]]:
    """Return what a running job waits for now; not in Ganeti.

    Rows of text, seconds of waiting, and seconds left, null if not known.
    """
    number = _job_id(job_id)
    now, snapshot = deps.clock.monotonic(), deps.config.snapshot()
    return [
        [wait.describe(snapshot), round(now - wait.began, 1), wait.left_s(now)]
        for wait in deps.present_waits.of_job(number)
    ]


@method("WaitForJobChange")
def wait_for_job_change(
    deps: MasterDeps,
    *,
    job_id: JobId,
    fields: list[str],
    previous: Any = None,
    serial: int | None = None,
    timeout_s: float = float(misc.LUXI_WFJC_TIMEOUT),
) -> Later:
    """Wait until a job differs from what the client knows."""
    future = deps.queue.wait_for_change(
        _job_id(job_id),
        query.job_values(fields),
        previous=previous,
        serial=serial,
        timeout_s=min(float(misc.LUXI_WFJC_TIMEOUT), max(0.0, timeout_s)),
    )
    return Later(future, can_cancel=True, committing=f"Job {job_id}")


class Watched(msgspec.Struct, array_like=True, frozen=True):
    """One job of `wait_for_job_changes`, with the values known to the client."""

    job_id: JobId
    previous: Any = None
    serial: int | None = None


@method("WaitForJobChanges")
def wait_for_job_changes(
    deps: MasterDeps,
    jobs: list[Watched],
    fields: list[str],
    timeout_s: float = float(misc.LUXI_WFJC_TIMEOUT),
) -> Later:
    """Wait until one of many jobs differs from what the client knows.

    An addition to Ganeti: one connection suffices for all jobs of a client.
    """
    if not 1 <= len(jobs) <= _MAX_WATCHED:
        raise Malformed(f"wanted 1 to {_MAX_WATCHED} jobs, found {len(jobs)}")
    future = deps.queue.wait_for_changes(
        [Known(_job_id(job.job_id), job.previous, job.serial) for job in jobs],
        query.job_values(fields),
        timeout_s=timeout_s,
    )
    listed = ", ".join(str(job.job_id) for job in jobs[:_MAX_NAMED])
    more = ", ..." if len(jobs) > _MAX_NAMED else ""
    return Later(future, can_cancel=True, committing=f"Each of the jobs {listed}{more}")
