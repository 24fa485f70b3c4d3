"""The exact scores after each of many moves, digit by digit as if each were done.

Estimates tell which moves are the best up to rounding; among these the digits decide,
and plans have to agree in them. So every move is done in the state and undone, only the
sums over all nodes are made for all moves at once, in the same order of nodes.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ganeti.htools import grid_score as score
from ganeti.htools import moves
from ganeti.htools.effects import Bools, Floats, Ints
from ganeti.htools.grid import State
from ganeti.htools.grid_rows import ROWS
from ganeti.htools.model import NONE
from ganeti.htools.moves import Move

#: Most nodes that a move touches.
_TOUCHED: Final = 3
#: Most entries of one table (8 MiB).
_CHUNK: Final = 1 << 20


def after(state: State, listed: Sequence[tuple[int, Move]]) -> list[float]:
    """Compute the score after each of some moves, as ``grid_score.value`` would."""
    together = max(2, _CHUNK // max(1, state.size))
    parts = [listed[at : at + together] for at in range(0, len(listed), together)]
    return [found for part in parts for found in _after_some(state, part)]


def _after_some(state: State, listed: Sequence[tuple[int, Move]]) -> list[float]:
    # Pairs of location and exclusion tags are not a number of single nodes.
    has_pairs = state.node_places.size and state.pri_tags.size
    if len(listed) < 2 or has_pairs or not state.online.any():
        return [_after_one(state, inst, move) for inst, move in listed]
    return _Trials(state, listed).scores()


def _after_one(state: State, inst: int, move: Move) -> float:
    with moves.trial(state, inst, move.target):
        moves.apply(state, inst, move)
        return score.value(state)


class _Trials:
    """What some moves make of the nodes they touch: arrays of moves x touched nodes.

    Besides its rows it has the attributes of a state that spreads are computed of.
    """

    def __init__(self, state: State, listed: Sequence[tuple[int, Move]]) -> None:
        size = (len(listed), _TOUCHED)
        self._state = state
        self._places: Ints = np.zeros(size, np.int64)
        self._rows: Floats = np.zeros((len(ROWS), *size))
        self._tags: Floats = np.zeros(size)
        self._off_primaries: Floats = np.zeros(len(listed))
        for at, (inst, move) in enumerate(listed):
            self._try(at, inst, move)
        self._fails_n1: Bools = self.unallocated <= self.r_mem

    def _try(self, at: int, inst: int, move: Move) -> None:
        state = self._state
        before = state.pri[inst]
        touched = sorted({before, state.sec[inst], move.target} - {NONE})
        # Where there are fewer, one stands there twice.
        touched += touched[:1] * (_TOUCHED - len(touched))
        with moves.trial(state, inst, move.target):
            moves.apply(state, inst, move)
            self._rows[:, at] = state.rows[:, touched]
            if state.pri_tags.size:
                tags = state.pri_tags[touched]
                self._tags[at] = np.maximum(tags - 1, 0).sum(axis=1)
            now = state.pri[inst]
        self._places[at] = touched
        if not state.instances[inst].forthcoming:
            self._off_primaries[at] = int(state.offline[now]) - state.offline[before]

    def __getattr__(self, name: str) -> Any:
        if name in ROWS:
            return self._rows[ROWS.index(name)]
        return getattr(self._state, name)[self._places]

    def scores(self) -> list[float]:
        """Add up the components after each move."""
        state, places = self._state, self._places
        now = score.numbers(state)
        online = state.online[places] & self._first_of_each()
        offline = state.offline[places] & self._first_of_each()
        fixed = score.components(state)
        found: dict[str, Floats | float] = dict(fixed)
        failing = np.where(self._fails_n1, self.held, 0.0)
        # Counts are whole numbers: their order does not matter.
        for name, where, old, new in (
            ("n1_cnt", online, now.n1, failing),
            ("offline_all_cnt", offline, state.held, self.held),
            ("pri_tags_score", online, now.tags, self._tags),
            ("location_score", online, now.location, self.location),
        ):
            found[name] = fixed[name] + np.where(where, new - old[places], 0).sum(
                axis=1
            )
        found["offline_pri_cnt"] = fixed["offline_pri_cnt"] + self._off_primaries
        found |= self._spreads(now)
        total: Floats = np.zeros(len(places))
        for name, weight in score.WEIGHTS:
            total = total + weight * found[name]
        return [float(value) for value in total]

    def _first_of_each(self) -> Bools:
        """Tell which touched nodes do not stand there a second time."""
        out: Bools = np.ones(self._places.shape, np.bool_)
        for column in range(1, _TOUCHED):
            before = self._places[:, :column] == self._places[:, column, None]
            out[:, column] = ~before.any(axis=1)
        return out

    def _spreads(self, now: score.Numbers) -> dict[str, Floats]:
        """Return the spreads that change, and the sum of reserved memory."""
        up = np.nonzero(self._state.online)[0]
        found: dict[str, Floats] = {}
        known: dict[tuple[bytes, bytes], tuple[Floats, Floats]] = {}
        for name, get in score.SPREADS.items():
            old, new = now.spreads[name], get(self)  # type: ignore[arg-type]
            same = self._state.offline[self._places] | (old[self._places] == new)
            if same.all():
                continue
            key = old.tobytes(), new.tobytes()
            if key not in known:
                known[key] = self._sums(old[up], new)
            found[name], total = known[key]
            if name == "reserved_mem_cv":
                found["reserved_mem_rtotal"] = total
        return found

    def _sums(self, old: Floats, new: Floats) -> tuple[Floats, Floats]:
        """Return spread and sum of numbers of which some are replaced, for each move.

        Args:
            old: numbers of the nodes online.
            new: of the touched nodes.
        """
        online = self._state.online
        move, column = np.nonzero(online[self._places])
        place = (np.cumsum(online) - 1)[self._places[move, column]]
        # Sums along the first axis of a table with columns run in its order.
        table = np.repeat(old[:, None], len(new), axis=1)
        table[place, move] = new[move, column]
        total: Floats = np.add.reduce(table, axis=0)
        table -= total / len(old)
        table *= table
        spread: Floats = np.sqrt(np.add.reduce(table, axis=0) / len(old))
        return spread, total
