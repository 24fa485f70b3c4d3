"""The present limits of automatons: settings, a freeze, and the moves under way."""

from typing import Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.daemons.masterd.deps import MasterDeps
from ganeti.decisions.repair import limits
from ganeti.decisions.repair.journal import Decision, Selection
from ganeti.decisions.repair.limits import Automation, Freeze

_OWNER: Final = "automation"
#: Seconds that a move may take; one that an older entry names has ended.
_MOVE_S: Final = 86400.0
_MOVES: Final = b'"moves":true'
_REFUSED: Final = f'"limit":"{limits.MOVED_SHARE}"'.encode()


def load(deps: MasterDeps) -> Automation:
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
            if item.moves and any(_is_unfinished(deps, job) for job in item.jobs):
                names[item.name] = None
    return tuple(names)


def _is_unfinished(deps: MasterDeps, job_id: int) -> bool:
    job = deps.queue.job(job_id)
    return job is not None and not job.is_final


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
