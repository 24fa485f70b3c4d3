"""OP_TEST_JQUEUE: stop at certain points until a test client continues."""

from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes, jobqueue
from ganeti.model import opcodes
from ganeti.operations.base import LogicalUnit
from ganeti.operations.test import waker

#: Seconds for the client to connect, and then to continue.
_CONNECT_TIMEOUT_S: Final = 20.0
_ANSWER_TIMEOUT_S: Final = 60.0
#: Beginning of the messages, by which a test client knows them.
_PREFIX: Final = "TESTMSG="


class TestJqueue(LogicalUnit[opcodes.TestJqueue]):
    """Unit that reports its progress by log entries ``[socket, point, argument]``.

    Points: ``expandnames`` before locks, ``exec`` at execution, ``startmsg`` before
    messages with their number, ``logmsg`` before each one with its number from 1.
    """

    __test__ = False
    READS_ONLY = True

    @classmethod
    def can_plan(cls, op: opcodes.Opcode) -> bool:
        """Return whether no test client has to connect."""
        return isinstance(op, opcodes.TestJqueue) and not (
            op.notify_waitlock or op.notify_exec
        )

    def expand_names(self) -> None:
        """Pause before the locks if requested."""
        if self.op.notify_waitlock and not self._pause("expandnames", None):
            raise self.prereq("test client did not answer", ecodes.ECODE_INVAL)

    def execute(self) -> bool:
        """Pause, log or fail, as requested."""
        if self.op.notify_exec:
            self._pause_or_fail("exec", None)
        if self.op.log_messages:
            if self.op.notify_exec:
                self._pause_or_fail("startmsg", len(self.op.log_messages))
            for number, text in enumerate(self.op.log_messages, 1):
                self.ctx.log.message(f"{_PREFIX}{text}")
                if self.op.notify_exec:
                    self._pause_or_fail("logmsg", number)
        if self.op.fail:
            raise errors.OpExecError("opcode failure was requested")
        return True

    def _pause_or_fail(self, point: str, argument: Any) -> None:
        if not self._pause(point, argument):
            raise errors.OpExecError(f"test client did not answer at {point}")

    def _pause(self, point: str, argument: Any) -> bool:
        with waker.Waker() as pause:
            self.ctx.log.entry(jobqueue.ELOG_JQUEUE_TEST, [pause.path, point, argument])
            return pause.wait_for_answer(_CONNECT_TIMEOUT_S, _ANSWER_TIMEOUT_S)
