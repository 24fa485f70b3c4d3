"""Plans: the engine runs with effects that record calls and change nothing.

The same `Processor` and logical units as for a job run on a fork of the configuration.
Reading calls go to the nodes, so checks see the real cluster. Acting calls are recorded
and answered as if they succeeded. A plan leaves no job, no lock of the cluster, no
reservation and no change. An opcode generates uuids, MAC addresses and secrets while it
runs. A plan lists these, because the real run generates different ones.
"""

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from ganeti import store
from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.misc import REDACTED
from ganeti.master import config, query
from ganeti.master.jqueue.effects import Canceled, LockTimeout
from ganeti.model import objects, opcodes
from ganeti.operations import base
from ganeti.operations.mcpu.dry_run import (
    Callbacks,
    DryRunRunner,
    Lock,
    RecordedLocks,
    Recorder,
    Step,
    VirtualClock,
)
from ganeti.operations.mcpu.processor import EngineDeps, Processor
from ganeti.operations.mcpu.simulated_nodes import SimulatedNodes

#: Fields that every change modifies, so a plan does not show them.
_BOOKKEEPING: Final = frozenset(("ctime", "mtime", "serial_no"))
#: Largest number of planned follow-up jobs; more than a node has instances.
_MOST_FOLLOWERS: Final = 200
#: Fields with secret values.
_PRIVATE: Final = frozenset(
    ("osparams_private", "osparams_private_cluster", "firmware_state", "tpm_state")
)


class Field(msgspec.Struct, frozen=True):
    """One changed field; ``name`` is dotted inside of objects, ``a.b``.

    A value that is missing before or after the change is null.
    """

    name: str
    before: Any
    after: Any


class Change(msgspec.Struct, frozen=True):
    """One changed record: ``action`` is ``add``, ``change`` or ``remove``."""

    table: str
    uuid: str
    name: str
    action: str
    fields: Sequence[Field]


class OpPlan(msgspec.Struct, frozen=True):
    """The plan of one opcode.

    Attributes:
        op_id: such as ``OP_INSTANCE_MIGRATE``.
        summary: such as ``INSTANCE_MIGRATE(web1)``.
        locks: in the order of the requests.
        steps: in order.
        changes: the combined changes of the configuration.
        jobs: jobs that the opcode would submit, as wire forms of opcodes without
            secrets.
        names: uuid -> name of objects in the changes.
        generated: values generated for this plan; a real run generates different ones.
        error: ``[class, arguments]`` of the error that would end the opcode, or null.
    """

    op_id: str
    summary: str
    locks: Sequence[Lock]
    steps: Sequence[Step]
    changes: Sequence[Change]
    jobs: Sequence[Sequence[Mapping[str, Any]]]
    names: Mapping[str, str]
    generated: Sequence[str]
    error: Sequence[Any] | None


class Plan(msgspec.Struct, frozen=True):
    """The plan of a job, up to the first opcode that fails.

    Attributes:
        revision: revision of the configuration. A run from the same revision does the
            planned steps, provided that the nodes have not changed.
        opcodes: one plan per opcode.
        followers: plans of the opcodes in jobs that opcodes would submit, as if each of
            these jobs began after the end of those before it.
        left_out: number of such jobs beyond the limit, which were not planned.
    """

    revision: int
    opcodes: Sequence[OpPlan]
    followers: Sequence[Sequence[OpPlan]] = ()
    left_out: int = 0


class _RecordingConfig:
    """A configuration that records the values it generates."""

    def __init__(self, inner: config.Config) -> None:
        self._inner = inner
        self.generated: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def reserve_uuid(self, owner: str) -> str:
        return self._record(self._inner.reserve_uuid(owner))

    def reserve_mac(self, owner: str, network_uuid: str | None = None) -> str:
        return self._record(self._inner.reserve_mac(owner, network_uuid))

    def _record(self, value: str) -> str:
        self.generated.append(value)
        return value


class Planner:
    """Maker of plans; thread-safe, one for the whole master.

    Args:
        deps: the dependencies of the engine.
        units: opcode id -> logical unit.
    """

    def __init__(
        self, deps: EngineDeps, units: Mapping[str, type[base.LogicalUnit[Any]]]
    ) -> None:
        self._deps = deps
        self._units = units
        self._serial = itertools.count(1)

    def plan(self, ops: Sequence[opcodes.Opcode]) -> Plan:
        """Plan a job of these opcodes; later ones see the changes of earlier ones.

        Blocks while nodes answer reading calls.
        """
        fork = DryRun(self._deps, self._units, f"plan-{next(self._serial)}")
        plans = fork.plan_job(ops)
        followers: list[Sequence[OpPlan]] = []
        while fork.submitted and len(followers) < _MOST_FOLLOWERS:
            followers.append(fork.plan_job(fork.submitted.popleft()))
        return Plan(
            fork.configured.revision, plans, followers, left_out=len(fork.submitted)
        )


class DryRun:
    """One dry run: a fork of the configuration that opcodes change in turn.

    Args:
        deps: the dependencies of the engine.
        units: opcode id -> logical unit.
        name: prefix for the owner of reservations and locks.

    Attributes:
        configured: the configuration at the start of the fork.
        runner: holds all recorded acts.
        submitted: jobs that opcodes would have submitted so far, in order.
    """

    def __init__(
        self,
        deps: EngineDeps,
        units: Mapping[str, type[base.LogicalUnit[Any]]],
        name: str,
    ) -> None:
        self._units = units
        self._name = name
        self._count = 0
        self._clock = VirtualClock(deps.clock)
        forked, self._store = deps.config.fork(self._clock)
        self.configured = self._store.start
        self._config = _RecordingConfig(forked)
        self._locks = RecordedLocks(self._clock, self.configured)
        self.runner = DryRunRunner(
            deps.rpc,
            self.configured,
            self._store.snapshot,
            rpc_at=deps.rpc_at,
            nodes=SimulatedNodes(),
        )
        self._recorder = Recorder()
        self.submitted: collections.deque[Sequence[opcodes.Opcode]]
        self.submitted = collections.deque()
        self._processor = Processor(self._forked(deps), units)

    def _forked(self, deps: EngineDeps) -> EngineDeps:
        def sources() -> query.Sources:
            return dataclasses.replace(
                deps.query_sources(), snapshot=self.snapshot, rpc=self.runner
            )

        def write_known_hosts(path: str, _text: str) -> None:
            self._recorder.steps.append(Step("file", text=path))

        return base.view(
            EngineDeps,
            deps,
            config=cast("config.Config", self._config),
            rpc=self.runner,
            clock=self._clock,
            locks=self._locks,
            rpc_at=self.runner.at,
            query_sources=sources,
            write_known_hosts=write_known_hosts,
            # Nothing is sent to addresses outside of the cluster, and nobody waits
            # for their time-outs.
            address_answers=lambda _address: False,
        )

    @property
    def snapshot(self) -> objects.Snapshot:
        """The configuration after the opcodes so far."""
        return self._store.snapshot()

    def plan_job(self, ops: Sequence[opcodes.Opcode]) -> list[OpPlan]:
        """Plan the opcodes of a job, up to the first one that fails."""
        plans: list[OpPlan] = []
        for op in ops:
            plans.append(self.plan(op))
            if plans[-1].error is not None:
                break
        return plans

    def plan(self, op: opcodes.Opcode) -> OpPlan:
        """Plan an opcode after the effects of those before it."""
        before, recorder = self.snapshot, Recorder()
        self._recorder = recorder
        self._clock.recorder = self._locks.recorder = self.runner.recorder = recorder
        self._locks.snapshot = before
        self._config.generated = []
        callbacks = Callbacks(f"{self._name}/{self._count}", recorder)
        self._count += 1
        error: Sequence[Any] | None = None
        try:
            self._check_plannable(op)
            self._processor.execute(op, callbacks, timeout_s=None, priority=0)
        except errors.GenericError as err:
            error = errors.encode(err)
        except (LockTimeout, Canceled) as err:
            error = errors.encode(errors.OpExecError(str(err)))
        self.submitted.extend(recorder.jobs)
        changes = differences(
            before, self.snapshot, self._store.follow(before.revision)
        )
        return OpPlan(
            op_id=op.op_id(),
            summary=op.summary(),
            locks=recorder.locks,
            steps=recorder.steps,
            changes=changes,
            jobs=[
                [opcodes.redact(opcodes.encode(child)) for child in job]
                for job in recorder.jobs
            ],
            names=mentioned(changes, before, self.snapshot),
            generated=self._config.generated,
            error=error,
        )

    def _check_plannable(self, op: opcodes.Opcode) -> None:
        unit = self._units.get(op.op_id())
        if unit is not None and not unit.can_plan(op):
            raise errors.OpPrereqError(
                f"{op.summary()}: cannot be planned, because it has effects other than"
                f" node calls and configuration changes",
                ecodes.ECODE_INVAL,
            )


def differences(
    before: objects.Snapshot,
    after: objects.Snapshot,
    changed: Iterator[store.ChangeSet],
) -> list[Change]:
    """Return the changes of the records in change sets; costs only what changed."""
    keys = dict.fromkeys(
        (item.table, item.key)
        for change_set in changed
        for item in change_set.changes
        if isinstance(item, objects.Update)
    )
    differing = (
        _difference(
            table, key, before.table(table).get(key), after.table(table).get(key)
        )
        for table, key in keys
    )
    return [change for change in differing if change is not None]


def mentioned(
    changes: Sequence[Change], *snapshots: objects.Snapshot
) -> dict[str, str]:
    """Return uuid -> name of the objects whose uuid is a value in a change."""
    names: dict[str, str] = {}
    for value in _texts([[row.before, row.after] for c in changes for row in c.fields]):
        for snapshot in snapshots:
            for table in ("nodes", "nodegroups", "instances", "networks"):
                record: Any = snapshot.table(table).get(value)
                if record is not None:
                    names[value] = str(record.name)
    return names


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


def _difference(table: str, key: str, old: Any, new: Any) -> Change | None:
    if old is None and new is None:
        return None
    action = "add" if old is None else ("remove" if new is None else "change")
    fields = list(_fields("", _plain(old), _plain(new)))
    if action == "change" and not fields:
        return None
    return Change(table, key, _name(table, old if new is None else new), action, fields)


def _name(table: str, record: Any) -> str:
    if table == "cluster":
        return str(record.cluster_name)
    return str(getattr(record, "name", None) or getattr(record, "iv_name", "") or "")


def _plain(record: Any) -> dict[str, Any]:
    if record is None:
        return {}
    plain = msgspec.to_builtins(objects.to_dict(record))
    return {key: value for key, value in plain.items() if key not in _BOOKKEEPING}


def _fields(prefix: str, old: Any, new: Any) -> Iterator[Field]:
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        name = f"{prefix}{key}"
        if key in _PRIVATE:
            yield Field(name, _hidden(before), _hidden(after))
        elif isinstance(before, dict) and isinstance(after, dict):
            yield from _fields(f"{name}.", before, after)
        else:
            yield Field(name, _shown(key, before, old), _shown(key, after, new))


def _hidden(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _hidden(item) for key, item in value.items()}
    return REDACTED if value else value


def _shown(key: str, value: Any, record: Mapping[str, Any]) -> Any:
    """Return a value without the secret of a mirrored disk."""
    if key == "logical_id" and record.get("dev_type") == "drbd" and value:
        return [*value[:-1], REDACTED]
    if key == "children" and value:
        return [_clean_disk(child) for child in value]
    return value


def _clean_disk(disk: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _shown(key, value, disk) for key, value in disk.items()}
