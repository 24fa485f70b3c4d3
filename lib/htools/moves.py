"""Moves of one instance: where it ends, whether that is allowed, and doing it."""

import contextlib
import dataclasses
import enum
import itertools
from collections.abc import Iterator
from typing import Any

from ganeti.htools import rules
from ganeti.htools.model import NONE
from ganeti.htools.rules import Fail
from ganeti.htools.state import State


class Kind(enum.IntEnum):
    """Kinds of moves, in the order in which they are tried for one target."""

    FAILOVER = 0
    FAILOVER_TO = 1
    REPLACE_SECONDARY = 2
    REPLACE_FAILOVER = 3
    REPLACE_PRIMARY = 4
    FAILOVER_REPLACE = 5


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """A kind of move and its target node, if it has one."""

    kind: Kind
    target: int = NONE


#: Kinds after which the instance counts shared location tags as before.
_KEEP_COMMON = frozenset({Kind.FAILOVER, Kind.FAILOVER_TO})


def outcome(state: State, inst: int, move: Move) -> tuple[int, int]:
    """Tell primary and secondary after a move."""
    primary, secondary = int(state.primary[inst]), int(state.secondary[inst])
    match move.kind:
        case Kind.FAILOVER:
            return secondary, primary
        case Kind.FAILOVER_TO:
            return move.target, secondary
        case Kind.REPLACE_SECONDARY:
            return primary, move.target
        case Kind.REPLACE_FAILOVER:
            return move.target, primary
        case Kind.REPLACE_PRIMARY:
            return move.target, secondary
        case Kind.FAILOVER_REPLACE:
            return secondary, move.target


@contextlib.contextmanager
def trial(state: State, inst: int, *others: int) -> Iterator[None]:
    """Let a block move an instance, then put everything back as it was.

    ``others`` are the nodes besides the instance's own that the block may touch.
    """
    before = (int(state.primary[inst]), int(state.secondary[inst]))
    nodes = sorted({node for node in (*before, *others) if node != NONE})
    tables: tuple[Any, ...] = (
        state.amounts,
        state.tag_count,
        state.peers.T,
    )
    rows: tuple[Any, ...] = (
        state.reserved,
        state.failing,
        state.count_primary,
        state.count_secondary,
    )
    saved = [table[:, nodes] for table in tables]
    saved_rows = [row[nodes] for row in rows]
    lists = [(state.primaries[n][:], state.secondaries[n][:]) for n in nodes]
    common = state.common[inst]
    try:
        yield
    finally:
        state.primary[inst], state.secondary[inst] = before
        for table, old in zip(tables, saved, strict=True):
            table[:, nodes] = old
        for row, old in zip(rows, saved_rows, strict=True):
            row[nodes] = old
        for node, (primaries, secondaries) in zip(nodes, lists, strict=True):
            state.primaries[node], state.secondaries[node] = primaries, secondaries
        state.common[inst] = common


def failure(state: State, inst: int, move: Move, *, force: bool = False) -> Fail | None:
    """Tell why a move is not allowed; ``force`` ignores soft errors.

    The state is changed while looking and put back.
    """
    before = (int(state.primary[inst]), int(state.secondary[inst]))
    found = _migrations(state, before, move)
    if found is not None:
        return found
    with trial(state, inst, move.target):
        if before[1] != NONE:
            state.remove_secondary(inst, before[0])
        state.remove_primary(inst)
        return _additions(state, inst, before, move, force=force)


def apply(state: State, inst: int, move: Move) -> None:
    """Do a move."""
    state.place(inst, *outcome(state, inst, move))
    if move.kind not in _KEEP_COMMON and len(state.fixed.tags.location):
        state.locate(inst)


def _migrations(state: State, before: tuple[int, int], move: Move) -> Fail | None:
    primary, secondary = before
    match move.kind:
        case Kind.REPLACE_SECONDARY:
            path: tuple[int, ...] = ()
        case Kind.FAILOVER | Kind.FAILOVER_REPLACE:
            path = (primary, secondary)
        case Kind.REPLACE_PRIMARY:
            path = (primary, secondary, move.target)
        case _:
            path = (primary, move.target)
    for source, target in itertools.pairwise(path):
        found = rules.migration(state, source, target)
        if found is not None:
            return found
    return None


def _additions(
    state: State, inst: int, before: tuple[int, int], move: Move, *, force: bool
) -> Fail | None:
    """Judge the additions of a move, in its order, on a state without the instance."""
    primary, secondary = before
    online = state.fixed.online
    from_online = bool(online[primary]) and not force
    to_online = secondary != NONE and bool(online[secondary]) and not force
    if move.kind == Kind.REPLACE_SECONDARY:
        found = rules.primary(state, inst, primary, strict=False)
        state.add_primary(inst, primary)
        return found or rules.secondary(
            state, inst, move.target, primary, strict=to_online
        )
    if move.kind == Kind.FAILOVER_TO:
        return rules.primary(state, inst, move.target, strict=from_online)
    first, second = from_online, from_online
    if move.kind == Kind.REPLACE_FAILOVER:
        first, second = not force, to_online
    if move.kind == Kind.REPLACE_PRIMARY:
        moment = rules.primary(state, inst, secondary, strict=from_online)
        if moment is not None:
            return moment
    after = {
        Kind.FAILOVER: (secondary, primary),
        Kind.REPLACE_FAILOVER: (move.target, primary),
        Kind.REPLACE_PRIMARY: (move.target, secondary),
        Kind.FAILOVER_REPLACE: (secondary, move.target),
    }[move.kind]
    found = rules.primary(state, inst, after[0], strict=first)
    if found is not None:
        return found
    state.add_primary(inst, after[0])
    need_disk = move.kind != Kind.FAILOVER or bool(online[primary])
    return rules.secondary(
        state, inst, after[1], after[0], strict=second, need_disk=need_disk
    )
