"""LUXI methods about deaths of nodes: which nodes are silent, and the next step."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ganeti.base import errors
from ganeti.base.constants import disks, ecodes
from ganeti.base.constants.misc import MAX_ASKED_ABOUT
from ganeti.base.constants.protocols import oob
from ganeti.daemons.masterd.deps import MasterDeps
from ganeti.daemons.masterd.methods import automatons
from ganeti.daemons.masterd.methods.calls import Later, method
from ganeti.decisions.repair.journal import Round, first_error
from ganeti.decisions.repair.node_lives import (
    Death,
    DeathJob,
    DeathState,
    Facts,
    JobSeen,
    MarkedNode,
    NodeView,
)
from ganeti.master.jqueue import Job
from ganeti.model.objects import Node, Snapshot, params
from ganeti.protocols.rpc import calls
from ganeti.protocols.rpc.answers import Reached
from ganeti.protocols.rpc.runner import node_port

#: The request that waits for a commit, as the subject of a sentence.
_CHANGE: Final = "The change of deaths of nodes"
#: Seconds that node daemons have to answer; and master candidates, which try to reach
#: the silent nodes.
_ANSWER_S: Final = 2.0
_OTHERS_S: Final = 4.0
#: Master candidates that read heartbeats, besides the node of the master.
_READERS: Final = 2
#: Threads that look for SSH servers.
_AT_ONCE: Final = 16
#: Characters of an error of a job.
_SHOWN: Final = 300


@method("QueryNodeDeaths")
def query_node_deaths(deps: MasterDeps, probe: bool = False) -> Later:
    """Return the state, the nodes that it is about, and silent ones if asked to probe.

    An addition to Ganeti.
    """
    return Later(deps.slow.submit(facts, deps, probe=probe), msgspec.to_builtins)


@method("ChangeNodeDeaths")
def change_node_deaths(
    deps: MasterDeps,
    serial: int,
    state: DeathState,
    jobs: list[DeathJob],
    entry: Round,
) -> Later:
    """Store the result of a step and submit its jobs; an addition to Ganeti."""
    cluster = deps.config.snapshot().cluster
    if jobs and (cluster.automation_freeze or not cluster.node_death):
        # The round began before.
        raise errors.OpPrereqError(
            "automation is frozen or deaths of nodes are not to be handled, so the jobs"
            " are not accepted",
            ecodes.ECODE_STATE,
        )
    future = deps.slow.submit(
        deps.node_deaths.change, deps.queue, serial, state, jobs, entry
    )
    return Later(future, msgspec.to_builtins, committing=_CHANGE)


def facts(deps: MasterDeps, *, probe: bool) -> Facts:
    """Return the facts of one round.

    Ends of jobs are read first, so that a probe follows each end that it shows.
    """
    state = deps.config.node_deaths.state()
    ended = _ended(deps, state.deaths)
    snapshot = deps.config.snapshot()
    is_enabled = snapshot.cluster.node_death
    watched = _watched(snapshot)
    is_probed = probe and is_enabled
    known = {death.node for death in state.deaths} & set(snapshot.nodes)
    views = {uuid: _view(snapshot, snapshot.nodes[uuid]) for uuid in sorted(known)}
    answered = 0
    marked = _marked(snapshot, state)
    if is_probed:
        answered = _probe(deps, snapshot, views, watched)
        marked = _asked(deps, marked)
    is_limited = bool(views) or not is_enabled or state.mass_event is not None
    is_limited |= any(node.answers for node in marked)
    limits = automatons.load_limits(deps) if is_limited else None
    if views:
        incidents = {
            item.node: item.uuid
            for item in deps.maintenance.state().incidents
            if not item.state.is_final
        }
        views = {
            uuid: msgspec.structs.replace(view, incident=incidents.get(uuid, ""))
            for uuid, view in views.items()
        }
    return Facts(
        is_enabled=is_enabled,
        is_probed=is_probed,
        state=state,
        nodes=tuple(views.values()),
        watched=len(watched),
        candidates=len(_candidates(snapshot)),
        answered=answered,
        ended=ended,
        has_heartbeats=_has_heartbeats(snapshot),
        marked=marked,
        **({"automation": limits} if limits is not None else {}),
    )


def _watched(snapshot: Snapshot) -> list[str]:
    """Return the nodes that should answer: all but the master and offline ones."""
    return sorted(
        uuid
        for uuid, node in snapshot.nodes.items()
        if uuid != snapshot.cluster.master_node and not node.offline
    )


def _marked(snapshot: Snapshot, state: DeathState) -> tuple[MarkedNode, ...]:
    """Return the nodes that were recorded as offline and off, and still are."""
    nodes = [snapshot.nodes[u] for u in state.marked if u in snapshot.nodes]
    return tuple(
        MarkedNode(uuid=node.uuid, name=node.name)
        for node in nodes
        if node.offline and not node.powered
    )


def _asked(deps: MasterDeps, marked: Sequence[MarkedNode]) -> tuple[MarkedNode, ...]:
    """Return nodes that are marked offline, with whether they answer."""
    silent = _silent(deps, [node.uuid for node in marked]) if marked else ()
    return tuple(
        msgspec.structs.replace(node, answers=node.uuid not in silent)
        for node in marked
    )


def _candidates(snapshot: Snapshot) -> list[str]:
    master = snapshot.cluster.master_node
    return sorted(
        uuid
        for uuid, node in snapshot.nodes.items()
        if node.master_candidate or uuid == master
    )


def _view(snapshot: Snapshot, node: Node) -> NodeView:
    return NodeView(
        uuid=node.uuid,
        name=node.name,
        offline=node.offline,
        drained=node.drained,
        helper=params.oob_program(snapshot, node) or "",
    )


def _silent(deps: MasterDeps, nodes: Sequence[str]) -> list[str]:
    """Return the nodes whose daemon does not answer; one that refuses answers."""
    results = deps.rpc.call_nodes(nodes, calls.version(), timeout_s=_ANSWER_S)
    return [
        uuid for uuid in nodes if results[uuid].is_silent and not results[uuid].refused
    ]


class _Look(NamedTuple):
    """Answers about silent nodes.

    Attributes:
        nodes: UUIDs of the nodes.
        ssh: whether the SSH server of each one reacts to the master.
        reached: candidate that answered -> whether it reaches each of the nodes.
        beats: heartbeats of each node that were found on shared storage.
    """

    nodes: Sequence[str]
    ssh: Sequence[bool]
    reached: Mapping[str, Sequence[bool]]
    beats: Mapping[str, Sequence[tuple[str, int]]] = {}


def _probe(
    deps: MasterDeps,
    snapshot: Snapshot,
    views: dict[str, NodeView],
    watched: Sequence[str],
) -> int:
    """Ask all nodes, and others about silent ones; add the answers to views.

    Others are asked about a node that was silent before while it is asked itself, since
    a dead node costs the whole time limit.

    Returns:
        the number of master candidates that answered, with the master.
    """
    online = [uuid for uuid in sorted(views) if not views[uuid].offline]
    known = online[:MAX_ASKED_ABOUT]
    others = [
        uuid
        for uuid in _candidates(snapshot)
        if uuid != snapshot.cluster.master_node and not snapshot.nodes[uuid].offline
    ]
    with deps.threads(1, "look") as pool:
        doubted = [uuid for uuid in others if uuid not in known]
        early = pool.submit(_look, deps, snapshot, known, doubted)
        silent = _silent(deps, watched)
        looks = [early.result()]
    answering = [uuid for uuid in others if uuid not in silent]
    if not set(known).isdisjoint(answering):
        # They were left out, although they are witnesses.
        looks = [_look(deps, snapshot, known, answering)]
    new = [uuid for uuid in silent if uuid not in known][: MAX_ASKED_ABOUT - len(known)]
    looks.append(_look(deps, snapshot, new, answering))
    for look in looks:
        _add(snapshot, views, look, silent)
    if not known and not new:
        return 0
    answered = {uuid for look in looks for uuid in look.reached}
    return 1 + len(answered.difference(silent))


def _look(
    deps: MasterDeps, snapshot: Snapshot, nodes: Sequence[str], others: Sequence[str]
) -> _Look:
    """Ask SSH servers of nodes, and other nodes about them."""
    if not nodes:
        return _Look((), (), {})
    places = [_place(snapshot, snapshot.nodes[uuid]) for uuid in nodes]
    with deps.threads(_AT_ONCE, "reach") as pool:
        heard = pool.submit(_heartbeats, deps, snapshot, nodes, others)
        shells = [
            pool.submit(deps.server_reacts, address, ssh)
            for address, _port, ssh in places
        ]
        reached = _ask_others(deps, others, places)
        answers = {other: [any(pair) for pair in reached[other]] for other in reached}
        ssh = [future.result() for future in shells]
        return _Look(nodes, ssh, answers, heard.result())


def _has_heartbeats(snapshot: Snapshot) -> bool:
    templates = snapshot.cluster.enabled_disk_templates
    return not set(disks.DTS_SHARED_DIRS).isdisjoint(templates)


def _heartbeats(
    deps: MasterDeps, snapshot: Snapshot, nodes: Sequence[str], others: Sequence[str]
) -> dict[str, list[tuple[str, int]]]:
    """Return heartbeats of nodes that the master's node and others find on storage."""
    if not _has_heartbeats(snapshot):
        return {}
    readers = [snapshot.cluster.master_node, *others[:_READERS]]
    names = [snapshot.nodes[uuid].name for uuid in nodes]
    results = deps.rpc.call_nodes(
        readers, calls.node_heartbeats(names), timeout_s=_ANSWER_S
    )
    beats: dict[str, list[tuple[str, int]]] = {uuid: [] for uuid in nodes}
    for result in results.values():
        if result.failed or len(result.payload) != len(nodes):
            continue
        for uuid, beat in zip(nodes, result.payload, strict=True):
            if beat is not None and beat not in beats[uuid]:
                beats[uuid].append(beat)
    return beats


def _add(
    snapshot: Snapshot, views: dict[str, NodeView], look: _Look, silent: Sequence[str]
) -> None:
    """Add answers to the views of nodes. A silent node is no witness."""
    names = {uuid: snapshot.nodes[uuid].name for uuid in look.reached}
    for place, uuid in enumerate(look.nodes):
        asked = [each for each in look.reached if each != uuid and each not in silent]
        reaching = [each for each in asked if look.reached[each][place]]
        views[uuid] = msgspec.structs.replace(
            views.get(uuid) or _view(snapshot, snapshot.nodes[uuid]),
            daemon=uuid not in silent,
            ssh=look.ssh[place],
            asked=tuple(names[each] for each in asked),
            reached_by=tuple(names[each] for each in reaching),
            heartbeats=tuple(look.beats.get(uuid, ())),
        )


def _place(snapshot: Snapshot, node: Node) -> tuple[str, int, int]:
    ssh = int(params.fill_ndparams(snapshot, node)["ssh_port"])
    return node.primary_ip, node_port(), ssh


def _ask_others(
    deps: MasterDeps, nodes: Sequence[str], places: Sequence[tuple[str, int, int]]
) -> Mapping[str, list[Reached]]:
    """Return for each candidate that answers what it reaches."""
    if not nodes:
        return {}
    results = deps.rpc.call_nodes(
        nodes, calls.node_reaches(places), timeout_s=_OTHERS_S
    )
    return {
        uuid: results[uuid].payload
        for uuid in nodes
        if not results[uuid].failed and len(results[uuid].payload) == len(places)
    }


def _ended(deps: MasterDeps, deaths: Sequence[Death]) -> tuple[JobSeen, ...]:
    """Return the ends of the current jobs."""
    ended = []
    for number in [death.job for death in deaths if death.job]:
        job = deps.queue.job(number)
        if job is None:
            ended.append(
                JobSeen(
                    number,
                    is_success=False,
                    text=f"job {number} is not in the queue any more",
                )
            )
        elif job.is_final:
            ended.append(_end(job))
    return tuple(ended)


def _end(job: Job) -> JobSeen:
    results = [op.result_value() for op in job.ops]
    is_success = job.status.value == "success"
    if not is_success:
        text = first_error(results) or (
            f"job {job.id} ended with status {job.status.value}"
        )
        return JobSeen(job.id, is_success=False, text=text[:_SHOWN])
    is_off = _says_off(results[-1])
    text = (
        "" if is_off else f"its helper does not confirm that it is off (job {job.id})"
    )
    return JobSeen(job.id, is_success=True, is_off=is_off, text=text)


def _says_off(result: Any) -> bool:
    """Return whether a result of ``power-status`` about one node is "off"."""
    try:
        ((_name, (_status, value)),) = result
    except (TypeError, ValueError):
        return False
    is_powered = (
        value.get(oob.OOB_POWER_STATUS_POWERED) if isinstance(value, dict) else None
    )
    return is_powered is False
