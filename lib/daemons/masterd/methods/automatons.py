"""LUXI methods of automatons and of the readers of their decision journal."""

from typing import Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.daemons.masterd.deps import MasterDeps
from ganeti.daemons.masterd.maintenance_state import RoundJob
from ganeti.daemons.masterd.methods.calls import Later, method
from ganeti.decisions.repair import limits
from ganeti.decisions.repair.incidents import MaintenanceState
from ganeti.decisions.repair.journal import Decision, Entry, Round, Selection
from ganeti.decisions.repair.limits import Automation, Freeze
from ganeti.model import objects

_OWNER: Final = "automation"
#: Seconds that a move may take; one that an older entry names has ended.
_MOVE_S: Final = 86400.0
_MOVES: Final = b'"moves":true'
_REFUSED: Final = f'"limit":"{limits.MOVED_SHARE}"'.encode()


def load_limits(deps: MasterDeps) -> Automation:
    """Return the limits as they are now.

    The journal is read only as far as a limit needs it.
    """
    snapshot = deps.config.snapshot()
    cluster, now = snapshot.cluster, deps.clock.time()
    freeze = None
    if cluster.automation_freeze:
        freeze = Freeze(
            str(cluster.automation_freeze.get("reason", "")),
            float(cluster.automation_freeze.get("time", 0.0)),
        )
    settings = dict(cluster.automation_limits)
    is_limited = limits.MOVED_SHARE in settings
    deaths = deps.config.node_deaths.state()
    events = [
        _mass_event(deps, now, settings.get(limits.QUIET_TIME, 0.0)),
        deaths.mass_event,
    ]
    return Automation(
        revision=snapshot.revision,
        limits=settings,
        freeze=freeze,
        instances=len(snapshot.instances),
        moving=_moving(deps, now) if is_limited else (),
        mass_event=max((when for when in events if when is not None), default=None),
        fenced=tuple(when for when, _name in deaths.fenced),
        node_death=cluster.node_death,
    )


def _moving(deps: MasterDeps, now: float) -> tuple[str, ...]:
    """Return the instances that unfinished jobs of automatons move."""
    names: dict[str, None] = {}
    recent = Selection(since=now - _MOVE_S)
    for entry in deps.journal.entries(recent, with_text=_MOVES):
        for item in entry.items:
            known = filter(None, map(deps.queue.job, item.jobs))
            if item.moves and any(not job.is_final for job in known):
                names[item.name] = None
    return tuple(names)


def _mass_event(deps: MasterDeps, now: float, quiet_s: float) -> float | None:
    """Return when the limit of moves last refused one, within the quiet time."""
    if quiet_s <= 0:
        return None
    recent = Selection(since=now - quiet_s)
    return max(
        (
            entry.last
            for entry in deps.journal.entries(recent, with_text=_REFUSED)
            if any(
                item.limit == limits.MOVED_SHARE and item.decision is Decision.REFUSED
                for item in entry.items
            )
        ),
        default=None,
    )


def freeze(deps: MasterDeps, reason: str) -> None:
    """Let no automaton act.

    Raises:
        OpPrereqError: the reason is too long.
    """
    if len(reason) > limits.MAX_REASON:
        raise errors.OpPrereqError(
            f"freeze: wanted a reason of at most {limits.MAX_REASON} characters, found"
            f" {len(reason)}",
            ecodes.ECODE_INVAL,
        )
    since = deps.clock.time()
    with deps.config.edit(_OWNER) as edit:
        edit.update_cluster(automation_freeze={"reason": reason, "time": since})


def thaw(deps: MasterDeps) -> None:
    """Let automatons act again."""
    with deps.config.edit(_OWNER) as edit:
        edit.update_cluster(automation_freeze={})


#: Requests that wait for a commit, as the subjects of sentences.
_MAINTENANCE_CHANGE: Final = "The change of the maintenance state"
_CHANGE: Final = "The entry of the journal"
_FREEZE: Final = "The change of the freeze"


@method("QueryMaintenance")
def query_maintenance(deps: MasterDeps) -> Later:
    """Return the state of the maintenance daemon; an addition to Ganeti."""
    return Later(deps.slow.submit(deps.maintenance.state), msgspec.to_builtins)


@method("ChangeMaintenance")
def change_maintenance(
    deps: MasterDeps,
    serial: int,
    state: MaintenanceState,
    jobs: list[RoundJob],
    entry: Round | None = None,
) -> Later:
    """Store the result of a round and submit its jobs; an addition to Ganeti."""
    if jobs and deps.config.snapshot().cluster.automation_freeze:
        # The round began before the freeze.
        raise errors.OpPrereqError(
            "automation is frozen, so the jobs of the round are not accepted",
            ecodes.ECODE_STATE,
        )
    future = deps.slow.submit(
        deps.maintenance.change, deps.queue, serial, state, jobs, entry
    )
    return Later(future, msgspec.to_builtins, committing=_MAINTENANCE_CHANGE)


@method("CancelIncident")
def cancel_incident(deps: MasterDeps, uuid: str) -> Later:
    """Have nothing more done about an incident; an addition to Ganeti."""
    future = deps.slow.submit(deps.maintenance.edit, deps.queue, uuid, cancel=True)
    return Later(future, committing=_MAINTENANCE_CHANGE)


@method("RemoveIncident")
def remove_incident(deps: MasterDeps, uuid: str) -> Later:
    """Forget an incident at once; an addition to Ganeti."""
    future = deps.slow.submit(deps.maintenance.edit, deps.queue, uuid, cancel=False)
    return Later(future, committing=_MAINTENANCE_CHANGE)


@method("QueryAutomation")
def query_automation(deps: MasterDeps) -> Later:
    """Return what a round begins with; an addition to Ganeti."""
    return Later(deps.slow.submit(load_limits, deps), msgspec.to_builtins)


@method("FreezeAutomation")
def freeze_automation(deps: MasterDeps, reason: str) -> Later:
    """Let no automaton act until it is thawed; an addition to Ganeti."""
    return Later(deps.slow.submit(freeze, deps, reason), committing=_FREEZE)


@method("ThawAutomation")
def thaw_automation(deps: MasterDeps) -> Later:
    """Let automatons act again; an addition to Ganeti."""
    return Later(deps.slow.submit(thaw, deps), committing=_FREEZE)


@method("RecordRound")
def record_round(deps: MasterDeps, entry: Round) -> Later:
    """Add a round to the journal and return its number; an addition to Ganeti."""
    return Later(deps.slow.submit(deps.journal.record, entry), committing=_CHANGE)


@method("QueryJournal")
def query_journal(deps: MasterDeps, selection: Selection) -> Later:
    """Return entries of the journal, the oldest first; an addition to Ganeti."""
    named = _by_name(deps.config.snapshot(), selection)

    def entries() -> list[Entry]:
        return deps.journal.entries(named)

    return Later(deps.slow.submit(entries), msgspec.to_builtins, can_cancel=True)


def _by_name(snapshot: objects.Snapshot, selection: Selection) -> Selection:
    """Return a selection with names, which entries have, in place of UUIDs."""
    node, instance = selection.node, selection.instance
    if node is not None and node in snapshot.nodes:
        node = snapshot.nodes[node].name
    if instance is not None and instance in snapshot.instances:
        instance = snapshot.instances[instance].name
    return msgspec.structs.replace(selection, node=node, instance=instance)
