"""The node calls and pauses that jobs wait for now; asked for, never written.

A client that shows a job on a terminal asks when the job has not advanced for some
seconds, so short calls cost nothing but a note in memory.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti.base.clock import Clock
from ganeti.model.objects import Snapshot
from ganeti.protocols.rpc import Result, Runner
from ganeti.protocols.rpc.table import PROCEDURES

#: Names of arguments that bound the duration of a call, in seconds.
_LIMITS: Final = frozenset({"duration", "shutdown_timeout", "timeout"})


class Wait(NamedTuple):
    """One wait.

    Attributes:
        procedure: the node call; empty for a pause.
        nodes: UUIDs of the nodes that were called.
        began: monotonic time.
        limit_s: seconds after which it ends at the latest; None if not known.
    """

    procedure: str
    nodes: Sequence[str]
    began: float
    limit_s: float | None

    def left_s(self, now: float) -> float | None:
        """Return the seconds that are left at most; None if not known.

        A call may go on after its limit, with the part that the limit is not about.
        """
        if self.limit_s is None or now >= self.began + self.limit_s:
            return None
        return round(self.began + self.limit_s - now, 1)

    def describe(self, snapshot: Snapshot) -> str:
        """Return what is waited for, as the object of a sentence."""
        if not self.procedure:
            return "the end of a pause"
        what = PROCEDURES[self.procedure].waits_for or f"the call {self.procedure}"
        known = (snapshot.nodes.get(uuid) for uuid in self.nodes)
        names = sorted(node.name for node in known if node is not None)
        if len(names) == 1:
            return f"{what} on {names[0]}"
        return f"{what} on {len(self.nodes)} nodes"


class PresentWaits:
    """The present wait of each opcode, by its owner name; thread-safe."""

    def __init__(self) -> None:
        self._waits: dict[str, Wait] = {}

    @contextlib.contextmanager
    def during(self, owner: str, wait: Wait) -> Iterator[None]:
        """Keep a wait during a block."""
        self._waits[owner] = wait
        try:
            yield
        finally:
            self._waits.pop(owner, None)

    def of_job(self, job_id: int) -> list[Wait]:
        """Return the waits of a job, at most one."""
        prefix = f"{job_id}/"
        return [
            wait
            for owner, wait in list(self._waits.items())
            if owner.startswith(prefix)
        ]


class NotingRunner(Runner):
    """A runner that keeps each call among the present waits.

    Args:
        inner: calls the nodes.
        waits: of all jobs.
        owner: of the opcode, see `ganeti.master.jqueue.Callbacks`.
        clock: measures the time.
    """

    def __init__(
        self, inner: Runner, waits: PresentWaits, owner: str, clock: Clock
    ) -> None:
        self._inner = inner
        self._waits = waits
        self._owner = owner
        self._clock = clock

    def call(
        self,
        procedure: str,
        nodes: Sequence[str],
        args: Sequence[Any] | Callable[[str], Sequence[Any]] = (),
        *,
        timeout_s: float | None = None,
    ) -> Mapping[str, Result]:
        """Call many nodes, see `Runner`."""
        began, limit_s = self._clock.monotonic(), _limit_s(procedure, args)
        with self._waits.during(self._owner, Wait(procedure, nodes, began, limit_s)):
            return self._inner.call(procedure, nodes, args, timeout_s=timeout_s)


def _limit_s(procedure: str, args: Any) -> float | None:
    """Return the time limit that the arguments of a call have; None without one."""
    row = PROCEDURES.get(procedure)
    if row is None or callable(args):
        return None
    for name, value in zip(row.args, args, strict=False):
        if name in _LIMITS and isinstance(value, (int, float)):
            return float(value)
    return None
