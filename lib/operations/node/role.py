"""The role of a node: after a request, before and after it is switched off.

A node is offline, drained, a master candidate, or none of these (regular). It is marked
offline only when it is proved to be off, since automatic repair starts the instances of
nodes that are marked offline elsewhere.
"""

import contextlib
import dataclasses
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.master.config import topology
from ganeti.model import objects
from ganeti.operations import candidate_role
from ganeti.operations.base import Context
from ganeti.protocols.rpc import calls


@dataclasses.dataclass(frozen=True)
class RoleRequest:
    """Requested flags of a node; None means no change."""

    offline: bool | None = None
    drained: bool | None = None
    master_candidate: bool | None = None
    master_capable: bool | None = None
    vm_capable: bool | None = None
    powered: bool | None = None


@dataclasses.dataclass(frozen=True)
class RolePlan:
    """Planned changes of a node.

    Attributes:
        node: the future record.
        changes: (parameter, new value) for the user.
        notes: lines for the user.
        is_promoted, is_demoted: it becomes, or stops being, a master candidate.
    """

    node: objects.Node
    changes: tuple[tuple[str, Any], ...]
    notes: tuple[str, ...]
    is_promoted: bool
    is_demoted: bool

    @property
    def may_need_others(self) -> bool:
        """Return whether the candidate pool may need other nodes."""
        return self.is_promoted or self.is_demoted


_ROLES = ("offline", "drained", "master_candidate")


def plan(
    snapshot: objects.Snapshot,
    node: objects.Node,
    request: RoleRequest,
    *,
    has_oob: bool,
    auto_promote: bool,
) -> RolePlan:
    """Return the changes that a request makes to a node.

    Args:
        snapshot: the configuration.
        node: its current record.
        request: the request.
        has_oob: the node has an out-of-band helper.
        auto_promote: other nodes may be promoted in its place.

    Raises:
        OpPrereqError: the request breaks a rule.
    """
    _check_master(snapshot, node, request)
    _check_capabilities(snapshot, node, request)
    _check_power(snapshot, node, request, has_oob=has_oob)
    notes = [
        f"Ignoring request to unset flag {name}, already unset"
        for name in _ROLES
        if getattr(request, name) is False and not getattr(node, name)
    ]
    new, promoted_note = _new_record(snapshot, node, request)
    if promoted_note:
        notes.append(promoted_note)
    is_demoted = node.master_candidate and not new.master_candidate
    if is_demoted and not auto_promote:
        check_pool(snapshot, [node])
    return RolePlan(
        node=new,
        changes=_changes(node, new, request),
        notes=tuple(notes),
        is_promoted=new.master_candidate and not node.master_candidate,
        is_demoted=is_demoted,
    )


def _refuse(node: objects.Node, text: str, ecode: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(f"node {node.name}: {text}", ecode)


def _check_master(
    snapshot: objects.Snapshot, node: objects.Node, request: RoleRequest
) -> None:
    if node.uuid != snapshot.cluster.master_node:
        return
    given = [name for name in _ROLES if getattr(request, name) is not None]
    if given or request.master_capable is False:
        raise _refuse(
            node,
            "is the master, whose role only gnt-cluster master-failover can change",
            ecodes.ECODE_INVAL,
        )


def _check_capabilities(
    snapshot: objects.Snapshot, node: objects.Node, request: RoleRequest
) -> None:
    capable = (
        node.master_capable
        if request.master_capable is None
        else request.master_capable
    )
    if request.master_candidate and not capable:
        raise _refuse(
            node,
            "is not master_capable, so it cannot be a master candidate",
            ecodes.ECODE_STATE,
        )
    held = snapshot.primary_instances(node.uuid) | snapshot.secondary_instances(
        node.uuid
    )
    if request.vm_capable is False and held:
        raise _refuse(
            node,
            f"holds {len(held)} instance(s), so it must stay vm_capable",
            ecodes.ECODE_STATE,
        )


def _check_power(
    snapshot: objects.Snapshot,
    node: objects.Node,
    request: RoleRequest,
    *,
    has_oob: bool,
) -> None:
    is_master = node.uuid == snapshot.cluster.master_node
    if request.powered is False and is_master:
        raise _refuse(
            node,
            "is the master, so it cannot be recorded as powered off",
            ecodes.ECODE_INVAL,
        )
    if request.powered is not None and not has_oob:
        raise _refuse(
            node,
            "has no out-of-band helper, so its power state cannot be recorded",
            ecodes.ECODE_STATE,
        )
    powered = node.powered if request.powered is None else request.powered
    if has_oob and node.offline and request.offline is False and not powered:
        raise _refuse(
            node, "must be powered on before it goes online", ecodes.ECODE_STATE
        )


def _new_record(
    snapshot: objects.Snapshot, node: objects.Node, request: RoleRequest
) -> tuple[objects.Node, str | None]:
    flags = {name: getattr(node, name) for name in _ROLES}
    explicit = {name: getattr(request, name) for name in _ROLES}
    if any(explicit.values()):
        flags = {name: bool(explicit[name]) for name in _ROLES}
    elif False in explicit.values():
        flags = {name: flags[name] and explicit[name] is not False for name in _ROLES}
    capable = (
        node.master_capable
        if request.master_capable is None
        else request.master_capable
    )
    if not capable:
        flags["master_candidate"] = False
    new = node.replace(
        **flags,
        master_capable=capable,
        vm_capable=(
            node.vm_capable if request.vm_capable is None else request.vm_capable
        ),
        powered=node.powered if request.powered is None else request.powered,
    )
    if not _may_return(node, request) or not _has_room(snapshot, node, new):
        return new, None
    return (
        new.replace(master_candidate=True),
        f"Promoting node {node.name} to master candidate",
    )


def _may_return(node: objects.Node, request: RoleRequest) -> bool:
    """Return whether the request makes the node available again."""
    return request.master_candidate is None and (
        (node.drained and request.drained is False)
        or (node.offline and request.offline is False)
        or (not node.master_capable and bool(request.master_capable))
    )


def _has_room(
    snapshot: objects.Snapshot, node: objects.Node, new: objects.Node
) -> bool:
    if not topology.is_eligible(new):
        return False
    state = topology.pool_state(snapshot, ignore=(node.uuid,))
    size = snapshot.cluster.candidate_pool_size
    return state.current < min(size, state.possible + 1)


def check_pool(snapshot: objects.Snapshot, nodes: Sequence[objects.Node]) -> None:
    """Refuse demotions that leave too few candidates while others are eligible.

    Raises:
        OpPrereqError: they do; it names the first candidate.
    """
    candidates = [node for node in nodes if node.master_candidate]
    gone = {node.uuid for node in nodes}
    if not candidates or not topology.missing(snapshot, ignore=gone):
        return
    if topology.promotable(snapshot, ignore=gone):
        raise _refuse(
            candidates[0],
            "is needed as master candidate; use auto-promote to promote other nodes"
            " instead",
            ecodes.ECODE_STATE,
        )


def _changes(
    old: objects.Node, new: objects.Node, request: RoleRequest
) -> tuple[tuple[str, Any], ...]:
    names = (*_ROLES, "master_capable", "vm_capable", "powered")
    return tuple(
        (name, getattr(new, name))
        for name in names
        if getattr(old, name) != getattr(new, name) or getattr(request, name) is True
    )


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
    answers = (
        ctx.rpc.call_nodes(uuids, calls.version(), timeout_s=_ANSWER_S) if uuids else {}
    )
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
    wanted = RoleRequest(offline=True, powered=False)
    before = ctx.snapshot.nodes
    with ctx.config.edit(ctx.owner) as edit:
        new = [
            edit.update(
                plan(
                    *(edit.snapshot, edit.snapshot.nodes[uuid], wanted),
                    has_oob=True,
                    auto_promote=True,
                ).node
            )
            for uuid in nodes
        ]
    return [node for node in new if before[node.uuid] != node]
