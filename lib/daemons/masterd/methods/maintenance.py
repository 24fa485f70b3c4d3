"""LUXI methods of the maintenance daemon, and of people who answer its incidents."""

from typing import Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.daemons.masterd.deps import MasterDeps
from ganeti.daemons.masterd.maintenance_state import RoundJob
from ganeti.daemons.masterd.methods.calls import Later, method
from ganeti.decisions.repair.incidents import MaintenanceState
from ganeti.decisions.repair.journal import Round

#: The request that waits for a commit, as the subject of a sentence.
_CHANGE: Final = "The change of the maintenance state"


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
    return Later(future, msgspec.to_builtins, committing=_CHANGE)


@method("CancelIncident")
def cancel_incident(deps: MasterDeps, uuid: str) -> Later:
    """Have nothing more done about an incident; an addition to Ganeti."""
    future = deps.slow.submit(deps.maintenance.edit, deps.queue, uuid, cancel=True)
    return Later(future, committing=_CHANGE)


@method("RemoveIncident")
def remove_incident(deps: MasterDeps, uuid: str) -> Later:
    """Forget an incident at once; an addition to Ganeti."""
    future = deps.slow.submit(deps.maintenance.edit, deps.queue, uuid, cancel=False)
    return Later(future, committing=_CHANGE)
