"""The dependencies of the master daemon: one object, created when the daemon starts.

LUXI methods get all of it. The engine sees it as `ganeti.operations.mcpu.EngineDeps`, a
logical unit as `ganeti.operations.base.Context`.
"""

import contextvars
import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar, cast

from ganeti.base import errors
from ganeti.base.net import netutils
from ganeti.base.text import audit_chain
from ganeti.daemons.masterd import audit, cluster_facts, journal_state, node_death_state
from ganeti.daemons.masterd.call_times import CallTimes
from ganeti.daemons.masterd.duties import followers
from ganeti.daemons.masterd.duties.cluster_address import ClusterAddress
from ganeti.daemons.masterd.duties.deposed import Waits, WatchedRunner
from ganeti.daemons.masterd.duties.term_resets import TermResets
from ganeti.daemons.masterd.maintenance_state import Keeper
from ganeti.daemons.masterd.methods.shared_answers import SharedAnswers
from ganeti.master import jqueue, locking, query
from ganeti.master.config import Config
from ganeti.master.jqueue.documents import Documents
from ganeti.operations import mcpu
from ganeti.operations.unit_table import UNITS
from ganeti.protocols import rpc
from ganeti.store import CopyState, Store, choice

T = TypeVar("T")

#: Threads for queries of the configuration. These take milliseconds of processor time,
#: so more threads would not help.
_QUICK_THREADS: Final = 2
#: Threads for queries that wait for nodes.
_SLOW_THREADS: Final = 16
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
        planning: threads for plans.
        address: keeps the address of the cluster on this node; the caller starts it.
        threads: (number, name) -> threads for the parts of one piece of work.
        call_times: durations of calls of nodes.
        lists: texts of lists of objects, of which later answers use parts.
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
    planning: Executor = dataclasses.field(
        default_factory=lambda: ThreadPoolExecutor(_PLANNING_THREADS, "plan")
    )
    threads: Callable[[int, str], Executor] = ThreadPoolExecutor
    call_times: CallTimes = dataclasses.field(default_factory=CallTimes)
    lists: query.EncodedLists = dataclasses.field(default_factory=query.EncodedLists)
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
    def term_resets(self) -> TermResets:
        """Leads nodes back that refuse the term although a majority follows it."""
        return TermResets(self.store, self.rpc, self._ask_without_term, self.clock)

    def _ask_without_term(
        self, target: rpc.Target, procedure: str, args: Sequence[Any]
    ) -> rpc.Result:
        runner = rpc.StaticRunner([target], self.paths)
        try:
            return runner.call_one(procedure, target.uuid, *args)
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
    def node_deaths(self) -> node_death_state.Keeper:
        """The state of deaths of nodes."""
        reader = self.config.node_deaths
        return node_death_state.Keeper(reader, self.journal)

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
            return followers.ask(self.rpc, self.config.snapshot())
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
