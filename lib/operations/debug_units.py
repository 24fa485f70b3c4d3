"""OP_TEST_*: the units of gnt-debug."""

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from ganeti.base import errors
from ganeti.base.constants import ecodes, jobqueue, misc
from ganeti.master import iallocator
from ganeti.master.locking import Level
from ganeti.model import opcodes, serializer
from ganeti.model.objects import lookup
from ganeti.operations import allocation, base
from ganeti.operations.base import LogicalUnit
from ganeti.protocols.rpc import calls


class TestOsParams(LogicalUnit[opcodes.TestOsParams]):
    """Unit that logs the number of secrets, never the secrets."""

    __test__ = False
    READS_ONLY = True

    def execute(self) -> None:
        """Fail on a masked value."""
        secrets = self.op.osparams_secret or {}
        masked = sorted(
            name for name, value in secrets.items() if value == misc.REDACTED
        )
        if masked:
            raise errors.OpExecError(f"OS parameters {', '.join(masked)}: masked")
        self.ctx.log.info(f"received {len(secrets)} secret OS parameter(s)")


class TestAllocator(base.LogicalUnit[opcodes.TestAllocator]):
    """Unit that builds a request about imaginary or real objects; changes nothing."""

    EXCLUSIVE: ClassVar[bool] = True

    def check_arguments(self) -> None:
        """Check that the request has the parameters of its mode."""
        op = self.op
        needed: dict[str, tuple[str, ...]] = {
            "allocate": ("memory", "vcpus", "disks", "disk_template", "os"),
            "multi-allocate": ("memory", "vcpus", "disks", "disk_template", "os"),
            "node-evacuate": ("instances", "evac_mode"),
            "change-group": ("instances",),
            "relocate": (),
            "allocate-secondary": (),
            "balance": (),
            "capacity": ("memory", "vcpus", "disks"),
        }
        for name in needed[op.mode]:
            if getattr(op, name) is None:
                raise self.prereq(f"allocator mode {op.mode} needs {name}")
        if op.direction == "out" and op.iallocator is None:
            raise self.prereq("running an allocator needs its name")

    def check_prereq(self) -> None:
        """Look up the objects that the request names."""
        snapshot, op = self.ctx.snapshot, self.op
        imaginary = op.mode in ("allocate", "multi-allocate")
        if imaginary and snapshot.uuid_of("instances", op.name) is not None:
            raise self.prereq(
                f"instance {op.name}: already exists", ecodes.ECODE_EXISTS
            )
        self.request = self._request()

    def _request(self) -> iallocator.Request:
        snapshot, op = self.ctx.snapshot, self.op
        if op.mode == "allocate":
            return self._allocate(op.name)
        if op.mode == "multi-allocate":
            return iallocator.MultiAllocate(
                [self._allocate(f"{op.name}-{number}") for number in range(op.count)]
            )
        if op.mode == "relocate":
            instance = snapshot.instances[lookup.expand_instance(snapshot, op.name)]
            return iallocator.relocate(snapshot, instance)
        if op.mode == "allocate-secondary":
            uuid = lookup.expand_instance(snapshot, op.name)
            return iallocator.AllocateSecondary(snapshot.instances[uuid].name)
        if op.mode in ("balance", "capacity"):
            return self._of_cluster()
        names = [
            snapshot.instances[lookup.expand_instance(snapshot, name)].name
            for name in op.instances or []
        ]
        if op.mode == "node-evacuate":
            return iallocator.NodeEvacuate(names, op.evac_mode or "")
        targets = [lookup.expand_group(snapshot, n) for n in op.target_groups or []]
        return iallocator.ChangeGroup(names, targets)

    def _of_cluster(self) -> iallocator.Balance | iallocator.Capacity:
        """Return a request about the whole cluster, or one group of it."""
        op, snapshot, group = self.op, self.ctx.snapshot, self._group()
        if op.mode == "balance":
            return iallocator.Balance(op.count, group)
        size = {
            "memory": op.memory or 0,
            "disk": sum(int(disk["size"]) for disk in op.disks or []),
            "vcpus": op.vcpus or 0,
            "spindles": op.spindle_use,
        }
        template = op.disk_template or snapshot.cluster.enabled_disk_templates[0]
        return iallocator.Capacity(
            disk_template=template,
            sizes=[size],
            spindle_use=op.spindle_use,
            groups=[group] if group else None,
            limit=op.count,
        )

    def _group(self) -> str | None:
        """Return the name of the group in the request, if any."""
        if not self.op.group_name:
            return None
        snapshot = self.ctx.snapshot
        return snapshot.nodegroups[
            lookup.expand_group(snapshot, self.op.group_name)
        ].name

    def _allocate(self, name: str) -> iallocator.Allocate:
        op, cluster = self.op, self.ctx.snapshot.cluster
        disks: list[dict[str, Any]] = [dict(item) for item in op.disks or []]
        return iallocator.Allocate(
            name=name,
            disk_template=op.disk_template or cluster.enabled_disk_templates[0],
            tags=op.tags,
            os=op.os or "",
            vcpus=op.vcpus or 0,
            memory=op.memory or 0,
            spindle_use=op.spindle_use,
            disks=disks,
            nics=op.nics or [],
            hypervisor=op.hypervisor or cluster.enabled_hypervisors[0],
            group_name=self._group(),
        )

    def execute(self) -> str:
        """Return the request, or the allocator's answer, as text."""
        if self.op.direction == "in":
            data = iallocator.question(self.ctx.rpc, self.ctx.snapshot, self.request)
            return serializer.pretty(data)
        names = allocation.names(
            self.ctx.snapshot, self.op.iallocator, "allocator", self.request.type
        )
        answer = iallocator.run(self.ctx.rpc, self.ctx.snapshot, names[0], self.request)
        return serializer.pretty(
            {
                "success": answer.success,
                "info": answer.info,
                "result": _plain(answer.result),
            }
        )


def _plain(result: Any) -> Any:
    if isinstance(result, iallocator.Evacuation):
        jobs = [[opcodes.encode(op) for op in job] for job in result.jobs]
        return [list(result.moved), list(result.failed), jobs]
    if isinstance(result, iallocator.MultiPlacement):
        placed = [[name, list(nodes)] for name, nodes in result.placed.items()]
        return [placed, list(result.failed)]
    return result


# OP_TEST_JQUEUE: stop at certain points until a test client continues.

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
            raise self.prereq("test client did not answer")

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
        with Waker() as pause:
            self.ctx.log.entry(jobqueue.ELOG_JQUEUE_TEST, [pause.path, point, argument])
            return pause.wait_for_answer(_CONNECT_TIMEOUT_S, _ANSWER_TIMEOUT_S)


# A socket by which a test client ends a wait early.
#
# The only logical units that open a socket: the wait itself is under test, and the
# other end is a test client on the same machine.


class Waker:
    """A unix socket in a private directory, open within the ``with`` body."""

    def __enter__(self) -> Self:
        self._directory = tempfile.mkdtemp(prefix="ganeti-test-")
        self.path = os.path.join(self._directory, "wake")
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(self.path)
        self._server.listen(1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def wait(self, timeout_s: float) -> bool:
        """Wait until a client connects; return false on time-out."""
        self._server.settimeout(timeout_s)
        try:
            connection, _ = self._server.accept()
        except TimeoutError:
            return False
        connection.close()
        return True

    def wait_for_answer(self, connect_s: float, answer_s: float) -> bool:
        """Wait until a client connects and then sends data or disconnects.

        Returns:
            False if one of the two waits timed out.
        """
        self._server.settimeout(connect_s)
        try:
            connection, _ = self._server.accept()
        except TimeoutError:
            return False
        with connection:
            deadline = time.monotonic() + answer_s
            connection.settimeout(max(0.0, deadline - time.monotonic()))
            try:
                connection.recv(1)
            except TimeoutError:
                return False
        return True


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
                with Waker() as sleeper:
                    self.ctx.log.entry(jobqueue.ELOG_DELAY_TEST, [sleeper.path])
                    sleeper.wait(duration)
            else:
                self.ctx.pause(duration)
        if not self.nodes:
            return
        # The time limit of the procedure does not depend on the duration.
        answers = self.ctx.rpc.call_nodes(
            self.nodes, calls.test_delay(duration), timeout_s=duration + 5
        )
        for answer in answers.values():
            if not answer.offline:
                answer.unwrap("test delay")
            else:
                raise errors.OpExecError(answer.describe("test delay"))
