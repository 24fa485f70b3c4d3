"""The watcher's calls of the master daemon: reports, and jobs until they end."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti.automation.autorepair import Recorder
from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants import jobqueue
from ganeti.base.text.control_chars import escape
from ganeti.decisions.watching import GroupReport, InstanceReport, NodeReport
from ganeti.protocols import luxi

_log = logging.getLogger(__name__)
Op = dict[str, Any]
_SOURCE: Final = jobqueue.OPCODE_REASON_SRC_WATCHER
_FINAL: Final = frozenset(("canceled", "success", "error"))
#: Seconds that one call waits for a change.
_CALL_S: Final = 20.0
#: Jobs in one call; an answer with many more would be large.
_BATCH: Final = 500


@dataclasses.dataclass(frozen=True)
class Ended:
    """A job that has ended: whether it succeeded, its results or the error's text."""

    succeeded: bool
    results: list[Any]
    text: str


class Jobs:
    """Submission of jobs and the wait for them.

    All jobs of a run share one deadline, so that a job which waits for locks or for a
    hanging node does not keep the next run from its work.
    """

    def __init__(
        self,
        client: luxi.Client,
        clock: Clock,
        *,
        wait_s: float,
        recorder: Recorder | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._recorder = recorder
        self._deadline = clock.monotonic() + wait_s

    def op(self, op_id: str, reason: str, /, **fields: Any) -> Op:
        """Return an opcode in wire form with the watcher's reason."""
        now_ns = int(self._clock.time() * 1_000_000_000)
        trail: list[Any] = [[_SOURCE, reason, now_ns]]
        if self._recorder is not None:
            trail.append(self._recorder.reason(now_ns))
        return {"OP_ID": op_id, **fields, "reason": trail}

    def submit(self, jobs: Mapping[str, Op]) -> tuple[dict[str, int], dict[str, str]]:
        """Submit one job per opcode.

        Args:
            jobs: name of the instance -> opcode.

        Returns:
            name -> id of the accepted jobs, and name -> error of the refused ones.

        Raises:
            JobQueueDrainError, JobQueueFull: no job is accepted at present.
            GenericError: the master does not answer.
        """
        accepted: dict[str, int] = {}
        refused: dict[str, str] = {}
        names = sorted(jobs)
        for start in range(0, len(names), _BATCH):
            batch = names[start : start + _BATCH]
            argument = [[jobs[name]] for name in batch]
            answers = self._client.call("SubmitManyJobs", [argument])
            for name, (is_accepted, value) in zip(batch, answers, strict=True):
                if is_accepted:
                    accepted[name] = int(value)
                else:
                    refused[name] = escape(str(value))
        return accepted, refused

    def submit_one(self, ops: Sequence[Op]) -> int:
        """Submit one job; return its id."""
        return int(self._client.call("SubmitJob", [list(ops)]))

    def wait(self, job_ids: Sequence[int]) -> dict[int, Ended]:
        """Wait for jobs; jobs that have not ended at the deadline are left out."""
        done = [job_id for job_id in job_ids if self._wait_for(job_id)]
        ended = {}
        for start in range(0, len(done), _BATCH):
            batch = done[start : start + _BATCH]
            fields = ["status", "opresult"]
            rows = self._client.call("QueryJobs", [batch, fields])
            for job_id, row in zip(batch, rows, strict=True):
                ended[job_id] = _ended(row)
        return ended

    def _wait_for(self, job_id: int) -> bool:
        """Return whether a job has ended before the deadline."""
        known, serial = None, None
        while True:
            left_s = max(0.0, self._deadline - self._clock.monotonic())
            args = [job_id, ["status"], known, serial, min(_CALL_S, left_s)]
            try:
                answer = self._client.call("WaitForJobChange", args)
            except errors.JobLost:
                # It has been archived since; its results can still be queried.
                return True
            if answer != "nochange":
                known, entries = answer
                serial = entries[-1][0] if entries else serial
                if known[0] in _FINAL:
                    return True
            if left_s <= 0:
                return False

    def archive(self, job_id: int) -> None:
        """Archive an ended job."""
        self._client.call("ArchiveJob", [job_id])


def _ended(row: list[Any] | None) -> Ended:
    if row is None or row[0] is None:
        return Ended(succeeded=False, results=[], text="the job is lost")
    status, results = row
    if status == "success":
        return Ended(succeeded=True, results=results, text="")
    if status == "canceled":
        return Ended(succeeded=False, results=[], text="the job was canceled")
    for result in results or ():
        error = errors.decode(result)
        if error is not None:
            text = str(error.args[0]) if error.args else type(error).__name__
            return Ended(succeeded=False, results=[], text=escape(text))
    return Ended(succeeded=False, results=[], text=f"the job ended as {status}")


_INSTANCE: Final = (
    *("name", "status", "admin_state", "disks_active", "disk_template"),
    *("pnode", "snodes", "stuck"),
)
_NODE: Final = ("name", "bootid", "offline")
_UNFINISHED: Final = ("queued", "waiting", "canceling", "running")
_NORMAL: Final = 0
_PREFIX: Final = "instance/"


def load(client: luxi.Client, group: str) -> GroupReport:
    """Return the report on a group.

    Args:
        client: of the master daemon.
        group: uuid.

    Raises:
        GenericError: the master does not answer, or the answer is malformed.
    """
    in_group = ["==", "pnode.group.uuid", group]
    rows = query_rows(client, "instance", _INSTANCE, in_group)
    nodes = [
        NodeReport(row["name"], row["bootid"], bool(row["offline"]))
        for row in query_rows(client, "node", _NODE, ["==", "group.uuid", group])
    ]
    members = frozenset(node.name for node in nodes)
    instances = [_instance(row, members) for row in rows]
    return GroupReport(
        {item.name: item for item in instances},
        {item.name: item for item in nodes},
        _locked(client),
        unfinished(client),
    )


def query_rows(
    client: luxi.Client, kind: str, names: tuple[str, ...], qfilter: list[Any] | None
) -> list[dict[str, Any]]:
    """Return field -> value of each object, None for values that are not available."""
    answer = client.call("Query", [kind, list(names), qfilter])
    try:
        return [
            {
                name: value if status == _NORMAL else None
                for name, (status, value) in zip(names, row, strict=True)
            }
            for row in answer["data"]
        ]
    except (TypeError, ValueError, KeyError) as err:
        raise errors.ProtocolError(f"{kind}: the answer is malformed: {err}") from err


def _instance(row: Mapping[str, Any], members: frozenset[str]) -> InstanceReport:
    """Return the report on an instance; members are the nodes of its group."""
    return InstanceReport(
        name=row["name"],
        status=row["status"] or "",
        admin_state=row["admin_state"] or "",
        disks_active=bool(row["disks_active"]),
        disk_template=row["disk_template"] or "",
        secondaries=tuple(row["snodes"] or ()),
        is_split=not members.issuperset(row["snodes"] or ()),
        primary=row["pnode"] or "",
        is_stuck=bool(row["stuck"]),
    )


def _locked(client: luxi.Client) -> frozenset[str]:
    """Return the instances whose locks are in use or waited for."""
    rows = query_rows(client, "lock", ("name", "mode", "pending"), None)
    return frozenset(
        row["name"].removeprefix(_PREFIX)
        for row in rows
        if row["name"].startswith(_PREFIX) and (row["mode"] or row["pending"])
    )


def unfinished(client: luxi.Client) -> dict[str, int]:
    """Return the summaries of unfinished jobs' opcodes, with the jobs' ids."""
    in_progress = ["|", *(["==", "status", word] for word in _UNFINISHED)]
    rows = query_rows(client, "job", ("id", "summary"), in_progress)
    return {text: int(row["id"]) for row in rows for text in row["summary"] or ()}
