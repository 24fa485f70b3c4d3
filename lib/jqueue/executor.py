"""Between the queue and what carries opcodes out: who promises what.

The queue calls an `Executor` in a worker thread; the executor reports back through
`Callbacks`. `ganeti.mcpu` implements the executor; tests use small fakes. Nothing
here does anything.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ganeti.opcodes import Opcode


class LockTimeout(Exception):
    """The locks were not had in time; nothing was done and none are held.

    Also for other resources that are missing for the moment: try again later.
    """


class Canceled(Exception):
    """The job was canceled before execution; nothing was done, no locks are held."""


@dataclasses.dataclass(frozen=True)
class SubmitJobs:
    """Result of a logical unit that submits jobs; the executor submits them.

    Attributes:
        jobs: one list of opcodes per job; ``depends`` may count backwards.
        other: further members of the result object.
    """

    jobs: Sequence[Sequence[Opcode]]
    other: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Callbacks(Protocol):
    """The queue's side of one opcode, called by the executor.

    Attributes:
        owner: names the attempt in lock lists and reservations, such as ``812/0``
            (job id, opcode index).
    """

    owner: str

    def check_canceled(self) -> None:
        """Raise `Canceled` if the job was canceled; asked between phases.

        Also while the opcode runs, if the job is to be killed; what raises then
        ends as an error.
        """

    def started(self, *, durable: bool = True) -> None:
        """All locks are held: the opcode runs from now on. Raises `Canceled`.

        Args:
            durable: return only when that is on disk, so that no crash can make the
                opcode run twice. Units without outside effects may pass false.
        """

    def on_interrupt(self, call: Callable[[], None]) -> None:
        """Have something called when waiting for locks is to end early.

        That is when the job is canceled, gets another priority, or the queue stops;
        at once if it already was. The executor then raises `LockTimeout` or
        `Canceled`. The call comes from another thread and must not block.
        """

    def log(self, kind: str, payload: Any) -> None:
        """Add an entry to the job's log; ``kind`` is one of the ELOG_* words.

        Raises `Canceled` once if the job is to be killed: lines are where an opcode
        that knows nothing of this can be ended; what it does then may log again.
        """

    def submit_jobs(
        self, jobs: Sequence[Sequence[Opcode]]
    ) -> list[tuple[bool, int | str]]:
        """Queue jobs that the opcode asks for.

        Args:
            jobs: complete opcodes (priority, reasons, comment are filled in);
                ``depends`` may count backwards within this list.

        Returns:
            per job: true and its id, or false and why not.
        """


class Executor(Protocol):
    """Carries out opcodes; thread-safe."""

    def execute(
        self,
        op: Opcode,
        callbacks: Callbacks,
        *,
        timeout_s: float | None,
        priority: int,
    ) -> Any:
        """Carry out one opcode and return its result in wire form.

        Args:
            op: with secrets, which stay in memory.
            callbacks: the job's side.
            timeout_s: for all locks together; None waits without limit.
            priority: of lock requests, smaller is more urgent.

        Raises:
            LockTimeout: try again later, with a longer timeout.
            Canceled: see `Callbacks`.
            GenericError: the opcode failed; never any other exception.
        """
