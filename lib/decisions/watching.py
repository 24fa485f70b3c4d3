"""Verdicts of the watcher on the instances of a group, with reasons, and its records.

Each function takes a report of the master and the state that the last run left, and
returns verdicts with their reasons, also for what is not done. `settle` returns the
state for the next run when it is known which jobs the master accepted.

The file ``watcher.UUID.data`` holds the state of a group as JSON: attempts per
instance, and boot ids of nodes::

    {"instance": {"web1": {"restart_count": 1, "restart_when": 1700000500.1,
                           "cleanup_count": 0, "cleanup_when": 0}},
     "node": {"node1": {"bootid": "5e1c..."}}}
"""

import dataclasses
import enum
import json
import math
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import instance as constants

_KINDS: Final = ("restart", "cleanup")


@dataclasses.dataclass(frozen=True)
class Attempts:
    """Attempts of one kind for one instance.

    Attributes:
        count: number of attempts; one more than the limit once this was logged.
        when: time of the last attempt, in seconds since 1970.
    """

    count: int = 0
    when: float = 0.0


NO_ATTEMPTS: Final = Attempts()


@dataclasses.dataclass(frozen=True)
class InstanceRecord:
    """Attempts to restart an instance, and to record its guest's own shutdown."""

    restart: Attempts = NO_ATTEMPTS
    cleanup: Attempts = NO_ATTEMPTS


NO_RECORD: Final = InstanceRecord()


@dataclasses.dataclass(frozen=True)
class GroupState:
    """The state that a run leaves for the next run.

    Attributes:
        instances: instance name -> attempts; only instances with attempts.
        boot_ids: node name -> boot id for which its disks were activated.
    """

    instances: Mapping[str, InstanceRecord]
    boot_ids: Mapping[str, str]


EMPTY: Final = GroupState({}, {})


def parse_group_state(data: bytes) -> GroupState:
    """Return the state in a file's content; an empty file holds the empty state.

    Raises:
        ParseError: the content is damaged.
    """
    if not data.strip():
        return EMPTY
    try:
        top = _object(json.loads(data), "the file")
        instances = _object(top.get("instance", {}), "instance")
        nodes = _object(top.get("node", {}), "node")
        return GroupState(
            {name: _instance(row, name) for name, row in instances.items()},
            {name: _boot_id(row, name) for name, row in nodes.items()},
        )
    except (ValueError, RecursionError) as err:
        raise errors.ParseError(f"not the state of a group: {err}") from err


def _object(value: Any, what: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise ValueError(f"{what}: wanted an object, found {value!r:.60}")


def _instance(row: Any, name: str) -> InstanceRecord:
    row = _object(row, name)
    return InstanceRecord(*(_attempts(row, kind, name) for kind in _KINDS))


def _attempts(row: Mapping[str, Any], kind: str, name: str) -> Attempts:
    count, when = row.get(f"{kind}_count", 0), row.get(f"{kind}_when", 0)
    is_count = isinstance(count, int) and not isinstance(count, bool) and count >= 0
    is_time = isinstance(when, (int, float)) and not isinstance(when, bool)
    if not (is_count and is_time and math.isfinite(when)):
        raise ValueError(f"{name}: {kind} {count!r:.20} at {when!r:.20}")
    return Attempts(count, float(when))


def _boot_id(row: Any, name: str) -> str:
    boot_id = _object(row, name).get("bootid")
    if isinstance(boot_id, str):
        return boot_id
    raise ValueError(f"{name}: wanted a boot id, found {boot_id!r:.60}")


def format_group_state(state: GroupState) -> bytes:
    """Return the file's content for a state."""
    top = {
        "instance": {
            name: {
                "restart_count": record.restart.count,
                "restart_when": record.restart.when,
                "cleanup_count": record.cleanup.count,
                "cleanup_when": record.cleanup.when,
            }
            for name, record in sorted(state.instances.items())
        },
        "node": {
            name: {"bootid": boot_id}
            for name, boot_id in sorted(state.boot_ids.items())
        },
    }
    return json.dumps(top).encode() + b"\n"


#: Attempts to start an instance, or to record its shutdown, before giving up.
MAX_ATTEMPTS: Final = 5
#: Seconds after the last attempt until attempts no longer count: a fault that was
#: mended in the meantime deserves new attempts.
EXPIRY_S: Final = 8 * 3600.0
#: Instances that cannot be helped as long as their node is away.
HELPLESS: Final = frozenset({constants.INSTST_NODEDOWN, constants.INSTST_NODEOFFLINE})


class InstanceReport(msgspec.Struct, frozen=True):
    """An instance as the master reports it.

    Attributes:
        name: its name.
        status: status word, such as ``ERROR_down``.
        admin_state: wanted state: ``up``, ``down`` or ``offline``.
        disks_active: its disks should be assembled.
        disk_template: such as ``drbd``.
        secondaries: names of its secondary nodes.
        is_split: its nodes are in several groups.
        primary: name of its primary node.
        is_stuck: it has made no progress since a live migration.
    """

    name: str
    status: str
    admin_state: str
    disks_active: bool
    disk_template: str
    secondaries: tuple[str, ...] = ()
    is_split: bool = False
    primary: str = ""
    is_stuck: bool = False


class NodeReport(msgspec.Struct, frozen=True):
    """A node as the master reports it; the boot id is None if it did not answer."""

    name: str
    boot_id: str | None
    is_offline: bool


@dataclasses.dataclass(frozen=True)
class GroupReport:
    """A group as the master reports it.

    Attributes:
        instances: those whose primary node is in the group, by name.
        nodes: by name.
        locked: names of instances whose lock is in use.
        unfinished: summary of an unfinished job's opcode -> id of the job.
    """

    instances: Mapping[str, InstanceReport]
    nodes: Mapping[str, NodeReport]
    locked: frozenset[str] = frozenset()
    unfinished: Mapping[str, int] = dataclasses.field(default_factory=dict)


class Action(enum.Enum):
    """The action for an instance."""

    NONE = "nothing to do"
    RESTART = "start"
    CLEAN_UP = "record its shutdown"
    #: The limit of attempts is reached; logged once.
    GIVE_UP = "give up"
    #: The limit was reached in an earlier run.
    SILENT = "given up"
    #: Something in progress comes first; attempts are kept.
    WAIT = "wait"
    #: Its node does not answer or is offline.
    HELPLESS = "cannot be helped"
    #: Its guest makes no progress, or computes; only a person knows.
    STUCK = "left alone"
    REFUSE = "refuse"


#: Jobs that stop an instance for a while; between their opcodes it must stay stopped.
_REPAIRING: Final = (
    "INSTANCE_FAILOVER",
    "INSTANCE_MIGRATE",
    "INSTANCE_RECREATE_DISKS",
    "INSTANCE_REINSTALL",
)
_DOING: Final = {
    Action.RESTART: "restarting",
    Action.CLEAN_UP: "recording its shutdown",
}


class Verdict(msgspec.Struct, frozen=True):
    """The action for one instance, its reason, and the number of the attempt."""

    instance: str
    action: Action
    reason: str
    attempt: int = 0


def judge_instances(
    report: GroupReport, state: GroupState, now: float
) -> list[Verdict]:
    """Return a verdict for each instance, sorted by name.

    Args:
        report: the group.
        state: of the last run.
        now: seconds since 1970.
    """
    return [
        _judge(
            report.instances[name], state.instances.get(name, NO_RECORD), report, now
        )
        for name in sorted(report.instances)
    ]


def _judge(
    instance: InstanceReport, record: InstanceRecord, report: GroupReport, now: float
) -> Verdict:
    status = instance.status
    if instance.is_split:
        why = "its nodes are in several groups; move it into one"
        return Verdict(instance.name, Action.REFUSE, why)
    if status == constants.INSTST_ERRORDOWN:
        if instance.admin_state != constants.ADMINST_UP:
            why = "its installation did not finish; reinstall or remove it"
            return Verdict(instance.name, Action.REFUSE, why)
        return _judge_down(instance, fresh(record.restart, now), report)
    if status == constants.INSTST_WRONGNODE:
        return _judge_elsewhere(instance, report)
    if status in HELPLESS:
        return Verdict(instance.name, Action.HELPLESS, f"status {status}")
    if (
        status == constants.INSTST_USERDOWN
        and instance.admin_state != constants.ADMINST_DOWN
    ):
        return _judge_user_down(instance, fresh(record.cleanup, now), report)
    if instance.is_stuck:
        # Without a number, or each round would be a new entry of the journal.
        why = (
            "since its live migration its processors have been busy without any input"
            " or output; look at its console, and reboot it if it does not answer"
        )
        return Verdict(instance.name, Action.STUCK, why)
    return Verdict(instance.name, Action.NONE, f"status {status}")


def _judge_down(
    instance: InstanceReport, tried: Attempts, report: GroupReport
) -> Verdict:
    """Judge an instance that should run and does not."""
    name, status = instance.name, instance.status
    job = report.unfinished.get(f"INSTANCE_STARTUP({name})")
    if job is not None:
        return Verdict(name, Action.WAIT, f"job {job} starts it already", tried.count)
    job = _repairing_job(name, report)
    if job is not None:
        why = f"job {job} moves or repairs it"
        return Verdict(name, Action.WAIT, why, tried.count)
    return _limited(name, Action.RESTART, f"status {status}", tried)


def _repairing_job(name: str, report: GroupReport) -> int | None:
    """Return the job that moves or repairs an instance."""
    jobs = (report.unfinished.get(f"{each}({name})") for each in _REPAIRING)
    return next((job for job in jobs if job is not None), None)


def _judge_elsewhere(instance: InstanceReport, report: GroupReport) -> Verdict:
    """Judge an instance that runs on another node than its primary node."""
    name = instance.name
    job = _repairing_job(name, report)
    if job is not None:
        return Verdict(name, Action.WAIT, f"job {job} moves or repairs it")
    why = (
        f"it runs on another node than its primary node {instance.primary}; run"
        f" gnt-instance migrate --cleanup {name}"
    )
    return Verdict(name, Action.REFUSE, why)


def _judge_user_down(
    instance: InstanceReport, tried: Attempts, report: GroupReport
) -> Verdict:
    """Judge an instance whose guest shut itself down."""
    name = instance.name
    if name in report.locked:
        why = "a job uses it, its shutdown is recorded later"
        return Verdict(name, Action.WAIT, why, tried.count)
    why = "its user shut it down from inside"
    return _limited(name, Action.CLEAN_UP, why, tried)


def _limited(name: str, action: Action, why: str, tried: Attempts) -> Verdict:
    if tried.count < MAX_ATTEMPTS:
        return Verdict(name, action, why, tried.count + 1)
    text = f"{why}; not {_DOING[action]}, too many attempts ({MAX_ATTEMPTS})"
    given_up = Action.GIVE_UP if tried.count == MAX_ATTEMPTS else Action.SILENT
    return Verdict(name, given_up, text, tried.count)


def fresh(attempts: Attempts, now: float) -> Attempts:
    """Return attempts, or none if the last one was too long ago.

    A time in the future is of a clock that was wrong, so it must not count without end.
    """
    return attempts if abs(now - attempts.when) <= EXPIRY_S else NO_ATTEMPTS


def settle(
    state: GroupState,
    verdicts: Collection[Verdict],
    refused: Collection[str],
    now: float,
) -> dict[str, InstanceRecord]:
    """Return the attempts that the next run has to know, by instance.

    Args:
        state: of the last run.
        verdicts: of this run; instances without one are gone and forgotten.
        refused: instances whose job the master did not accept: no attempt was made.
        now: seconds since 1970.
    """
    records = {}
    for verdict in verdicts:
        if verdict.action is Action.NONE:
            continue
        record = state.instances.get(verdict.instance, NO_RECORD)
        record = InstanceRecord(fresh(record.restart, now), fresh(record.cleanup, now))
        is_made = verdict.instance not in refused
        record = _record_after(verdict, record, now, is_made=is_made)
        if record != NO_RECORD:
            records[verdict.instance] = record
    return records


def _record_after(
    verdict: Verdict, record: InstanceRecord, now: float, *, is_made: bool
) -> InstanceRecord:
    """Return the attempts for an instance after a verdict was carried out."""
    match verdict.action:
        case Action.RESTART if is_made:
            return InstanceRecord(restart=Attempts(verdict.attempt, now))
        case Action.CLEAN_UP if is_made:
            return InstanceRecord(cleanup=Attempts(verdict.attempt, now))
        case Action.GIVE_UP:
            return InstanceRecord(_given_up(record.restart), _given_up(record.cleanup))
        case Action.RESTART | Action.CLEAN_UP | Action.SILENT | Action.WAIT:
            return record
    return NO_RECORD


def _given_up(attempts: Attempts) -> Attempts:
    if attempts.count != MAX_ATTEMPTS:
        return attempts
    return Attempts(MAX_ATTEMPTS + 1, attempts.when)


@dataclasses.dataclass(frozen=True)
class DiskPlan:
    """Instances whose disks are to be activated, and what was found about nodes.

    Attributes:
        activate: instance name -> reason, sorted.
        skipped: instance name -> why its disks are left alone.
        boot_ids: node name -> boot id, for the next run.
        unknown: nodes that should answer and have no boot id.
    """

    activate: Mapping[str, str]
    skipped: Mapping[str, str]
    boot_ids: Mapping[str, str]
    unknown: tuple[str, ...] = ()


def judge_boots(
    report: GroupReport,
    state: GroupState,
    started: Collection[str],
    *,
    is_checked: bool = False,
) -> DiskPlan:
    """Return the instances that lost their disks on a rebooted secondary node.

    A node without a remembered boot id counts as rebooted. If no node has one, as with
    a new master, all nodes would: then a check of the disks replaces the guess. Disks
    on a primary node are activated when the instance is started.

    Args:
        report: the group.
        state: of the last run.
        started: instances that this run has started, which activates their disks.
        is_checked: this run and later ones activate the disks that a check finds
            inactive.
    """
    is_guess = is_checked and not state.boot_ids
    boot_ids: dict[str, str] = {}
    rebooted, unknown = set(), []
    for name, node in sorted(report.nodes.items()):
        known = state.boot_ids.get(name)
        if node.boot_id is None:
            if not node.is_offline:
                unknown.append(name)
            if known is not None:
                boot_ids[name] = known
            continue
        boot_ids[name] = node.boot_id
        if node.boot_id != known and not is_guess:
            rebooted.add(name)
    activate = {
        instance.name: f"node {', '.join(sorted(rebooted & set(instance.secondaries)))}"
        " has rebooted"
        for _name, instance in sorted(report.instances.items())
        if instance.disks_active
        and instance.name not in started
        and not instance.is_split
        and rebooted & set(instance.secondaries)
    }
    return DiskPlan(activate, {}, boot_ids, tuple(unknown))


def settle_boots(
    state: GroupState, plan: DiskPlan, report: GroupReport, refused: Collection[str]
) -> dict[str, str]:
    """Return the boot ids that the next run has to know, by node.

    A node of an instance whose job was refused keeps its old boot id, so that the next
    run tries again.
    """
    behind = {node for name in refused for node in report.instances[name].secondaries}
    boot_ids = {
        node: boot_id for node, boot_id in plan.boot_ids.items() if node not in behind
    }
    return boot_ids | {
        node: state.boot_ids[node]
        for node in behind
        if node in plan.boot_ids and node in state.boot_ids
    }


def judge_disks(report: GroupReport, inactive: Collection[str]) -> DiskPlan:
    """Return which of the instances with inactive disks can be helped.

    Args:
        report: the group.
        inactive: names of instances, as the check of the group's disks returns them.
    """
    activate, skipped = {}, {}
    for name in sorted(inactive):
        instance = report.instances.get(name)
        if instance is None:
            skipped[name] = "not an instance of this group"
        elif instance.status in HELPLESS:
            skipped[name] = f"status {instance.status}"
        elif offline := _offline_secondaries(instance, report):
            skipped[name] = f"its secondary node {', '.join(offline)} is offline"
        else:
            activate[name] = "its disks are not active"
    return DiskPlan(activate, skipped, {})


def _offline_secondaries(instance: InstanceReport, report: GroupReport) -> list[str]:
    nodes = (report.nodes.get(name) for name in instance.secondaries)
    return [node.name for node in nodes if node is not None and node.is_offline]
