"""A master daemon as commands see it: answers LUXI methods from tables.

Every submitted opcode is decoded with `ganeti.model.opcodes`, so that a command which builds
a wrong one fails here as it would fail against the real daemon.
"""

import json
import pathlib

import msgspec

from ganeti.base import errors
from ganeti.decisions.repair import journal
from ganeti.model import opcodes

_SPEC = pathlib.Path(__file__).parents[2] / "data" / "spec" / "query_fields.json"
_NAME_FIELDS = {"job": "id", "filter": "uuid"}


#: Fields of instances that Ganeti does not have: name, title, kind.
_OURS = (("expires", "Expires", "timestamp"), ("owner", "Owner", "text"))


def _definitions():
    actual = {
        ("instance", name): {"name": name, "title": title, "kind": kind, "doc": ""}
        for name, title, kind in _OURS
    }
    for row in json.loads(_SPEC.read_text())["fields"]:
        actual[row["resource"], row["name"]] = {
            "name": row["name"],
            "title": row["title"],
            "kind": row["kind"],
            "doc": row["what"],
        }
    return actual


def _entry(reported):
    return reported if isinstance(reported, (tuple, list)) else ("message", reported)


class Unanswered(AssertionError):
    """A test asks for something, named by the argument, that its master was not given."""


#: Results of opcodes that succeed, of those that cannot have null; for `FakeMaster`.
SUCCESSFUL_OPCODES = {
    "OP_CLUSTER_RENAME": "new.tst",
    "OP_CLUSTER_REPAIR_DISK_SIZES": [],
    "OP_GROUP_RENAME": "g2",
    "OP_GROUP_SET_PARAMS": [],
    "OP_INSTANCE_ACTIVATE_DISKS": [],
    "OP_INSTANCE_CREATE": ["n1", "n2"],
    "OP_INSTANCE_SET_PARAMS": [],
    "OP_NETWORK_RENAME": "office",
    "OP_NODE_SET_PARAMS": [],
}


def _null_result(op):
    """Return null as the result of an opcode that may have it; fail for others."""
    try:
        return msgspec.convert(None, op.RESULT)
    except msgspec.ValidationError as err:
        raise Unanswered(f"result of {op.op_id()}") from err


class FakeMaster:
    """Jobs end at once; their messages, results and errors are set beforehand.

    A question for something that was not set fails the test, and so does an opcode whose
    result was not set and cannot be null.

    Attributes:
        objects: resource -> list of field -> value; ``(status, None)`` for no value.
        values: what QueryConfigValues knows.
        cluster: the answer to QueryClusterInfo.
        copies: of the master candidates, as QueryCopies answers; or its whole answer.
        results: OP_ID -> result of such an opcode, an exception, or a callable of it.
        messages: OP_ID -> texts that the job says, or (kind, payload).
        jobs: id -> opcodes, as submitted.
        calls: (method, args) of everything but waiting.
        lists_jobs: queries of jobs report the submitted ones.
        automation: limits of automatons that differ from none.
        rounds: last report of each round of an automaton, by its UUID.
        down: error that every call raises.
    """

    def __init__(self):
        self.objects = {}
        self.values = {}
        self.cluster = None
        self.copies = []
        self.results = {}
        self.messages = {}
        self.jobs = {}
        self.calls = []
        self.down = None
        self.lists_jobs = False
        self.now = 1_700_000_000
        self.refuse = {}
        self.still = {}
        self.gone = set()
        self.rounds = {}
        self.automation = {}
        self.deaths = []
        self._outcomes = {}
        self._next = 1
        self._fields = _definitions()

    def call(self, method, args):
        if self.down is not None:
            raise self.down
        json.dumps(args)  # only JSON goes over the wire
        if method != "WaitForJobChange":
            self.calls.append((method, args))
        handler = getattr(self, f"_{method}", None)
        if handler is None:
            raise errors.RequestError(
                f"Failed to parse request: unknown method {method!r}"
            )
        return handler(*args)

    def hurry(self, *, connect_s, answer_s):
        """Answer at once, as always."""

    def _PlanJob(self, ops):
        """Answer that nothing would happen, or the error of `results`."""
        plans = []
        for op in map(opcodes.decode, ops):
            result = self.results.get(op.op_id())
            is_error = op.dry_run and isinstance(result, errors.GenericError)
            plans.append({"error": errors.encode(result) if is_error else None})
        return {"opcodes": plans, "followers": []}

    # Rounds of automatons
    def _QueryAutomation(self):
        return {"revision": 7, "limits": {}, "freeze": None, **self.automation}

    def _QueryNodeDeaths(self, probe):
        assert not probe
        return {"state": {"serial_no": 1, "deaths": self.deaths}}

    def _FreezeAutomation(self, reason):
        self.automation["freeze"] = {"reason": reason, "time": self.now}

    def _ThawAutomation(self):
        self.automation["freeze"] = None

    def _RecordRound(self, entry):
        self.rounds[entry["round"]] = msgspec.convert(entry, journal.Round)
        return len(self.rounds)

    # Queries
    def _definition(self, resource, name):
        known = self._fields.get((resource, name))
        return known or {"name": name, "title": name, "kind": "unknown", "doc": ""}

    def _matching(self, resource, names):
        key = _NAME_FIELDS.get(resource, "name")
        items = self.objects.get(resource, [])
        if resource == "job" and self.lists_jobs:
            items = [*items, *map(self._facts, self.jobs)]
        for item in items:
            name = item[key]
            if (
                not names
                or name in names
                or item.get("uuid") in names
                or any(str(name).startswith(f"{n}.") for n in names)
            ):
                yield item

    def _Query(self, resource, fields, qfilter):
        names = None
        if qfilter and qfilter[0] == "|" and all(f[0] == "==" for f in qfilter[1:]):
            key = _NAME_FIELDS.get(resource, "name")
            if all(f[1] == key for f in qfilter[1:]):
                names = [f[2] for f in qfilter[1:]]
        definitions = [self._definition(resource, name) for name in fields]
        data = []
        actual = list(self._matching(resource, names))
        for name in names or ():
            if resource != "job" and not list(self._matching(resource, [name])):
                raise errors.OpPrereqError(f"{name!r} not known", "unknown_entity")
        for item in actual:
            row = []
            for definition in definitions:
                value = item.get(definition["name"])
                if definition["kind"] == "unknown":
                    row.append([1, None])
                elif isinstance(value, tuple):
                    row.append(list(value))
                else:
                    row.append([0, value])
            data.append(row)
        return {"fields": definitions, "data": data}

    def _QueryPage(self, resource, fields, qfilter, page):
        """Answer with rows in the order of `objects`; cursors are their numbers."""
        cursor = page.get("cursor") or "0"
        if not cursor.isascii() or not cursor.isdigit():
            raise errors.OpPrereqError(f"cursor: found {cursor!r:.60}", "wrong_input")
        answer = self._Query(resource, fields, qfilter)
        rows, start = answer["data"], int(cursor[:9])
        end = start + page["limit"]
        rest = {"next": str(end) if end < len(rows) else None}
        rest["count"] = len(rows) if page.get("count") else None
        return {**answer, "data": rows[start:end], **rest}

    def _Search(self, text, limit, kinds=()):
        matches = [
            {"kind": kind, "name": item["name"], "match": "part"}
            | {"field": "name", "value": item["name"]}
            for kind in ("instance", "node")
            for item in self.objects.get(kind, ())
            if text in item["name"] and (not kinds or kind in kinds)
        ]
        return matches[:limit]

    def _QueryFields(self, resource, fields):
        names = fields or sorted(n for r, n in self._fields if r == resource)
        return {"fields": [self._definition(resource, name) for name in names]}

    def _rows(self, resource, names, fields):
        rows = []
        for item in self._matching(resource, names):
            values = [item.get(field) for field in fields]
            rows.append([None if isinstance(v, tuple) else v for v in values])
        return rows

    def _QueryInstances(self, names, fields, lock):
        return self._rows("instance", names, fields)

    def _QueryNodes(self, names, fields, lock):
        return self._rows("node", names, fields)

    def _QueryGroups(self, names, fields, lock):
        return self._rows("group", names, fields)

    def _QueryFilters(self, names, fields):
        return self._rows("filter", names, fields)

    def _QueryTags(self, kind, name):
        return ["b", "a"]

    def _QueryConfigValues(self, names):
        for name in names:
            if name not in self.values:
                raise Unanswered(f"QueryConfigValues {name}")
        return [self.values[name] for name in names]

    def _QueryCopies(self):
        if isinstance(self.copies, dict):
            return self.copies
        return {"copies": self.copies}

    def _QueryClusterInfo(self):
        if self.cluster is None:
            raise Unanswered("QueryClusterInfo")
        return self.cluster

    # Settings
    def _SetDrainFlag(self, value):
        self.values["drain_flag"] = value
        return True

    def _NoteUserChange(self, action, names):
        return None

    def _SetWatcherPause(self, value):
        self.values["watcher_pause"] = value
        return value

    def _ReplaceFilter(self, uuid, priority, predicates, action, reason):
        return uuid or "new-uuid"

    def _DeleteFilter(self, uuid):
        return None

    # Jobs
    def _SubmitJob(self, ops):
        decoded = []
        for data in ops:
            try:
                decoded.append(opcodes.decode(data))
            except errors.OpPrereqError as err:
                raise errors.RequestError(f"Failed to parse request: {err}") from err
        for op in decoded:
            if op.op_id() in self.refuse:
                raise self.refuse[op.op_id()]
        job_id = self._next
        self._next += 1
        self.jobs[job_id] = decoded
        self._outcomes[job_id] = [self._outcome(op) for op in decoded]
        return job_id

    _SubmitJobToDrainedQueue = _SubmitJob

    def _SubmitManyJobs(self, jobs):
        answers = []
        for ops in jobs:
            try:
                answers.append([True, self._SubmitJob(ops)])
            except errors.JobQueueError as err:
                answers.append([False, str(err)])
        return answers

    def _outcome(self, op):
        if op.op_id() in self.results:
            result = self.results[op.op_id()]
        else:
            result = _null_result(op)
        if callable(result):
            result = result(op)
        if isinstance(result, Exception):
            return "error", errors.encode(result)
        if result is not None:
            msgspec.convert(result, op.RESULT)  # as the real daemon checks it
        return "success", result

    def _status(self, job_id):
        if job_id in self.still:
            return self.still[job_id]
        states = [status for status, _ in self._outcomes[job_id]]
        return "error" if "error" in states else "success"

    def _facts(self, job_id):
        return {
            "id": job_id,
            "status": self._status(job_id),
            "opstatus": [status for status, _ in self._outcomes[job_id]],
            "opresult": [result for _, result in self._outcomes[job_id]],
            "ops": [opcodes.encode(op) for op in self.jobs[job_id]],
            "summary": [op.summary() for op in self.jobs[job_id]],
            "end_ts": [self.now, 0],
        }

    def _WaitForJobChange(self, job_id, fields, previous, serial, timeout):
        if job_id in self.gone or job_id not in self.jobs:
            raise errors.JobLost(f"Job {job_id} lost")
        texts = [
            t for op in self.jobs[job_id] for t in self.messages.get(op.op_id(), ())
        ]
        entries = [
            [number, [1700000000 + number, 0], *_entry(text)]
            for number, text in enumerate(texts, 1)
            if serial is None or number > serial
        ]
        facts = self._facts(job_id)
        if unknown := sorted({*fields} - {*facts}):
            raise errors.OpPrereqError(f"unknown fields {unknown}", "wrong_input")
        return [[facts[field] for field in fields], entries]

    def _QueryJobWaits(self, _job_id):
        return []

    def _QueryJobs(self, ids, fields):
        rows = []
        for job_id in ids or self.jobs:
            stored = next(
                (i for i in self.objects.get("job", []) if i["id"] == job_id), {}
            )
            if job_id not in self.jobs and not stored:
                rows.append([job_id if f == "id" else None for f in fields])
                continue
            facts = self._facts(job_id) if job_id in self.jobs else {}
            rows.append([(facts | stored).get(field) for field in fields])
        return rows

    def _CancelJob(self, job_id, kill):
        return [job_id in self.jobs, f"Job {job_id} canceled"]

    def _ChangeJobPriority(self, job_id, priority):
        return [True, f"Priorities of pending opcodes for job {job_id} changed"]

    def _ArchiveJob(self, job_id):
        return job_id in self.jobs

    def _AutoArchiveJobs(self, age, timeout):
        return [3, 0]


class Connection:
    """A client of a fake master, for what takes one as an argument."""

    path = "/fake"

    def __init__(self):
        self.master = FakeMaster()

    def __enter__(self):
        return self

    def __exit__(self, *_args):
        return None

    def call(self, method, args=()):
        return self.master.call(method, args)
