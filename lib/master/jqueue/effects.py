"""The effects of the queue: opcodes are executed, documents stored, threads started.

The queue calls an `Executor` in a worker thread; the executor reports back through
`Callbacks`. `ganeti.operations.mcpu` implements the executor; tests use small fakes.

`Documents` is the interface to the store. The documents of the queue are:

====================  ============================================================
``jobs/<id>``         a live job, see `ganeti.decisions.jobs.records`
``archive/<id>``      an archived job, same form
``archive/<id>/<n>``  log entries of an archived job, ``n`` and following ones
``joblogs/<id>/<n>``  log entry ``n`` of a live job; or of an archived one, while
                      a candidate's release does not know the form above
``meta/serial``       the last job id given out
``meta/drain``        exists while the queue is drained
====================  ============================================================

Worker threads are created when first needed and then kept. The caller decides on the
tasks and their number: `WorkerPool.put` must be called only while fewer jobs run than
the limit allows.
"""

import contextlib
import dataclasses
import itertools
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from ganeti.base import clock
from ganeti.model.objects import Snapshot
from ganeti.model.opcodes import Opcode

JOBS: Final = "jobs"
ARCHIVE: Final = "archive"
LOGS: Final = "joblogs"
META: Final = "meta"
SERIAL: Final = "serial"
DRAIN: Final = "drain"
#: Feature of the stored form: logs of archived jobs are in the archive.
ARCHIVED_LOGS: Final = "archived-logs"


class Document(NamedTuple):
    """One changed document; ``data`` None removes it."""

    table: str
    key: str
    data: bytes | None


class Documents(Protocol):
    """The part of `ganeti.store.Store` that the queue uses."""

    def snapshot(self) -> Snapshot:
        """Return the newest configuration; never blocks."""

    def commit_soon(
        self,
        changes: Sequence[Document],
        done: Callable[[int, BaseException | None], None] | None = None,
        *,
        wait_s: float = 0.0,
    ) -> None:
        """Request a commit; ``done`` is called from another thread."""

    def may_use(self, feature: str) -> bool:
        """Return whether a feature of the stored form may be used."""

    def read(self, table: str, key: str) -> bytes | None:
        """Return one document."""

    def scan(self, table: str, prefix: str = "") -> Iterator[tuple[str, bytes]]:
        """Yield the documents of a table."""


class LockTimeout(Exception):
    """The locks were not acquired in time; nothing was done and none are held.

    Also raised for other temporarily missing resources: try again later.

    Attributes:
        blockers: threads that held a lock in a conflicting mode; empty if unknown.
    """

    def __init__(
        self, text: str = "", blockers: frozenset[threading.Thread] = frozenset()
    ) -> None:
        super().__init__(text)
        self.blockers = blockers


class Canceled(Exception):
    """The job was canceled before execution; nothing was done, no locks are held."""


@dataclasses.dataclass
class CarriedLog:
    """Log entries of a job that a commit of its opcode takes along.

    Attributes:
        documents: to be committed; none if the entries are on their way already.
        is_stored: set by the caller when they are durable.
    """

    documents: Sequence[Document] = ()
    is_stored: bool = False


@dataclasses.dataclass(frozen=True)
class SubmitJobs:
    """Result of a logical unit that submits jobs; the executor submits them.

    Attributes:
        jobs: one list of opcodes per job; ``depends`` may count backwards.
        other: additional members of the result object.
    """

    jobs: Sequence[Sequence[Opcode]]
    other: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Callbacks(Protocol):
    """The callbacks of one opcode, called by the executor.

    Attributes:
        owner: name of the attempt in lock lists and reservations, such as ``812/0``
            (job id, opcode index).
        submitted_at: monotonic time at which the queue took the job in; infinite if the
            opcode is of no job.
        resumption: what an earlier run of the opcode passed to `save_resumption` before
            its master daemon ended; None if the opcode begins.
    """

    owner: str
    submitted_at: float
    resumption: Any

    def check_canceled(self) -> None:
        """Raise `Canceled` if the job was canceled; called between phases.

        Also raises during the execution of an opcode if the job must be killed; the
        opcode then ends as an error.
        """

    def started(self, *, durable: bool = True) -> None:
        """Mark the opcode as running, with all locks held. Raises `Canceled`.

        Args:
            durable: return only when this is on disk, so an opcode never runs twice
                after a crash. With false, it is on disk before the next act on a node,
                see `save_log`, and at the latest with the next commit of the opcode.
        """

    def on_interrupt(self, call: Callable[[], None]) -> None:
        """Register a callback that ends a wait for locks early.

        The queue calls it when the job is canceled, gets another priority, or the queue
        stops; at once if this has already happened. The executor then raises
        `LockTimeout` or `Canceled`. The call comes from another thread and must not
        block.
        """

    def on_kill(self, call: Callable[[], None]) -> None:
        """Register a callback that ends a wait of the running opcode for nodes.

        The queue calls it each time that a client asks to kill the job. The call comes
        from another thread and must not block.
        """

    def log(self, kind: str, payload: Any) -> None:
        """Add an entry to the job's log; ``kind`` is one of the ELOG_* constants.

        Raises `Canceled` once if the job must be killed: log lines are points where any
        opcode can be ended. Its cleanup may log again.
        """

    def save_log(self) -> None:
        """Return when all log entries so far are on disk; called before acts on nodes.

        A disk that fails or a majority that is missing is logged and prevents no act:
        an opcode must be able to clean up. Nothing may act before the start of the
        opcode is on disk, too, so this waits for that without limit.

        Raises:
            JobQueueError: the start of the opcode could not be stored.

        Never returns in a resumable opcode whose daemon is stopping: the next daemon
        continues the opcode, so this one must not act any more.
        """

    def carry_log(self) -> contextlib.AbstractContextManager[CarriedLog]:
        """Give the log entries that are not on disk to a commit of the caller.

        So an opcode that logs what it changes needs one commit, not two. Entries that
        are not marked as stored at the end of the context are saved as usual.
        """

    def save_resumption(self, value: Any) -> None:
        """Store what a restarted daemon needs in order to continue this opcode.

        From now on the opcode does not fail if the daemon ends: the next one runs it
        again with this value as `resumption`. Returns when the value is durable.

        Args:
            value: of JSON types; None if the opcode cannot be continued any more.

        Raises:
            JobQueueError: the value cannot be stored.
        """

    def submit_jobs(
        self, jobs: Sequence[Sequence[Opcode]]
    ) -> list[tuple[bool, int | str]]:
        """Queue jobs on behalf of the opcode.

        Args:
            jobs: complete opcodes (priority, reasons, comment are filled in);
                ``depends`` may count backwards within this list.

        Returns:
            per job: true and its id, or false and the reason.
        """


class Executor(Protocol):
    """The executor of opcodes; thread-safe."""

    def execute(
        self,
        op: Opcode,
        callbacks: Callbacks,
        *,
        timeout_s: float | None,
        priority: int,
    ) -> Any:
        """Execute one opcode and return its result in wire form.

        Args:
            op: the opcode with its secrets, which stay in memory.
            callbacks: the callbacks of the job.
            timeout_s: time limit of all locks together; None waits without limit.
            priority: priority of lock requests, smaller is more urgent.

        Raises:
            LockTimeout: try again later, with a longer timeout.
            Canceled: see `Callbacks`.
            GenericError: the opcode failed; never any other exception.
        """


_log = logging.getLogger(__name__)
T = TypeVar("T")

#: Seconds between two looks at a thread that is waited for.
_STEP_S: Final = 0.1


class WorkerPool(Generic[T]):
    """Threads named ``Jq1``, ``Jq2``, … that call a function for each task."""

    def __init__(self, work: Callable[[T], None]) -> None:
        self._work = work
        self._inbox: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self._numbers = itertools.count(1)
        self._threads: list[threading.Thread] = []

    @property
    def size(self) -> int:
        """The number of threads."""
        return len(self._threads)

    def put(self, task: T, busy: int) -> None:
        """Pass a task to a free thread.

        Args:
            task: the argument of the function.
            busy: number of unfinished tasks with this one; a thread is added if needed.
        """
        self._inbox.put(task)
        if busy > len(self._threads):
            name = f"Jq{next(self._numbers)}"
            thread = threading.Thread(
                target=self._loop, args=(name,), name=name, daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def stop(
        self,
        clk: clock.Clock,
        timeout_s: float | None = None,
        *,
        is_left: Callable[[threading.Thread], bool] = lambda _thread: False,
    ) -> bool:
        """End the threads after their present tasks; return whether all have ended.

        Args:
            clk: the clock.
            timeout_s: seconds to wait for all threads together; None: no limit.
            is_left: returns whether a thread is not waited for any longer.
        """
        for _ in self._threads:
            self._inbox.put(None)
        end = None if timeout_s is None else clk.monotonic() + timeout_s
        for thread in self._threads:
            while thread.is_alive() and not is_left(thread):
                left_s = _STEP_S if end is None else end - clk.monotonic()
                if left_s <= 0:
                    break
                thread.join(min(left_s, _STEP_S))
        return not any(thread.is_alive() for thread in self._threads)

    def _loop(self, name: str) -> None:
        me = threading.current_thread()
        while (task := self._inbox.get()) is not None:
            try:
                self._work(task)
            except Exception:  # noqa: BLE001 - the worker must survive
                _log.exception("%s: task failed", name)
            me.name = name
