"""Watch over the lives of nodes: rounds over LUXI; see `repair.node_death`.

The master daemon looks for the nodes and keeps the state; the decision is pure. Only
how long a node has been silent is measured here: a new process begins again, which
delays a fence and never hastens one.
"""

import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from ganeti.automation.maintenance.instances import Recovery
from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants import jobqueue
from ganeti.decisions.repair import journal, node_death
from ganeti.decisions.repair.journal import JobEnd, Round
from ganeti.decisions.repair.node_death import Plan, Seen, Silence
from ganeti.decisions.repair.node_lives import (
    DeathJob,
    DeathState,
    Facts,
    NodeView,
    Phase,
)

_log = logging.getLogger(__name__)

#: Seconds between two probes of all nodes. A probe costs the master about 0.2 ms per
#: node, so more nodes are probed less often: within 1 % of a core for 200 nodes.
_PROBE_S: Final = 3.0
_PER_NODE_S: Final = 0.03
#: The same while a suspicion may soon be long enough to fence a node.
_SUSPECT_S: Final = 0.5
#: Seconds between two looks at jobs under way.
_JOB_S: Final = 0.3
#: Seconds between two looks at the switch while it is off, and after an error.
_OFF_S: Final = 10.0
_ERROR_S: Final = 3.0
#: Seconds until the repairs of a node are looked at again, after the second look: they
#: wait for room or for a limit, and each look reads the whole cluster.
_FIRST_LOOK_S: Final = 0.3
_LONGEST_LOOK_S: Final = 30.0
#: Most runs of heartbeats of a node that are remembered.
_MAX_RUNS: Final = 8
_UNKNOWN: Final = "unknown method"

#: Calls a method of the master daemon.
Call = Callable[[str, Sequence[Any]], Any]
#: Does the next step of the repairs of the instances of a node that died at a time.
Repair = Callable[[str, float], Recovery]


class Heartbeats:
    """Notices whether heartbeats of silent nodes go on.

    A heartbeat that is seen first may be old, and a run that is new may be a copy of an
    old file, so only a larger number of a known run counts.
    """

    def __init__(self) -> None:
        #: Node UUID -> run -> largest number.
        self._largest: dict[str, dict[str, int]] = {}
        #: Node UUID -> time at which a number had grown.
        self._grown: dict[str, float] = {}

    def add(self, views: Sequence[NodeView], now: float) -> None:
        """Take the heartbeats that a probe found; forget nodes that it did not name."""
        present = {view.uuid for view in views}
        self._largest = {u: v for u, v in self._largest.items() if u in present}
        self._grown = {u: v for u, v in self._grown.items() if u in present}
        for view in views:
            known = self._largest.setdefault(view.uuid, {})
            for run, number in view.heartbeats:
                if number > known.get(run, number):
                    self._grown[view.uuid] = now
                known[run] = max(number, known.pop(run, number))
            for run in list(known)[:-_MAX_RUNS]:
                del known[run]

    def ages_s(self, now: float) -> dict[str, float]:
        """Return for each node the seconds since its heartbeat was seen to go on."""
        return {node: now - when for node, when in self._grown.items()}


class NodeDeaths:
    """Plays rounds."""

    def __init__(self, call: Call, repair: Repair, clock: Clock) -> None:
        """Prepare.

        Args:
            call: calls the master daemon.
            repair: repairs the instances of an offline node, by name.
            clock: measures time.
        """
        self._call = call
        self._repair = repair
        self._clock = clock
        self._is_ending = threading.Event()
        self._probed = 0.0
        self._interval_s = _PROBE_S
        self._wants_probe = True
        #: UUID of a silent node -> probes without an answer, and time of the first one.
        self._silent: dict[str, tuple[int, float]] = {}
        self._beats = Heartbeats()
        self._recovered: frozenset[str] = frozenset()
        #: UUID of a node -> names of its instances whose repair has failed.
        self._failed_repairs: dict[str, tuple[str, ...]] = {}
        #: Time of a remembered event -> when this process saw it first.
        self._known: dict[float, float] = {}
        #: UUID of a node with repairs under way -> time of the next look, and the pause
        #: before it.
        self._looks: dict[str, tuple[float, float]] = {}
        self._shown: dict[str, str] = {}
        self._last_error = ""

    def live(self) -> None:
        """Play rounds until `stop`."""
        wait_s = 0.0
        while not self._clock.wait(self._is_ending, wait_s):
            try:
                wait_s = self.round()
                self._last_error = ""
            except (errors.GenericError, OSError, ValueError) as err:
                wait_s = self._failed(str(err))
            except Exception:  # noqa: BLE001 - logged, and the daemon goes on
                _log.exception("deaths of nodes: this round failed")
                wait_s = _ERROR_S

    def stop(self) -> None:
        """End `live` after the present round."""
        self._is_ending.set()

    def _failed(self, text: str) -> float:
        """Log an error once; return the seconds until the next round."""
        if text != self._last_error:
            _log.warning("deaths of nodes: this round ended early: %s", text)
        self._last_error = text
        # A round that did not end says nothing about the time in which nodes were
        # silent.
        self._silent = {}
        return _OFF_S if _UNKNOWN in text else _ERROR_S

    def round(self) -> float:
        """Play one round; return the seconds until the next one.

        Raises:
            GenericError: the master daemon does not answer, or refuses.
        """
        facts = self._look()
        if not facts.is_enabled and facts.state.is_empty:
            self._silent = {}
            # Beats seen before the next switch prove nothing after it.
            self._beats = Heartbeats()
            self._wants_probe = True
            return _OFF_S
        state = facts.state
        seen = Seen(
            self._clock.time(),
            facts,
            self._silences(),
            self._recovered,
            self._known_s(state),
            self._beats.ages_s(self._clock.monotonic()),
            self._failed_repairs,
        )
        plan = node_death.decide(state, seen)
        self._show(plan)
        if plan.state != state or plan.jobs or plan.items:
            self._commit(state, plan, facts)
        self._recover(plan)
        self._wants_probe = plan.wants_probe
        return self._pause(plan.state, facts)

    def _look(self) -> Facts:
        """Ask the master daemon, with a probe if one is due."""
        wants = self._wants_probe or self._clock.monotonic() >= self._next_probe()
        answer = self._call("QueryNodeDeaths", [wants])
        try:
            facts = msgspec.convert(answer, Facts)
        except msgspec.ValidationError as err:
            raise errors.ProtocolError(f"QueryNodeDeaths: {err}") from err
        if facts.is_probed:
            self._probed = self._clock.monotonic()
            self._silent = {
                view.uuid: self._longer(view.uuid)
                for view in facts.nodes
                if view.is_silent
            }
            self._beats.add(facts.nodes, self._probed)
            self._interval_s = max(_PROBE_S, facts.watched * _PER_NODE_S)
        return facts

    def _next_probe(self) -> float:
        is_fresh = not all(silence.is_long for silence in self._silences().values())
        return self._probed + (_SUSPECT_S if is_fresh else self._interval_s)

    def _silences(self) -> dict[str, Silence]:
        return {
            node: Silence(count, self._probed - first)
            for node, (count, first) in self._silent.items()
        }

    def _known_s(self, state: DeathState) -> dict[float, float]:
        """Return for how long this process has known each remembered event."""
        now = self._clock.monotonic()
        events = [when for when, _name in state.fenced]
        if state.mass_event is not None:
            events.append(state.mass_event)
        self._known = {when: self._known.get(when, now) for when in events}
        return {when: now - first for when, first in self._known.items()}

    def _longer(self, node: str) -> tuple[int, float]:
        count, first = self._silent.get(node, (0, self._probed))
        return count + 1, first

    def _pause(self, state: DeathState, facts: Facts) -> float:
        if not facts.is_enabled:
            return _OFF_S
        if self._wants_probe:
            return 0.0
        left_s = max(0.0, self._next_probe() - self._clock.monotonic())
        is_busy = any(
            death.job or (death.phase is Phase.OFFLINE and not death.limit)
            for death in state.deaths
        )
        if is_busy:
            return min(_JOB_S, left_s)
        return left_s

    def _commit(self, state: DeathState, plan: Plan, facts: Facts) -> None:
        number = str(uuid.uuid4())
        entry = Round(
            round=number,
            automaton=journal.NODE_DEATH,
            revision=facts.automation.revision,
            items=plan.items,
            results=_ends(facts) if plan.state != state else (),
        )
        if plan.state == state:
            self._call("RecordRound", [msgspec.to_builtins(entry)])
            return
        names = {death.node: death.name for death in plan.state.deaths}
        names |= {node.uuid: node.name for node in facts.marked}
        jobs = [self._explained(job, names[job.node], number) for job in plan.jobs]
        wanted = msgspec.to_builtins([plan.state, jobs, entry])
        self._call("ChangeNodeDeaths", [state.serial_no, *wanted])

    def _explained(self, job: DeathJob, name: str, number: str) -> DeathJob:
        """Return a job with its reason trail."""
        text = f"death of {name}"
        trail = journal.maintd_trail([text], number, self._clock.time())
        priority = jobqueue.OP_PRIO_HIGH
        ops = tuple({**op, "reason": trail, "priority": priority} for op in job.ops)
        return msgspec.structs.replace(job, ops=ops)

    def _recover(self, plan: Plan) -> None:
        """Repair the instances of nodes that are marked offline."""
        deaths = {death.node: death for death in plan.state.deaths}
        done = set(self._recovered) & set(plan.recover)
        now = self._clock.monotonic()
        looks = {node: self._looks.get(node, (now, 0.0)) for node in plan.recover}
        for node, (when, pause_s) in looks.items():
            is_over = node in done and not self._failed_repairs.get(node)
            if is_over or now < when:
                continue
            done.discard(node)
            recovery = self._repair(deaths[node].name, deaths[node].since)
            if recovery.pending == 0:
                done.add(node)
            self._failed_repairs[node] = recovery.failed
            longer_s = min(_LONGEST_LOOK_S, max(_FIRST_LOOK_S, 2 * pause_s))
            looks[node] = self._clock.monotonic() + longer_s, longer_s
        self._looks = looks
        self._failed_repairs = {
            node: names for node, names in self._failed_repairs.items() if node in looks
        }
        self._recovered = frozenset(done)

    def _show(self, plan: Plan) -> None:
        """Log a decision about a node when it changes."""
        shown = {}
        for item in plan.items:
            why = f": {item.reason}" if item.reason else ""
            text = f"{item.action}: {item.decision}{why}"
            shown[item.name] = text
            if self._shown.get(item.name) != text:
                _log.warning("node %s: %s", item.name, text)
        self._shown = shown


def _ends(facts: Facts) -> tuple[JobEnd, ...]:
    """Return the ends of jobs for the journal."""
    return tuple(
        JobEnd(
            job=end.job,
            status=jobqueue.JOB_STATUS_SUCCESS
            if end.is_success
            else jobqueue.JOB_STATUS_ERROR,
            error=end.text,
        )
        for end in facts.ended
    )
