"""The next step for one instance: its state, tags to change, a job to submit."""

import dataclasses
import enum
from collections.abc import Collection, Mapping

from ganeti.repair.diagnosis import Repair
from ganeti.repair.tags import RepairOutcome, RepairPolicy, RepairRecord


class RepairState(enum.StrEnum):
    """States of instances, as counted and shown."""

    HEALTHY = "Healthy"
    NEEDS_REPAIR = "Needs repair"
    PENDING = "Pending repair"
    FAILED = "Failure"


class JobState(enum.Enum):
    """The state of a repair's job."""

    RUNNING = enum.auto()
    SUCCESS = enum.auto()
    FAILED = enum.auto()
    #: It failed for lack of resources; it may be tried again.
    NO_ROOM = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True)
class Fresh:
    """Values for a new record from outside: Unix seconds and a UUID."""

    now: int
    id: str


@dataclasses.dataclass(frozen=True, slots=True)
class RepairStep:
    """The decision about one instance.

    Attributes:
        state: of the instance after it.
        add: records to tag, before others are removed.
        remove: records whose tags go.
        repair: submit its opcodes as one job; ``record`` with that job's id added is to
            be tagged then.
        record: the repair of the job.
        note: a line for the administrator, may be empty.
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
    fresh: Fresh,
) -> RepairStep:
    """Decide about one instance.

    Args:
        records: its repairs, oldest first.
        jobs: states of the jobs of pending repairs, without removed jobs, which count
            as done.
        repair: the repair that it needs now, None if it is healthy.
        policy: the permitted repairs.
        fresh: values for new records.
    """
    ended = {r.id for r in records if r.outcome is not None}
    pending = [r for r in records if r.outcome is None and r.id not in ended]
    stale = tuple(r for r in records if r.outcome is None and r.id in ended)
    if any(r.outcome == RepairOutcome.FAILURE for r in records):
        return RepairStep(RepairState.FAILED, remove=stale)
    case = _Case(stale, policy, fresh)
    if pending:
        return _pending(case, pending, jobs, repair)
    done = tuple(r for r in records if r.outcome is not None)
    if repair is None:
        # Of several results only the last one counts.
        return RepairStep(RepairState.HEALTHY, remove=(*stale, *done[:-1]))
    return _broken(case, done, repair)


@dataclasses.dataclass(frozen=True, slots=True)
class _Case:
    """Input of all states of an instance; ``stale`` are outdated tags."""

    stale: tuple[RepairRecord, ...]
    policy: RepairPolicy
    fresh: Fresh


def _pending(
    case: _Case,
    pending: list[RepairRecord],
    jobs: Mapping[int, JobState],
    repair: Repair | None,
) -> RepairStep:
    first, stale, policy, fresh = pending[0], case.stale, case.policy, case.fresh
    states = [jobs.get(job, JobState.SUCCESS) for job in first.jobs]
    if JobState.RUNNING in states:
        return RepairStep(RepairState.PENDING)
    last = states[-1] if states else JobState.SUCCESS
    if last == JobState.FAILED:
        result = _ended(first, RepairOutcome.FAILURE, fresh)
        reason = f"a job of repair {first.id} failed"
        return RepairStep(RepairState.FAILED, (result,), (*stale, first), note=reason)
    if repair is None:
        results = tuple(_ended(r, RepairOutcome.SUCCESS, fresh) for r in pending)
        return RepairStep(
            RepairState.HEALTHY, results, (*stale, *pending), note="is repaired"
        )
    if policy.until is not None:
        return RepairStep(
            RepairState.PENDING, note=f"{repair.why}, but repairs are {policy}"
        )
    if repair.kind > first.kind:
        result = _ended(first, RepairOutcome.ENOPERM, fresh)
        return RepairStep(
            RepairState.NEEDS_REPAIR,
            (result,),
            (*stale, first),
            note=_too_much(repair, f"repair {first.id} goes up to {first.kind.word}"),
        )
    return RepairStep(
        RepairState.PENDING, remove=(*stale, first), repair=repair, record=first
    )


def _broken(case: _Case, done: tuple[RepairRecord, ...], repair: Repair) -> RepairStep:
    stale, policy, fresh = case.stale, case.policy, case.fresh
    if policy.allowed is None:
        reason = f"{repair.why}, but repairs are {policy}"
        return RepairStep(RepairState.NEEDS_REPAIR, remove=stale, note=reason)
    if repair.kind <= policy.allowed:
        record = RepairRecord(repair.kind, fresh.id, fresh.now)
        return RepairStep(
            RepairState.PENDING, remove=(*stale, *done), repair=repair, record=record
        )
    reason = _too_much(repair, f"allowed is {policy}")
    last = done[-1] if done else None
    if last and (last.outcome, last.kind) == (RepairOutcome.ENOPERM, repair.kind):
        # Already recorded; the tag stays unchanged.
        return RepairStep(
            RepairState.NEEDS_REPAIR, remove=(*stale, *done[:-1]), note=reason
        )
    result = RepairRecord(repair.kind, fresh.id, fresh.now, RepairOutcome.ENOPERM)
    return RepairStep(RepairState.NEEDS_REPAIR, (result,), (*stale, *done), note=reason)


def _ended(record: RepairRecord, outcome: RepairOutcome, fresh: Fresh) -> RepairRecord:
    return dataclasses.replace(record, outcome=outcome, time=fresh.now, original_tag="")


def _too_much(repair: Repair, limit: str) -> str:
    return f"{repair.why} and it needs {repair.kind.word}, but {limit}"
