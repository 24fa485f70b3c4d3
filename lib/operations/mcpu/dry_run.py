"""Effects of a dry run: node calls, time, locks and jobs are recorded, not done.

One `Recorder` gets everything in the order in which it would happen. The declarations
in `ganeti.protocols.rpc.calls` define which calls act, their answers, and the arguments
shown.
"""

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ganeti.base import clock, errors
from ganeti.base.constants import jobqueue
from ganeti.master.jqueue.effects import CarriedLog
from ganeti.master.locking import Level, LockManager, Request
from ganeti.model import objects
from ganeti.model.opcodes import Opcode
from ganeti.operations.mcpu import simulated_nodes
from ganeti.operations.mcpu.simulated_nodes import Args, SimulatedNodes
from ganeti.protocols import rpc
from ganeti.protocols.rpc import PROCEDURES, Procedure, Result, Runner, Target, wire
from ganeti.protocols.rpc.procedure import OFFLINE_TEXT

#: Longest text of an argument in a step, in characters.
_TEXT_CHARS: Final = 60
#: Shorter pauses, in seconds, are not recorded as steps.
_PAUSE_S: Final = 1.0


class Lock(msgspec.Struct, frozen=True):
    """Locks of one level that an opcode would take, in one request.

    Attributes:
        level: such as ``node``.
        names: names of objects if they have names; None for the whole level.
        shared: the locks are shared.
        created: those names whose objects are created together with their locks.
    """

    level: str
    names: Sequence[str] | None
    shared: bool
    created: Sequence[str] = ()


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that would happen.

    Attributes:
        kind: ``log`` (a line of the job's log), ``call`` (of nodes), ``file`` (written
            on the master) or ``pause``.
        text: the line, or the file's path.
        procedure: of a call.
        nodes: names of the nodes called, all with the same arguments.
        arguments: of a call by name, shortened; without secrets.
        seconds: length of a pause.
    """

    kind: str
    text: str = ""
    procedure: str = ""
    nodes: Sequence[str] = ()
    arguments: Mapping[str, str] = {}
    seconds: float = 0.0


class Recorder:
    """Records what one opcode would do, in order."""

    def __init__(self) -> None:
        self.locks: list[Lock] = []
        self.steps: list[Step] = []
        self.jobs: list[Sequence[Opcode]] = []


class Callbacks:
    """The queue's callbacks for an opcode that is only planned."""

    def __init__(self, owner: str, recorder: Recorder) -> None:
        self.owner = owner
        # A plan takes no shared answer: none is from after its submission.
        self.submitted_at = float("inf")
        self.resumption: Any = None
        self._recorder = recorder

    def check_canceled(self) -> None:
        """Do nothing: a plan cannot be canceled."""

    def started(self, *, durable: bool = True) -> None:
        """Do nothing."""

    def on_interrupt(self, call: Callable[[], None]) -> None:
        """Do nothing: a plan never waits for a lock."""

    def on_kill(self, call: Callable[[], None]) -> None:
        """Ignore the callback: a plan waits for no acting call."""

    def log(self, kind: str, payload: Any) -> None:
        """Record a line of the job's log."""
        if kind == jobqueue.ELOG_MESSAGE:
            self._recorder.steps.append(Step("log", text=str(payload)))

    def save_log(self) -> None:
        """Do nothing: a plan stores nothing."""

    def carry_log(self) -> contextlib.AbstractContextManager[CarriedLog]:
        """Give nothing: a plan stores nothing."""
        return contextlib.nullcontext(CarriedLog())

    def save_resumption(self, value: Any) -> None:
        """Do nothing: a plan stores nothing."""

    def submit_jobs(
        self, jobs: Sequence[Sequence[Opcode]]
    ) -> list[tuple[bool, int | str]]:
        """Record jobs; their ids count from 1 and are placeholders."""
        first = len(self._recorder.jobs) + 1
        self._recorder.jobs.extend(jobs)
        return [(True, first + index) for index in range(len(jobs))]


class VirtualClock:
    """The real time plus the pauses of the plan, which take no time."""

    def __init__(self, real: clock.Clock) -> None:
        self._real = real
        self._ahead_s = 0.0
        self.recorder = Recorder()

    def time(self) -> float:
        """Return seconds since 1970."""
        return self._real.time() + self._ahead_s

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment."""
        return self._real.monotonic() + self._ahead_s

    def wait(self, event: threading.Event, timeout_s: float | None) -> bool:
        """Advance the clock without waiting.

        Raises:
            OpExecError: the wait has no limit, and nothing in a plan sets the event.
        """
        if event.is_set():
            return True
        if timeout_s is None:
            raise errors.OpExecError("plan: would wait for an event without limit")
        self._ahead_s += timeout_s
        if timeout_s >= _PAUSE_S:
            self.recorder.steps.append(Step("pause", seconds=timeout_s))
        return False


class RecordedLocks(LockManager):
    """Locks private to a plan, which are always free and record all requests.

    A lock is created at its first request, so the cost of a plan does not depend on the
    size of the cluster.

    Attributes:
        recorder: records the requests.
        snapshot: its objects have locks.
    """

    def __init__(self, clk: clock.Clock, snapshot: objects.Snapshot) -> None:
        super().__init__(clk)
        self.recorder = Recorder()
        self.snapshot = snapshot

    def acquire(
        self, request: Request, timeout_s: float | None = None
    ) -> frozenset[str] | None:
        """Take locks, see `LockManager`."""
        names = request.names
        created = sorted(request.adding)
        self.recorder.locks.append(
            Lock(
                level=request.level.label,
                names=None
                if names is None
                else sorted(self._label(request.level, n) for n in (*names, *created)),
                shared=request.shared,
                created=[self._label(request.level, name) for name in created],
            )
        )
        if request.level is not Level.CLUSTER:
            self._make(request)
        return super().acquire(request, timeout_s)

    def _make(self, request: Request) -> None:
        """Create the locks that a request needs, for existing objects."""
        level, named = request.level, {*(request.names or ()), *request.adding}
        existing: Mapping[str, Any] = {
            Level.INSTANCE: self.snapshot.names("instances"),
            Level.NODEGROUP: self.snapshot.nodegroups,
            Level.NETWORK: self.snapshot.networks,
        }.get(level, self.snapshot.nodes)
        needed = (
            set(existing)
            if request.names is None
            else {name for name in named if name in existing}
        )
        if new := needed - self._sets[level].names():
            self._sets[level].add(sorted(new))

    def _label(self, level: Level, name: str) -> str:
        tables = {
            Level.NODEGROUP: self.snapshot.nodegroups,
            Level.NODE: self.snapshot.nodes,
            Level.NODE_RES: self.snapshot.nodes,
            Level.NETWORK: self.snapshot.networks,
        }
        record: Any = tables.get(level, {}).get(name)
        return name if record is None else str(record.name)


class DryRunRunner(Runner):
    """A runner that sends reading calls, and records acting calls.

    Args:
        real: calls the nodes of the present configuration.
        configured: the configuration that ``real`` knows.
        snapshot: returns the configuration of the plan.
        rpc_at: calls nodes that the plan has added or whose address it changed.
        nodes: the simulated state after the acts so far.

    Attributes:
        recorder: records the acts.
        acts: every act as (procedure, node uuid, arguments), in order.
    """

    def __init__(
        self,
        real: Runner,
        configured: objects.Snapshot,
        snapshot: Callable[[], objects.Snapshot],
        *,
        rpc_at: Callable[[Sequence[Target]], Runner],
        nodes: SimulatedNodes,
    ) -> None:
        self._real = real
        self._configured = configured
        self._snapshot = snapshot
        self._rpc_at = rpc_at
        self._simulated = nodes
        self._added: dict[str, Target] = {}
        self.recorder = Recorder()
        self.acts: list[tuple[str, str, tuple[Any, ...]]] = []

    def at(self, targets: Sequence[Target]) -> Runner:
        """Return this runner, after adding the targets to those it can call."""
        self._added |= {target.uuid: target for target in targets}
        return self

    def call(
        self,
        procedure: str,
        nodes: Sequence[str],
        args: Args | Callable[[str], Args] = (),
        *,
        timeout_s: float | None = None,
    ) -> Mapping[str, Result]:
        """Send or record a call, see `Runner`."""
        row = PROCEDURES.get(procedure)
        if row is None:
            raise errors.ProgrammerError(f"RPC has no procedure {procedure!r}")
        given = {
            node: tuple(
                wire.resolve(value, node)
                for value in (args(node) if callable(args) else args)
            )
            for node in nodes
        }
        reads = [n for n in nodes if simulated_nodes.only_reads(row, given[n])]
        real = self._read(procedure, reads, args, timeout_s=timeout_s)
        results = {
            node: self._simulated.adjust(node, given[node], result)
            for node, result in real.items()
        }
        steps: dict[str, Step] = {}
        for node in nodes:
            if node not in results:
                results[node] = self._act(row, node, given[node], steps)
        self.recorder.steps.extend(steps.values())
        return {node: results[node] for node in nodes}

    # Reads
    def _read(
        self,
        procedure: str,
        nodes: Sequence[str],
        args: Args | Callable[[str], Args],
        *,
        timeout_s: float | None,
    ) -> dict[str, Result]:
        moved = {node: self._moved(node) for node in nodes}
        same = [node for node in nodes if moved[node] is None]
        targets = [target for target in moved.values() if target is not None]
        results: dict[str, Result] = {}
        if same:
            results |= self._real.call(procedure, same, args, timeout_s=timeout_s)
        if targets:
            other = self._rpc_at(targets)
            uuids = [target.uuid for target in targets]
            results |= other.call(procedure, uuids, args, timeout_s=timeout_s)
        return results

    def _moved(self, uuid: str) -> Target | None:
        """Return a node's target if the real runner has another address for it."""
        old = self._configured.nodes.get(uuid)
        new = self._snapshot().nodes.get(uuid)
        if new is None:
            return self._added.get(uuid)
        if old is not None and (old.primary_ip, old.offline) == (
            new.primary_ip,
            new.offline,
        ):
            return None
        return Target(
            uuid, new.name, new.primary_ip, rpc.node_port(), offline=new.offline
        )

    # Acts
    def _act(
        self,
        row: Procedure[..., Any],
        uuid: str,
        args: tuple[Any, ...],
        steps: dict[str, Step],
    ) -> Result:
        node = self._snapshot().nodes.get(uuid)
        added = self._added.get(uuid)
        if node is None and added is None:
            text = "not a node of this cluster"
            return Result(row.name, uuid, fail_msg=text)
        name = node.name if node is not None else str(added and added.name)
        is_offline = node is not None and node.offline
        if is_offline and not row.accept_offline:
            return Result(row.name, name, fail_msg=OFFLINE_TEXT, offline=True)
        shown = describe(row.name, args)
        # Nodes with the same arguments share a step.
        known = steps.get(str(shown))
        names = [name] if known is None else [*known.nodes, name]
        steps[str(shown)] = Step(
            "call", procedure=row.name, nodes=names, arguments=shown
        )
        self.acts.append((row.name, uuid, args))
        self._simulated.record(row.name, uuid, args)
        return Result(row.name, name, simulated_nodes.answer(row, args))


def describe(procedure: str, args: Args) -> dict[str, str]:
    """Return the arguments of a call as short texts by name; secrets are left out."""
    if procedure in ("upload_file", "upload_file_single"):
        path = args[0][0] if isinstance(args[0], (list, tuple)) else args[0]
        return {"file_name": str(path)}
    row = PROCEDURES[procedure]
    return {
        name: text
        for name, value in zip(row.args, args, strict=False)
        if name in row.shown.split() and (text := _short(value))
    }


def _short(value: Any) -> str:
    """Return a short text for a value, or an empty text."""
    if isinstance(value, Mapping):
        if "dev_type" in value:
            address = list(value.get("logical_id") or ())
            return str(value.get("iv_name") or (address[1] if address[1:] else ""))
        return str(value.get("name") or value.get("mac") or "")
    if isinstance(value, (list, tuple)):
        parts = [_short(item) for item in value]
        # The first item of a list is its subject: an instance before its parameters, a
        # disk before its owner.
        text = ", ".join(part for part in parts if part)
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    else:
        text = "" if value is None else str(value)
    return text if len(text) <= _TEXT_CHARS else f"{text[:_TEXT_CHARS]}…"
