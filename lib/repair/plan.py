"""The next repair step of an instance: new state, tags to change, job to submit."""

import dataclasses
import enum
from collections.abc import Collection, Mapping

from ganeti.repair.diagnosis import Repair
from ganeti.repair.tags import (
    FILE_TAG,
    RepairKind,
    RepairOutcome,
    RepairPolicy,
    RepairRecord,
)


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
    #: It failed for lack of resources; a new attempt may succeed.
    NO_ROOM = enum.auto()


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
    """

    state: RepairState
    add: tuple[RepairRecord, ...] = ()
    remove: tuple[RepairRecord, ...] = ()
    repair: Repair | None = None
    record: RepairRecord | None = None
    note: str = ""


def step(
    records: Collection[RepairRecord],
    jobs: Mapping[int, JobState],
    repair: Repair | None,
    policy: RepairPolicy,
    new_record: NewRecord,
) -> RepairStep:
    """Return the next step of one instance.

    Args:
        records: its repairs, oldest first.
        jobs: job id -> state, of pending repairs. A job that is missing here was
            removed from the queue and counts as successful.
        repair: the repair that it needs now, None if it is healthy.
        policy: the permitted repairs.
        new_record: values of new records.
    """
    ended = {r.id for r in records if r.outcome is not None}
    pending = [r for r in records if r.outcome is None and r.id not in ended]
    stale = tuple(r for r in records if r.outcome is None and r.id in ended)
    if any(r.outcome == RepairOutcome.FAILURE for r in records):
        return RepairStep(RepairState.FAILED, remove=stale)
    case = _Case(stale, policy, new_record)
    if pending:
        return _pending(case, pending, jobs, repair)
    done = tuple(r for r in records if r.outcome is not None)
    if repair is None:
        # Only the last result is kept.
        return RepairStep(RepairState.HEALTHY, remove=(*stale, *done[:-1]))
    return _broken(case, done, repair)


@dataclasses.dataclass(frozen=True, slots=True)
class _Case:
    """Input that all states share; ``stale``: records that a result replaces."""

    stale: tuple[RepairRecord, ...]
    policy: RepairPolicy
    new_record: NewRecord


def _pending(
    case: _Case,
    pending: list[RepairRecord],
    jobs: Mapping[int, JobState],
    repair: Repair | None,
) -> RepairStep:
    first, stale, policy, new_record = (
        pending[0],
        case.stale,
        case.policy,
        case.new_record,
    )
    states = [jobs.get(job, JobState.SUCCESS) for job in first.jobs]
    if JobState.RUNNING in states:
        return RepairStep(RepairState.PENDING)
    last = states[-1] if states else JobState.SUCCESS
    if last == JobState.FAILED:
        result = _ended(first, RepairOutcome.FAILURE, new_record)
        reason = f"a job of repair {first.id} failed"
        return RepairStep(RepairState.FAILED, (result,), (*stale, first), note=reason)
    if repair is None:
        results = tuple(_ended(r, RepairOutcome.SUCCESS, new_record) for r in pending)
        return RepairStep(
            RepairState.HEALTHY, results, (*stale, *pending), note="repaired"
        )
    if policy.until is not None:
        return RepairStep(
            RepairState.PENDING, note=f"{repair.reason}, but repairs are {policy}"
        )
    if repair.kind > first.kind:
        result = _ended(first, RepairOutcome.ENOPERM, new_record)
        return RepairStep(
            RepairState.NEEDS_REPAIR,
            (result,),
            (*stale, first),
            note=_not_permitted(
                repair, f"repair {first.id} permits only up to {first.kind.word}"
            ),
        )
    return RepairStep(
        RepairState.PENDING, remove=(*stale, first), repair=repair, record=first
    )


def _broken(case: _Case, done: tuple[RepairRecord, ...], repair: Repair) -> RepairStep:
    stale, policy, new_record = case.stale, case.policy, case.new_record
    if policy.allowed is None:
        reason = f"{repair.reason}, but repairs are {policy}"
        return RepairStep(RepairState.NEEDS_REPAIR, remove=stale, note=reason)
    limit = _limit(repair, policy.allowed, policy)
    if limit is None:
        record = RepairRecord(repair.kind, new_record.id, new_record.now)
        return RepairStep(
            RepairState.PENDING, remove=(*stale, *done), repair=repair, record=record
        )
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
