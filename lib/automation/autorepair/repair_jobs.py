"""Jobs of repairs: their state, and those whose ids a tag does not have yet.

Each job carries the tag of its repair in its reason trail. A program that ends between
the submission of a job and the change of the tag leaves a job that this trail alone
connects with its repair.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.decisions.repair import diagnosis, journal, tags
from ganeti.decisions.repair.plan import JobState, RepairJob
from ganeti.decisions.repair.tags import RepairKind, RepairRecord
from ganeti.protocols import luxi

#: Source of the reason that names the repair.
REASON_SOURCE: Final = "autorepair"
_NO_ROOM: Final = frozenset({ecodes.ECODE_NORES, ecodes.ECODE_TEMP_NORES})
_DELAY: Final = "OP_TEST_DELAY"
_PREFIX: Final = "OP_"
_FINAL: Final = frozenset({"success", "error", "canceled"})
#: Jobs in one query.
_BATCH: Final = 200
#: Terms of the longest filter; more are compared here.
_MOST_TERMS: Final = 200
_FIELDS: Final = ["id", "status", "opresult", "end_ts", "ops"]


@dataclasses.dataclass(frozen=True)
class KnownJobs:
    """Jobs that concern some instances.

    Attributes:
        states: job id -> state.
        of_repair: repair id -> ids of its jobs in the queue, sorted.
        busy: instance name -> id of an unfinished job without a repair of it.
    """

    states: Mapping[int, RepairJob]
    of_repair: Mapping[str, Sequence[int]]
    busy: Mapping[str, int]


def complete(records: Iterable[RepairRecord], jobs: KnownJobs) -> list[RepairRecord]:
    """Return the records with all jobs that belong to pending ones."""
    return [
        dataclasses.replace(record, jobs=_merged(record, jobs))
        if record.outcome is None
        else record
        for record in records
    ]


def _merged(record: RepairRecord, jobs: KnownJobs) -> tuple[int, ...]:
    """Return the jobs of a record, and later ones that name it as their reason."""
    last = max(record.jobs, default=0)
    more = [job for job in jobs.of_repair.get(record.id, ()) if job > last]
    return (*record.jobs, *more)


def load(
    client: luxi.Client, instances: Mapping[str, Sequence[RepairRecord]]
) -> KnownJobs:
    """Query the jobs of instances.

    Args:
        client: of the master daemon.
        instances: name -> records.

    Raises:
        GenericError: the master does not answer.
    """
    if not instances:
        return KnownJobs({}, {}, {})
    pending = {
        name: [record for record in records if record.outcome is None]
        for name, records in instances.items()
    }
    listed = {job for rows in pending.values() for row in rows for job in row.jobs}
    concerned = _by_summary(client, instances)
    rows = _rows(client, sorted(listed | set(concerned)))
    of_repair: dict[str, list[int]] = {}
    busy: dict[str, int] = {}
    for job, row in sorted(rows.items()):
        name = concerned.get(job)
        if name is None:
            continue
        known = {record.id for record in pending[name]} & _repairs(row["ops"])
        for repair in known:
            of_repair.setdefault(repair, []).append(job)
        is_listed = any(job in record.jobs for record in pending[name])
        if not known and not is_listed and row["status"] not in _FINAL:
            busy[name] = job
    states = {
        job: RepairJob(
            job_state(row["status"], row["opresult"], row["ops"]),
            _kind(row["ops"]),
            _seconds(row["end_ts"]),
            journal.first_error(row["opresult"]),
        )
        for job, row in rows.items()
    }
    return KnownJobs(states, of_repair, busy)


def _by_summary(client: luxi.Client, names: Iterable[str]) -> dict[int, str]:
    """Return the jobs in the queue that repair or move instances, with these."""
    summaries: dict[str, str] = {}
    for name in names:
        labels = name.split(".")
        # Jobs of people may have an abbreviated name.
        for count in range(len(labels), 0, -1):
            shown = ".".join(labels[:count])
            for op_id in diagnosis.OP_IDS:
                text = f"{op_id.removeprefix(_PREFIX)}({shown})"
                summaries.setdefault(text, name)
    qfilter = None
    if len(summaries) <= _MOST_TERMS:
        qfilter = ["|", *(["=[]", "summary", text] for text in summaries)]
    answer = client.call("Query", ["job", ["id", "summary"], qfilter])
    concerned = {}
    try:
        for (_status, job), (_also, texts) in answer["data"]:
            named = [summaries[text] for text in texts or () if text in summaries]
            if named:
                concerned[int(job)] = named[0]
    except (TypeError, ValueError, KeyError) as err:
        raise errors.ProtocolError(f"job: the answer is malformed: {err}") from err
    return concerned


def _rows(client: luxi.Client, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return the fields of jobs that exist."""
    rows = {}
    for start in range(0, len(ids), _BATCH):
        batch = list(ids[start : start + _BATCH])
        answer = client.call("QueryJobs", [batch, _FIELDS])
        try:
            for job, row in zip(batch, answer, strict=True):
                if row is not None and row[1] is not None:
                    rows[job] = dict(zip(_FIELDS, row, strict=True))
        except (TypeError, ValueError) as err:
            raise errors.ProtocolError(f"job: the answer is malformed: {err}") from err
    return rows


def _op_ids(ops: Any) -> list[str]:
    return [str(op.get("OP_ID")) for op in ops or () if isinstance(op, Mapping)]


def _kind(ops: Any) -> RepairKind | None:
    return diagnosis.kind_of(_op_ids(ops))


def _repairs(ops: Any) -> set[str]:
    """Return the ids of the repairs that opcodes name in their reason trails."""
    ids: set[str] = set()
    for op in ops or ():
        for entry in (op.get("reason") or ()) if isinstance(op, Mapping) else ():
            if isinstance(entry, list | tuple) and len(entry) > 1:
                source, text = entry[:2]
                if source == REASON_SOURCE and isinstance(text, str):
                    named = tags.records(text.split(maxsplit=1)[:1])
                    ids.update(record.id for record in named)
    return ids


def _seconds(stamp: Any) -> float | None:
    """Return a time stamp, seconds and microseconds, in seconds."""
    if isinstance(stamp, list | tuple) and stamp and isinstance(stamp[0], int | float):
        return float(stamp[0])
    return None


def job_state(status: str, results: Any, ops: Any) -> JobState:
    """Return the state of a repair's job.

    Args:
        status: status of the job.
        results: results of its opcodes. If the first one that could change anything
            was refused, nothing was changed; its code shows missing capacity.
        ops: its opcodes in wire form.
    """
    if status == "success":
        return JobState.SUCCESS
    if status == "canceled":
        return JobState.CANCELED
    if status not in _FINAL:
        return JobState.RUNNING
    for op_id, result in zip(_op_ids(ops), results or (), strict=False):
        error = errors.decode(result)
        if error is not None and set(error.args[1:]) & _NO_ROOM:
            return JobState.NO_ROOM
        if isinstance(error, errors.OpPrereqError):
            return JobState.REFUSED
        if error is not None or op_id != _DELAY:
            break
    return JobState.FAILED
