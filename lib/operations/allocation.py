"""The choice of nodes by an allocator, for all units that may need one."""

import abc
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes, jobqueue
from ganeti.master import iallocator, locking
from ganeti.model import objects
from ganeti.model.objects import allocators as default_allocators
from ganeti.model.objects.allocators import DEFAULT_IALLOCATOR_SHORTCUT
from ganeti.operations import base

_NODE_LEVELS: Final = (locking.Level.NODE, locking.Level.NODE_RES)


class Submitting(abc.ABC):
    """Base of units that only submit the jobs of an allocator.

    With ``dry_run`` such a unit asks for its `jobs` during its checks.
    """

    @abc.abstractmethod
    def jobs(self) -> base.SubmitJobs:
        """Ask for the jobs."""

    def dry_run_result(self) -> dict[str, Any]:
        """Return no jobs."""
        return {jobqueue.JOB_IDS_KEY: []}

    def execute(self) -> base.SubmitJobs:
        """Return the jobs."""
        return self.jobs()


def names(
    snapshot: objects.Snapshot, requested: str | None, what: str, kind: str
) -> list[str]:
    """Return the allocators to try in order.

    Args:
        snapshot: for the cluster's default ones.
        requested: name in the request; None or ``.`` for the default.
        what: name of the operation for the error.
        kind: type of the request that follows.

    Raises:
        OpPrereqError: none was named and the cluster has no default for the type.
    """
    name = requested or DEFAULT_IALLOCATOR_SHORTCUT
    setting = snapshot.cluster.default_iallocator
    chosen = default_allocators.chosen(name, setting, kind)
    if not chosen:
        where = f" for requests of type {kind}" if setting else ""
        raise errors.refusal(
            f"{what}: name a node or an allocator; the cluster has no default"
            f" allocator{where}"
        )
    return chosen


def ask(
    ctx: base.Context,
    allocators: Sequence[str],
    request: iallocator.Request,
    what: str,
    *,
    is_temporary: bool = False,
    replaced: str | None = None,
    explain: bool = False,
) -> Any:
    """Return the result of the first allocator that finds one.

    An allocator that fails is skipped with a warning while others are left.

    Args:
        ctx: dependencies of the opcode.
        allocators: names, tried in order.
        request: question to the allocator.
        what: name of the operation for the error.
        is_temporary: more locks may help, so a refused request may be tried again.
        replaced: uuid of an instance that the request places again; allocators must
            not count it twice.
        explain: log the chosen nodes and the reasons against the others, one entry per
            allocator that was asked.

    Raises:
        OpPrereqError: none found a solution; contains the text of each. For a single
            allocator, see `iallocator.run`.
        ResultValidationError: for a single allocator, see `iallocator.run`.
    """
    snapshot = ctx.snapshot
    if replaced is not None:
        snapshot = snapshot.apply([objects.Update("instances", replaced, None)])

    def one(name: str) -> iallocator.Answer:
        answer = iallocator.run(
            ctx.rpc,
            snapshot,
            name,
            request,
            explain=explain,
            cluster_cache=ctx.cluster_cache,
        )
        if explain:
            placement = _placement_data(name, request, answer)
            ctx.log.entry(jobqueue.ELOG_PLACEMENT, placement)
        return answer

    name, answer = iallocator.run_first(
        allocators,
        one,
        what,
        on_failure=lambda name, why: ctx.log.warn(f"Allocator {name} failed: {why}"),
        ecode=ecodes.ECODE_TEMP_NORES if is_temporary else ecodes.ECODE_NORES,
    )
    text, result = answer.info, answer.result
    if isinstance(result, iallocator.Evacuation):
        # Nothing is moved yet, whatever the allocator says.
        text = f"found a place for {len(result.moved)} instances"
        text += f", and none for {len(result.failed)}" if result.failed else ""
    ctx.log.info(f"Allocator {name}: {text}")
    return answer.result


def _placement_data(
    name: str,
    request: iallocator.Request,
    answer: iallocator.Answer,
) -> dict[str, Any]:
    """Return an answer as data; scripts return their choice without reasons."""
    places = answer.explanation or [
        {"instance": instance, "nodes": list(nodes), "reasons": [], "choice": []}
        for instance, nodes in _places(request, answer.result)
    ]
    return {
        "allocator": name,
        "success": answer.success,
        "info": answer.info,
        "instances": list(places),
    }


def _places(
    request: iallocator.Request, result: Any
) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield names and nodes of a result; no nodes for an instance without a place."""
    if isinstance(result, iallocator.Evacuation):
        yield from ((name, nodes) for name, _group, nodes in result.moved)
        yield from ((name, ()) for name, _why in result.failed)
    elif isinstance(result, iallocator.MultiPlacement):
        yield from result.placed.items()
        yield from ((name, ()) for name in result.failed)
    elif isinstance(request, iallocator.Relocate | iallocator.Allocate) and result:
        yield request.name, result


def lock_all_nodes(locks: base.LockRequest, *, opportunistic: int = 0) -> None:
    """Declare the locks of an allocation: all nodes and their resources.

    Args:
        locks: the declaration.
        opportunistic: take only free locks, but at least this many; 0 waits for all.
    """
    for level in _NODE_LEVELS:
        locks.names[level] = base.ALL
        if opportunistic:
            locks.opportunistic.add(level)
            locks.opportunistic_count[level] = opportunistic


def release_nodes(ctx: base.Context) -> None:
    """Release all locks of nodes and of their resources.

    For operations whose remaining part, such as an OS script, may take long and
    concerns an instance alone.
    """
    keep_only(ctx, ())


def share_nodes(ctx: base.Context) -> None:
    """Share the locks of nodes, not those of their resources.

    For a part of an operation that may take long and must not see nodes change, such
    as the copy of a disk: other jobs may read the nodes then.
    """
    owned = sorted(ctx.locks.owned(locking.Level.NODE))
    if owned:
        ctx.locks.downgrade(locking.Level.NODE, owned)


def keep_only(ctx: base.Context, nodes: Sequence[str]) -> None:
    """Release the locks of nodes that were not chosen."""
    for level in _NODE_LEVELS:
        ctx.locks.release(level, keep=nodes)


def relocation(
    ctx: base.Context,
    instance: objects.Instance,
    allocator: str | None,
    *,
    explain: bool = False,
) -> str:
    """Return the uuid of another node for an instance with mirrored disks.

    For internally mirrored templates it is a new secondary node, else a new primary
    node. With ``explain`` the reasons are logged, see `ask`.

    Raises:
        OpPrereqError: there is no allocator, or none found a node.
    """
    snapshot, what = ctx.snapshot, f"instance {instance.name}"
    request = iallocator.relocate(snapshot, instance)
    chosen = names(snapshot, allocator, what, request.type)
    (name,) = ask(ctx, chosen, request, what, explain=explain)
    uuid = snapshot.uuid_of("nodes", name)
    if uuid is None:
        raise errors.OpPrereqError(f"node {name}: was removed", ecodes.ECODE_NOENT)
    return uuid


def evacuation_jobs(
    ctx: base.Context,
    allocator: str | None,
    request: iallocator.NodeEvacuate | iallocator.ChangeGroup,
    what: str,
    *,
    early_release: bool,
    explain: bool = False,
) -> base.SubmitJobs:
    """Return the jobs with which an allocator moves instances.

    With ``explain`` the reasons are logged, see `ask`.

    Raises:
        OpPrereqError: no allocator, or no solution.
        OpExecError: some instances cannot be moved; names each with its reason.
    """
    chosen = names(ctx.snapshot, allocator, what, request.type)
    answer = ask(ctx, chosen, request, what, explain=explain)
    if answer.failed:
        reasons = "; ".join(f"{name}: {why}" for name, why in answer.failed)
        raise errors.OpExecError(
            f"{what}: cannot move all instances, so none is moved: {reasons}"
        )
    for name, group, nodes in answer.moved:
        where = f"group {group} on nodes {', '.join(nodes)}"
        ctx.log.info(f"Instance {name} will be in {where}")
    jobs = [
        [
            op.replace(early_release=early_release)
            if hasattr(op, "early_release")
            else op
            for op in job
        ]
        for job in answer.jobs
    ]
    return base.SubmitJobs(jobs)
