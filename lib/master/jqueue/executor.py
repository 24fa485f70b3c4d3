"""The interface between the queue and the executor of opcodes.

The queue calls an `Executor` in a worker thread; the executor reports back through
`Callbacks`. `ganeti.operations.mcpu` implements the executor; tests use small fakes.
This module has no behaviour.
"""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ganeti.master.jqueue.documents import Document
from ganeti.model.opcodes import Opcode


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
