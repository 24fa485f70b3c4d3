"""OP_TEST_DELAY: sleep, on the master and on nodes."""

from collections.abc import Sequence

from ganeti.base import errors
from ganeti.base.constants import ecodes, jobqueue
from ganeti.master.locking import Level
from ganeti.model import opcodes
from ganeti.model.objects import lookup
from ganeti.operations.base import LogicalUnit
from ganeti.operations.test import waker


class TestDelay(LogicalUnit[opcodes.TestDelay]):
    """Unit that sleeps on the master, then on all nodes; a socket may end the sleep."""

    __test__ = False
    READS_ONLY = True

    @classmethod
    def can_plan(cls, op: opcodes.Opcode) -> bool:
        """Return whether the sleep does not wait for a client at a socket."""
        return not (isinstance(op, opcodes.TestDelay) and op.interruptible)

    def check_arguments(self) -> None:
        """Check the duration and that only the master's sleep is interruptible."""
        if self.op.duration <= 0:
            raise self.prereq(
                f"duration: wanted more than 0 seconds, found {self.op.duration:g}"
            )
        if self.op.interruptible and (self.op.on_nodes or self.op.on_node_uuids):
            raise self.prereq(
                "an interruptible delay is only possible on the master, found nodes"
            )

    def expand_names(self) -> None:
        """Look the nodes up; lock them if requested."""
        self.nodes: Sequence[str] = ()
        if self.op.on_nodes or self.op.on_node_uuids:
            snapshot = self.ctx.snapshot
            for uuid in self.op.on_node_uuids or ():
                if uuid not in snapshot.nodes:
                    raise self.prereq(f"node {uuid} is unknown", ecodes.ECODE_NOENT)
            named = {lookup.expand_node(snapshot, name) for name in self.op.on_nodes}
            self.nodes = sorted(named | set(self.op.on_node_uuids or ()))
        locked = set(self.nodes)
        if self.op.on_master:
            locked.add(self.ctx.snapshot.cluster.master_node)
        if locked and not self.op.no_locks:
            self.locks.names[Level.NODE] = sorted(locked)

    def execute(self) -> None:
        """Sleep as often as requested."""
        rounds = self.op.repeat + 1
        for number in range(1, rounds + 1):
            if rounds > 1:
                self.ctx.log.info(f"Test delay iteration {number}/{rounds}")
            self._sleep()

    def _sleep(self) -> None:
        duration = self.op.duration
        if self.op.on_master:
            if self.op.interruptible:
                with waker.Waker() as sleeper:
                    self.ctx.log.entry(jobqueue.ELOG_DELAY_TEST, [sleeper.path])
                    sleeper.wait(duration)
            else:
                self.ctx.pause(duration)
        if not self.nodes:
            return
        # The time limit of the procedure does not depend on the duration.
        answers = self.ctx.rpc.call(
            "test_delay", self.nodes, (duration,), timeout_s=duration + 5
        )
        for answer in answers.values():
            if not answer.offline:
                answer.unwrap("test delay")
            else:
                raise errors.OpExecError(answer.describe("test delay"))
