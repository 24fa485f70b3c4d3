"""What the queue and those who carry out opcodes agree on.

The executor (`ganeti.mcpu`) sits above the queue, so the words between them stand
here. Nothing here does anything.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ganeti import opcodes


class LockTimeout(Exception):
    """The opcode's locks were not had in time; nothing was changed, try again later.

    Also for resources that are missing for the moment.
    """


class Canceled(Exception):
    """The opcode gave up on request before it changed anything."""


@dataclasses.dataclass(frozen=True)
class SubmitJobs:
    """Result of an opcode that submits jobs; the queue turns it into their ids.

    Attributes:
        jobs: one list of opcodes per job; ``depends`` may count backwards.
        other: further members of the result object.
    """

    jobs: Sequence[Sequence[opcodes.Opcode]]
    other: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Callbacks(Protocol):
    """The running opcode's side of the queue. Thread-safe."""

    @property
    def job_id(self) -> int:
        """The job."""

    @property
    def index(self) -> int:
        """Place of the opcode in its job, from 0."""

    def notify_start(self, *, durable: bool = True) -> None:
        """Tell that the locks are held and execution begins: state ``running``.

        Args:
            durable: return only when that is on disk, so that a crash cannot make
                the opcode run twice. Units without outside effects pass false.

        Raises:
            Canceled: the job was canceled meanwhile; let it through.
        """

    def log(self, kind: str, payload: Any) -> None:
        """Add a line to the job log, see ``constants.jobqueue`` ELOG_*."""

    def check_cancel(self) -> None:
        """Raise Canceled if the opcode should end now.

        That is: asked to cancel while it waits, or to be killed while it runs.
        """


class Executor(Protocol):
    """Carries out one opcode in the calling thread."""

    def execute(
        self,
        op: opcodes.Opcode,
        callbacks: Callbacks,
        *,
        timeout_s: float | None,
        priority: int,
    ) -> Any:
        """Take an opcode through its phases.

        Args:
            op: what to do.
            callbacks: for state, log and cancelation.
            timeout_s: for all locks together; None waits for ever.
            priority: for the locks.

        Returns:
            The result, anything that has a JSON form, or `SubmitJobs`.

        Raises:
            LockTimeout: locks not had in time; all were given back.
            Canceled: from `Callbacks`.
            GenericError: it failed.
        """
