"""Corrections of estimates for instances whose number of spindles is unknown.

A forthcoming instance of this kind may be placed on a node with exclusive storage when
soft rules do not count. The node then has -1 free spindles, whatever it had before, and
nothing is given back when the instance leaves. This is not a sum of amounts, which
``score.move_estimates`` assumes; here is the difference. Existing instances of this
kind are never placed on nodes with exclusive storage.
"""

from typing import Final

import numpy as np

from ganeti.decisions.htools.rules.move_constraints import MoveArrays, MoveConstraints
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.state.instance_deltas import (
    LATER,
    Bools,
    DeltaRow,
    Floats,
    Ints,
)
from ganeti.decisions.htools.state.node_state import ClusterState

#: Free spindles of a node after it took an unknown number.
_UNKNOWN: Final = -1.0
_NAME: Final = "free_disk_cv_forth"
_DISK: Final = LATER[DeltaRow.DISK]


def correction(rules: MoveConstraints, move: MoveArrays) -> Floats:
    """Return what to add to estimates of moves; 0 for most instances."""
    # Only these instances need it, and only forthcoming ones can be placed so.
    asked, online = rules.deltas.not_additive[move.inst], rules.state.online
    if not (asked.any() and online.any()):
        return np.zeros(1)
    values = components.METRICS[_NAME].values(rules.state)
    far = np.where(online, values - values[online].mean(), 0.0)
    variance = (far * far)[online].mean()
    estimated, real = (
        np.sqrt(np.maximum(variance + gain, 0.0)) for gain in _gains(rules, move, far)
    )
    result: Floats = np.where(asked, components.WEIGHT[_NAME] * (real - estimated), 0.0)
    return result


def _gains(
    rules: MoveConstraints, move: MoveArrays, far: Floats
) -> tuple[Floats, Floats]:
    """Return the changes of the variance: as estimated, and as they are."""
    squares: list[Floats] = [np.zeros(1), np.zeros(1)]
    sums: list[Floats] = [np.zeros(1), np.zeros(1)]
    count = int(rules.state.online.sum())
    disk = _inverse(rules.state, rules.state.t_dsk, ~rules.state.exclusive)
    for node, before, after in (
        (move.primary, "p", move.ends.primary),
        (move.secondary, "s", move.ends.secondary),
        (move.target, "", move.ends.target),
    ):
        step = np.zeros(1)
        if after not in {"=", before}:
            step = rules.gain[before, after][_DISK][move.inst] * disk[node]
        # A node that takes one loses its free spindles; leaving returns none.
        placed = _placed(rules.state, node) if after else np.zeros(1)
        for at, one in enumerate((step, step + placed)):
            squares[at] = squares[at] + one * (2.0 * far[node] + one)
            sums[at] = sums[at] + one
    first, second = (
        (square - total * total / count) / count
        for square, total in zip(squares, sums, strict=True)
    )
    return first, second


def _placed(state: ClusterState, node: Ints) -> Floats:
    """Return the change of the share of free spindles of nodes that take one."""
    share = _inverse(state, state.spindle_count, state.exclusive)
    result: Floats = (_UNKNOWN - state.f_spin_later[node]) * share[node]
    return result


def _inverse(state: ClusterState, whole: Floats, where: Bools) -> Floats:
    asked = where & state.online & (whole != 0)
    out: Floats = np.divide(1.0, whole, out=np.zeros_like(whole), where=asked)
    return out
