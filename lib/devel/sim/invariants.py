"""Rules that automatons must keep in every simulation, whatever happens.

1. An instance never runs on two machines.
2. Automatons keep the limits of fences per hour and of moved instances, and do nothing
   during a freeze. Fences count from when the handling of deaths was last switched on.
3. No repair begins without a permission: a tag of the instance, its group or the
   cluster, or a request of a person.
4. Each pending repair has a job, or the journal says why it waits.
5. There is one master daemon at a time.

The rules are checked on what is stored and on what the machines do, by code that shares
nothing with the decisions but the forms of tags and records.
"""

import collections
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from ganeti.decisions.jobs import records
from ganeti.decisions.repair import journal
from ganeti.devel.sim.automatons import WATCHER_S
from ganeti.devel.sim.hardware import Hardware
from ganeti.model import objects
from ganeti.model.objects import Instance, Update
from ganeti.store import Change

_PREFIX: Final = "ganeti:watcher:autorepair:"
_PENDING: Final = f"{_PREFIX}pending:"
_KINDS: Final = ("fix-storage", "migrate", "failover", "reinstall")
#: Severity of the opcodes of repairs.
_SEVERITY: Final[Mapping[str, int]] = {
    "OP_INSTANCE_REPLACE_DISKS": 0,
    "OP_INSTANCE_MIGRATE": 1,
    "OP_INSTANCE_FAILOVER": 2,
    "OP_INSTANCE_RECREATE_DISKS": 3,
    "OP_INSTANCE_REINSTALL": 3,
}
_MOVES: Final = frozenset({"OP_INSTANCE_MIGRATE", "OP_INSTANCE_FAILOVER"})
_HOUR_S: Final = 3600.0
#: Seconds for which a permission that was taken away counts: a round is under way.
_GRACE_S: Final = 90.0
#: Default of the limit of fences per hour.
_FENCES: Final = 1


class Invariants:
    """Watches one simulation.

    Attributes:
        problems: broken rules, as sentences.
        requested: tags that people have set.
    """

    def __init__(
        self, hardware: Hardware, now: Callable[[], float], start: objects.Snapshot
    ) -> None:
        self.problems: list[str] = []
        self.requested: set[str] = set()
        self.has_wrong_clock = False
        self._hardware = hardware
        self._now = now
        self._past: collections.deque[tuple[float, objects.Snapshot]] = (
            collections.deque([(now(), start)])
        )
        #: When a person switched the handling of deaths on, with no fence known.
        self._switched_on = 0.0
        self._moving: dict[int, str] = {}
        self._known: set[int] = set()
        hardware.on_twice = self.note_twice

    def note_twice(self, instance: str, machines: Sequence[str]) -> None:
        """Note that an instance runs on two machines."""
        self._broken(f"instance {instance} runs on {' and '.join(machines)}")

    def note_masters(self, machine: str) -> None:
        """Note that a master daemon starts while another one runs."""
        self._broken(f"a second master daemon starts beside that of {machine}")

    def _broken(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)

    def take(self, changes: Sequence[Change], after: objects.Snapshot) -> None:
        """Check a commit."""
        # A machine that was off already does not change when it is fenced.
        self.check_fences()
        now = self._now()
        _time, before = self._past[-1]
        if after.cluster.node_death and not before.cluster.node_death:
            self._switched_on = now
        self._past.append((now, after))
        while self._past[0][0] < now - _GRACE_S and len(self._past) > 1:
            self._past.popleft()
        for change in changes:
            if isinstance(change, Update):
                if isinstance(change.record, Instance):
                    self._check_begun(before, change.record)
            elif change.table == "jobs" and change.data is not None:
                self._check_job(records.decode_job(change.data), after)

    def check_fences(self) -> None:
        """Check the limit of fences, which holds whatever the master's clock shows."""
        cluster = self._past[-1][1].cluster
        most = int(cluster.automation_limits.get("fenced-per-hour", _FENCES))
        since = max(self._now() - _HOUR_S, self._switched_on)
        # By name: one death can have the helper of its machine called more than once.
        names = {name for when, name in self._hardware.powered_off if when > since}
        if len(names) > most:
            self._broken(f"{len(names)} nodes were fenced within an hour, limit {most}")

    # Jobs
    def _check_job(self, job: records.Job, after: objects.Snapshot) -> None:
        if job.is_final:
            self._moving.pop(job.id, None)
        if job.id in self._known:
            return
        self._known.add(job.id)
        ops = [op.decoded_input() for op in job.ops]
        if not any(_has_source(op, journal.REASON_SOURCE) for op in ops):
            return
        ids = [str(op["OP_ID"]) for op in ops]
        if after.cluster.automation_freeze and not all("TAGS" in i for i in ids):
            self._broken(f"job {job.id} ({', '.join(ids)}) was submitted in a freeze")
        moved = [op["instance_name"] for op in ops if op["OP_ID"] in _MOVES]
        if moved and not job.is_final:
            self._moving[job.id] = moved[0]
            self._check_moves(after)
        if any(_has_source(op, "autorepair") for op in ops):
            self._check_permission(job.id, ops)

    def _check_moves(self, after: objects.Snapshot) -> None:
        share = after.cluster.automation_limits.get("moved-share")
        if share is None:
            return
        most = math.floor(len(after.instances) * share / 100)
        most = max(1, most) if share > 0 else 0
        moving = set(self._moving.values())
        if len(moving) > most:
            self._broken(f"{len(moving)} instances are moved at once, limit {most}")

    def _check_permission(self, job: int, ops: Sequence[Mapping[str, Any]]) -> None:
        need = max((_SEVERITY.get(str(op["OP_ID"]), -1) for op in ops), default=-1)
        name = next((str(o["instance_name"]) for o in ops if "instance_name" in o), "")
        for _time, snapshot in self._past:
            uuid = snapshot.uuid_of("instances", name)
            if uuid is None:
                continue
            tags = snapshot.instances[uuid].tags
            if any(f"{_PREFIX}result:" in tag and ":failure:" in tag for tag in tags):
                continue
            if any(_kind_of(tag) >= need for tag in tags if tag.startswith(_PENDING)):
                return
        self._broken(
            f"job {job} repairs {name} without a pending repair that permits it"
        )

    # Permissions
    def _check_begun(self, before: objects.Snapshot, record: Instance) -> None:
        """Check the permission of a repair that begins with a commit."""
        old = before.instances.get(record.uuid)
        known = {_id_of(tag) for tag in old.tags} if old is not None else set()
        for tag in record.tags:
            if not tag.startswith(_PENDING) or _id_of(tag) in known:
                continue
            if tag in self.requested:
                continue
            allowed = [
                _allowed(_levels(snapshot, record), when)
                for when, snapshot in self._past
            ]
            if not self.has_wrong_clock and max(allowed) < _kind_of(tag):
                self._broken(f"{record.name}: {tag} begins without a permission")

    # At the end
    def check_waits(
        self, snapshot: objects.Snapshot, entries: Sequence[journal.Entry]
    ) -> None:
        """Check that each pending repair has a job or a reason.

        Args:
            snapshot: the configuration.
            entries: of the journal, of the last two runs of the watcher.
        """
        explained = {
            item.name
            for entry in entries
            for item in entry.items
            if item.kind == journal.INSTANCE and (item.reason or item.jobs)
        }
        for record in snapshot.instances.values():
            pending = [tag for tag in record.tags if tag.startswith(_PENDING)]
            began = [_time_of(tag) for tag in pending]
            if not pending or min(began) > self._now() - 2 * WATCHER_S:
                continue
            is_at_work = record.name in self._moving.values()
            if not is_at_work and record.name not in explained:
                self._broken(f"{record.name}: nobody says why {pending[0]} waits")


def _has_source(op: Mapping[str, Any], source: str) -> bool:
    return any(entry[0] == source for entry in op.get("reason") or ())


def _parts(tag: str) -> list[str]:
    return tag.removeprefix(_PENDING).split(":")


def _kind_of(tag: str) -> int:
    kind = _parts(tag)[0]
    return _KINDS.index(kind) if kind in _KINDS else -1


def _id_of(tag: str) -> str:
    return _parts(tag)[1] if tag.startswith(_PENDING) else ""


def _time_of(tag: str) -> float:
    text = _parts(tag)[2]
    return float(text) if text.isdigit() else 0.0


def _levels(snapshot: objects.Snapshot, record: Instance) -> Iterator[Sequence[str]]:
    """Yield the tags that decide, the nearest first."""
    current = snapshot.instances.get(record.uuid)
    yield current.tags if current is not None else record.tags
    node = snapshot.nodes.get(record.primary_node)
    if node is not None and node.group in snapshot.nodegroups:
        yield snapshot.nodegroups[node.group].tags
    yield snapshot.cluster.tags


def _allowed(levels: Iterator[Sequence[str]], now: float) -> int:
    """Return the most severe kind that tags permit, -1 for none."""
    for tags in levels:
        words = [t.removeprefix(_PREFIX) for t in tags if t.startswith(_PREFIX)]
        for word in words:
            name, _, end = word.partition(":")
            if name == "suspend" and (not end or float(end) > now):
                return -1
        kinds = [_KINDS.index(word) for word in words if word in _KINDS]
        if kinds:
            return min(kinds)
    return -1
