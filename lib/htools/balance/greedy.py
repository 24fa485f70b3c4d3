"""The greedy balancing plan: again and again the one move that lowers the score most.

Which moves are tried, and which wins when several are equal, follows the documented
order, so that plans are the same line by line. On request the plan goes on where no
single move helps: with pairs of moves of which the first need not lower the score.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from ganeti.htools.balance.search import NEAR, MoveSearch, Scored
from ganeti.htools.model.cluster import NONE
from ganeti.htools.rules import moves
from ganeti.htools.rules.move_constraints import MoveOptions
from ganeti.htools.rules.moves import Move
from ganeti.htools.score import components
from ganeti.htools.state.node_state import ClusterState

#: Most times that a plan looks for pairs.
_MOST_PAIRS: Final = 100


class BalanceGoal(msgspec.Struct, frozen=True):
    """When to stop, and what to prefer.

    Attributes:
        min_score: distance to the ideal score that is near enough.
        min_gain: of a move, once the score is below ``min_gain_limit``.
        min_gain_limit: see ``min_gain``.
        max_length: most moves; below 0 for no limit.
        avoid_disk_moves: how many times the gain of the best move without disks one
            that copies disks must bring; None treats both alike.
        pairs: where no move helps, look for pairs of moves that do.
    """

    min_score: float = 1e-9
    min_gain: float = 0.01
    min_gain_limit: float = 0.1
    max_length: int = -1
    avoid_disk_moves: float | None = None
    pairs: bool = False

    def is_gain(self, current: float, score: float) -> bool:
        """Tell whether a lower score is worth the move."""
        small = current <= self.min_gain_limit and current - score < self.min_gain
        return score < current and not small


class BalanceStep(msgspec.Struct, frozen=True):
    """One move of a plan: nodes before and after (-1 is none) and the score after."""

    inst: int
    move: Move
    before: tuple[int, int]
    after: tuple[int, int]
    score: float


def plan(
    state: ClusterState,
    goal: BalanceGoal,
    options: MoveOptions,
    lowest: float | None = None,
) -> Iterator[BalanceStep]:
    """Give the moves of a plan one by one; the state changes with each.

    ``lowest`` is the ideal score at the start; computed when not given.
    """
    target = (components.ideal(state) if lowest is None else lowest) + goal.min_score
    search: _Rounds | None = None
    current = components.value(state)
    length = 0
    while goal.max_length < 0 or length < goal.max_length:
        if length and current <= target:
            return
        if search is None:
            search = _Rounds(state, options, goal)
        chosen = search.next(current, goal.max_length - length)
        if not chosen:
            return
        for inst, move, score in chosen:
            before = (state.pri[inst], state.sec[inst])
            moves.apply(state, inst, move)
            after = (state.pri[inst], state.sec[inst])
            current = score
            length += 1
            yield BalanceStep(inst, move, before, after, score)
            search.moved(inst, {*before, *after} - {NONE})


class _Rounds:
    """Finds the moves of each round, of all moves or of those that copy no disks."""

    def __init__(
        self, state: ClusterState, options: MoveOptions, goal: BalanceGoal
    ) -> None:
        self._goal = goal
        self._every = MoveSearch(state, options)
        self._cheap: MoveSearch | None = None
        self._factor = goal.avoid_disk_moves or 0.0
        self._pairs_left = _MOST_PAIRS if goal.pairs else 0
        if goal.avoid_disk_moves is not None and options.disk_moves:
            cheap = msgspec.structs.replace(options, disk_moves=False)
            self._cheap = MoveSearch(state, cheap)

    def next(self, current: float, left: int) -> Sequence[Scored]:
        """Find what to do at a score: a move, a pair, or nothing.

        ``left`` is how many moves the plan may still have; below 0 for any number.
        """
        best = self._choose(current, MoveSearch.best_one)
        if best and self._goal.is_gain(current, best[-1][2]):
            return best
        if left in {0, 1} or not self._pairs_left:
            return ()
        self._pairs_left -= 1
        best = self._choose(current, MoveSearch.best_pair)
        # Going back and forth gains no more than rounding does.
        if best and self._goal.is_gain(current - NEAR, best[-1][2]):
            return best
        return ()

    def _choose(
        self, current: float, find: Callable[["MoveSearch"], Sequence[Scored]]
    ) -> Sequence[Scored]:
        """Find the best; what copies disks must gain more than what does not."""
        best = find(self._every)
        cheap = () if self._cheap is None else find(self._cheap)
        if not best or not cheap:
            return best
        wanted = self._factor * (current - cheap[-1][2])
        return best if current - best[-1][2] > wanted else cheap

    def moved(self, inst: int, nodes: set[int]) -> None:
        """Take note of a move: the instance, and all nodes it had or has."""
        self._every.moved(inst, nodes)
        if self._cheap is not None:
            self._cheap.moved(inst, nodes)
