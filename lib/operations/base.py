"""Base of logical units: the checks and actions of one opcode.

A unit never uses a socket, a clock or a thread directly: it has a `Context`. The
phases are called in order by `ganeti.operations.mcpu`: `check_arguments`,
`expand_names`, `declare_locks` per level, `check_prereq`, pre hooks, `execute`, post
hooks. Nothing may be changed before `execute`; with ``dry_run`` the unit ends after
`check_prereq` and returns `dry_run_result`.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from ganeti.base import clock, errors, pathutils
from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols import hooks
from ganeti.base.text import messages
from ganeti.master import config, hooksmaster, iallocator, locking, query
from ganeti.master.jqueue import SubmitJobs
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup
from ganeti.protocols import rpc
from ganeti.protocols.rpc import Runner, Target

O = TypeVar("O", bound=opcodes.Opcode)  # noqa: E741


__all__ = [
    "ALL",
    "Context",
    "Feedback",
    "LockRequest",
    "Locks",
    "LogicalUnit",
    "SubmitJobs",
]


class _All:
    def __repr__(self) -> str:
        return "ALL"


#: In a lock declaration: every lock of the level, and those created later.
ALL: Final = _All()


class Feedback(Protocol):
    """Lines for the job log."""

    def message(self, text: str) -> None:
        """Log a line as it is."""

    def info(self, text: str) -> None:
        """Log a line that begins with an information mark."""

    def warn(self, text: str, hint: str | None = None) -> None:
        """Log a line that begins with a warning mark, and how to solve the problem."""

    def step(self, number: int, total: int, text: str) -> None:
        """Log ``STEP number/total text``."""

    def entry(self, kind: str, payload: Any) -> None:
        """Log an entry of another kind, see ``constants.jobqueue`` ELOG_*."""


@dataclasses.dataclass
class LockRequest:
    """Locks that one opcode requests.

    Attributes:
        names: level -> lock names or `ALL`; a level not mentioned is skipped.
        shared: levels whose locks are acquired shared.
        add: level -> names that are created, held exclusively, and removed if the
            object does not exist afterwards.
        opportunistic: levels where only free locks are acquired.
        without_removed: levels where names are left out that are removed before the
            lock is acquired; otherwise the opcode fails.
        opportunistic_count: level -> smallest number of locks to acquire there.
    """

    names: dict[locking.Level, Sequence[str] | _All] = dataclasses.field(
        default_factory=dict
    )
    shared: set[locking.Level] = dataclasses.field(default_factory=set)
    add: dict[locking.Level, Sequence[str]] = dataclasses.field(default_factory=dict)
    opportunistic: set[locking.Level] = dataclasses.field(default_factory=set)
    without_removed: set[locking.Level] = dataclasses.field(default_factory=set)
    opportunistic_count: dict[locking.Level, int] = dataclasses.field(
        default_factory=dict
    )


class Locks(Protocol):
    """The locks of the running opcode."""

    def owned(self, level: locking.Level) -> frozenset[str]:
        """Return the names held at a level."""

    def release(self, level: locking.Level, *, keep: Sequence[str] = ()) -> None:
        """Release locks early, all but some."""

    def downgrade(self, level: locking.Level, names: Sequence[str]) -> None:
        """Turn exclusive locks into shared ones."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitDeps:
    """The dependencies of logical units, the same for all opcodes.

    Attributes:
        config: the configuration; ``config.snapshot()`` is the newest value.
        rpc: node calls.
        clock: time and pauses.
        paths: files of the master.
        lookup_host: name -> (full name, addresses); raises ResolverError.
        rpc_at: calls to nodes that are not in the configuration (yet), given by
            address.
        query_sources: returns the current data sources of queries.
        tcp_ping: (address, port, source address or None) -> whether something accepts
            connections there.
        address_answers: address -> whether a machine has it: something accepts or
            refuses connections there. A dry run sends nothing and assumes that no
            machine has it.
        write_known_hosts: (path, content) writes the file with the nodes' SSH host
            keys.
        cluster_cache: configuration data that earlier allocations have read.
    """

    config: "config.Config"
    rpc: "rpc.Runner"
    clock: clock.Clock
    paths: pathutils.Paths
    lookup_host: Callable[[str], tuple[str, Sequence[str]]]
    tcp_ping: Callable[[str, int, str | None], bool]
    address_answers: Callable[[str], bool]
    rpc_at: Callable[[Sequence[Target]], Runner]
    query_sources: Callable[[], query.Sources]
    write_known_hosts: Callable[[str, str], None]
    cluster_cache: iallocator.ClusterCache = dataclasses.field(
        default_factory=iallocator.ClusterCache
    )


V = TypeVar("V", bound=UnitDeps)


def view(kind: type[V], deps: UnitDeps, **own: Any) -> V:
    """Return a view of dependencies: their members by name, and its own members.

    Args:
        kind: class of the view, a dataclass.
        deps: has all members of the view except the own ones.
        own: values of the other members.
    """
    shared = {
        field.name: getattr(deps, field.name)
        for field in dataclasses.fields(kind)
        if field.name not in own
    }
    return kind(**shared, **own)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context(UnitDeps):
    """The dependencies of one opcode: those of all units, and some of its own.

    Attributes:
        log: the job's log.
        locks: locks that the opcode holds.
        owner: execution id for reservations, such as ``job-812/0``.
        resumption: what an earlier run passed to `save_resumption` before its master
            daemon ended; None if the opcode begins.
        save_resumption: stores, before a step and after it, what a restarted master
            needs in order to continue the opcode with `LogicalUnit.resume`; returns
            when this is durable. None ends the part that can be continued.
        pause: waits for a number of seconds; raises, from the queue, when a client asks
            to kill the job. For waits after which nothing has to be undone.
    """

    log: Feedback
    locks: Locks
    owner: str
    resumption: Any
    save_resumption: Callable[[Any], None]
    pause: Callable[[float], None]

    @property
    def snapshot(self) -> objects.Snapshot:
        """The newest configuration."""
        return self.config.snapshot()

    def node_name(self, uuid: str) -> str:
        """Return a node's name for messages."""
        node = self.snapshot.nodes.get(uuid)
        return node.name if node is not None else uuid

    def warn_failed(self, result: rpc.Result, what: str) -> bool:
        """Log a failed call as a warning; return whether it failed."""
        if result.failed:
            self.log.warn(result.describe(what))
        return result.failed

    def problems(self, answers: Mapping[str, rpc.Result]) -> dict[str, str]:
        """Return why nodes failed to do something, by name."""
        nodes = self.snapshot.nodes
        return {
            nodes[uuid].name: str(answer.fail_msg)
            for uuid, answer in answers.items()
            if answer.failed
        }


class LogicalUnit(Generic[O]):
    """Execution of one opcode. All are in `operations.unit_table`.

    Class attributes: ``EXCLUSIVE`` takes the big lock exclusively, ``HOOKS_PATH``
    and ``HOOKS_TYPE`` name the hook directories and the object kind (None: the
    opcode runs no hooks), ``READS_ONLY`` marks opcodes that may run twice, so they
    need not wait until their start is on disk.
    """

    EXCLUSIVE: ClassVar[bool] = False
    HOOKS_PATH: ClassVar[str | None] = None
    HOOKS_TYPE: ClassVar[str | None] = None
    READS_ONLY: ClassVar[bool] = False

    def __init__(self, op: O, context: Context) -> None:
        self.op = op
        self.ctx = context
        self.locks = LockRequest()

    @classmethod
    def for_request(cls, op: O) -> "type[LogicalUnit[O]]":
        """Return the class that executes a request: this one, or another unit."""
        del op
        return cls

    def warn_of_short_name(self, table: str, name: str, old: str | None = None) -> None:
        """Warn if a new name of a node or instance changes who a short name means."""
        others = lookup.with_short_name(self.ctx.snapshot, table, name)
        if names := [other for other in others if other != old]:
            short = name.partition(".")[0]
            self.ctx.log.warn(
                f"{name}: {messages.some(names)} can be called {short}, too; from now"
                f" on, {short} "
                + ("is this one alone" if name == short else "is ambiguous"),
                hint="use full names",
            )

    @classmethod
    def needs_big_lock(cls, op: O) -> bool:
        """Return whether the opcode must not run beside exclusive ones.

        Only what takes no lock at all, and reads one snapshot, may.
        """
        del op
        return True

    @classmethod
    def can_plan(cls, op: opcodes.Opcode) -> bool:
        """Return whether all effects of the opcode go through the context.

        Only then can a dry run list them, see `ganeti.operations.mcpu.planning`; and
        only then can the opcode begin before its start is on disk: its commits and
        calls follow that.
        """
        del op
        return True

    def check_arguments(self) -> None:
        """Check the opcode alone, without the cluster. Raises OpPrereqError."""

    def expand_names(self) -> None:
        """Resolve names to uuids and declare the first locks in ``self.locks``."""

    def declare_locks(self, level: locking.Level) -> None:
        """Complete the declaration of a level; earlier levels are held."""

    def check_prereq(self) -> None:
        """Check the cluster; changes nothing. Raises OpPrereqError."""

    def hooks_env(self) -> Mapping[str, Any]:
        """Return hook variables, without prefix; called again at the end."""
        return {}

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the node uuids of the pre and of the post hooks: here, the master."""
        master = self.with_master(())
        return master, master

    def after_hooks(
        self,
        results: Sequence[hooksmaster.ScriptResult],
        silent: Mapping[str, str],
        result: Any,
    ) -> Any:
        """Evaluate the post hooks; return the result of the opcode.

        Args:
            results: results of scripts.
            silent: node uuid -> why it did not answer.
            result: value that `execute` returned.
        """
        for line in hooksmaster.warnings(self.HOOKS_PATH or "", results, silent):
            self.ctx.log.warn(line)
        return result

    def dry_run_result(self) -> Any:
        """Return the result of a run that ends after the checks."""
        return None

    def execute(self) -> Any:
        """Do the work; return the result or `SubmitJobs`. Raises OpExecError."""
        raise errors.ProgrammerError(f"{type(self).__name__} has no execute")

    def resume(self) -> Any:
        """Continue after a restart of the master daemon; return the result.

        Called instead of `check_prereq` and `execute` if the context has a resumption.
        `expand_names` and `declare_locks` must declare the locks that were held at the
        point where the resumption was saved.
        """
        raise errors.OpExecError(
            f"{self.op.op_id()}: the master daemon was restarted, and this release"
            " cannot continue the operation"
        )

    # Helpers for all units
    def with_master(self, nodes: Iterable[str]) -> list[str]:
        """Return the master and other nodes without duplicates."""
        return list(dict.fromkeys((self.ctx.snapshot.cluster.master_node, *nodes)))

    def run_post_hooks(self, nodes: Sequence[str]) -> None:
        """Run the post hooks on nodes before they leave; failures are warnings."""
        hook, phase = self.HOOKS_PATH or "", hooks.HOOKS_PHASE_POST
        own = self.hooks_env()
        common = hooksmaster.common(
            self.ctx.snapshot,
            op_id=self.op.op_id(),
            hook=hook,
            phase=phase,
            object_type=self.HOOKS_TYPE,
        )
        env = hooksmaster.merge(
            common,
            {**hooksmaster.pre_variables(own), **hooksmaster.post_variables(own)},
        )
        results, silent = hooksmaster.run(self.ctx.rpc, hook, phase, nodes, env)
        for line in hooksmaster.warnings(hook, results, silent):
            self.ctx.log.warn(line)

    def prereq(
        self, text: str, ecode: str = ecodes.ECODE_INVAL
    ) -> errors.OpPrereqError:
        """Return the error for a request that cannot be done."""
        return errors.refusal(text, ecode)
