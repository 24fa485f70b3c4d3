"""One round of the maintenance daemon, as a function of what it sees.

`decide` takes the stored state, the nodes, their reports, the ends of jobs and possible
moves, and returns the next state with the jobs to submit. State and jobs are committed
together, so a daemon that dies leaves either all of a round or nothing, and no job is
submitted twice. The jobs of a round use different nodes, so they can run at once. Pure.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ganeti.base.constants.protocols.hooks import EXT_PLUGIN_MASK
from ganeti.decisions.repair import journal
from ganeti.decisions.repair.incidents import (
    EVACUATIONS_PER_HOUR,
    FAILED_PREFIX,
    READY_PREFIX,
    SEVERITY,
    TAG_PAUSE_S,
    Action,
    Incident,
    IncidentState,
    MaintenanceState,
)
from ganeti.decisions.repair.journal import INSTANCE, NODE, Decision, Item
from ganeti.decisions.repair.limits import Act, Automation

_HOUR_S: Final = 3600.0
#: Incidents of one node that are kept at once: a report that changes all the time must
#: not fill the configuration.
MAX_PER_NODE: Final = 5
_MIGRATE: Final = "OP_INSTANCE_MIGRATE"
_FAILOVER: Final = "OP_INSTANCE_FAILOVER"
#: Names of repair commands; the node refuses others, too.
_COMMAND: Final = re.compile(EXT_PLUGIN_MASK)
_MAX_COMMAND: Final = 255

Op = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class NodeView:
    """A node as a round sees it.

    Attributes:
        uuid, name: of the node.
        group: uuid of its group.
        offline, drained: its flags.
        is_master: whether it is the master, which cannot be drained.
        tags: of the node.
        primaries: names of its primary instances, sorted.
        secondaries: names of its secondary instances, sorted.
    """

    uuid: str
    name: str
    group: str
    offline: bool = False
    drained: bool = False
    is_master: bool = False
    tags: Sequence[str] = ()
    primaries: Sequence[str] = ()
    secondaries: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Move:
    """A possible move of an instance: its opcodes and all nodes that it uses."""

    instance: str
    ops: Sequence[Op]
    nodes: frozenset[str]


@dataclasses.dataclass(frozen=True)
class Seen:
    """Input of a round.

    Attributes:
        now: seconds since 1970.
        nodes: by uuid.
        reports: verified diagnosis of the nodes that answered, by uuid.
        ended: whether each of the jobs of the last round has succeeded; None for one
            that runs. A job that does not exist any more has failed.
        moves: possible moves off nodes to empty, by name of the instance.
        unplanned: why no moves could be planned, by group.
        new_id: returns a new UUID.
        round: UUID of the round, for the reason trails of its jobs.
        unused: why the diagnosis of a node is not used, by uuid.
        automation: limits of automatons.
    """

    now: float
    nodes: Mapping[str, NodeView]
    reports: Mapping[str, Any]
    ended: Mapping[int, bool | None]
    moves: Mapping[str, Move]
    new_id: Callable[[], str]
    unplanned: Mapping[str, str] = dataclasses.field(default_factory=dict)
    round: str = ""
    unused: Mapping[str, str] = dataclasses.field(default_factory=dict)
    automation: Automation = dataclasses.field(default_factory=Automation)


@dataclasses.dataclass(frozen=True)
class Job:
    """A job to submit.

    Attributes:
        ops: its opcodes, with their reasons.
        incident: uuid of the incident that it belongs to; empty for none.
        is_tag: whether it sets the tag of the incident.
    """

    ops: Sequence[Op]
    incident: str
    is_tag: bool = False


@dataclasses.dataclass(frozen=True)
class Plan:
    """The result of a round.

    Attributes:
        state: to store, without the ids of the new jobs.
        jobs: to submit with it.
        free: uuids of the nodes that no incident concerns and no job uses.
        notes: what was decided and why, in sentences.
        is_waiting: whether jobs of the last round still run.
        items: the decisions for the journal; a 0 stands for the id of a job, in order.
        untouched: as ``free``, and those that are offline or drained.
    """

    state: MaintenanceState
    jobs: Sequence[Job]
    free: frozenset[str]
    notes: Sequence[str]
    is_waiting: bool
    items: Sequence[Item] = ()
    untouched: frozenset[str] = frozenset()


def decide(state: MaintenanceState, seen: Seen) -> Plan:
    """Return what to store and to submit."""
    return _Round(state, seen).run()


class _Made:
    """Results of a round so far.

    Attributes:
        incidents: by uuid, newest first.
        jobs, notes, items: of the plan.
    """

    def __init__(self, state: MaintenanceState, seen: Seen) -> None:
        self._seen = seen
        self.incidents = {item.uuid: item for item in state.incidents}
        self.jobs: list[Job] = []
        self.notes: list[str] = []
        self.items: list[Item] = []

    def put(self, incident: Incident) -> None:
        self.incidents[incident.uuid] = incident

    def name(self, incident: Incident) -> str:
        node = self._seen.nodes.get(incident.node)
        return node.name if node else incident.node

    def decide(
        self,
        decision: Decision,
        item: Incident,
        action: str,
        reason: str,
        *,
        jobs: tuple[int, ...] = (),
        instance: str = "",
        limit: str = "",
    ) -> None:
        """Add a decision about an incident, or about an instance on its node."""
        node = self.name(item)
        self.items.append(
            Item(
                kind=INSTANCE if instance else NODE,
                name=instance or node,
                decision=decision,
                action=action,
                reason=reason,
                jobs=jobs,
                ids=(item.uuid,),
                nodes=(node,) if instance else (),
                moves=bool(instance and jobs),
                limit=limit,
            )
        )

    def refuse(self, name: str, action: str, reason: str) -> None:
        """Add to the journal why the report of a node is not used."""
        self.items.append(
            Item(
                kind=NODE,
                name=name,
                decision=Decision.REFUSED,
                action=action,
                reason=reason,
            )
        )

    def fail(self, item: Incident, note: str) -> None:
        """End an incident; its node gets the tag of a failure."""
        now = self._seen.now
        if item.state is IncidentState.CANCELED:
            return
        failed = item.entered(IncidentState.FAILED, now, note)
        failed = failed.changed(now, tag=f"{FAILED_PREFIX}{item.uuid}", tag_job=0)
        self.put(failed)
        self.notes.append(f"{self.name(item)}: incident {item.uuid} failed: {note}")
        self.decide(Decision.CHOSEN, item, "end the incident as failed", note)

    def wait(self, item: Incident, note: str, limit: str = "") -> None:
        if item.note != note:
            self.notes.append(f"incident {item.uuid} waits: {note}")
        decision = Decision.REFUSED if limit else Decision.WAITING
        self.decide(decision, item, item.action.value, note, limit=limit)
        self.put(item.changed(self._seen.now, note=note))

    def submit(
        self, item: Incident, ops: Sequence[Op], text: str, instance: str = ""
    ) -> None:
        """Submit a job for an incident."""
        texts = (text, f"event {item.uuid}")
        trail = journal.maintd_trail(texts, self._seen.round, self._seen.now)
        self.jobs.append(Job([{**op, "reason": trail} for op in ops], item.uuid))
        if item.state is IncidentState.NOTED:
            item = item.entered(IncidentState.PENDING, self._seen.now)
        note = item.note if item.state is IncidentState.FAILED else ""
        self.put(item.changed(self._seen.now, note=note))
        self.notes.append(f"incident {item.uuid}: {text}")
        why = f"incident with {item.action}"
        self.decide(Decision.CHOSEN, item, text, why, jobs=(0,), instance=instance)


class _Round:
    """The steps of one decision."""

    def __init__(self, state: MaintenanceState, seen: Seen) -> None:
        self._state = state
        self._seen = seen
        self._made = _Made(state, seen)
        self._automation = seen.automation
        self._evacuations = [
            item for item in state.evacuations if item[0] > seen.now - _HOUR_S
        ]
        self._evacuated = list(state.evacuated)
        #: Nodes of incidents and of jobs.
        self._touched: set[str] = set()
        self._free = {
            uuid
            for uuid, node in seen.nodes.items()
            if not node.offline and not node.drained
        }

    def run(self) -> Plan:
        ended = self._seen.ended
        # None stands for a job that runs; one that is gone has ended.
        is_waiting = any(ended.get(job, False) is None for job in self._state.jobs)
        self._note_reports()
        if not is_waiting:
            self._take_ends()
            self._forget()
            self._handle()
        kept = () if not is_waiting else self._state.jobs
        state = self._next(kept)
        return Plan(
            state,
            self._made.jobs,
            frozenset(self._free),
            self._made.notes,
            is_waiting,
            self._made.items,
            frozenset(self._seen.nodes) - self._touched,
        )

    def _next(self, jobs: tuple[int, ...]) -> MaintenanceState:
        changes: dict[str, Any] = {
            "jobs": jobs,
            "incidents": tuple(self._made.incidents.values()),
            "evacuations": tuple(self._evacuations),
            "evacuated": tuple(self._evacuated),
        }
        before = self._state
        if all(getattr(before, name) == value for name, value in changes.items()):
            return before
        return msgspec.structs.replace(before, **changes)

    # Observing
    def _note_reports(self) -> None:
        for uuid, why in sorted(self._seen.unused.items()):
            self._made.refuse(self._seen.nodes[uuid].name, "use its diagnosis", why)
        for uuid, data in self._seen.reports.items():
            for item in list(self._made.incidents.values()):
                if item.node == uuid:
                    is_same = item.original == data
                    self._made.put(item.changed(self._seen.now, is_observed=is_same))
            action = _action_of(data)
            if action is None:
                name = self._seen.nodes[uuid].name
                self._made.notes.append(f"{name}: its diagnosis has no known status")
                self._made.refuse(name, "use its diagnosis", "it has no known status")
            elif action is not Action.OK:
                self._note(uuid, action, data)

    def _note(self, node: str, action: Action, data: Any) -> None:
        own = [item for item in self._made.incidents.values() if item.node == node]
        if any(item.original == data for item in own):
            return
        name = self._seen.nodes[node].name
        if len(own) >= MAX_PER_NODE:
            self._made.notes.append(
                f"{name}: reports another fault, but has {len(own)} already; is its"
                " diagnosis stable?"
            )
            why = f"it has {MAX_PER_NODE} incidents already; is its diagnosis stable?"
            self._made.refuse(name, "note another incident", why)
            return
        uuid, now = self._seen.new_id(), self._seen.now
        new = Incident(
            uuid=uuid,
            node=node,
            original=data,
            action=action,
            tag=f"{READY_PREFIX}{uuid}",
            ctime=now,
            mtime=now,
        )
        self._made.incidents = {uuid: new} | self._made.incidents
        self._made.notes.append(f"{name}: new incident {uuid}: {action}")
        self._made.decide(Decision.CHOSEN, new, "note an incident", action.value)

    # Jobs of the last round
    def _take_ends(self) -> None:
        for job in self._state.jobs:
            if self._seen.ended.get(job):
                continue
            for item in list(self._made.incidents.values()):
                if job not in item.jobs:
                    continue
                if item.state is not IncidentState.FAILED:
                    self._made.fail(item, f"job {job} failed")
                elif job == item.tag_job:
                    self._tag_later(item)

    def _tag_later(self, item: Incident) -> None:
        """Have the tag set again: without it nobody could acknowledge the incident.

        Rounds follow each other within a second, so the next job has to wait.
        """
        now = self._seen.now
        self._made.put(item.changed(now, tag_job=0, tag_time=now + TAG_PAUSE_S))
        name = self._made.name(item)
        self._made.notes.append(
            f"{name}: job {item.tag_job} did not set the tag {item.tag};"
            f" the next attempt is in {TAG_PAUSE_S} seconds"
        )
        why = f"job {item.tag_job} failed; the next attempt is in {TAG_PAUSE_S} seconds"
        self._made.decide(Decision.WAITING, item, f"set the tag {item.tag}", why)

    # Acknowledgement
    def _forget(self) -> None:
        for item in list(self._made.incidents.values()):
            if self._is_forgotten(item):
                del self._made.incidents[item.uuid]
                name = self._made.name(item)
                self._made.notes.append(
                    f"{name}: incident {item.uuid} ({item.state}) is over"
                )
                why = f"{item.state}, and acknowledged or not reported any more"
                self._made.decide(Decision.CHOSEN, item, "forget the incident", why)

    def _is_forgotten(self, item: Incident) -> bool:
        node = self._seen.nodes.get(item.node)
        if node is None:
            return True
        if not item.state.is_final:
            # Nothing was done yet about what is not reported any more.
            is_untouched = item.state is IncidentState.NOTED and not item.jobs
            return is_untouched and not item.is_observed
        if item.state is IncidentState.CANCELED:
            return not item.is_observed
        # Until its job has run, the tag is missing for another reason.
        if not item.tag_job or item.tag in node.tags:
            return False
        return item.state is IncidentState.FAILED or not item.is_observed

    # Acting
    def _handle(self) -> None:
        by_node: dict[str, list[Incident]] = {}
        for item in self._made.incidents.values():
            by_node.setdefault(item.node, []).append(item)
        # Nothing is moved to a node with an incident, whatever its state.
        self._free -= by_node.keys()
        self._touched |= by_node.keys()
        for uuid, items in by_node.items():
            node = self._seen.nodes[uuid]
            still_open = [item for item in items if not item.state.is_final]
            still_open.sort(key=lambda i: (-SEVERITY[i.action], i.ctime))
            for item in still_open:
                self._act(node, item)
                # The incidents of a node are dealt with one after another, by severity.
                if self._made.incidents[item.uuid].state is not IncidentState.COMPLETED:
                    break
            for item in (self._made.incidents[item.uuid] for item in items):
                if item.state in (IncidentState.COMPLETED, IncidentState.FAILED):
                    self._tag(node, item)

    def _act(self, node: NodeView, item: Incident) -> None:
        if item.action is Action.LIVE_REPAIR:
            self._repair(node, item)
            return
        if node.is_master:
            self._made.wait(
                item,
                f"{node.name} is the master: run gnt-cluster master-failover on"
                " another node",
            )
        elif not (node.drained or node.offline):
            self._drain(node, item)
        elif node.primaries or node.secondaries:
            self._move(node, item)
        else:
            self._complete(node, item)

    def _is_held(self, item: Incident, act: Act, instance: str = "") -> bool:
        """Return whether a limit refuses an act; then the incident waits."""
        refusal = self._automation.refusal(act, self._seen.now, instance)
        if refusal is None:
            return False
        self._made.wait(item, refusal.text, refusal.limit)
        return True

    def _repair(self, node: NodeView, item: Incident) -> None:
        command = item.original.get("command")
        # Without a command the repair is left to people, who wait for the tag.
        if item.jobs or command in (None, ""):
            self._complete(node, item)
            return
        is_text = isinstance(command, str) and len(command) <= _MAX_COMMAND
        if not (is_text and _COMMAND.fullmatch(command)):
            self._made.fail(
                item,
                f"live-repair with command {command!r:.80}, which is not the name of a"
                " repair command (letters, digits, _ and -)",
            )
            return
        if self._is_held(item, Act.REPAIR):
            return
        op = {
            "OP_ID": "OP_REPAIR_COMMAND",
            "node_name": node.name,
            "command": command,
            "input": msgspec.json.encode(item.original).decode(),
        }
        self._made.submit(item, [op], f"Repairing {node.name} with {command}")

    def _drain(self, node: NodeView, item: Incident) -> None:
        started = [group for _time, group in self._evacuations if group == node.group]
        if len(started) >= EVACUATIONS_PER_HOUR:
            self._made.wait(
                item,
                f"{len(started)} nodes of the group were evacuated within an hour,"
                f" the limit is {EVACUATIONS_PER_HOUR}",
            )
            return
        if self._is_held(item, Act.REPAIR):
            return
        self._evacuations.append((self._seen.now, node.group))
        op = {"node_name": node.name, "drained": True, "force": True}
        self._made.submit(
            item, [{"OP_ID": "OP_NODE_SET_PARAMS", **op}], f"Draining {node.name}"
        )

    def _move(self, node: NodeView, item: Incident) -> None:
        for name in (*node.primaries, *node.secondaries):
            move = self._seen.moves.get(name)
            if move is None:
                continue
            others = move.nodes - {node.uuid}
            if not others <= self._free:
                continue
            if self._is_held(item, Act.MOVE, name):
                return
            self._automation = self._automation.with_move(name)
            self._free -= others
            self._touched |= others
            ops = [dict(op) for op in move.ops]
            if item.action is Action.EVACUATE_FAILOVER:
                ops = [_as_failover(op) for op in ops]
            if name not in self._evacuated:
                self._evacuated.append(name)
            self._made.submit(item, ops, f"Evacuating {node.name}: moving {name}", name)
            return
        why = self._seen.unplanned.get(node.group)
        if why is not None:
            self._made.wait(item, f"{node.name} cannot be emptied now: {why}")
            return
        left = ", ".join((*node.primaries, *node.secondaries)[:5])
        self._made.wait(item, f"{node.name} cannot be emptied now; no node for {left}")

    def _complete(self, node: NodeView, item: Incident) -> None:
        """End an incident when its node has the tag; have the tag set before."""
        if item.tag_job:
            self._made.put(item.entered(IncidentState.COMPLETED, self._seen.now))
        else:
            self._tag(node, item)

    def _tag(self, node: NodeView, item: Incident) -> None:
        """Tag the node of an incident; set an emptied one offline before."""
        if item.tag_job or item.tag_time > self._seen.now:
            return
        refusal = self._automation.refusal(Act.START, self._seen.now)
        if refusal is not None:
            action = f"set the tag {item.tag}"
            text, limit = refusal.text, refusal.limit
            self._made.decide(Decision.REFUSED, item, action, text, limit=limit)
            return
        ops: list[Op] = []
        is_emptied = item.state is not IncidentState.FAILED
        if is_emptied and item.action is not Action.LIVE_REPAIR and not node.offline:
            op = {"node_name": node.name, "offline": True, "force": True}
            ops.append({"OP_ID": "OP_NODE_SET_PARAMS", **op})
        tag = {"kind": "node", "name": node.name, "tags": [item.tag]}
        ops.append({"OP_ID": "OP_TAGS_SET", **tag})
        self._made.submit(item, ops, f"Tagging {node.name} with {item.tag}")
        self._made.jobs[-1] = dataclasses.replace(self._made.jobs[-1], is_tag=True)


def with_jobs(
    state: MaintenanceState, jobs: Sequence[tuple[str, bool]], ids: Sequence[int]
) -> MaintenanceState:
    """Return a state with the ids of jobs that are submitted with it.

    Args:
        state: of the plan.
        jobs: incident of each job, and whether the job sets its tag.
        ids: of the jobs, in the same order.
    """
    incidents = {item.uuid: item for item in state.incidents}
    for (uuid, is_tag), job in zip(jobs, ids, strict=True):
        item = incidents.get(uuid)
        if item is not None:
            changes: dict[str, Any] = {"jobs": (*item.jobs, job)}
            if is_tag:
                changes["tag_job"] = job
            incidents[uuid] = msgspec.structs.replace(item, **changes)
    return msgspec.structs.replace(
        state,
        jobs=tuple(dict.fromkeys((*state.jobs, *ids))),
        incidents=tuple(incidents.values()),
    )


def _action_of(data: Any) -> Action | None:
    status = data.get("status") if isinstance(data, Mapping) else None
    return next((each for each in Action if each.value == status), None)


def _as_failover(op: Op) -> Op:
    """Return the failover that has the effect of a migration."""
    if op.get("OP_ID") != _MIGRATE:
        return op
    kept = ("instance_name", "target_node", "iallocator")
    out = {name: op[name] for name in kept if op.get(name) is not None}
    return {"OP_ID": _FAILOVER, **out, "ignore_consistency": True}
