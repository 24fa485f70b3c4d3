"""Facts about nodes that jobs share: reports of their resources and their instances.

An allocation asks all nodes. Many allocations that wait for the same locks would each
ask all nodes again, although only one of them has changed since. A job that was
submitted before a node was asked takes the answer of the job that asked, unless a job
has acted on that node since: then the answer is what the job would hear itself, apart
from changes that Ganeti did not make. A job that is submitted after such a change sees
it; others do `MAX_AGE_S` after it, at the latest.
"""

import collections
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ganeti.base.clock import Clock
from ganeti.operations.mcpu import dry_run_policy
from ganeti.protocols.rpc import PROCEDURES, Result, Runner

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
    """The answers of all nodes; thread-safe."""

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
        args: Sequence[Any] | Callable[[str], Sequence[Any]] = (),
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
        now = self._clock.monotonic()
        oldest = max(self._since, now - MAX_AGE_S)
        known = self._shared.find(question, nodes, oldest=oldest)
        left = [node for node in nodes if node not in known]
        if not left:
            return known
        versions = self._shared.versions(left)
        heard = self._inner.call(procedure, left, args, timeout_s=timeout_s)
        self._shared.keep(question, heard, versions, now)
        return {**known, **heard}


def acts(procedure: str, args: Sequence[Any] | Callable[[str], Sequence[Any]]) -> bool:
    """Return whether a call may change something on a node."""
    row = PROCEDURES.get(procedure)
    if row is None:
        return True
    if callable(args):
        return not row.reads
    return not dry_run_policy.only_reads(row, args)
