"""The dependencies of the master daemon: one object, created when the daemon starts.

LUXI methods get all of it. The engine sees it as `ganeti.operations.mcpu.EngineDeps`, a
logical unit as `ganeti.operations.base.Context`.
"""

import contextvars
import dataclasses
import functools
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar, cast

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.net import netutils
from ganeti.base.text import audit_chain
from ganeti.daemons.masterd import (
    audit,
    cluster_facts,
    events,
    journal_state,
    sessions,
)
from ganeti.daemons.masterd.duties.cluster_address import ClusterAddress
from ganeti.daemons.masterd.duties.refused_terms import TermResets, Waits, WatchedRunner
from ganeti.daemons.masterd.maintenance_state import Keeper
from ganeti.decisions.repair import node_death
from ganeti.decisions.repair.journal import Round
from ganeti.decisions.repair.node_lives import DeathJob, DeathState
from ganeti.master import jqueue, locking, query
from ganeti.master.config import Config
from ganeti.master.config.node_deaths import KEY, TABLE, NodeDeaths
from ganeti.master.jqueue import JobQueue
from ganeti.master.jqueue.effects import Document, Documents
from ganeti.model import opcodes
from ganeti.model.objects import Snapshot
from ganeti.operations import mcpu
from ganeti.operations.unit_table import UNITS
from ganeti.protocols import rpc
from ganeti.protocols.rpc import calls
from ganeti.store import CopyState, Store, choice

# Answers that several clients share, because they asked before the work began.
#
# An answer is not older than the question: who asks while an answer is computed waits
# for the next one, together with all others who ask until that one begins.

#: Seconds that one answer waits for the end of the one before. A node that does not
#: answer must not delay both.
_PATIENCE_S: Final = 0.25


class _Subject:
    """One question that clients ask now.

    Attributes:
        gate: held during the work.
        next: the answer whose work has not begun, if any.
        count: answers that have not come yet.
    """

    def __init__(self) -> None:
        self.gate = threading.Lock()
        self.next: Future[Any] | None = None
        self.count = 0


class SharedAnswers:
    """Computes answers; for use by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subjects: dict[Hashable, _Subject] = {}

    def ask(
        self, executor: Executor, key: Hashable, compute: Callable[[], Any]
    ) -> "Future[Any]":
        """Return the answer to a question, which others may share: do not cancel it.

        Args:
            executor: runs the work.
            key: of the question; equal questions have equal answers.
            compute: called once per shared answer.
        """
        with self._lock:
            subject = self._subjects.get(key) or _Subject()
            if subject.next is None:
                subject.next = executor.submit(self._work, key, subject, compute)
                subject.count += 1
                self._subjects[key] = subject
            return subject.next

    def _work(
        self, key: Hashable, subject: _Subject, compute: Callable[[], Any]
    ) -> Any:
        is_first = subject.gate.acquire(timeout=_PATIENCE_S)
        try:
            with self._lock:
                subject.next = None
            return compute()
        finally:
            if is_first:
                subject.gate.release()
            with self._lock:
                subject.count -= 1
                if not subject.count:
                    del self._subjects[key]


# The state of deaths of nodes in the store: the only writer, apart from a "no".
#
# A step is one commit: the new state, the jobs that it submits, and the entry of the
# journal. So a step happens as a whole or not at all, and a deposed master can do
# neither.

#: Most deaths that are remembered at once; no program should decide about more.
_MAX_DEATHS: Final = 200


class NodeDeathKeeper:
    """The writer of the state. For use by many threads; calls may block."""

    def __init__(self, reader: NodeDeaths, journal: journal_state.Keeper) -> None:
        self._reader = reader
        self._journal = journal

    def change(
        self,
        queue: JobQueue,
        serial: int,
        state: DeathState,
        jobs: Sequence[DeathJob],
        entry: Round,
    ) -> DeathState:
        """Replace the state and submit jobs, in one commit; return the new state.

        Raises:
            OpPrereqError: the state has changed since ``serial``, an opcode is
                malformed, or a job is for a node that the state does not name;
                nothing was done.
            JobQueueError: the jobs were refused; nothing was done.
        """
        decoded = [[opcodes.decode(op) for op in job.ops] for job in jobs]
        with self._reader.lock, self._journal.writing() as batch:
            present = self._reader.state()
            if present.serial_no != serial:
                raise errors.OpPrereqError(
                    f"deaths of nodes have the serial {present.serial_no} by now, the"
                    f" change is based on {serial}",
                    ecodes.ECODE_STATE,
                )
            _check(state, jobs, present.marked)
            new = msgspec.structs.replace(state, serial_no=serial + 1)

            def documents(ids: Sequence[int]) -> list[Document]:
                nonlocal new
                new = node_death.with_jobs(new, tuple(jobs), tuple(ids))
                rows = batch.put(entry.with_jobs(ids))
                stored: list[Any] = [(TABLE, KEY, msgspec.json.encode(new)), *rows]
                return [Document(*row) for row in stored]

            # A drained queue is no reason to leave a dead node alone.
            queue.submit_all_later(decoded, documents, to_drained=True).result()
            return new


def _check(state: DeathState, jobs: Sequence[DeathJob], marked: Sequence[str]) -> None:
    """Refuse a state that is too large, and jobs for nodes that it does not name.

    A node that was marked and is back has a job when it leaves the state.
    """
    if len(state.deaths) > _MAX_DEATHS:
        raise errors.OpPrereqError(
            f"deaths of nodes: wanted at most {_MAX_DEATHS}, found {len(state.deaths)}",
            ecodes.ECODE_INVAL,
        )
    wanted = sorted(death.node for death in state.deaths if death.job == -1)
    back = set(marked).difference(state.marked, wanted)
    given = sorted(job.node for job in jobs if job.node not in back)
    if wanted != given:
        raise errors.OpPrereqError(
            f"deaths of nodes: wanted one job for each of {wanted}, found {given}",
            ecodes.ECODE_INVAL,
        )


# How far the files of master candidates follow the store.
#
# With files the store knows: it sends the changes. A store in etcd is followed by a
# daemon of each candidate, so the candidates are asked.

#: Seconds for the answers; a query waits for them.
_CALL_S: Final = 3.0


def ask_followers(runner: rpc.Runner, snapshot: Snapshot) -> Mapping[str, CopyState]:
    """Return the state of the other candidates' files by node uuid.

    Args:
        runner: calls the nodes.
        snapshot: the configuration, whose revision is the newest.
    """
    others = [
        node.uuid
        for node in snapshot.nodes.values()
        if node.master_candidate
        and not node.offline
        and node.uuid != snapshot.cluster.master_node
    ]
    if not others:
        return {}
    answers = runner.call_nodes(others, calls.store_status(), timeout_s=_CALL_S)
    return {uuid: _state(answer, snapshot) for uuid, answer in answers.items()}


def _state(answer: rpc.Result, snapshot: Snapshot) -> CopyState:
    revision = answer.payload.get("revision") if not answer.failed else None
    if not isinstance(revision, int):
        return CopyState(False, -1, answer.fail_msg or "the answer has no revision")
    if revision >= snapshot.revision:
        return CopyState(True, revision)
    return CopyState(False, revision, "ganeti-standby of the node has not written more")


# Durations of calls of nodes, summed up by procedure since the daemon started.


class CallTimes:
    """Counts calls; for use by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Procedure -> calls, answers that failed, seconds.
        self._sums: dict[str, tuple[int, int, float]] = {}

    def add(self, procedure: str, seconds: float, failed: int) -> None:
        """Count a call of one or more nodes.

        Args:
            procedure: its name.
            seconds: until the last node had answered, or the time was over.
            failed: number of nodes without a good answer.
        """
        with self._lock:
            calls, failures, total = self._sums.get(procedure, (0, 0, 0.0))
            self._sums[procedure] = (calls + 1, failures + failed, total + seconds)

    def rows(self) -> list[tuple[str, int, int, float]]:
        """Return procedure, calls, failed answers and seconds, sorted."""
        with self._lock:
            return [(name, *sums) for name, sums in sorted(self._sums.items())]


T = TypeVar("T")

#: Threads for queries of the configuration. These take milliseconds of processor time,
#: so more threads would not help.
_QUICK_THREADS: Final = 2
#: Threads for queries that wait for nodes.
_SLOW_THREADS: Final = 16
#: Threads for the state of the cluster, which must be known also while storage or nodes
#: keep all other threads waiting. Clients who ask together share an answer.
_STATUS_THREADS: Final = 4
#: Concurrent plans; a plan costs the master as much work as the job.
_PLANNING_THREADS: Final = 2
#: Seconds that the SSH server of a silent node has to react.
_REACTION_S: Final = 1.5
#: Unfinished jobs beyond which submissions are refused. The documented limit of 5,000
#: was for job files; here a queued job costs a row and 2 KiB of memory.
MAX_UNFINISHED_JOBS: Final = 50_000


class _Threads(ThreadPoolExecutor):
    """Threads whose work is that of the client for whom it was submitted."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """Run a function in the context of the caller."""
        return super().submit(contextvars.copy_context().run, fn, *args, **kwargs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MasterDeps(mcpu.EngineDeps):
    """The dependencies of the master daemon; the base classes have further ones.

    The caller passes the effects. The configuration, the locks, the runner that notices
    a newer master, and the sources of queries are built from them.

    Attributes:
        store: the configuration and the jobs, opened for writing.
        on_deposed: called when another master has taken over.
        listing_rpc: calls nodes for clients that list; by default as for jobs.
        quick: threads for work that takes milliseconds.
        slow: threads for work that waits for nodes.
        reporting: threads for the state of the cluster.
        planning: threads for plans.
        address: keeps the address of the cluster on this node; the caller starts it.
        threads: (number, name) -> threads for the parts of one piece of work.
        call_times: durations of calls of nodes.
        lists: texts of lists of objects, of which later answers use parts.
        orders: sorted rows of lists, for later pages.
        search_index: texts of objects, for later searches.
        shared_answers: answers that clients who ask together share.
        server_reacts: (address, port) -> whether a server there sends something.
    """

    store: Store
    on_deposed: Callable[[], None]
    listing_rpc: rpc.Runner | None = None
    config: Config = dataclasses.field(init=False)
    locks: locking.LockManager = dataclasses.field(init=False)
    address: ClusterAddress = dataclasses.field(init=False)
    query_sources: Callable[[], query.Sources] = dataclasses.field(init=False)
    quick: Executor = dataclasses.field(
        default_factory=lambda: _Threads(_QUICK_THREADS, "query")
    )
    slow: Executor = dataclasses.field(
        default_factory=lambda: _Threads(_SLOW_THREADS, "live-query")
    )
    reporting: Executor = dataclasses.field(
        default_factory=lambda: _Threads(_STATUS_THREADS, "status")
    )
    planning: Executor = dataclasses.field(
        default_factory=lambda: ThreadPoolExecutor(_PLANNING_THREADS, "plan")
    )
    threads: Callable[[int, str], Executor] = ThreadPoolExecutor
    call_times: CallTimes = dataclasses.field(default_factory=CallTimes)
    lists: query.EncodedLists = dataclasses.field(default_factory=query.EncodedLists)
    orders: query.Orders = dataclasses.field(default_factory=query.Orders)
    search_index: query.SearchIndex = dataclasses.field(
        default_factory=query.SearchIndex
    )
    shared_answers: SharedAnswers = dataclasses.field(default_factory=SharedAnswers)
    server_reacts: Callable[[str, int], bool] = dataclasses.field(
        default=functools.partial(netutils.server_reacts, timeout_s=_REACTION_S)
    )

    def __post_init__(self) -> None:
        configuration = Config(self.store, self.clock)
        members = mcpu.members(configuration.snapshot())
        rpc_at, abort_call, waits = self.rpc_at, self.abort_call, Waits()

        def abort(thread: threading.Thread) -> None:
            waits.end(thread)
            abort_call(thread)

        # Its own calls are not those of a job, which it takes note of.
        apart = self._watched(self.rpc, waits, self.call_times.add)
        address = ClusterAddress(configuration.snapshot, apart, self.clock)

        def measure(procedure: str, seconds: float, failed: int) -> None:
            self.call_times.add(procedure, seconds, failed)
            address.note(procedure, failed)

        made = {
            "rpc": self._watched(self.rpc, waits, measure, address.begin),
            "address": address,
            "rpc_at": lambda targets: self._watched(
                rpc_at(targets), waits, self.call_times.add
            ),
            "abort_call": abort,
            "config": configuration,
            "locks": locking.LockManager(self.clock, members),
            "listing_rpc": self._watched(
                self.listing_rpc or self.rpc, waits, self.call_times.add
            ),
            "query_sources": functools.partial(_query_sources, self),
        }
        for name, value in made.items():
            object.__setattr__(self, name, value)

    def _watched(
        self,
        runner: rpc.Runner,
        waits: Waits,
        measure: Callable[[str, float, int], None],
        on_begin: Callable[[str], None] = lambda _procedure: None,
    ) -> rpc.Runner:
        store = self.store

        def on_refusal(nodes: Sequence[str]) -> None:
            store.note_refusal()
            store.check_term()
            self.term_resets.note(nodes)

        def require_confirmed(procedure: str, give_up: threading.Event) -> None:
            store.require_confirmed(give_up)
            on_begin(procedure)

        return WatchedRunner(
            runner,
            on_refusal,
            store.require_leading,
            require_confirmed,
            waits,
            measure=measure,
            monotonic=self.clock.monotonic,
        )

    @functools.cached_property
    def queue(self) -> jqueue.JobQueue:
        """The job queue, which must recover its jobs before any other use."""
        return jqueue.JobQueue(
            # The queue's document type is structurally that of the store.
            cast("Documents", self.store),
            mcpu.Processor(self, UNITS),
            self.clock,
            jqueue.Settings(
                hard_limit=MAX_UNFINISHED_JOBS,
                on_failure=self._on_failure,
                observer=self.audit,
            ),
        )

    @functools.cached_property
    def audit(self) -> audit.Log:
        """The audit log."""
        return audit.Log(
            f"{self.paths.log_dir}/{audit_chain.LOG_NAME}",
            self.paths.data(audit_chain.HEAD_NAME),
            self.clock,
        )

    @functools.cached_property
    def events(self) -> events.Feed:
        """The feed of events."""
        return events.Feed(self.store, self.clock)

    @functools.cached_property
    def term_resets(self) -> TermResets:
        """Leads nodes back that refuse the term although a majority follows it."""
        return TermResets(self.store, self.rpc, self._ask_without_term, self.clock)

    def _ask_without_term(
        self, target: rpc.Target, request: rpc.Request[str]
    ) -> rpc.Answer[str]:
        runner = rpc.StaticRunner([target], self.paths)
        try:
            return runner.call_node(target.uuid, request)
        finally:
            runner.close()

    @functools.cached_property
    def maintenance(self) -> Keeper:
        """The state of the maintenance daemon."""
        return Keeper(self.store, self.clock, self.journal)

    @functools.cached_property
    def journal(self) -> journal_state.Keeper:
        """The decision journal."""
        return journal_state.Keeper(self.store, self.clock)

    @functools.cached_property
    def sessions(self) -> sessions.Keeper:
        """The sessions of users of the remote API."""
        return sessions.Keeper(self.store, self.clock)

    @functools.cached_property
    def node_deaths(self) -> NodeDeathKeeper:
        """The state of deaths of nodes."""
        reader = self.config.node_deaths
        return NodeDeathKeeper(reader, self.journal)

    @functools.cached_property
    def planner(self) -> mcpu.Planner:
        """The maker of plans."""
        return mcpu.Planner(self, UNITS)

    def listing_sources(self) -> query.Sources:
        """Return the present sources of listings, which wait less for silent nodes."""
        return dataclasses.replace(self.query_sources(), rpc=self.listing_rpc)

    def copies(self) -> Mapping[str, CopyState]:
        """Return the state of the other candidates' copies by node uuid."""
        if choice.is_etcd(self.paths):
            return ask_followers(self.rpc, self.config.snapshot())
        return self.store.copies()

    def _on_failure(self, err: BaseException) -> None:
        if isinstance(err, errors.TermError):
            self.on_deposed()


def _query_sources(deps: MasterDeps) -> query.Sources:
    """Return the present sources of queries."""
    return query.Sources(
        deps.config.snapshot(),
        rpc=deps.rpc,
        jobs=cluster_facts.QueueJobs(deps.queue),
        locks=lambda: cluster_facts.locks(deps.queue, deps.locks),
        cluster_facts=lambda: cluster_facts.read(deps.queue, deps.paths, deps.clock),
        copies=deps.copies,
        paths=deps.paths,
    )
