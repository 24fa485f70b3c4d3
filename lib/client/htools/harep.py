"""``harep``: repair instances of failed nodes, within the limits of their tags.

``ganeti.repair`` decides on the repairs; this module queries the master and submits
jobs.
"""

import json
import sys
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from ganeti import errors, luxi
from ganeti.client.htools import execute, loading, sources
from ganeti.client.htools.loading import ProgramError
from ganeti.client.htools.options import ParsedOptions
from ganeti.constants import ecodes, versions
from ganeti.htools.model import json_reader
from ganeti.htools.model.loaders import query
from ganeti.repair import diagnosis, plan, tags
from ganeti.repair.diagnosis import NodeHealth
from ganeti.repair.plan import JobState, RepairState

NAME: Final = "harep"
_OPTIONS: Final = "L jd reason dry"
_INSTANCE: Final = (
    *("name", "pnode", "snodes", "tags", "disk_template", "admin_state"),
    "forthcoming",
)
_NODE: Final = ("name", "offline", "drained", "group.uuid")
_GROUP: Final = ("uuid", "name", "tags")
#: Allocator for repairs on a cluster without a default one.
_ALLOCATOR: Final = "hail"
#: Name that stands for the cluster's default allocators, in order.
_DEFAULT: Final = "."
_NO_ROOM: Final = frozenset({ecodes.ECODE_NORES, ecodes.ECODE_TEMP_NORES})
_HEADING: Final = "Instance status count"

Row = Mapping[str, Any]
Op = dict[str, Any]


def main() -> int:
    """Run the program."""
    return loading.main(NAME, _OPTIONS.split(), _run, sys.argv[1:])


def _run(parsed: ParsedOptions) -> int:
    if parsed["jd"] < 0:
        raise ProgramError(f"job delay: wanted 0 or more, found {parsed['jd']:g}")
    with sources.connect(parsed["L"] or "") as client:
        return _RepairRun(client, parsed).all()


class _RepairRun:
    """One run over all instances."""

    def __init__(self, client: luxi.Client, parsed: ParsedOptions) -> None:
        self._client = client
        self._parsed = parsed
        self._failed = False
        now = time.time_ns()
        self._now = now // 1_000_000_000
        message = f"{NAME} {versions.RELEASE_VERSION} called"
        self._common: Op = {
            "comment": f"automated repairs by {NAME} {versions.RELEASE_VERSION}",
            "reason": [[NAME, parsed["reason"] or message, now]],
        }
        self._info = client.call("QueryClusterInfo")
        info = json_reader.JsonPart(self._info, "cluster", f"LUXI {client.path}")
        info.texts("tags", optional=True)
        self._nodes = {row["name"]: row for row in self._table("node", _NODE)}
        self._groups = {row["uuid"]: row for row in self._table("group", _GROUP)}
        has_default = bool(self._info.get("default_iallocator"))
        self._allocator = _DEFAULT if has_default else _ALLOCATOR

    def _table(self, kind: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
        answer = self._client.call("Query", [kind, list(names), None])
        source = f"LUXI {self._client.path}"
        rows = query.objects(answer, names, source)
        for row in rows:
            _check(row, kind, source)
        return rows

    def all(self) -> int:
        """Do all repairs and print the number of each state; return the exit code."""
        rows = [r for r in self._table("instance", _INSTANCE) if not r["forthcoming"]]
        records = {row["name"]: tags.records(row["tags"]) for row in rows}
        jobs = self._jobs(records)
        self._remove_expired(rows)
        count: Counter[RepairState] = Counter()
        for row in rows:
            count[self._one(row, records[row["name"]], jobs)] += 1
        rule = "-" * len(_HEADING)
        print(f"{rule}\n{_HEADING}\n{rule}")
        for state in sorted(count):
            print(f"{state}: {count[state]}")
        return 1 if self._failed else 0

    # Reading
    def _jobs(
        self, records: Mapping[str, list[tags.RepairRecord]]
    ) -> dict[int, JobState]:
        """Query the jobs of all pending repairs."""
        ids = sorted(
            {
                job
                for of_instance in records.values()
                for record in of_instance
                if record.outcome is None
                for job in record.jobs
            }
        )
        if not ids:
            return {}
        rows = self._client.call("QueryJobs", [ids, ["status", "opresult"]])
        return {
            job: job_state(*row)
            for job, row in zip(ids, rows, strict=True)
            if row is not None and row[0] is not None
        }

    def _health(self, name: str | None) -> NodeHealth | None:
        node = self._nodes.get(name or "")
        if node is None:
            return None
        if node["offline"]:
            return NodeHealth.OFFLINE
        return NodeHealth.DRAINED if node["drained"] else NodeHealth.GOOD

    def _policy(self, row: Row) -> tags.RepairPolicy:
        node = self._nodes.get(row["pnode"], {})
        group = self._groups.get(node.get("group.uuid"), {})
        cluster = self._info.get("tags") or ()
        objects = (row["tags"], group.get("tags") or (), cluster)
        return tags.policy(objects, self._now)

    # Acting
    def _one(
        self, row: Row, records: list[tags.RepairRecord], jobs: Mapping[int, JobState]
    ) -> RepairState:
        """Do the next step of one instance; return its new state."""
        name, before = row["name"], any(record.outcome is None for record in records)
        seconds = list(row["snodes"] or ())
        primary = self._health(row["pnode"])
        repair = None
        if primary is not None:
            second = self._health(seconds[0]) if seconds else None
            up = row["admin_state"] == "up"
            instance = diagnosis.InstanceHealth(
                name, row["disk_template"], primary, second, up
            )
            repair = diagnosis.find_repair(instance, self._allocator)
        new_record = plan.NewRecord(self._now, str(uuid.uuid4()))
        step = plan.step(records, jobs, repair, self._policy(row), new_record)
        if step.note:
            print(f"{name}: {step.note}")
        if before and step.state != RepairState.PENDING:
            print(f'Moving {name} from "{RepairState.PENDING}" to "{step.state}"')
        added = list(step.add)
        if step.repair is not None and step.record is not None:
            submitted = self._repair(name, step.repair, step.record)
            if submitted is None:
                return RepairState.NEEDS_REPAIR
            added.append(submitted)
        self._retag("instance", name, [r.tag for r in added], _tags(step.remove))
        return step.state

    def _repair(
        self, name: str, repair: diagnosis.Repair, record: tags.RepairRecord
    ) -> tags.RepairRecord | None:
        """Submit a repair's job; return the record with the job's id."""
        print(f"{name}: {repair.reason}, repair: {repair.kind.word}")
        ops = [dict(op) for op in repair.ops]
        if self._parsed["jd"] > 0:
            # The delay lets the tag be set before the repair begins.
            delay = {"OP_ID": "OP_TEST_DELAY", "duration": self._parsed["jd"]}
            ops.insert(0, delay)
        if self._parsed["dry"]:
            print(f"Would submit: {json.dumps(ops)}")
            return record
        try:
            job = self._client.call("SubmitJob", [[op | self._common for op in ops]])
        except errors.GenericError as err:
            self._fail(f"{name}: the repair was not accepted: {err}")
            return None
        jobs = (*record.jobs, int(job))
        return tags.RepairRecord(record.kind, record.id, record.time, None, jobs)

    def _retag(
        self, kind: str, name: str | None, add: list[str], remove: list[str]
    ) -> None:
        """Change tags by jobs and wait for them; new tags are set first."""
        remove = [tag for tag in remove if tag not in add]
        for verb, changed in (("SET", add), ("DEL", remove)):
            if not changed:
                continue
            where = f"{kind} {name}" if name else kind
            if self._parsed["dry"]:
                word = "add to" if verb == "SET" else "remove from"
                print(f"Would {word} {where}: {' '.join(changed)}")
                continue
            op: Op = {"OP_ID": f"OP_TAGS_{verb}", "kind": kind, "tags": changed}
            if name:
                op["name"] = name
            job = self._client.call("SubmitJob", [[op | self._common]])
            problems = execute.wait(self._client, execute.Job(where, ()), job)
            if problems:
                self._fail("; ".join(problems))
                return

    def _remove_expired(self, rows: list[dict[str, Any]]) -> None:
        """Remove suspensions that have ended."""
        owners: list[tuple[str, str | None, list[str]]] = [
            ("cluster", None, list(self._info.get("tags") or ())),
            *(("nodegroup", g["name"], g["tags"]) for g in self._groups.values()),
            *(("instance", row["name"], row["tags"]) for row in rows),
        ]
        for kind, name, present in owners:
            self._retag(kind, name, [], tags.expired(present, self._now))

    def _fail(self, text: str) -> None:
        self._failed = True
        sys.stdout.flush()
        sys.stderr.write(f"Error: {text}\n")


def _check(row: Row, kind: str, source: str) -> None:
    """Refuse an object with a malformed name or malformed tags."""
    part = json_reader.JsonPart(row, kind, source)
    part.text("name")
    if "tags" in row:
        part.texts("tags")
    if part.has("snodes"):
        part.texts("snodes")


def _tags(records: tuple[tags.RepairRecord, ...]) -> list[str]:
    return [record.original_tag for record in records]


def job_state(status: str, results: Any) -> JobState:
    """Return the state of a repair's job.

    Args:
        status: status of the job.
        results: results of its opcodes; an error's code shows missing capacity.
    """
    if status == "success":
        return JobState.SUCCESS
    if status not in {"error", "canceled"}:
        return JobState.RUNNING
    for result in results or ():
        error = errors.decode(result)
        if error is not None and set(error.args[1:]) & _NO_ROOM:
            return JobState.NO_ROOM
    return JobState.FAILED


if __name__ == "__main__":
    sys.exit(main())
