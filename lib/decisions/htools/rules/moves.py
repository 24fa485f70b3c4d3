"""Moves of one instance: its nodes afterwards, whether it is allowed, doing it."""

import contextlib
import enum
import itertools
from collections.abc import Iterator

import msgspec

from ganeti.decisions.htools.model.cluster import NONE
from ganeti.decisions.htools.rules import constraints
from ganeti.decisions.htools.state.node_state import ClusterState


class MoveKind(enum.IntEnum):
    """Kinds of moves, in the order in which they are tried for one target."""

    FAILOVER = 0
    FAILOVER_TO = 1
    REPLACE_SECONDARY = 2
    REPLACE_FAILOVER = 3
    REPLACE_PRIMARY = 4
    FAILOVER_REPLACE = 5


class Move(msgspec.Struct, frozen=True):
    """A kind of move and its target node, if it has one."""

    kind: MoveKind
    target: int = NONE


def outcome(state: ClusterState, inst: int, move: Move) -> tuple[int, int]:
    """Return primary and secondary after a move."""
    primary, secondary = state.pri[inst], state.sec[inst]
    match move.kind:
        case MoveKind.FAILOVER:
            return secondary, primary
        case MoveKind.FAILOVER_TO:
            return move.target, secondary
        case MoveKind.REPLACE_SECONDARY:
            return primary, move.target
        case MoveKind.REPLACE_FAILOVER:
            return move.target, primary
        case MoveKind.REPLACE_PRIMARY:
            return move.target, secondary
        case MoveKind.FAILOVER_REPLACE:
            return secondary, move.target


@contextlib.contextmanager
def trial(state: ClusterState, inst: int, *others: int) -> Iterator[None]:
    """Run a block that moves an instance, then restore the state.

    ``others`` are further nodes that the block may change.
    """
    nodes = {state.pri[inst], state.sec[inst], *others} - {NONE}
    mark = state.mark(inst, sorted(nodes))
    try:
        yield
    finally:
        state.restore(mark)


def failure(
    state: ClusterState,
    inst: int,
    move: Move,
    *,
    force: bool = False,
    is_live: bool = True,
) -> int:
    """Return why a move is not allowed; ``force`` ignores soft errors.

    The state is changed during the call and restored. Without ``is_live`` migration
    tags are ignored.

    Returns:
        0 if the move is allowed, else a code of ``rules.constraints``.
    """
    before = (state.pri[inst], state.sec[inst])
    path = _migrations(before, move) if is_live else ()
    if not all(may_migrate(state, *pair) for pair in path):
        return constraints.MIG
    with trial(state, inst, move.target):
        state.remove(inst)
        return _additions(state, inst, before, move, force=force)


def apply(state: ClusterState, inst: int, move: Move) -> None:
    """Do a move."""
    place(state, inst, *outcome(state, inst, move))


def place(state: ClusterState, inst: int, primary: int, secondary: int) -> None:
    """Put an instance on other nodes."""
    state.remove(inst)
    state.place(inst, primary, secondary)


def may_migrate(state: ClusterState, source: int, target: int) -> bool:
    """Return whether tags let an instance migrate between two nodes."""
    return state.may_migrate is None or bool(state.may_migrate[source, target])


def _migrations(before: tuple[int, int], move: Move) -> Iterator[tuple[int, int]]:
    primary, secondary = before
    match move.kind:
        case MoveKind.REPLACE_SECONDARY:
            path: tuple[int, ...] = ()
        case MoveKind.FAILOVER | MoveKind.FAILOVER_REPLACE:
            path = (primary, secondary)
        case MoveKind.REPLACE_PRIMARY:
            path = (primary, secondary, move.target)
        case _:
            path = (primary, move.target)
    return itertools.pairwise(path)


def _additions(
    state: ClusterState, inst: int, before: tuple[int, int], move: Move, *, force: bool
) -> int:
    """Return the first refusal of a move's additions; the state has no instance.

    The additions are checked in the order of the move.
    """
    primary, secondary = before
    from_online = bool(state.online[primary]) and not force
    to_online = secondary != NONE and bool(state.online[secondary]) and not force
    if move.kind == MoveKind.REPLACE_SECONDARY:
        # The primary stays where it is, so only its hard rules count.
        code = _as_primary(state, inst, primary, strict=False)
        state.place(inst, primary)
        return code or _as_secondary(state, inst, move.target, strict=to_online)
    if move.kind == MoveKind.FAILOVER_TO:
        return _as_primary(state, inst, move.target, strict=from_online)
    first, second = from_online, from_online
    if move.kind == MoveKind.REPLACE_FAILOVER:
        first, second = not force, to_online
    if move.kind == MoveKind.REPLACE_PRIMARY:
        # The instance runs on its secondary while the disks are copied to the target.
        code = _as_primary(state, inst, secondary, strict=from_online)
        if code:
            return code
    after = {
        MoveKind.FAILOVER: (secondary, primary),
        MoveKind.REPLACE_FAILOVER: (move.target, primary),
        MoveKind.REPLACE_PRIMARY: (move.target, secondary),
        MoveKind.FAILOVER_REPLACE: (secondary, move.target),
    }[move.kind]
    code = _as_primary(state, inst, after[0], strict=first)
    if code:
        return code
    state.place(inst, after[0])
    # Ganeti does not test the free disk of an offline node that becomes secondary.
    full = move.kind == MoveKind.FAILOVER and not state.online[primary]
    return _as_secondary(
        state, inst, after[1], strict=second, ignore_disk_on=primary if full else NONE
    )


def _as_primary(state: ClusterState, inst: int, node: int, *, strict: bool) -> int:
    checks = constraints.primary(state, state.instances[inst], strict=strict)
    return constraints.verdict_on(checks, state, node)


def _as_secondary(
    state: ClusterState,
    inst: int,
    node: int,
    *,
    strict: bool,
    ignore_disk_on: int = NONE,
) -> int:
    """Return the refusal of a secondary for an instance that has its primary."""
    checks = constraints.secondary(
        state,
        state.instances[inst],
        state.peers[:, state.pri[inst]],
        strict=strict,
        ignore_disk_on=ignore_disk_on,
    )
    return constraints.verdict_on(checks, state, node)
