"""The next repair step of an instance: new state, tags to change, job to submit.

A repair begins with its pending tag alone. Its jobs are submitted by later steps, when
the tag is set. So each job belongs to a repair that is recorded, and the job of a
program that ended before it recorded the job can be recognised.
"""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Final

from ganeti.decisions.repair import tags
from ganeti.decisions.repair.diagnosis import Repair
from ganeti.decisions.repair.tags import (
    FILE_TAG,
    RepairKind,
    RepairOutcome,
    RepairPolicy,
    RepairRecord,
)

#: Attempts of a job that fails without harm, until the repair has failed.
MAX_ATTEMPTS: Final = 3
#: Seconds after a job without resources until the next attempt. The first attempt is
#: not delayed, then the pause doubles.
FIRST_PAUSE_S: Final = 600
LAST_PAUSE_S: Final = 1800


class RepairState(enum.StrEnum):
    """States of instances; the values appear in the statistics that harep prints."""

    HEALTHY = "Healthy"
    NEEDS_REPAIR = "Needs repair"
    PENDING = "Pending repair"
    FAILED = "Failure"


class JobState(enum.Enum):
    """The state of a repair's job."""

    RUNNING = enum.auto()
    SUCCESS = enum.auto()
    FAILED = enum.auto()
    #: Its prerequisites were not met, so that it changed nothing.
    REFUSED = enum.auto()
    #: It failed for lack of resources; a new attempt may succeed.
    NO_ROOM = enum.auto()
    #: A person canceled it.
    CANCELED = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True)
class RepairJob:
    """A job of a repair.

    Attributes:
        state: the job's state.
        kind: the most severe kind of its opcodes; None if it has none that repairs.
        end: Unix seconds of its end; None if it has not ended.
        error: of a job that failed.
    """

    state: JobState
    kind: RepairKind | None = None
    end: float | None = None
    error: str = ""


_LOST: Final = RepairJob(JobState.SUCCESS)
_UNSUCCESSFUL: Final = frozenset({JobState.FAILED, JobState.REFUSED})


@dataclasses.dataclass(frozen=True, slots=True)
class NewRecord:
    """Values of new records that the caller provides.

    Attributes:
        now: Unix seconds.
        id: an unused UUID.
    """

    now: int
    id: str


@dataclasses.dataclass(frozen=True, slots=True)
class RepairStep:
    """The decision about one instance.

    Attributes:
        state: state of the instance after the step.
        add: records whose tags are added, before any tag is removed.
        remove: records whose tags are removed.
        repair: repair whose opcodes are submitted as one job, or None.
        record: record of that repair; the caller adds the job's id and then the tag.
        note: text for the administrator, without the instance's name; may be empty.
        is_alarming: the note is about tags that a person has to correct.
    """

    state: RepairState
    add: tuple[RepairRecord, ...] = ()
    remove: tuple[RepairRecord, ...] = ()
    repair: Repair | None = None
    record: RepairRecord | None = None
    note: str = ""
    is_alarming: bool = False

    @property
    def is_change(self) -> bool:
        """Whether the step changes tags or submits a job."""
        return bool(self.add or self.remove or self.repair)


@dataclasses.dataclass(frozen=True, slots=True)
class InstanceTags:
    """The instance's tags as far as they matter.

    Attributes:
        records: its repairs, as `tags.records` returns them.
        unreadable: a tag that is perhaps a damaged record; usually empty.
        start: repair that starts the instance on a good node, where it should run and
            does not; None if it runs, is stopped on purpose, or nobody knows.
        obstacle: why it needs a repair although there is none for it; usually empty.
    """

    records: Sequence[RepairRecord] = ()
    unreadable: str = ""
    start: Repair | None = None
    obstacle: str = ""


def step(
    instance: InstanceTags,
    jobs: Mapping[int, RepairJob],
    repair: Repair | None,
    policy: RepairPolicy,
    new_record: NewRecord,
    *,
    busy: int | None = None,
) -> RepairStep:
    """Return the next step of one instance.

    Args:
        instance: its tags.
        jobs: job id -> state, of pending repairs. A job that is missing here was
            removed from the queue and counts as successful.
        repair: the repair that it needs now, None if it is healthy.
        policy: the permitted repairs.
        new_record: values of new records.
        busy: id of an unfinished job of somebody else that moves or repairs the
            instance; None without one.
    """
    contradiction = _contradiction(instance)
    is_failed = any(r.outcome == RepairOutcome.FAILURE for r in instance.records)
    if contradiction:
        state = RepairState.HEALTHY if repair is None else RepairState.NEEDS_REPAIR
        note = f"no repair: {contradiction}; remove the wrong one"
        failed = RepairState.FAILED
        return RepairStep(failed if is_failed else state, note=note, is_alarming=True)
    kept = tags.current(instance.records)
    # By identity: two records that are equal may be of different tags.
    stale = tuple(r for r in instance.records if all(r is not k for k in kept))
    if is_failed:
        return RepairStep(RepairState.FAILED, remove=stale)
    case = _Case(stale, policy, new_record, busy, instance.obstacle)
    pending = [r for r in kept if r.outcome is None]
    if pending:
        return _pending(case, pending, jobs, _start(instance, pending, jobs) or repair)
    done = tuple(r for r in kept if r.outcome is not None)
    if repair is None:
        # Only the last result is kept.
        return RepairStep(RepairState.HEALTHY, remove=(*stale, *done[:-1]))
    return _broken(case, done, repair)


def _contradiction(instance: InstanceTags) -> str | None:
    if instance.unreadable:
        return f"the tag {instance.unreadable} cannot be read"
    return tags.conflict(instance.records)


def _start(
    instance: InstanceTags,
    pending: Sequence[RepairRecord],
    jobs: Mapping[int, RepairJob],
) -> Repair | None:
    """Return the start that a repair still lacks; None if it lacks none.

    A failover names the new node before it starts the instance there.
    """
    done = [jobs.get(job, _LOST) for job in pending[0].jobs]
    has_failed = bool(done) and done[-1].state != JobState.SUCCESS
    return instance.start if has_failed and not _may_be_incomplete(done) else None


@dataclasses.dataclass(frozen=True, slots=True)
class _Case:
    """Input that all states share; ``stale``: records that a later one replaces."""

    stale: tuple[RepairRecord, ...]
    policy: RepairPolicy
    new_record: NewRecord
    busy: int | None
    obstacle: str


def _pending(
    case: _Case,
    pending: list[RepairRecord],
    jobs: Mapping[int, RepairJob],
    repair: Repair | None,
) -> RepairStep:
    first = pending[0]
    done = [jobs.get(job, _LOST) for job in first.jobs]
    if any(job.state == JobState.RUNNING for job in done):
        return RepairStep(RepairState.PENDING)
    if case.policy.until is not None:
        why = repair.reason if repair else case.obstacle or "its nodes are healthy"
        return _waiting(case, first, f"{why}, but repairs are {case.policy}")
    if repair is None and not (case.obstacle or _may_be_incomplete(done)):
        return _resolved(case, pending, jobs)
    is_start = repair is not None and repair.is_start
    if _has_failed(done, is_start=is_start):
        result = _ended(first, RepairOutcome.FAILURE, case.new_record)
        reason = f"a job of repair {first.id} failed"
        return RepairStep(
            RepairState.FAILED, (result,), (*case.stale, first), note=reason
        )
    if repair is None and case.obstacle:
        return _waiting(case, first, case.obstacle)
    if repair is None:
        return _resolved(case, pending, jobs)
    waiting = _wait_reason(case, done, repair)
    if waiting:
        return _waiting(case, first, waiting)
    if repair.kind > first.kind:
        result = _ended(first, RepairOutcome.ENOPERM, case.new_record)
        limit = f"repair {first.id} permits only up to {first.kind.word}"
        later = RepairState.PENDING if pending[1:] else RepairState.NEEDS_REPAIR
        note = _not_permitted(repair, limit)
        return RepairStep(later, (result,), (*case.stale, first), note=note)
    return RepairStep(
        RepairState.PENDING, remove=(*case.stale, first), repair=repair, record=first
    )


def _waiting(case: _Case, first: RepairRecord, note: str) -> RepairStep:
    """Return the step that does nothing but record the jobs of a repair."""
    is_recorded = first.tag == first.original_tag
    return RepairStep(
        RepairState.PENDING,
        add=() if is_recorded else (first,),
        remove=case.stale if is_recorded else (*case.stale, first),
        note=note,
        is_alarming=bool(case.policy.unreadable),
    )


def _resolved(
    case: _Case, pending: list[RepairRecord], jobs: Mapping[int, RepairJob]
) -> RepairStep:
    """Return the step that ends the pending repairs of a healthy instance.

    A later request stays as long as a job of it runs.
    """
    ended = [
        record
        for record in pending
        if all(jobs.get(job, _LOST).state != JobState.RUNNING for job in record.jobs)
    ]
    results = tuple(_ended(r, RepairOutcome.SUCCESS, case.new_record) for r in ended)
    state = RepairState.HEALTHY if ended == pending else RepairState.PENDING
    return RepairStep(state, results, (*case.stale, *ended), note="repaired")


def _may_be_incomplete(done: Sequence[RepairJob]) -> bool:
    """Return whether an instance on good nodes can still lack a part of its repair.

    New disks are created before the operating system is installed on them. If the
    second part failed, the instance has good nodes and empty disks.
    """
    if not done or done[-1].kind != RepairKind.REINSTALL:
        return False
    return done[-1].state in {JobState.FAILED, JobState.CANCELED}


def _has_failed(done: Sequence[RepairJob], *, is_start: bool) -> bool:
    """Return whether failed jobs end the repair.

    A failed migration leaves the instance where it is, and a failed replacement its
    good disks. A failover is safe to repeat if nothing was changed, and so is a start,
    if only that is left (``is_start``). Everything else, and a job that a person
    canceled, is left to people.
    """
    if not done or done[-1].state in {JobState.SUCCESS, JobState.NO_ROOM}:
        return False
    is_safe = is_start and done[-1].state in _UNSUCCESSFUL
    if not (is_safe or _is_safe_to_repeat(done[-1])):
        return True
    attempts = 0
    for job in reversed(done):
        if job.state == JobState.SUCCESS:
            break
        attempts += job.state in _UNSUCCESSFUL
    return attempts >= MAX_ATTEMPTS


def _is_safe_to_repeat(failed: RepairJob) -> bool:
    if failed.kind is None or failed.kind == RepairKind.REINSTALL:
        return False
    if failed.kind <= RepairKind.MIGRATE:
        return failed.state in _UNSUCCESSFUL
    return failed.state == JobState.REFUSED


def _wait_reason(case: _Case, done: Sequence[RepairJob], repair: Repair) -> str | None:
    """Return why no job is submitted now; None if one may be."""
    if case.policy.unreadable:
        return f"{repair.reason}, but repairs are {case.policy}"
    if case.busy is not None:
        return f"{repair.reason}; job {case.busy}, of somebody else, comes first"
    until = _next_attempt(done)
    if until > case.new_record.now:
        return (
            f"{repair.reason}; no node has room, next attempt at {tags.moment(until)}"
        )
    return None


def _next_attempt(done: Sequence[RepairJob]) -> float:
    """Return the earliest Unix time of the next attempt."""
    full = 0
    for job in reversed(done):
        if job.state != JobState.NO_ROOM:
            break
        full += 1
    if full < 2 or done[-1].end is None:
        return 0.0
    # Bounded, as any number of attempts may have failed.
    pause_s = FIRST_PAUSE_S << min(full - 2, 8)
    return done[-1].end + min(pause_s, LAST_PAUSE_S)


def _broken(case: _Case, done: tuple[RepairRecord, ...], repair: Repair) -> RepairStep:
    stale, policy, new_record = case.stale, case.policy, case.new_record
    if policy.allowed is None:
        reason = f"{repair.reason}, but repairs are {policy}"
        is_alarming = bool(policy.unreadable)
        return RepairStep(
            RepairState.NEEDS_REPAIR, remove=stale, note=reason, is_alarming=is_alarming
        )
    limit = _limit(repair, policy.allowed, policy)
    if limit is None and case.busy is not None:
        note = f"{repair.reason}; job {case.busy}, of somebody else, comes first"
        return RepairStep(RepairState.NEEDS_REPAIR, remove=stale, note=note)
    if limit is None:
        # It limits all jobs of the repair, so it must suffice for those that follow.
        kind = min(policy.allowed, max(repair.kind, repair.whole))
        record = RepairRecord(kind, new_record.id, new_record.now)
        return RepairStep(RepairState.PENDING, (record,), (*stale, *done))
    reason = _not_permitted(repair, limit)
    last = done[-1] if done else None
    if last and (last.outcome, last.kind) == (RepairOutcome.ENOPERM, repair.kind):
        # The refusal is already recorded; its tag stays unchanged.
        return RepairStep(
            RepairState.NEEDS_REPAIR, remove=(*stale, *done[:-1]), note=reason
        )
    result = RepairRecord(
        repair.kind, new_record.id, new_record.now, RepairOutcome.ENOPERM
    )
    return RepairStep(RepairState.NEEDS_REPAIR, (result,), (*stale, *done), note=reason)


def _limit(repair: Repair, allowed: RepairKind, policy: RepairPolicy) -> str | None:
    """Return why a policy does not permit a repair; None if it does."""
    if repair.kind > allowed:
        return f"repairs are permitted only {policy}"
    if repair.loses_files and not policy.with_files:
        return f"for file disks only with the tag {FILE_TAG}"
    return None


def _ended(
    record: RepairRecord, outcome: RepairOutcome, new_record: NewRecord
) -> RepairRecord:
    return dataclasses.replace(
        record, outcome=outcome, time=new_record.now, original_tag=""
    )


def _not_permitted(repair: Repair, limit: str) -> str:
    return f"{repair.reason}; this requires {repair.kind.word}, but {limit}"
