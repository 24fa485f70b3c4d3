"""Facts about the cluster at one moment, and a finding made of them. Pure records."""

import enum
from collections.abc import Mapping

import msgspec


class Severity(enum.StrEnum):
    """Weight of a finding; the last one is the worst."""

    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def exit_code(self) -> int:
        """The exit status of a command that reports it, as monitoring plugins have."""
        return list(Severity).index(self)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it should be.

    Attributes:
        severity: never OK.
        kind: cluster, node, instance, job, certificate or capacity.
        object: its name; the path of a file; the number of a job.
        text: what is wrong with it.
        command: what to do next, or where to look; may be empty.
    """

    severity: Severity
    kind: str
    object: str
    text: str
    command: str = ""


class NodeFact(msgspec.Struct, frozen=True, kw_only=True):
    """A node.

    Attributes:
        name: of the node.
        offline, drained, is_candidate, powered: its flags.
        problem: why it gave no answer; empty if it gave one or was not asked.
        is_silent: no answer came.
        is_refusing: it does not accept the certificate of the master.
        release: that its daemon has.
        wanted: names of the instances that should run there, sorted.
        certificates: file name -> seconds left.
        memory_total, memory_free: in MiB.
        cpus: number.
    """

    name: str
    offline: bool = False
    drained: bool = False
    is_candidate: bool = False
    powered: bool = True
    problem: str = ""
    is_silent: bool = False
    is_refusing: bool = False
    release: str = ""
    wanted: tuple[str, ...] = ()
    certificates: Mapping[str, float] = {}
    memory_total: int = 0
    memory_free: int = 0
    cpus: int = 0


class CopyFact(msgspec.Struct, frozen=True, kw_only=True):
    """The copy of configuration and jobs of another master candidate.

    Attributes:
        name: of the node.
        is_current: it has the newest changes.
        lag: revisions that it lacks.
        trouble: why.
        wants_restart: only a restart of the master daemon mends it.
    """

    name: str
    is_current: bool = True
    lag: int = 0
    trouble: str = ""
    wants_restart: bool = False


class GuestFact(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that is not as wanted.

    Attributes:
        name: of the instance.
        node: name of its primary node.
        status: the word of listings.
        wanted: its wanted state.
        job: unfinished job about it; 0 for none.
    """

    name: str
    node: str
    status: str
    wanted: str
    job: int = 0


class JobFact(msgspec.Struct, frozen=True, kw_only=True):
    """A job that runs, or has failed.

    Attributes:
        id: its number.
        summary: of its opcodes.
        time: when it began, or ended, seconds since 1970.
        error: of a failed one.
    """

    id: int
    summary: str
    time: float
    error: str = ""


class DeathFact(msgspec.Struct, frozen=True, kw_only=True):
    """A node that does not answer, and about which automation decides.

    Attributes:
        name: of the node.
        text: a sentence about it.
        is_handled: it is off, and its instances are started elsewhere.
    """

    name: str
    text: str
    is_handled: bool = False


class IncidentFact(msgspec.Struct, frozen=True, kw_only=True):
    """An open incident of maintenance.

    Attributes:
        uuid: of the incident.
        node: name.
        text: the state, and what is asked for.
    """

    uuid: str
    node: str
    text: str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that the master knows.

    Attributes:
        now: seconds since 1970.
        cluster, master, release, term, store, policy: of the master.
        revision: of the configuration.
        stall: why changes are refused or wait; empty if they do not.
        exposure: why changes may be lost; empty if they are safe.
        candidates_missing: number of master candidates that are too few.
        copies: of the other candidates.
        nodes: all, by name.
        instances: status -> number.
        guests: those that are not as wanted.
        jobs: state -> number of unfinished jobs.
        running: jobs under way, the newest last.
        failures: number of jobs that failed within the last hour.
        failed: the newest of these, the newest last.
        is_drained: the queue takes no jobs.
        watcher_pause: end of the pause; None without one.
        freeze: reason and beginning of the freeze of automation; None without one.
        incidents, deaths: open ones.
        certificates: path on the master -> seconds left, or why it is unreadable.
        shortages: node -> why it cannot take over the guests of another one.
        memory_promised: MiB of the instances that should run.
        vcpus_promised: of the same.
    """

    now: float
    cluster: str
    master: str
    release: str
    term: str = ""
    revision: int = 0
    store: str = ""
    policy: str = ""
    stall: str = ""
    exposure: str = ""
    candidates_missing: int = 0
    copies: tuple[CopyFact, ...] = ()
    nodes: tuple[NodeFact, ...] = ()
    instances: Mapping[str, int] = {}
    guests: tuple[GuestFact, ...] = ()
    jobs: Mapping[str, int] = {}
    running: tuple[JobFact, ...] = ()
    failures: int = 0
    failed: tuple[JobFact, ...] = ()
    is_drained: bool = False
    watcher_pause: float | None = None
    freeze: tuple[str, float] | None = None
    incidents: tuple[IncidentFact, ...] = ()
    deaths: tuple[DeathFact, ...] = ()
    certificates: Mapping[str, float | str] = {}
    shortages: tuple[tuple[str, str], ...] = ()
    memory_promised: int = 0
    vcpus_promised: int = 0
