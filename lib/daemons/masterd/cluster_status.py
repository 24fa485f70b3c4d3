"""The parts of the state of the cluster, as `ganeti.decisions.status` judges them.

Each function makes facts of what is known. Only `certificates` reads files; none asks a
node.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from ganeti.base.constants.instance import (
    ADMINST_UP,
    INSTST_ERRORDOWN,
    INSTST_ERRORUP,
    INSTST_WRONGNODE,
)
from ganeti.base.pathutils import Paths
from ganeti.base.text import nicesort
from ganeti.decisions.jobs.records import Job, Status
from ganeti.decisions.repair import node_death
from ganeti.decisions.repair.incidents import Incident
from ganeti.decisions.repair.journal import first_error
from ganeti.decisions.repair.node_lives import Death, Phase
from ganeti.decisions.status.facts import (
    CopyFact,
    DeathFact,
    GuestFact,
    IncidentFact,
    JobFact,
    NodeFact,
)
from ganeti.master import query
from ganeti.model.objects import Node, Snapshot
from ganeti.operations.cluster import verify
from ganeti.protocols.rpc import Answer
from ganeti.protocols.rpc.answers import NodeStatus
from ganeti.protocols.rpc.base import Arguments, Runner
from ganeti.protocols.rpc.procedure import Result
from ganeti.store import CopyState

#: Characters of the error of a job or node, and of a note.
_SHOWN: Final = 200
#: Statuses that are findings per instance; the others are findings about its node.
_ODD: Final = frozenset({INSTST_ERRORDOWN, INSTST_ERRORUP, INSTST_WRONGNODE})
#: Node uuid -> its answer.
Answers = Mapping[str, Answer[NodeStatus]]


def node_name(snapshot: Snapshot, uuid: str) -> str:
    """Return the name of a node, or the uuid of a removed one."""
    node = snapshot.nodes.get(uuid)
    return uuid if node is None else node.name


def _mib(value: Any) -> int:
    """Return a size or number that a node reports, perhaps as a text of digits."""
    return int(value or 0)


# Nodes
def nodes(snapshot: Snapshot, answers: Answers) -> Iterator[NodeFact]:
    """Yield all nodes, by name."""
    for node in nicesort.nice_sorted(snapshot.nodes.values(), lambda node: node.name):
        answer = answers.get(node.uuid)
        is_fine = answer is not None and not answer.failed
        fact = NodeFact(
            name=node.name,
            offline=node.offline,
            drained=node.drained,
            is_candidate=node.master_candidate,
            powered=node.powered,
            wanted=() if is_fine else _wanted(snapshot, node),
        )
        if answer is None or answer.offline:
            yield fact
        elif answer.failed:
            yield msgspec.structs.replace(
                fact,
                problem=(answer.fail_msg or "no answer")[:_SHOWN],
                is_silent=answer.is_silent or answer.is_lost,
                is_refusing=answer.refused,
            )
        else:
            yield _answered(fact, answer.payload)


def _answered(fact: NodeFact, payload: NodeStatus) -> NodeFact:
    return msgspec.structs.replace(
        fact,
        release=payload.release,
        certificates=payload.certificates,
        memory_total=_mib(payload.host.memory_total),
        memory_free=_mib(payload.host.memory_free),
        cpus=_mib(payload.host.cpu_total),
    )


def _wanted(snapshot: Snapshot, node: Node) -> tuple[str, ...]:
    """Return the names of the instances that should run on a node."""
    instances = map(snapshot.instances.get, snapshot.primary_instances(node.uuid))
    return tuple(
        nicesort.nice_names(
            instance.name
            for instance in instances
            if instance is not None and instance.admin_state == ADMINST_UP
        )
    )


def free_memory(answers: Answers) -> dict[str, int]:
    """Return node uuid -> free memory in MiB, without nodes that did not report it."""
    return {
        uuid: _mib(answer.payload.host.memory_free)
        for uuid, answer in answers.items()
        if not answer.failed and answer.payload.host.memory_free is not None
    }


def copies(snapshot: Snapshot, known: Mapping[str, CopyState]) -> Iterator[CopyFact]:
    """Yield the copies of the other candidates, by name."""
    states = {node_name(snapshot, uuid): copy for uuid, copy in known.items()}
    for name in nicesort.nice_names(states):
        copy = states[name]
        yield CopyFact(
            name=name,
            is_current=copy.is_current,
            lag=max(0, snapshot.revision - max(copy.revision, 0)),
            trouble=copy.trouble,
            wants_restart=copy.wants_restart,
        )


# Instances
class _Given(Runner):
    """Answers a query of instances with the guests that nodes have named already."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def call(
        self,
        procedure: str,
        nodes: Sequence[str],
        args: Arguments = (),
        *,
        timeout_s: float | None = None,
    ) -> Mapping[str, Result]:
        """Return the guests of each node."""
        del procedure, args, timeout_s
        return {uuid: self._guests(self._answers[uuid]) for uuid in nodes}

    def _guests(self, answer: Answer[NodeStatus]) -> Result:
        payload = None if answer.failed else answer.payload.guests
        return Result(
            answer.call, answer.node, payload, answer.fail_msg, offline=answer.offline
        )


def guests(
    snapshot: Snapshot, answers: Answers, working: Mapping[str, int]
) -> tuple[dict[str, int], tuple[GuestFact, ...]]:
    """Return the number of instances by status, and those that are not as wanted.

    Args:
        snapshot: the configuration.
        answers: of the nodes.
        working: instance -> unfinished job about it.
    """
    sources = query.Sources(snapshot, rpc=_Given(answers))
    fields = ["name", "pnode", "status", "admin_state"]
    rows = query.query(sources, "instance", fields, None).data
    values = [[value for _status, value in row] for row in rows]
    odd = tuple(
        GuestFact(
            name=name,
            node=node,
            status=status,
            wanted=wanted,
            job=working.get(name, 0),
        )
        for name, node, status, wanted in values
        if status in _ODD
    )
    return dict(Counter(row[2] for row in values)), odd


# Jobs
def working(jobs: Sequence[Job]) -> dict[str, int]:
    """Return instance -> unfinished job about it."""
    names = {}
    for job in jobs:
        if job.status in {Status.RUNNING, Status.WAITING}:
            for op in job.ops:
                name = op.decoded_input().get("instance_name")
                if isinstance(name, str):
                    names[name] = job.id
    return names


def running(jobs: Sequence[Job]) -> Iterator[JobFact]:
    """Yield the jobs that run."""
    for job in jobs:
        if job.status is Status.RUNNING:
            yield JobFact(
                id=job.id, summary=_summary(job), time=_seconds(job.start_timestamp)
            )


def failed(job: Job) -> JobFact:
    """Return a job that has failed."""
    error = first_error([op.result_value() for op in job.ops])
    return JobFact(
        id=job.id,
        summary=_summary(job),
        time=_seconds(job.end_timestamp),
        error=error[:_SHOWN],
    )


def _summary(job: Job) -> str:
    more = f" and {len(job.ops) - 1} more" if len(job.ops) > 1 else ""
    return f"{job.ops[0].summary()}{more}" if job.ops else "no opcodes"


def _seconds(stamp: tuple[int, int] | None) -> float:
    return 0.0 if stamp is None else stamp[0] + stamp[1] / 1_000_000


# Automation and certificates
def incidents(snapshot: Snapshot, known: Sequence[Incident]) -> Iterator[IncidentFact]:
    """Yield the open incidents of maintenance."""
    for incident in known:
        if not incident.state.is_final:
            note = f": {incident.note[:_SHOWN]}" if incident.note else ""
            yield IncidentFact(
                uuid=incident.uuid,
                node=node_name(snapshot, incident.node),
                text=f"reports a fault; {incident.action} is {incident.state}{note}",
            )


def death(known: Death) -> DeathFact:
    """Return a node that does not answer."""
    return DeathFact(
        name=known.name,
        text=node_death.notice(known).removeprefix(f"node {known.name} "),
        is_handled=known.phase is Phase.OFFLINE,
    )


def certificates(paths: Paths) -> Iterator[tuple[str, float | str]]:
    """Yield the certificates of the master: path, and seconds left or the problem."""
    for path, left, problem in verify.certificates(paths):
        yield path, problem or left or 0.0
