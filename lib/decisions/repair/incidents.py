"""Incidents: faults that nodes report about themselves, and what was done about them.

Records and their states; see the design document of the maintenance daemon. An incident
leaves the states `IncidentState.NOTED` and `PENDING` only through `Incident.entered`.
Pure.
"""

import enum
from collections.abc import Mapping
from typing import Any, Final, Self

import msgspec

READY_PREFIX: Final = "maintd:repairready:"
FAILED_PREFIX: Final = "maintd:repairfailed:"
#: Nodes of one group whose evacuation may begin within an hour.
EVACUATIONS_PER_HOUR: Final = 2
#: Seconds after a job that could not set its tag until the next one.
TAG_PAUSE_S: Final = 600


class Action(enum.StrEnum):
    """Need of a node, as on the wire; later ones are more severe."""

    OK = "Ok"
    LIVE_REPAIR = "live-repair"
    EVACUATE = "evacuate"
    EVACUATE_FAILOVER = "evacuate-failover"


SEVERITY: Final = {action: place for place, action in enumerate(Action)}


class IncidentState(enum.StrEnum):
    """Progress of an incident, as on the wire."""

    NOTED = "noted"
    PENDING = "pending"
    CANCELED = "canceled"
    FAILED = "failed"
    COMPLETED = "completed"

    @property
    def is_final(self) -> bool:
        """Whether nothing more is done about the incident."""
        return self not in (IncidentState.NOTED, IncidentState.PENDING)


_NEXT: Final = {
    IncidentState.NOTED: frozenset(IncidentState) - {IncidentState.NOTED},
    IncidentState.PENDING: frozenset(
        {IncidentState.CANCELED, IncidentState.FAILED, IncidentState.COMPLETED}
    ),
    IncidentState.CANCELED: frozenset[IncidentState](),
    IncidentState.FAILED: frozenset[IncidentState](),
    # The job that sets the tag can fail.
    IncidentState.COMPLETED: frozenset({IncidentState.FAILED}),
}


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """One fault of one node.

    Attributes:
        uuid: of the incident.
        node: UUID of the node that reported it.
        original: the reported object, unchanged.
        action: what it asks for.
        state: progress.
        jobs: all jobs about it, in order.
        tag: that the node has, or will have after a success.
        tag_job: the job that sets the tag; 0 while there is none.
        tag_time: when the next job for the tag may be submitted, seconds since 1970.
        note: why nothing is done at the moment, or why it failed.
        is_observed: whether the node still reported it when last asked.
        ctime, mtime: creation and last change, seconds since 1970.
        serial_no: number of changes.
    """

    uuid: str
    node: str
    original: Any
    action: Action
    state: IncidentState = IncidentState.NOTED
    jobs: tuple[int, ...] = ()
    tag: str = ""
    tag_job: int = 0
    tag_time: float = 0.0
    note: str = ""
    is_observed: bool = True
    ctime: float = 0.0
    mtime: float = 0.0
    serial_no: int = 1

    def changed(self, now: float, **changes: Any) -> Self:
        """Return it with changes; the same object if nothing changes."""
        if all(getattr(self, name) == value for name, value in changes.items()):
            return self
        serial = self.serial_no + 1
        return msgspec.structs.replace(self, mtime=now, serial_no=serial, **changes)

    def entered(self, state: IncidentState, now: float, note: str = "") -> Self:
        """Return it in another state.

        Raises:
            ValueError: this state does not follow the present one.
        """
        if state not in _NEXT[self.state]:
            raise ValueError(f"incident {self.uuid}: {self.state} to {state}")
        return self.changed(now, state=state, note=note)


class MaintenanceState(msgspec.Struct, frozen=True, kw_only=True):
    """State of the maintenance daemon between two rounds.

    Attributes:
        serial_no: number of changes; a change must name the serial that it is based on.
        jobs: of the last round.
        evacuated: names of instances that were moved off nodes and whose load is not
            known yet.
        incidents: newest first.
        evacuations: time and group of evacuations that began within the last hour.
        ctime, mtime: creation and last change, seconds since 1970.
    """

    serial_no: int = 1
    jobs: tuple[int, ...] = ()
    evacuated: tuple[str, ...] = ()
    incidents: tuple[Incident, ...] = ()
    evacuations: tuple[tuple[float, str], ...] = ()
    ctime: float = 0.0
    mtime: float = 0.0


def as_reported(incident: Incident) -> dict[str, Any]:
    """Return the form of an incident for readers of the status."""
    return {
        "id": incident.uuid,
        "uuid": incident.uuid,
        "node": incident.node,
        "original": incident.original,
        "action": incident.action.value,
        "repair-status": incident.state.value,
        "jobs": list(incident.jobs),
        "tag": incident.tag,
        "note": incident.note,
        "ctime": incident.ctime,
        "mtime": incident.mtime,
        "serial_no": incident.serial_no,
    }


def as_listed(
    state: MaintenanceState, names: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the incidents for readers, with ``node_name`` from names by UUID.

    A removed node stays known by its UUID until the next round; it has no name.
    """
    return [
        {**as_reported(item), "node_name": names.get(item.node)}
        for item in state.incidents
    ]
