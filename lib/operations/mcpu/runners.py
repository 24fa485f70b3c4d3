"""Callers of nodes for jobs: they note present waits, and share facts about nodes.

A client that shows a job on a terminal asks what the job waits for when it has not
advanced for some seconds: `PresentWaits`, which cost nothing but a note in memory.

An allocation asks all nodes for their resources and instances. Many allocations that
wait for the same locks would each ask all nodes again, although only one of them has
changed since. So answers are shared: a job that was submitted before a node was asked
takes the answer of the job that asked, unless a job has acted on that node since: then
the answer is what the job would hear itself, apart from changes that Ganeti did not
make. A job that is submitted after such a change sees it; others do `MAX_AGE_S` after
it, at the latest.
"""

import collections
import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ganeti.base.clock import Clock
from ganeti.model.objects import Snapshot
from ganeti.operations.mcpu import simulated_nodes
from ganeti.protocols.rpc import PROCEDURES, Arguments, Result, Runner

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
            # A copy, because other threads add and remove waits without a lock.
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
        args: Arguments = (),
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


#: Procedures whose answers are shared.
SHARED: Final = frozenset({"node_info", "all_instances_info"})
#: Seconds after which an answer is not used: guests change their use of memory.
MAX_AGE_S: Final = 10.0
#: Kept questions per node, such as those about different hypervisors.
_MAX_QUESTIONS: Final = 8


class _Answer(NamedTuple):
    """A successful answer, and when the node was asked."""

    asked_at: float
    result: Result


class SharedAnswers:
    """The shared answers of all nodes; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Node -> number of acts that have begun or ended.
        self._acts: collections.Counter[str] = collections.Counter()
        self._running: collections.Counter[str] = collections.Counter()
        self._known: dict[str, dict[bytes, _Answer]] = {}

    def begin_act(self, nodes: Sequence[str]) -> None:
        """Forget nodes that are about to change."""
        with self._lock:
            for node in nodes:
                self._acts[node] += 1
                self._running[node] += 1
                self._known.pop(node, None)

    def end_act(self, nodes: Sequence[str]) -> None:
        """Allow answers to be kept that nodes give from now on."""
        with self._lock:
            for node in nodes:
                # Counted again: an answer from the time of the act must not be kept.
                self._acts[node] += 1
                self._running[node] -= 1
                self._known.pop(node, None)

    def versions(self, nodes: Sequence[str]) -> dict[str, int]:
        """Return a number per node that differs after an act; -1 during one."""
        with self._lock:
            return {
                node: -1 if self._running[node] else self._acts[node] for node in nodes
            }

    def find(
        self, question: bytes, nodes: Sequence[str], *, oldest: float
    ) -> dict[str, Result]:
        """Return the known answers to questions asked after a moment."""
        with self._lock:
            answers = {node: self._known.get(node, {}).get(question) for node in nodes}
        return {
            node: answer.result
            for node, answer in answers.items()
            if answer is not None and answer.asked_at > oldest
        }

    def keep(
        self,
        question: bytes,
        results: Mapping[str, Result],
        versions: Mapping[str, int],
        asked_at: float,
    ) -> None:
        """Keep the answers of nodes that nobody has changed since they were asked."""
        with self._lock:
            for node, result in results.items():
                if result.failed or versions[node] != self._acts[node]:
                    continue
                answers = self._known.setdefault(node, {})
                if question not in answers and len(answers) >= _MAX_QUESTIONS:
                    answers.clear()
                answers[question] = _Answer(asked_at, result)


class SharingRunner(Runner):
    """The runner of one opcode of a job.

    Args:
        inner: calls the nodes.
        shared: the answers, shared by all jobs.
        clock: measures how old answers are.
        since: monotonic time at which the job was submitted, at most the present time.
    """

    def __init__(
        self, inner: Runner, shared: SharedAnswers, clock: Clock, since: float
    ) -> None:
        self._inner = inner
        self._shared = shared
        self._clock = clock
        self._since = min(since, clock.monotonic())

    def call(
        self,
        procedure: str,
        nodes: Sequence[str],
        args: Arguments = (),
        *,
        timeout_s: float | None = None,
    ) -> Mapping[str, Result]:
        """Call many nodes, see `Runner`."""
        if procedure in SHARED and not callable(args):
            return self._ask(procedure, nodes, args, timeout_s)
        if not acts(procedure, args):
            return self._inner.call(procedure, nodes, args, timeout_s=timeout_s)
        self._shared.begin_act(nodes)
        try:
            return self._inner.call(procedure, nodes, args, timeout_s=timeout_s)
        finally:
            self._shared.end_act(nodes)

    def _ask(
        self,
        procedure: str,
        nodes: Sequence[str],
        args: Sequence[Any],
        timeout_s: float | None,
    ) -> Mapping[str, Result]:
        question = msgspec.json.encode([procedure, list(args)])
        # The age counts from before the question, as the node may answer at once.
        now = self._clock.monotonic()
        oldest = max(self._since, now - MAX_AGE_S)
        known = self._shared.find(question, nodes, oldest=oldest)
        left = [node for node in nodes if node not in known]
        if not left:
            return known
        # Before the call: an act that begins during it makes the answer too old to
        # keep.
        versions = self._shared.versions(left)
        heard = self._inner.call(procedure, left, args, timeout_s=timeout_s)
        self._shared.keep(question, heard, versions, now)
        return {**known, **heard}


def acts(procedure: str, args: Arguments) -> bool:
    """Return whether a call may change something on a node."""
    row = PROCEDURES.get(procedure)
    if row is None:
        return True
    if callable(args):
        return not row.reads
    return not simulated_nodes.only_reads(row, args)
