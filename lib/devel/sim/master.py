"""A master daemon in virtual time: real queue, engine and LUXI methods.

`Master` is one life of the daemon; after `Master.kill` a new one goes on from the
store, as a restarted process would. Workers of the queue are tasks of the scheduler.
"""

import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Final, Self, cast

import msgspec

from ganeti.base import errors, pathutils
from ganeti.base.clock import Clock
from ganeti.base.timers import Timer, Timers
from ganeti.daemons.masterd import MasterDeps, service
from ganeti.daemons.masterd.methods import calls
from ganeti.decisions.jobs.entry import Entry, to_json_form
from ganeti.devel.sim.hardware import Hardware
from ganeti.devel.sim.nodes import SimulatedRunner
from ganeti.devel.sim.scheduler import Scheduler, Task, TaskEnded
from ganeti.devel.sim.store import Data, SimulatedStore
from ganeti.master import jqueue, locking, query
from ganeti.master.jqueue.effects import Documents, WorkerPool
from ganeti.model.objects import Snapshot
from ganeti.operations import mcpu
from ganeti.operations.unit_table import UNITS
from ganeti.protocols import luxi
from ganeti.store import Store

#: Seconds between two attempts to get locks that others hold.
_LOCK_LOOK_S: Final = 0.5
_NO_CHANGE: Final = "nochange"
#: Fields of jobs are queried by these methods; answers to the others can be kept while
#: the configuration does not change.
_KEPT: Final = frozenset({"node", "instance", "group"})
_ROOT: Final = "/nonexistent/simulation"


class _Inline(Executor):
    """Runs a function in the thread of its caller."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run it; return its result."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as err:  # noqa: BLE001 - raised by the future's result
            future.set_exception(err)
        return future


class _Locks(locking.LockManager):
    """Locks whose waiters sleep in virtual time; who asks first is not first."""

    def __init__(self, scheduler: Scheduler, members: Any) -> None:
        super().__init__(scheduler, members)
        self._scheduler = scheduler

    def acquire(
        self, request: locking.Request, timeout_s: float | None = None
    ) -> frozenset[str] | None:
        """Take locks of one level, see `LockManager`."""
        if request.opportunistic and timeout_s is not None:
            return super().acquire(request, timeout_s)
        end = None if timeout_s is None else self._scheduler.monotonic() + timeout_s
        while True:
            # A real wait would keep the turn, so nobody could ever give the lock back.
            got = super().acquire(request, 0.0)
            is_interrupted = threading.current_thread() in self._interrupted
            left_s = _LOCK_LOOK_S
            if end is not None:
                left_s = min(left_s, end - self._scheduler.monotonic())
            if got is not None or is_interrupted or left_s <= 0:
                return got
            self._scheduler.sleep(left_s)


class _Timers(Timers):
    """Timers of the queue, run by the scheduler."""

    def __init__(self, life: "Master", scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._life = life
        self._scheduler = scheduler

    def start(self) -> None:
        """Do nothing: there is no thread."""

    def stop(self) -> None:
        """Do nothing: there is no thread."""

    def after(self, seconds: float, action: Callable[[], None]) -> Timer:
        """Run an action after some seconds."""
        timer = Timer(self, self._scheduler.monotonic() + seconds, action)

        def fire() -> None:
            call, timer.action = timer.action, None
            if call is not None and not self._life.is_dead:
                call()

        self._scheduler.at(seconds, fire)
        return timer

    def note_canceled(self) -> None:
        """Do nothing: a canceled timer has no action when it is due."""


class _Pool(WorkerPool[Entry]):
    """Workers of the queue: one task per job that gets a worker."""

    def __init__(self, work: Callable[[Entry], None], life: "Master") -> None:
        super().__init__(work)
        self._life = life
        self._run = work
        self._number = 0

    def put(self, task: Entry, busy: int) -> None:
        """Begin a task for a job."""
        del busy
        self._number += 1
        self._life.spawn(f"Jq{self._number}", lambda: self._run(task))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Deps(MasterDeps):
    """The dependencies of a simulated master daemon."""

    life: "Master"

    def __post_init__(self) -> None:
        super().__post_init__()
        members = mcpu.members(self.config.snapshot())
        locks = _Locks(self.life.scheduler, members)
        object.__setattr__(self, "locks", locks)

    @functools.cached_property
    def queue(self) -> jqueue.JobQueue:
        """The job queue, with tasks for workers."""
        return jqueue.JobQueue(
            cast("Documents", self.store),
            mcpu.Processor(self, UNITS),
            self.clock,
            jqueue.Settings(on_failure=_ignore_failure),
            # Two runs of a simulation are equal, so nothing is left to chance.
            chance=lambda: 0.5,
            make_pool=lambda work: _Pool(work, self.life),
            timers=_Timers(self.life, self.life.scheduler),
        )


@dataclasses.dataclass(frozen=True)
class _Table:
    """An answer about all instances.

    Attributes:
        snapshot: the configuration that it was made from.
        fields: their definitions.
        rows: one per instance.
        places: name -> position of its row.
    """

    snapshot: Snapshot
    fields: Any
    rows: list[Any]
    places: Mapping[str, int]

    def changed(self, snapshot: Snapshot) -> set[str] | None:
        """Return the instances whose rows differ now; None if any row may."""
        before = self.snapshot
        is_similar = all(
            snapshot.table(name) is before.table(name)
            for name in ("cluster", "nodegroups", "networks", "nodes")
        ) and snapshot.names("instances") is before.names("instances")
        return snapshot.changed_instances(before) if is_similar else None


class Master:
    """One life of the master daemon.

    Attributes:
        scheduler: the time.
        is_dead: it was killed.
        deps: its dependencies.
    """

    def __init__(self, scheduler: Scheduler, hardware: Hardware, data: Data) -> None:
        """Start the daemon on the machine that the configuration names."""
        self.scheduler = scheduler
        self.is_dead = False
        self._tasks: list[Task] = []
        self._data = data
        store = SimulatedStore(data)
        self._store = store
        runner = SimulatedRunner(hardware, scheduler, store.snapshot, self.machine)
        self.deps = _Deps(
            store=cast("Store", store),
            rpc=runner,
            clock=cast("Clock", scheduler),
            paths=pathutils.Paths(root=_ROOT, hostname=self.machine()),
            lookup_host=_lookup,
            tcp_ping=lambda address, _port, _source: hardware.reaches(
                self.machine(), self._at(address)
            ),
            address_answers=lambda address: hardware.reaches(
                self.machine(), self._at(address)
            ),
            rpc_at=lambda _targets: runner,
            on_deposed=self.kill,
            write_known_hosts=_ignore_file,
            quick=_Inline(),
            slow=_Inline(),
            planning=_Inline(),
            threads=lambda _number, _name: _Inline(),
            server_reacts=lambda address, _port: hardware.reaches(
                self.machine(), self._at(address)
            ),
            life=self,
        )
        self.deps.queue.recover()
        service.mark_creations(self.deps.config)
        self.deps.queue.start()
        self._answers: dict[bytes, Any] = {}
        #: Fields of instances -> the last answer with them.
        self._tables: dict[tuple[str, ...], _Table] = {}
        self._answered_for: Snapshot | None = None

    def machine(self) -> str:
        """Return the name of the machine of the master."""
        snapshot = self._data.snapshot
        return str(snapshot.nodes[snapshot.cluster.master_node].name)

    def _at(self, address: str) -> str:
        nodes = self._data.snapshot.nodes.values()
        return next((node.name for node in nodes if node.primary_ip == address), "")

    def spawn(self, name: str, work: Callable[[], None], delay_s: float = 0.0) -> None:
        """Begin a task that ends with this daemon."""
        self._tasks = [task for task in self._tasks if not task.is_over]
        self._tasks.append(self.scheduler.spawn(name, work, delay_s))

    def kill(self) -> None:
        """End the daemon and all its tasks at once, as a power failure would."""
        self.is_dead = True
        self._store.close()
        for task in self._tasks:
            task.is_killed = True

    def client(self) -> "Client":
        """Return a connection to the daemon."""
        return Client(self)

    # Requests
    def call(self, method: str, args: Sequence[Any]) -> Any:
        """Answer a request.

        Raises:
            NoMasterError: the daemon was killed.
            GenericError: that of the method.
        """
        if self.is_dead:
            raise errors.NoMasterError(_ROOT)
        if method == "WaitForJobChange":
            return self._wait(*args)
        is_kept = method == "QueryClusterInfo" or (
            method == "Query" and args[0] in _KEPT and not query.asks_nodes(*args)
        )
        if is_kept:
            return self._kept(method, args)
        return self._answer(method, args)

    def _answer(self, method: str, args: Sequence[Any]) -> Any:
        known = calls.METHODS.get(method)
        if known is None:
            raise errors.RequestError(f"unknown method {method!r}")
        # As after a way over a socket: tuples are lists, and nothing is shared with the
        # caller.
        plain = msgspec.json.decode(msgspec.json.encode(list(args)))
        try:
            given = msgspec.convert(plain, known.arguments)
            result = known.function(self.deps, **msgspec.structs.asdict(given))
            if isinstance(result, calls.Later):
                result = result.convert(result.future.result())
        except (calls.Malformed, msgspec.ValidationError) as err:
            raise errors.RequestError(f"{method}: {err}") from err
        if self.is_dead:
            # Killed during the method: a client hears nothing of it.
            raise TaskEnded
        return msgspec.json.decode(msgspec.json.encode(result))

    def _kept(self, method: str, args: Sequence[Any]) -> Any:
        """Answer from the configuration alone; computed once for each revision."""
        snapshot = self._data.snapshot
        if method == "Query" and args[0] == "instance" and args[2] is None:
            return self._instances(snapshot, list(args[1]))
        # A snapshot never changes, so another object is another state.
        if self._answered_for is not snapshot:
            self._answered_for = snapshot
            self._answers.clear()
        key = msgspec.json.encode([method, list(args)])
        if key not in self._answers:
            self._answers[key] = self._answer(method, args)
        return self._answers[key]

    def _instances(self, snapshot: Snapshot, fields: list[str]) -> Any:
        """Answer a query of all instances; only changed ones are computed again."""
        known = self._tables.get(tuple(fields))
        changed = None if known is None else known.changed(snapshot)
        if known is None or changed is None:
            answer = self._answer("Query", ["instance", fields, None])
            names = self._answer("Query", ["instance", ["name"], None])["data"]
            places = {name: at for at, ((_status, name),) in enumerate(names)}
            known = _Table(snapshot, answer["fields"], answer["data"], places)
        elif known.snapshot is not snapshot:
            rows = list(known.rows)
            named = [snapshot.instances[uuid].name for uuid in sorted(changed)]
            if named:
                qfilter = ["|", *(["==", "name", name] for name in named)]
                answer = self._answer("Query", ["instance", fields, qfilter])
                for name, row in zip(named, answer["data"], strict=True):
                    rows[known.places[name]] = row
            known = dataclasses.replace(known, snapshot=snapshot, rows=rows)
        self._tables[tuple(fields)] = known
        return {"fields": known.fields, "data": known.rows}

    def _wait(
        self,
        job_id: int | str,
        fields: list[str],
        previous: Any = None,
        serial: int | None = None,
        timeout_s: float = 60.0,
    ) -> Any:
        """Answer when a job differs from what the client knows."""
        number = int(job_id)
        values = query.job_values(fields)

        def change() -> Any:
            job = self.deps.queue.job(number)
            if job is None or self.is_dead:
                return None
            present = to_json_form(values(job))
            lines = job.log_after(serial)
            is_new = present != previous or bool(lines) or job.is_final
            return [present, lines] if is_new else _NO_CHANGE

        self.scheduler.sleep_until(lambda: change() != _NO_CHANGE, timeout_s)
        answer = change()
        if answer is None:
            raise errors.JobLost(f"job {number} is not in the queue")
        return msgspec.json.decode(msgspec.json.encode(answer))


class Client(luxi.Client):
    """A connection to a simulated master daemon."""

    def __init__(self, master: Master) -> None:
        super().__init__(f"{_ROOT}/master.sock")
        self._master = master

    def call(self, method: str, args: Sequence[Any] = (), **_options: Any) -> Any:
        """Send a request, see `ganeti.protocols.luxi.Client`."""
        return self._master.call(method, args)

    def __enter__(self) -> Self:
        return self

    def close(self) -> None:
        """Do nothing: there is no socket."""


def _lookup(name: str) -> tuple[str, Sequence[str]]:
    raise errors.ResolverError(name, 1, "names are not simulated")


def _ignore_file(_path: str, _text: str) -> None:
    """Write nothing."""


def _ignore_failure(_error: BaseException) -> None:
    """Ignore it: the daemon is dead already."""
