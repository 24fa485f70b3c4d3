"""Records about deaths of nodes: what is seen of a node, and what is remembered. Pure.

`ganeti.decisions.repair.node_death` decides with them.
"""

import enum
from collections.abc import Mapping
from typing import Any, Final, Self

import msgspec

from ganeti.decisions.repair.limits import Automation


class Phase(enum.StrEnum):
    """Progress of the death of a node."""

    #: It does not answer.
    SUSPECTED = "suspected"
    #: A job switches it off.
    FENCING = "fencing"
    #: It is off; a job marks it offline.
    FENCED = "fenced"
    #: It is marked offline, and its instances are repaired.
    OFFLINE = "offline"
    #: Nothing more is done until a person steps in.
    HELD = "held"


class Event(enum.Enum):
    """The reason of a new phase."""

    FENCE = enum.auto()
    CONFIRM = enum.auto()
    MARK = enum.auto()
    HOLD = enum.auto()


_NEXT: Final[Mapping[tuple[Phase, Event], Phase]] = {
    (Phase.SUSPECTED, Event.FENCE): Phase.FENCING,
    (Phase.FENCING, Event.CONFIRM): Phase.FENCED,
    (Phase.FENCING, Event.HOLD): Phase.HELD,
    (Phase.FENCED, Event.MARK): Phase.OFFLINE,
    (Phase.FENCED, Event.HOLD): Phase.HELD,
}


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """A node that does not answer, and what was done about it.

    Attributes:
        node: UUID.
        name: of the node.
        phase: progress.
        since: begin of the silence, seconds since 1970.
        witnesses: who has found it silent.
        helper: out-of-band helper that was used.
        jobs: all jobs about it, in order.
        job: the one under way; 0 for none, -1 for one that the commit submits.
        attempts: jobs of the present phase.
        again: when a failed job is repeated, seconds since 1970; 0 if none has failed.
        reason: why nothing is done at the moment; empty if something is.
        limit: name of the limit or rule that is the reason.
        mtime: last change, seconds since 1970.
        heartbeats: run and number of its heartbeats that were known, and did not go
            on, when the job that marks it was submitted.
    """

    node: str
    name: str
    phase: Phase = Phase.SUSPECTED
    since: float = 0.0
    witnesses: tuple[str, ...] = ()
    helper: str = ""
    jobs: tuple[int, ...] = ()
    job: int = 0
    attempts: int = 0
    again: float = 0.0
    reason: str = ""
    limit: str = ""
    mtime: float = 0.0
    heartbeats: tuple[tuple[str, int], ...] = ()

    def entered(self, event: Event, now: float, **changes: Any) -> Self:
        """Return it in the phase that an event leads to; data of the old one is gone.

        Raises:
            ValueError: the event cannot occur in the present phase.
        """
        phase = _NEXT.get((self.phase, event))
        if phase is None:
            raise ValueError(f"node {self.name}: {event.name} while {self.phase}")
        cleared = {"job": 0, "attempts": 0, "again": 0.0, "reason": "", "limit": ""}
        return self.changed(now, phase=phase, **{**cleared, **changes})

    def changed(self, now: float, **changes: Any) -> Self:
        """Return it with changes; the same object if nothing changes."""
        if all(getattr(self, name) == value for name, value in changes.items()):
            return self
        return msgspec.structs.replace(self, mtime=now, **changes)

    def with_job(self, job: int) -> Self:
        """Return it with the id of the job that its commit submitted."""
        return msgspec.structs.replace(self, job=job, jobs=(*self.jobs, job))


class DeathState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is remembered about deaths of nodes.

    Attributes:
        serial_no: number of changes; a change names the serial that it is based on.
        deaths: in the order of the first suspicion.
        fenced: time and name of nodes that were fenced within the last hour.
        mass_event: last time that too many nodes vanished at once; None after the quiet
            time.
        marked: UUIDs of nodes that were recorded as offline and off, since they died.
        is_given_up: a person has switched this off since; the next round forgets all.
    """

    serial_no: int = 1
    deaths: tuple[Death, ...] = ()
    fenced: tuple[tuple[float, str], ...] = ()
    mass_event: float | None = None
    marked: tuple[str, ...] = ()
    is_given_up: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is remembered."""
        is_quiet = not self.fenced and self.mass_event is None
        return not self.deaths and is_quiet and not self.marked


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node that is silent, or whose death is being handled.

    Attributes:
        uuid, name: of the node.
        offline, drained: its flags.
        helper: its out-of-band helper; empty without one.
        incident: UUID of an open incident of maintenance; empty without one.
        daemon, ssh: whether its daemon and SSH server answer the master; None if they
            were not asked.
        asked: names of master candidates that answered a question about it.
        reached_by: names of those that it answers.
        heartbeats: run and number of its heartbeats that were found on shared storage.
    """

    uuid: str
    name: str
    offline: bool = False
    drained: bool = False
    helper: str = ""
    incident: str = ""
    daemon: bool | None = None
    ssh: bool | None = None
    asked: tuple[str, ...] = ()
    reached_by: tuple[str, ...] = ()
    heartbeats: tuple[tuple[str, int], ...] = ()

    @property
    def is_silent(self) -> bool:
        """Whether both of its servers were asked and did not answer the master."""
        return self.daemon is False and self.ssh is False

    @property
    def answers(self) -> str:
        """The sign of life of the node as a text; empty without one."""
        if self.daemon:
            return "its node daemon answers"
        if self.ssh:
            return "its SSH server answers, or its kernel refuses connections to it"
        if self.reached_by:
            return f"it answers {', '.join(self.reached_by)}"
        return ""

    @property
    def witnesses(self) -> tuple[str, ...]:
        """Who has found it silent."""
        own = ("node daemon from the master", "SSH server from the master")
        others = [name for name in self.asked if name not in self.reached_by]
        return (*own, *others) if self.is_silent else ()


class MarkedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that an automaton has recorded as offline and off, and that still is.

    Attributes:
        uuid, name: of the node.
        answers: whether its node daemon was asked and answered.
    """

    uuid: str
    name: str
    answers: bool = False


class JobSeen(msgspec.Struct, frozen=True):
    """A job that has ended.

    Attributes:
        job: its id.
        is_success: it succeeded.
        is_off: it asked a helper, which reported that the machine is off.
        text: its error.
    """

    job: int
    is_success: bool
    is_off: bool = False
    text: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of the master daemon for one round.

    Attributes:
        is_enabled: the cluster wants deaths of nodes handled.
        is_probed: nodes were asked.
        state: what is remembered.
        nodes: those that are silent or in the state.
        watched: number of nodes that are not offline, without the master.
        candidates: number of master candidates, the master among them.
        answered: how many of them answered, the master among them.
        ended: the current jobs of the state that have ended.
        automation: limits of automatons.
        has_heartbeats: nodes write heartbeats to shared storage.
        marked: those of the state whose records have not been changed since.
    """

    is_enabled: bool
    is_probed: bool
    state: DeathState
    nodes: tuple[NodeView, ...] = ()
    watched: int = 0
    candidates: int = 1
    answered: int = 0
    ended: tuple[JobSeen, ...] = ()
    automation: Automation = Automation()
    has_heartbeats: bool = False
    marked: tuple[MarkedNode, ...] = ()

    def end_of(self, job: int) -> JobSeen | None:
        """Return the end of a job; None if it has not ended."""
        return next((end for end in self.ended if end.job == job), None)

    @property
    def has_majority(self) -> bool:
        """Whether a majority of the master candidates answered."""
        return self.answered * 2 > self.candidates


class DeathJob(msgspec.Struct, frozen=True):
    """A job about a node."""

    node: str
    ops: tuple[dict[str, Any], ...]
