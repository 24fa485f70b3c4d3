"""Events: what happened in a cluster, made of the changes that its store commits.

`Reader` makes the events of each change-set. An event says which object changed and
how; its values are those that lists of jobs and objects show, never parameters, so it
holds no secret. Who wants more reads the object. Pure; `ganeti.daemons.masterd.events`
keeps the events. Documented in doc/luxi.rst.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from ganeti.base import errors
from ganeti.base.constants.protocols.events import Kind
from ganeti.decisions.jobs import records
from ganeti.decisions.repair import journal
from ganeti.decisions.repair.incidents import MaintenanceState
from ganeti.decisions.repair.node_lives import DeathState, Phase
from ganeti.model.objects import Cluster, Node, Snapshot, Update

#: Documents of the state of the maintenance daemon, and of deaths of nodes.
INCIDENTS: Final = ("meta", "maintenance")
DEATHS: Final = ("meta", "node_deaths")
#: Opcodes of a job that an event lists, and characters of a log line.
_MAX_OPS: Final = 20
_MAX_TEXT: Final = 2000
_POSITION: Final = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})\.([0-9]{1,9})")
_OBJECTS: Final = {
    "cluster": "cluster",
    "nodes": "node",
    "nodegroups": "group",
    "instances": "instance",
    "disks": "disk",
    "networks": "network",
    "filters": "filter",
}


class Position(NamedTuple):
    """The place of an event in the order of all events of one master daemon.

    Attributes:
        term: number of the master's term.
        revision: of the configuration.
        number: among the events of this revision, from 1; 0 for the place before them.
    """

    term: int
    revision: int
    number: int

    def __str__(self) -> str:
        return f"{self.term}.{self.revision}.{self.number}"


def parse_position(text: str) -> Position:
    """Return the position of a text.

    Raises:
        ValueError: the text is none.
    """
    match = _POSITION.fullmatch(text)
    if match is None:
        raise ValueError(f"wanted a position such as 3.1201.2, found {text[:40]!r}")
    return Position(*map(int, match.groups()))


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event.

    Attributes:
        position: text of its `Position`, from which a reader goes on.
        revision: of the configuration.
        time: when the master saw the commit, seconds since 1970.
        kind: what it is about.
        object: kind of the object.
        name: of the object; the number of a job or an entry of the journal as text.
        uuid: of the object, empty if it has none.
        change: such as ``created``, or the new state.
        details: further values, by kind.
    """

    position: str
    revision: int
    time: float
    kind: Kind
    object: str
    name: str
    change: str
    uuid: str = ""
    details: dict[str, Any] = {}


class _Fact(NamedTuple):
    """An event without its place."""

    kind: Kind
    object: str
    name: str
    change: str
    uuid: str = ""
    details: dict[str, Any] = {}


class Reader:
    """Makes the events of consecutive change-sets; for use by one thread."""

    def __init__(
        self, snapshot: Snapshot, incidents: bytes | None, deaths: bytes | None
    ) -> None:
        """Begin with a state, whose documents may be older than the snapshot."""
        self._before = snapshot
        self._incidents = _decoded(incidents, MaintenanceState)
        self._deaths = _decoded(deaths, DeathState)
        #: Unfinished job -> states of its opcodes in the last event.
        self._jobs: dict[int, tuple[str, ...]] = {}

    def read(
        self, term: int, revision: int, changes: Iterable[Any], now: float
    ) -> list[Event]:
        """Return the events of the next change-set, in order.

        Args:
            term: number of the master's term.
            revision: of the change-set.
            changes: updates of records, and documents as (table, key, data or None).
            now: seconds since 1970.
        """
        listed = list(changes)
        updates = [each for each in listed if isinstance(each, Update)]
        facts: list[_Fact] = []
        for change in listed:
            facts += self._facts_of(change)
        if updates:
            self._before = self._before.apply(updates, revision=revision)
        return [
            Event(
                position=str(Position(term, revision, number)),
                revision=revision,
                time=now,
                **fact._asdict(),
            )
            for number, fact in enumerate(facts, 1)
        ]

    def _facts_of(self, change: Any) -> Iterator[_Fact]:
        if isinstance(change, Update):
            yield from self._of_record(change)
            return
        table, key, data = change
        try:
            if table == "jobs":
                yield from self._of_job(key, data)
            elif table == "meta":
                yield from self._of_state(key, data)
            elif table in _TABLES:
                yield from _TABLES[table](key, data)
        except (msgspec.DecodeError, errors.GenericError, ValueError):
            # Whoever reads the document will say so; other events go on.
            return

    # Records
    def _of_record(self, update: Update) -> Iterator[_Fact]:
        old: Any = self._before.table(update.table).get(update.key)
        new: Any = update.record
        known = new if new is not None else old
        if known is None:
            return
        change = "removed" if new is None else "created" if old is None else "changed"
        serial = getattr(known, "serial_no", None)
        yield _Fact(
            Kind.OBJECT,
            _OBJECTS[update.table],
            _name(known),
            change,
            known.uuid,
            {} if serial is None else {"serial_no": serial},
        )
        if isinstance(new, Cluster):
            yield from _of_freeze(old, new)

    # Jobs
    def _of_job(self, key: str, data: bytes | None) -> Iterator[_Fact]:
        number = int(key)
        if data is None:
            self._jobs.pop(number, None)
            yield _Fact(Kind.JOB, "job", key, "archived")
            return
        job = records.decode_job(data)
        states = tuple(str(op.status) for op in job.ops)
        if self._jobs.get(number) == states:
            return
        self._jobs[number] = states
        if job.is_final:
            del self._jobs[number]
        shown = job.ops[:_MAX_OPS]
        details = {
            "summary": [op.summary() for op in shown],
            "opstatus": list(states[:_MAX_OPS]),
            "opcodes": len(states),
        }
        yield _Fact(Kind.JOB, "job", key, str(job.status), details=details)

    # Documents of automatons
    def _of_state(self, key: str, data: bytes | None) -> Iterator[_Fact]:
        if key == DEATHS[1]:
            old, self._deaths = self._deaths, _decoded(data, DeathState)
            yield from _of_deaths(old, self._deaths, self._before)
        elif key == INCIDENTS[1]:
            before, self._incidents = self._incidents, _decoded(data, MaintenanceState)
            yield from _of_incidents(before, self._incidents, self._before)


def _decoded(data: bytes | None, form: type[Any]) -> Any:
    if data is None:
        return form()
    try:
        return msgspec.json.decode(data, type=form)
    except (msgspec.DecodeError, UnicodeError):
        return form()


def _name(record: Any) -> str:
    if isinstance(record, Cluster):
        return record.cluster_name
    return str(getattr(record, "name", None) or record.uuid)


def _of_freeze(old: Cluster | None, new: Cluster) -> Iterator[_Fact]:
    before = {} if old is None else old.automation_freeze
    if bool(before) is bool(new.automation_freeze):
        return
    if new.automation_freeze:
        why = {"reason": str(new.automation_freeze.get("reason", ""))}
        yield _Fact(Kind.FREEZE, "cluster", new.cluster_name, "frozen", details=why)
    else:
        yield _Fact(Kind.FREEZE, "cluster", new.cluster_name, "thawed")


def _of_log(key: str, data: bytes | None) -> Iterator[_Fact]:
    if data is None:  # it moves to the archive with its job
        return
    _index, line = records.decode_log(data)
    text = line.payload
    if not isinstance(text, str):
        text = msgspec.json.encode(text).decode()
    seconds, microseconds = line.timestamp
    details = {
        "serial": line.serial,
        "time": seconds + microseconds / 1e6,
        "type": line.kind,
        "message": text[:_MAX_TEXT],
        "is_cut": len(text) > _MAX_TEXT,
    }
    job = key.partition("/")[0]
    yield _Fact(Kind.JOB_LOG, "job", job, "line", details=details)


def _of_journal(_key: str, data: bytes | None) -> Iterator[_Fact]:
    if data is None:  # the oldest entries are removed
        return
    entry = msgspec.json.decode(data, type=journal.Entry)
    details = {
        "scope": entry.scope,
        "round": entry.round,
        "count": entry.count,
        "items": len(entry.items),
        "has_acted": entry.has_acted,
    }
    change = entry.automaton
    yield _Fact(Kind.JOURNAL, "journal", str(entry.id), change, details=details)


_TABLES: Final = {"joblogs": _of_log, "journal": _of_journal}


def _of_deaths(old: DeathState, new: DeathState, snapshot: Snapshot) -> Iterator[_Fact]:
    before = {death.node: death for death in old.deaths}
    for death in new.deaths:
        known = before.pop(death.node, None)
        if known is None or known.phase is not death.phase:
            details = {"since": death.since, "reason": death.reason}
            yield _death(death.node, death.name, str(death.phase), details)
    for death in before.values():
        if old.is_given_up:
            change = "given-up"
        else:
            change = "recovered" if death.phase is Phase.OFFLINE else "back"
        yield _death(death.node, death.name, change, {"since": death.since})
    for uuid in old.marked:
        node: Node | None = snapshot.nodes.get(uuid)
        if uuid not in new.marked and node is not None and not old.is_given_up:
            yield _death(uuid, node.name, "back", {})


def _death(uuid: str, name: str, change: str, details: dict[str, Any]) -> _Fact:
    return _Fact(Kind.NODE_DEATH, "node", name, change, uuid, details)


def _of_incidents(
    old: MaintenanceState, new: MaintenanceState, snapshot: Snapshot
) -> Iterator[_Fact]:
    before = {item.uuid: item for item in old.incidents}
    for item in reversed(new.incidents):  # the newest one comes first there
        known = before.pop(item.uuid, None)
        if known is None or known.state is not item.state:
            details = {"incident": item.uuid, "action": str(item.action)}
            yield _incident(item.node, snapshot, str(item.state), details)
    for item in before.values():
        details = {"incident": item.uuid, "action": str(item.action)}
        yield _incident(item.node, snapshot, "removed", details)


def _incident(
    uuid: str, snapshot: Snapshot, change: str, details: dict[str, Any]
) -> _Fact:
    node = snapshot.nodes.get(uuid)
    name = uuid if node is None else node.name
    return _Fact(Kind.INCIDENT, "node", name, change, uuid, details)
