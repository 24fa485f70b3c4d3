"""Nodes that are switched off: their roles before, and their record afterwards.

A node is marked offline only when it is proved to be off, since automatic repair starts
the instances of nodes that are marked offline elsewhere.
"""

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from ganeti.model import objects
from ganeti.operations import candidate_role
from ganeti.operations.base import Context
from ganeti.operations.node import role

#: Seconds that a node daemon has to answer.
_ANSWER_S: Final = 2.0


@contextlib.contextmanager
def without_votes(
    ctx: Context, nodes: Sequence[str], unknown: Collection[str]
) -> Iterator[None]:
    """Let no node be a master candidate; those that stay online are so afterwards.

    Except for those that are `unknown` by then, see `restore`.
    """
    candidates = candidates_of(ctx.snapshot, nodes)
    if candidates:
        with ctx.config.edit(ctx.owner) as edit:
            for uuid in candidates:
                edit.update(edit.snapshot.nodes[uuid].replace(master_candidate=False))
    try:
        if candidates and _is_alone(ctx.snapshot):
            # Its disk would be the only place of all changes until the order has ended.
            candidate_role.fill_pool(ctx, ignore=nodes)
        yield
    finally:
        restore(ctx, candidates, unknown)
    settle(ctx, candidates, nodes)


def candidates_of(snapshot: objects.Snapshot, nodes: Sequence[str]) -> list[str]:
    """Return those nodes that are master candidates."""
    return [uuid for uuid in nodes if snapshot.nodes[uuid].master_candidate]


def settle(ctx: Context, candidates: Collection[str], nodes: Collection[str]) -> None:
    """Follow an order to switch nodes off, some of which were candidates.

    Others get the role in place of those that have lost it, with its rights.
    """
    if candidates:
        candidate_role.fill_pool(ctx, ignore=nodes)
    for uuid in candidates:
        if (new := ctx.snapshot.nodes.get(uuid)) is not None:
            old = new.replace(master_candidate=True, offline=False)
            candidate_role.follow(ctx, old, new)


def _is_alone(snapshot: objects.Snapshot) -> bool:
    """Return whether the master is the only candidate left."""
    master = snapshot.cluster.master_node
    return not any(
        node.master_candidate and not node.offline and node.uuid != master
        for node in snapshot.nodes.values()
    )


def restore(
    ctx: Context, candidates: Collection[str], unknown: Collection[str] = ()
) -> None:
    """Make those nodes candidates again that are not marked offline.

    One that does not answer is perhaps off, and one of which the state is unknown may
    still be switched off: its vote would be missing.
    """
    left = [
        node
        for uuid in candidates
        if (node := ctx.snapshot.nodes.get(uuid)) is not None
        and not (node.offline or node.master_candidate)
    ]
    uuids = [node.uuid for node in left]
    answers = ctx.rpc.call("version", uuids, timeout_s=_ANSWER_S) if uuids else {}
    problems = {uuid: "is silent" for uuid in uuids if answers[uuid].is_silent}
    problems |= dict.fromkeys(unknown, "may still be switched off")
    for node in left:
        if node.uuid in problems:
            ctx.log.warn(
                f"node {node.name} {problems[node.uuid]}, and no master candidate any"
                " more",
                hint=f"later: gnt-node modify --master-candidate=yes {node.name}",
            )
    left = [node for node in left if node.uuid not in problems]
    if not left:
        return
    with ctx.config.edit(ctx.owner) as edit:
        new = [edit.update(node.replace(master_candidate=True)) for node in left]
    for node in new:
        candidate_role.admit(ctx, node)


def mark(ctx: Context, nodes: Sequence[str]) -> list[objects.Node]:
    """Record nodes as offline and off, in one commit; return the changed ones."""
    wanted = role.RoleRequest(offline=True, powered=False)
    before = ctx.snapshot.nodes
    with ctx.config.edit(ctx.owner) as edit:
        new = [
            edit.update(
                role.plan(
                    *(edit.snapshot, edit.snapshot.nodes[uuid], wanted),
                    has_oob=True,
                    auto_promote=True,
                ).node
            )
            for uuid in nodes
        ]
    return [node for node in new if before[node.uuid] != node]
