"""Death of nodes: suspicion, fencing, and the release of instances. Pure.

A node whose node daemon and SSH server are silent is suspected. It is fenced when a
majority of the master candidates, the master among them, cannot reach it either: its
out-of-band helper switches it off and confirms that it is off. Only then is it marked
offline, and only then may automatic repair start its instances on other nodes.

Safety: an instance never runs twice. Let N be the node. A job starts an instance of N
elsewhere only when N is marked offline. `Phase.FENCED`, which marks it, is entered only
by `Event.CONFIRM`: the helper reported "off" after the last power-off, and afterwards N
answered nobody. A guest does not survive the loss of power, so none runs on N. The jobs
look again when they hold the lock of N: one does not switch off a node that answers,
the other marks only a node that is off and silent at that moment, and whose heartbeat
has not gone on since the confirmation. Each act is a job
that is committed together with the phase that it belongs to, so an act is neither lost
nor done twice, whoever dies.

A heartbeat on shared storage is a sign of life alone. One that goes on after the helper
reported "off" proves a lie, and N is held. Before, it delays a fence for some time, in
case that only the network failed: a forged one keeps no dead node alive without
limit. Its absence proves nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from ganeti.base.text import messages
from ganeti.decisions.repair import journal, limits
from ganeti.decisions.repair.journal import Decision, Item
from ganeti.decisions.repair.limits import Act, Automation, Refusal
from ganeti.decisions.repair.node_lives import (
    Death,
    DeathJob,
    DeathState,
    Event,
    Facts,
    MarkedNode,
    NodeView,
    Phase,
)

#: Seconds of silence, and probes without an answer, until a node is fenced.
#: A node daemon that restarts is away for 2 seconds.
SILENCE_S: Final = 8.0
SILENT_PROBES: Final = 3
#: Seconds of silence until a node is fenced although its heartbeat goes on; and seconds
#: for which it may go on after a helper reported "off": storage can be slow to show it.
HEARTBEAT_S: Final = 30.0
#: Seconds without a new heartbeat until it has stopped. One is written every 2 seconds,
#: read every 2 seconds, and the readers are asked every 2 to 3 seconds.
STOPPED_S: Final = 12.0
#: Nodes that vanish within this time, in seconds, vanish at once.
AT_ONCE_S: Final = 300.0
#: Of so many nodes one may vanish at once; more are a mass event.
_NODES_PER_DEATH: Final = 10
#: Attempts of an act that fails, and seconds between two of them.
ATTEMPTS: Final = 3
PAUSE_S: Final = 10.0
HOUR_S: Final = 3600.0
#: Seconds until a helper that has lied is asked again, at first; they double.
_LIAR_S: Final = 60.0
#: Most of its jobs that are remembered.
_MAX_JOBS: Final = 20
#: Most heartbeats of a node that are kept: one per run, and a run lasts long.
MAX_BEATS: Final = 8
#: Reasons to do nothing, beside the limits of automatons.
DRAINED: Final = "drained"
MAINTENANCE: Final = "maintenance"
NO_HELPER: Final = "no-helper"
MINORITY: Final = "minority"
REACHED: Final = "reached"
MASS_EVENT: Final = "mass-event"
UNCONFIRMED: Final = "unconfirmed"
LYING_HELPER: Final = "lying-helper"
ASKED_AGAIN: Final = "asked-again"
HEARTBEAT: Final = "heartbeat"
NOT_MARKED: Final = "not-marked"
NOT_REPAIRED: Final = "not-repaired"
#: Action of the items of the journal.
_FENCE: Final = "fence"
_RELEASE: Final = "mark offline"
_RECOVER: Final = "start its instances elsewhere"
_ASK: Final = "ask its helper again"
_RETURN: Final = "record that it is on"
_TRUST: Final = "trust its helper again"
#: Why a step waits, for people.
_ASKED: Final = "other nodes are asked once more whether it answers"
_RUNS: Final = "its job has not ended"
_REPAIRS: Final = "automatic repair has not dealt with all of them yet"
_NOT_OFFLINE: Final = "it is no longer marked offline"


class Silence(NamedTuple):
    """Consecutive probes that a node did not answer, and the seconds they took."""

    probes: int = 0
    seconds: float = 0.0

    @property
    def is_long(self) -> bool:
        """Whether it is long enough to fence the node."""
        return self.probes >= SILENT_PROBES and self.seconds >= SILENCE_S


class Seen(NamedTuple):
    """Inputs of a decision.

    Attributes:
        now: seconds since 1970.
        facts: of the master daemon.
        silences: node UUID -> its silence as this process has measured it.
        recovered: UUIDs of nodes whose instances have been taken care of.
        known_s: time of a remembered fence or mass event -> seconds for which this
            process has known it, measured without the clock of the machine.
        beats: node UUID -> seconds since its heartbeat on shared storage was seen to go
            on; a node for which it was not is missing.
        failed: node UUID -> names of its instances whose repair has failed.
    """

    now: float
    facts: Facts
    silences: Mapping[str, Silence] = {}
    recovered: frozenset[str] = frozenset()
    known_s: Mapping[float, float] = {}
    beats: Mapping[str, float] = {}
    failed: Mapping[str, tuple[str, ...]] = {}

    def has_heartbeat(self, view: NodeView) -> bool:
        """Return whether the heartbeat of a node on shared storage goes on."""
        return self.beats.get(view.uuid, STOPPED_S) < STOPPED_S

    def silence(self, view: NodeView) -> Silence:
        """Return the silence of a node as this process has measured it."""
        return self.silences.get(view.uuid, Silence())

    def is_recent(self, when: float, span_s: float) -> bool:
        """Return whether something may have happened within a span of time.

        The clock of a new master may be wrong by hours, so it is not trusted before
        this process has known the event for as long, at most for an hour.
        """
        is_known_long = self.known_s.get(when, 0.0) >= min(span_s, HOUR_S)
        return 0 <= self.now - when < span_s or not is_known_long


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The decisions of a round.

    Attributes:
        state: the new state.
        jobs: at most one for each node.
        items: for the journal.
        recover: UUIDs of nodes whose instances are to be repaired.
        wants_probe: a decision waits for a fresh probe.
    """

    state: DeathState
    jobs: tuple[DeathJob, ...] = ()
    items: tuple[Item, ...] = ()
    recover: tuple[str, ...] = ()
    wants_probe: bool = False


class _Step(NamedTuple):
    """The decision about one node; no death means that it is over."""

    death: Death | None
    item: Item | None = None
    job: DeathJob | None = None
    recovers: bool = False
    wants_probe: bool = False


def most_at_once(watched: int) -> int:
    """Return how many nodes may vanish at once without being a mass event."""
    return max(1, watched // _NODES_PER_DEATH)


def with_jobs(
    state: DeathState, jobs: tuple[DeathJob, ...], ids: tuple[int, ...]
) -> DeathState:
    """Return a state with the ids of the jobs that its commit submits."""
    of_node = {job.node: number for job, number in zip(jobs, ids, strict=True)}
    deaths = tuple(
        death.with_job(of_node[death.node]) if death.job == -1 else death
        for death in state.deaths
    )
    return msgspec.structs.replace(state, deaths=deaths)


def decide(state: DeathState, seen: Seen) -> Plan:
    """Return the next step of each node."""
    if state.is_given_up or not seen.facts.is_enabled:
        return _given_up(state)
    views = {view.uuid: view for view in seen.facts.nodes}
    deaths = (*state.deaths, *_new(state, seen))
    recent = [fence for fence in state.fenced if seen.is_recent(fence[0], HOUR_S)]
    mass_event = state.mass_event
    if mass_event is not None and not seen.is_recent(mass_event, _quiet_s(seen)):
        # Kept, it would begin again for each new process, however long ago it was.
        mass_event = None
    if _vanished(state, deaths, views, seen) > most_at_once(seen.facts.watched):
        mass_event = seen.now
    steps, offline = [], []
    for death in deaths:
        automation = _with_memory(seen, recent, mass_event)
        step = _step(death, views.get(death.node), seen, automation)
        if (
            step.death is not None
            and death.phase is Phase.SUSPECTED
            and step.death.phase is Phase.FENCING
        ):
            # At once, so that the limit per hour holds for the other nodes of this
            # round.
            recent.append((seen.now, death.name))
        if death.phase is Phase.FENCED and step.recovers:
            offline.append(death.node)
        steps.append(step)
    back = _back(seen)
    returned = {node.uuid for node in back}
    steps += [_returned(node) for node in back]
    new = msgspec.structs.replace(
        state,
        deaths=tuple(step.death for step in steps if step.death is not None),
        fenced=tuple(recent),
        mass_event=_kept(mass_event, state.mass_event),
        marked=_marked(seen, offline, returned),
    )
    return Plan(
        state=new,
        jobs=tuple(step.job for step in steps if step.job is not None),
        items=tuple(step.item for step in steps if step.item is not None),
        recover=tuple(
            step.death.node
            for step in steps
            if step.recovers and step.death is not None
        ),
        wants_probe=any(step.wants_probe for step in steps),
    )


def _back(seen: Seen) -> list[MarkedNode]:
    """Return the nodes that answer although they are recorded as off."""
    if seen.facts.automation.stop() is not None:
        return []
    return [node for node in seen.facts.marked if node.answers]


def _marked(seen: Seen, offline: list[str], returned: set[str]) -> tuple[str, ...]:
    """Return the nodes whose records are to be taken back when they answer."""
    known = [node.uuid for node in seen.facts.marked if node.uuid not in returned]
    return tuple(dict.fromkeys((*known, *offline)))


def _returned(node: MarkedNode) -> _Step:
    """Return the step that corrects the power state of a node that is back.

    It stays offline: its instances may have been started elsewhere.
    """
    reason = (
        "its node daemon answers; it stays marked offline until a person has looked at"
        f" it: gnt-node modify --offline=no {node.name}"
    )
    item = Item(
        kind=journal.NODE,
        name=node.name,
        decision=Decision.CHOSEN,
        action=_RETURN,
        reason=reason,
        jobs=(0,),
    )
    op = {"OP_ID": "OP_NODE_SET_PARAMS", "node_name": node.name, "powered": True}
    return _Step(None, item, DeathJob(node.uuid, (op,)))


def _kept(event: float | None, stored: float | None) -> float | None:
    """Return the time of a mass event, stored again at most once per minute."""
    if event is None or stored is None or abs(event - stored) > AT_ONCE_S / 5:
        return event
    return stored


def _given_up(state: DeathState) -> Plan:
    """Forget everything, also earlier fences: a person has switched this off."""
    items = tuple(
        _item(death, Decision.REFUSED, "it was switched off", limit="off")
        for death in state.deaths
    )
    return Plan(state=DeathState(serial_no=state.serial_no), items=items)


def _new(state: DeathState, seen: Seen) -> Iterator[Death]:
    known = {death.node for death in state.deaths}
    for view in seen.facts.nodes:
        if view.uuid not in known and view.is_silent and not view.offline:
            yield Death(
                node=view.uuid,
                name=view.name,
                since=seen.now,
                reason="it does not answer",
                mtime=seen.now,
            )


def _vanished(
    state: DeathState,
    deaths: tuple[Death, ...],
    views: Mapping[str, NodeView],
    seen: Seen,
) -> int:
    """Return the number of nodes that have vanished at about the same time."""
    fenced = {name for when, name in state.fenced if abs(seen.now - when) < AT_ONCE_S}
    return len(
        fenced.union(
            death.name
            for death in deaths
            if abs(seen.now - death.since) < AT_ONCE_S
            and death.node in views
            and not views[death.node].answers
        )
    )


def _quiet_s(seen: Seen) -> float:
    """Return for how many seconds after a mass event no node is fenced."""
    settings = seen.facts.automation.limits
    return settings.get(limits.QUIET_TIME, limits.DEFAULT_FENCE_QUIET_S)


def _with_memory(
    seen: Seen, fenced: list[tuple[float, str]], mass_event: float | None
) -> Automation:
    automation = seen.facts.automation
    if mass_event is not None and mass_event != seen.now:
        # Its time is that of another clock, so take any time within the quiet time.
        mass_event = seen.now - _quiet_s(seen) / 2
    times = [when for when in (automation.mass_event, mass_event) if when is not None]
    return msgspec.structs.replace(
        automation,
        fenced=tuple(when for when, _name in fenced),
        mass_event=min(times, key=lambda when: abs(seen.now - when), default=None),
    )


def _step(
    death: Death, view: NodeView | None, seen: Seen, automation: Automation
) -> _Step:
    if view is None:
        return _Step(None, _item(death, Decision.REFUSED, "the node was removed"))
    if death.phase is Phase.SUSPECTED:
        return _suspected(death, view, seen, automation)
    if death.phase is Phase.FENCING:
        return _fencing(death, view, seen, automation)
    if death.phase is Phase.FENCED:
        return _fenced(death, view, seen, automation)
    if death.phase is Phase.OFFLINE:
        return _offline(death, view, seen)
    if death.limit == LYING_HELPER:
        return _liar(death, view, seen, automation)
    return _held(death, view)


def _suspected(
    death: Death, view: NodeView, seen: Seen, automation: Automation
) -> _Step:
    if view.offline:
        return _Step(None, _item(death, Decision.REFUSED, "it was marked offline"))
    if not seen.facts.is_probed:
        return _Step(death, _stored_item(death))
    if not view.is_silent:
        return _Step(None, _item(death, Decision.REFUSED, view.answers))
    if not seen.silence(view).is_long:
        return _Step(death, _stored_item(death))
    refusal = _refusal(view, seen, automation)
    if refusal is not None:
        return _waits(death, seen.now, refusal)
    new = death.entered(
        Event.FENCE,
        seen.now,
        job=-1,
        attempts=1,
        witnesses=_witnesses(view, seen),
        helper=view.helper,
    )
    return _Step(new, _chosen(new, _FENCE), _fence_job(new))


def _witnesses(view: NodeView, seen: Seen) -> tuple[str, ...]:
    """Return who has found a node silent.

    A file whose number was never seen to grow may be years old.
    """
    if view.uuid in seen.beats and not seen.has_heartbeat(view):
        return (*view.witnesses, "heartbeat on shared storage")
    return view.witnesses


def _refusal(view: NodeView, seen: Seen, automation: Automation) -> Refusal | None:
    """Return why a silent node must not be fenced; None if it may."""
    if view.drained:
        return Refusal(DRAINED, "it is drained, so a person works on it")
    if view.incident:
        text = f"maintenance works on it (incident {view.incident})"
        return Refusal(MAINTENANCE, text)
    if not view.helper:
        return Refusal(NO_HELPER, "it has no out-of-band helper (oob_program)")
    if problem := _doubt(view, seen):
        return problem
    if seen.has_heartbeat(view) and seen.silence(view).seconds < HEARTBEAT_S:
        return Refusal(
            HEARTBEAT,
            "its heartbeat on shared storage goes on, so it lives; it is fenced if it"
            f" stays silent for {HEARTBEAT_S:g} seconds",
        )
    vanished = automation.mass_event
    if vanished is not None and vanished == seen.now:
        return Refusal(MASS_EVENT, "too many nodes vanished at once")
    return automation.refusal(Act.FENCE, seen.now)


def _doubt(view: NodeView, seen: Seen) -> Refusal | None:
    """Return why the master cannot be sure that a node is dead; None if it is."""
    if view.answers:
        return Refusal(REACHED, view.answers)
    if not view.is_silent:
        return Refusal(MASS_EVENT, "so many nodes are silent that it was not asked")
    if not seen.facts.has_majority:
        return Refusal(
            MINORITY, "no majority of the master candidates answers the master"
        )
    if not view.asked:
        return Refusal(MINORITY, "no other master candidate can be asked about it")
    return None


def _fencing(death: Death, view: NodeView, seen: Seen, automation: Automation) -> _Step:
    if view.offline:
        return _Step(None, _item(death, Decision.REFUSED, "it was marked offline"))
    ended = seen.facts.end_of(death.job)
    if death.again == 0.0 and ended is None:
        return _Step(death, _item(death, Decision.WAITING, "it is being switched off"))
    if not seen.facts.is_probed:
        return _Step(death, _stored_item(death), wants_probe=True)
    if death.again == 0.0 and ended is not None and ended.is_off:
        return _confirmed(death, view, seen, automation)
    if view.answers:
        return _Step(None, _item(death, Decision.REFUSED, view.answers))
    text = ended.text if ended is not None else death.reason
    act = _Act(_FENCE, UNCONFIRMED, text, _doubt(view, seen))
    return _again(death, seen, automation, act)


def _confirmed(
    death: Death, view: NodeView, seen: Seen, automation: Automation
) -> _Step:
    """Return the step of a node whose helper says that it is off."""
    if view.answers:
        text = f"the helper {death.helper} says that it is off, but {view.answers}"
        return _doubted(death, seen, automation, text)
    refusal = _doubt(view, seen) or automation.stop()
    if refusal is None and seen.has_heartbeat(view):
        text = (
            f"the helper {death.helper} says that it is off, but its heartbeat on"
            " shared storage was still seen"
        )
        # A clock that was set back ends the wait, which would last too long otherwise.
        is_long = not 0 <= seen.now - death.mtime < HEARTBEAT_S
        if death.limit == HEARTBEAT and is_long:
            text += f" for {HEARTBEAT_S:g} seconds after that"
            return _doubted(death, seen, automation, text)
        if death.limit == ASKED_AGAIN:
            return _doubted(death, seen, automation, text)
        refusal = Refusal(HEARTBEAT, text)
    if refusal is not None:
        return _waits(death, seen.now, refusal)
    if seen.facts.has_heartbeats and not seen.silence(view).is_long:
        # A new process cannot know yet whether the heartbeat goes on.
        return _Step(death, _stored_item(death))
    beats = view.heartbeats[:MAX_BEATS]
    new = death.entered(Event.CONFIRM, seen.now, job=-1, attempts=1, heartbeats=beats)
    return _Step(new, _chosen(new, _RELEASE), _mark_job(new))


def _doubted(death: Death, seen: Seen, automation: Automation, text: str) -> _Step:
    """Return the step of a node that lives although its helper reported "off".

    It may have booted since. So the helper is asked once more: if it says "on", it has
    answered truly both times; if it insists, it lies.
    """
    if death.limit == ASKED_AGAIN:
        held = death.entered(Event.HOLD, seen.now, reason=text, limit=LYING_HELPER)
        return _Step(held, _stored_item(held))
    if (refusal := automation.stop()) is not None:
        return _waits(death, seen.now, refusal)
    new = death.changed(seen.now, job=-1, reason=text, limit=ASKED_AGAIN)
    item = _item(new, Decision.CHOSEN, text, _ASK)
    item = msgspec.structs.replace(item, jobs=(0,))
    return _Step(new, item, _ask_job(new))


def _fenced(death: Death, view: NodeView, seen: Seen, automation: Automation) -> _Step:
    if view.offline:
        new = death.entered(Event.MARK, seen.now)
        return _Step(
            new, _item(new, Decision.WAITING, _REPAIRS, _RECOVER), recovers=True
        )
    ended = seen.facts.end_of(death.job)
    if death.again == 0.0 and ended is None:
        return _Step(death, _item(death, Decision.WAITING, _RUNS, _RELEASE))
    if ended is not None and ended.is_success:
        return _Step(None, _item(death, Decision.REFUSED, _NOT_OFFLINE))
    if not seen.facts.is_probed:
        return _Step(death, _stored_item(death), wants_probe=True)
    if view.answers:
        return _Step(None, _item(death, Decision.REFUSED, view.answers))
    text = ended.text if ended is not None else death.reason
    doubt = _doubt(view, seen)
    if doubt is None and seen.has_heartbeat(view):
        doubt = Refusal(HEARTBEAT, "its heartbeat on shared storage goes on again")
    if doubt is None and seen.silence(view).is_long:
        # The last one may be read late, and must not keep each attempt from its mark.
        beats = view.heartbeats[:MAX_BEATS] or death.heartbeats
    else:
        beats = death.heartbeats
    act = _Act(_RELEASE, NOT_MARKED, text, doubt, beats)
    return _again(death, seen, automation, act)


class _Act(NamedTuple):
    """An act that failed.

    Attributes:
        name: of the act.
        limit: the rule if it fails for good.
        text: its error.
        doubt: why it must not be repeated now; None if it may.
        heartbeats: of the node, which are known not to go on.
    """

    name: str
    limit: str
    text: str
    doubt: Refusal | None
    heartbeats: tuple[tuple[str, int], ...] = ()


def _again(death: Death, seen: Seen, automation: Automation, act: _Act) -> _Step:
    """Return the step after a job that failed: another one, or none any more."""
    if death.attempts >= ATTEMPTS:
        held = death.entered(Event.HOLD, seen.now, reason=act.text, limit=act.limit)
        return _Step(held, _stored_item(held))
    if death.again == 0.0:
        again = seen.now + PAUSE_S
        new = death.changed(seen.now, again=again, reason=act.text, limit=act.limit)
        return _Step(new, _stored_item(new))
    # After a clock that was set back, the wait is no longer than the pause.
    if 0 < death.again - seen.now <= PAUSE_S:
        return _Step(death, _stored_item(death))
    refusal = act.doubt or automation.stop()
    if refusal is not None:
        return _waits(death, seen.now, refusal)
    new = death.changed(
        seen.now,
        job=-1,
        attempts=death.attempts + 1,
        again=0.0,
        reason="",
        limit="",
        heartbeats=act.heartbeats,
    )
    job = _fence_job(new) if death.phase is Phase.FENCING else _mark_job(new)
    return _Step(new, _chosen(new, act.name), job)


def _offline(death: Death, view: NodeView, seen: Seen) -> _Step:
    if not view.offline:
        return _Step(None, _item(death, Decision.REFUSED, _NOT_OFFLINE, _RECOVER))
    if failed := seen.failed.get(death.node):
        text = (
            f"the repair of {messages.some(failed)} has failed; each is left alone"
            " until a person removes the tag of its result"
        )
        new = death.changed(seen.now, reason=text, limit=NOT_REPAIRED)
        item = _item(new, Decision.REFUSED, text, _RECOVER, NOT_REPAIRED)
        return _Step(new, item, recovers=True)
    death = death.changed(seen.now, reason="", limit="")
    if death.node in seen.recovered:
        text = "automatic repair has dealt with its instances"
        return _Step(None, _item(death, Decision.CHOSEN, text, _RECOVER))
    return _Step(
        death, _item(death, Decision.WAITING, _REPAIRS, _RECOVER), recovers=True
    )


def _held(death: Death, view: NodeView) -> _Step:
    if view.offline:
        return _Step(None, _item(death, Decision.REFUSED, "it was marked offline"))
    if view.answers:
        return _Step(None, _item(death, Decision.REFUSED, view.answers))
    return _Step(death, _stored_item(death))


def _liar(death: Death, view: NodeView, seen: Seen, automation: Automation) -> _Step:
    """Return the step of a node whose helper has lied.

    It is asked again, more and more rarely, while the node answers: then the node is
    on, and a helper that does not report "off" any more is mended.
    """
    if view.offline:
        return _Step(None, _item(death, Decision.REFUSED, "it was marked offline"))
    if view.helper != death.helper:
        return _Step(None, _item(death, Decision.REFUSED, "it has another helper"))
    ended = seen.facts.end_of(death.job)
    if death.job and ended is None:
        return _Step(death, _stored_item(death))
    if not seen.facts.is_probed:
        return _Step(death, _stored_item(death), wants_probe=death.job != 0)
    if ended is not None and ended.is_success and not ended.is_off and view.answers:
        text = f'the helper {death.helper} does not report "off" any more'
        return _Step(None, _item(death, Decision.CHOSEN, text, _TRUST))
    if ended is not None or death.again == 0.0:
        pause_s = min(_LIAR_S * 2**death.attempts, HOUR_S)
        more = {"again": seen.now + pause_s, "job": 0, "jobs": death.jobs[-_MAX_JOBS:]}
        attempts = min(death.attempts + 1, _MAX_JOBS)
        new = death.changed(seen.now, attempts=attempts, **more)
        return _Step(new, _stored_item(new))
    # After a clock that was set back, the wait is no longer than the longest pause.
    is_early = 0 < death.again - seen.now <= HOUR_S
    if is_early or not view.answers or automation.stop() is not None:
        return _Step(death, _stored_item(death))
    new = death.changed(seen.now, job=-1)
    item = _item(new, Decision.CHOSEN, death.reason, _ASK)
    return _Step(new, msgspec.structs.replace(item, jobs=(0,)), _ask_job(new))


def _waits(death: Death, now: float, refusal: Refusal) -> _Step:
    new = death.changed(now, reason=refusal.text, limit=refusal.limit)
    return _Step(new, _stored_item(new))


def notice(death: Death) -> str:
    """Return a sentence about the death of a node, for people."""
    text = f"node {death.name} does not answer and is {death.phase}"
    if death.limit:
        return f"{text}; nothing is done ({death.limit}): {death.reason}"
    return text


# Journal
def _stored_item(death: Death) -> Item:
    decision = Decision.REFUSED if death.limit else Decision.WAITING
    return _item(death, decision, death.reason or _ASKED, limit=death.limit)


def _chosen(death: Death, action: str) -> Item:
    why = ", ".join(death.witnesses)
    item = _item(death, Decision.CHOSEN, f"silent for: {why}", action)
    return msgspec.structs.replace(item, jobs=(0,))


def _item(
    death: Death, decision: Decision, reason: str, action: str = "", limit: str = ""
) -> Item:
    return Item(
        kind=journal.NODE,
        name=death.name,
        decision=decision,
        action=action or (_RELEASE if death.phase is Phase.FENCED else _FENCE),
        reason=reason,
        limit=limit,
    )


# Jobs
def _fence_job(death: Death) -> DeathJob:
    op = {
        "OP_ID": "OP_OOB_COMMAND",
        "node_names": [death.name],
        "command": "power-off",
        "ignore_status": True,
        "node_death": True,
    }
    return DeathJob(death.node, (op,))


def _ask_job(death: Death) -> DeathJob:
    op = {
        "OP_ID": "OP_OOB_COMMAND",
        "node_names": [death.name],
        "command": "power-status",
    }
    return DeathJob(death.node, (op,))


def _mark_job(death: Death) -> DeathJob:
    op = {
        "OP_ID": "OP_NODE_SET_PARAMS",
        "node_name": death.name,
        "offline": True,
        "powered": False,
        # A master candidate among the dead nodes is replaced by another node.
        "auto_promote": True,
        "node_death": True,
    }
    return DeathJob(death.node, (op,))
