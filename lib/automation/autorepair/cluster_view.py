"""The cluster and its jobs as repairs need them, queried from the master and checked.

Each job carries the tag of its repair in its reason trail. A program that ends between
the submission of a job and the change of the tag leaves a job that this trail alone
connects with its repair.
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.decisions.htools.model import json_reader, query
from ganeti.decisions.repair import diagnosis, journal, tags
from ganeti.decisions.repair.diagnosis import InstanceHealth, NodeHealth
from ganeti.decisions.repair.plan import JobState, RepairJob
from ganeti.decisions.repair.tags import RepairKind, RepairRecord
from ganeti.model.objects import allocators
from ganeti.protocols import luxi

_INSTANCE: Final = (
    *("name", "pnode", "snodes", "tags", "disk_template", "admin_state"),
    *("be/always_failover", "forthcoming"),
)
#: Of an instance that is looked at alone: whether it runs, which its node is asked for.
_ONE: Final = (*_INSTANCE, "status")
_DOWN: Final = "ERROR_down"
_NODE: Final = ("name", "offline", "drained", "group.uuid")
_GROUP: Final = ("uuid", "name", "tags")

Row = dict[str, Any]
_TEXT: Final = frozenset({str})


@dataclasses.dataclass(frozen=True)
class ClusterView:
    """Objects and their tags.

    Attributes:
        allocators: type of request -> the name with which repairs ask for new nodes.
        cluster_tags: those of the cluster.
        groups: uuid -> fields name and tags.
        nodes: name -> fields offline, drained and group.uuid.
        instances: name -> fields; without those that are only reserved.
    """

    allocators: Mapping[str, str]
    cluster_tags: Sequence[str]
    groups: Mapping[str, Row]
    nodes: Mapping[str, Row]
    instances: Mapping[str, Row]

    def policy(self, name: str, own: Sequence[str], now: float) -> tags.RepairPolicy:
        """Return the permitted repairs of an instance that has some tags."""
        node = self.nodes.get(self.instances[name]["pnode"], {})
        group = self.groups.get(node.get("group.uuid", ""), {})
        return tags.policy((own, group.get("tags") or (), self.cluster_tags), now)

    def health(self, name: str) -> InstanceHealth | None:
        """Return an instance and the health of its nodes; None if they are unknown."""
        row = self.instances[name]
        primary = self._node_health(row["pnode"])
        if primary is None:
            return None
        seconds = row["snodes"] or ()
        return InstanceHealth(
            name=name,
            template=row["disk_template"],
            primary=primary,
            secondary=self._node_health(seconds[0]) if seconds else None,
            up=row["admin_state"] == "up",
            always_failover=bool(row["be/always_failover"]),
        )

    def is_down(self, name: str) -> bool:
        """Return whether an instance should run and does not; false if not asked."""
        return self.instances[name].get("status") == _DOWN

    def is_idle(self, name: str) -> bool:
        """Return whether an instance has good nodes and no tags about repairs.

        There is nothing to decide about it, whatever the policy is.
        """
        row = self.instances[name]
        good = self._good_nodes
        return (
            row["pnode"] in good
            and good.issuperset(row["snodes"] or ())
            and not any(tag.startswith(tags.PREFIX) for tag in row["tags"])
        )

    @functools.cached_property
    def _good_nodes(self) -> frozenset[str]:
        good = NodeHealth.GOOD
        return frozenset(n for n in self.nodes if self._node_health(n) is good)

    def _node_health(self, name: str | None) -> NodeHealth | None:
        node = self.nodes.get(name or "")
        if node is None:
            return None
        if node["offline"]:
            return NodeHealth.OFFLINE
        return NodeHealth.DRAINED if node["drained"] else NodeHealth.GOOD


def load(client: luxi.Client, name: str | None = None) -> ClusterView:
    """Return the present state of the cluster.

    Args:
        client: of the master daemon.
        name: of the only instance that is wanted; None for all. The view of an
            instance that does not exist any more has no instances.

    Raises:
        DataError: an answer is malformed.
        GenericError: the master does not answer.
    """
    if name is not None:
        instances = _existing(client, "instance", _ONE, [name])
    else:
        instances = _table(client, "instance", _INSTANCE, None)
    nodes: list[str] | None = None
    if name is not None:
        nodes = [
            node for row in instances for node in (row["pnode"], *(row["snodes"] or ()))
        ]
    info = client.call("QueryClusterInfo")
    json_reader.JsonPart(info, "cluster", _source(client)).texts("tags", optional=True)
    groups = _table(client, "group", _GROUP, None)
    if nodes is None:
        rows = _table(client, "node", _NODE, None)
    else:
        rows = _existing(client, "node", _NODE, nodes)
    return ClusterView(
        allocators=_allocators(info.get("default_iallocator") or ""),
        cluster_tags=tuple(info.get("tags") or ()),
        groups={row["uuid"]: row for row in groups},
        nodes={row["name"]: row for row in rows},
        instances={row["name"]: row for row in instances if not row["forthcoming"]},
    )


def _allocators(setting: str) -> dict[str, str]:
    """Return the name for each type: that of the default ones where there are some."""
    name = allocators.DEFAULT_IALLOCATOR_SHORTCUT
    return {
        kind: name if allocators.chosen(name, setting, kind) else allocators.IALLOC_HAIL
        for kind in diagnosis.REQUEST_TYPES
    }


def _source(client: luxi.Client) -> str:
    return f"LUXI {client.path}"


def _existing(
    client: luxi.Client, kind: str, fields: tuple[str, ...], names: Sequence[str]
) -> list[Row]:
    """Return objects by name; none if one was removed since its name was queried."""
    if not names:
        return []
    qfilter = ["|", *(["==", "name", name] for name in names)]
    try:
        return _table(client, kind, fields, qfilter)
    except errors.OpPrereqError:
        return []


def _table(
    client: luxi.Client, kind: str, names: tuple[str, ...], qfilter: list[Any] | None
) -> list[Row]:
    answer = client.call("Query", [kind, list(names), qfilter])
    source = _source(client)
    rows = query.objects(answer, names, source)
    for row in rows:
        _check(row, kind, source)
    return rows


def _check(row: Row, kind: str, source: str) -> None:
    """Refuse an object with a malformed name or malformed tags."""
    lists = (row.get("tags", []), row.get("snodes") or [])
    if type(row["name"]) is str and all(map(_are_texts, lists)):
        return
    part = json_reader.JsonPart(row, kind, source)
    part.text("name")
    if "tags" in row:
        part.texts("tags")
    if part.has("snodes"):
        part.texts("snodes")


def _are_texts(value: Any) -> bool:
    return type(value) is list and {*map(type, value)} <= _TEXT


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


def load_jobs(
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
