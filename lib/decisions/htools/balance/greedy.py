"""The greedy balancing plan: in each round the one move that lowers the score most.

The order in which moves are tried, and the choice among equal moves, are documented, so
that plans agree line by line. On request the plan continues where no single move helps,
with pairs of moves of which the first may raise the score. Every accepted move or pair
lowers the score, so a plan visits no state twice after a move or pair, and ends.

The plan as jobs: moves that may run at the same time, their commands and opcodes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from ganeti.decisions.htools.balance.search import NEAR, MoveSearch, Scored
from ganeti.decisions.htools.model.cluster import NONE, Instance
from ganeti.decisions.htools.rules import moves
from ganeti.decisions.htools.rules.move_constraints import MoveOptions
from ganeti.decisions.htools.rules.moves import Move, MoveKind
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.state.node_state import ClusterState

#: Most times that a plan looks for pairs: each takes as long as 20 rounds.
_MOST_PAIRS: Final = 100


class BalanceGoal(msgspec.Struct, frozen=True):
    """When to stop, and which moves to prefer.

    Attributes:
        min_score: distance to the ideal score at which the plan is good enough.
        min_gain: least gain of a move, once the score is at most ``min_gain_limit``.
        min_gain_limit: see ``min_gain``.
        max_length: most moves; below 0 for no limit.
        avoid_disk_moves: factor by which a move that copies disks must gain more than
            the best move that does not; None treats both alike.
        pairs: look for pairs of moves where no single move helps.
    """

    min_score: float = 1e-9
    min_gain: float = 0.01
    min_gain_limit: float = 0.1
    max_length: int = -1
    avoid_disk_moves: float | None = None
    pairs: bool = False

    def is_gain(self, current: float, score: float) -> bool:
        """Return whether the lower score is worth the move."""
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
    """Yield the moves of a plan one by one; the state changes with each.

    ``lowest`` is the ideal score at the start; it is computed if not given.
    """
    target = (components.ideal(state) if lowest is None else lowest) + goal.min_score
    search: _Rounds | None = None
    current = components.value(state)
    length = 0
    while goal.max_length < 0 or length < goal.max_length:
        # The start was compared by the program, which prints another text then.
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
    """Finds the moves of each round, among all moves or those that copy no disks."""

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
        """Return the next moves at a score: one move, a pair, or nothing.

        ``left`` is how many moves the plan may still have; below 0 for any number.
        """
        best = self._choose(current, MoveSearch.best_one)
        if best and self._goal.is_gain(current, best[-1][2]):
            return best
        # A pair needs two moves of the limit.
        if left in {0, 1} or not self._pairs_left:
            return ()
        self._pairs_left -= 1
        best = self._choose(current, MoveSearch.best_pair)
        # Moving back and forth gains no more than rounding errors.
        if best and self._goal.is_gain(current - NEAR, best[-1][2]):
            return best
        return ()

    def _choose(
        self, current: float, find: Callable[["MoveSearch"], Sequence[Scored]]
    ) -> Sequence[Scored]:
        """Return the best; moves that copy disks must gain more than the others."""
        best = find(self._every)
        cheap = () if self._cheap is None else find(self._cheap)
        if not best or not cheap:
            return best
        # Factor 1 means: gain more than the best move that copies no disks.
        wanted = self._factor * (current - cheap[-1][2])
        return best if current - best[-1][2] > wanted else cheap

    def moved(self, inst: int, nodes: set[int]) -> None:
        """Update the searches after a move that touched these nodes."""
        self._every.moved(inst, nodes)
        if self._cheap is not None:
            self._cheap.moved(inst, nodes)


_SCRIPT_HEAD = """\
#!/bin/sh

# Commands of a balancing plan; create the file /tmp/stop-htools to stop between jobs.

set -e

check() {
  if [ -f /tmp/stop-htools ]; then
    echo 'Stopped by /tmp/stop-htools'
    exit 0
  fi
}

"""


def job_sets(steps: Iterable[BalanceStep]) -> list[list[BalanceStep]]:
    """Group moves that share no node, from the last one backwards."""
    sets: list[list[BalanceStep]] = []
    nodes: set[int] = set()
    # From the end, because a move joins the set of its successor only if nothing in
    # that set uses its nodes; sets run one after another, jobs of a set at the same
    # time.
    for step in reversed(list(steps)):
        involved = {*step.before, *step.after} - {NONE}
        if sets and not nodes & involved:
            sets[0].insert(0, step)
            nodes |= involved
        else:
            sets.insert(0, [step])
            nodes = involved
    return sets


def letters(step: BalanceStep, node: Callable[[int], str]) -> str:
    """Return a move as the lines of a plan show it."""
    target = node(step.move.target) if step.move.target != NONE else ""
    return {
        MoveKind.FAILOVER: "f",
        MoveKind.FAILOVER_TO: f"fa:{target}",
        MoveKind.REPLACE_SECONDARY: f"r:{target}",
        MoveKind.REPLACE_FAILOVER: f"r:{target} f",
        MoveKind.REPLACE_PRIMARY: f"f r:{target} f",
        MoveKind.FAILOVER_REPLACE: f"f r:{target}",
    }[step.move.kind]


def commands(
    step: BalanceStep, name: str, node: Callable[[int], str], *, running: bool
) -> list[str]:
    """Return the arguments of ``gnt-instance`` that do a move."""
    verb = "migrate" if running else "failover"
    result = []
    for word in letters(step, node).split():
        letter, _, target = word.partition(":")
        if letter == "f":
            result.append(f"{verb} -f {name}")
        elif letter == "fa":
            result.append(f"{verb} -f -n {target} {name}")
        else:
            result.append(f"replace-disks -n {target} {name}")
    return result


def opcodes(
    step: BalanceStep, inst: Instance, node: Callable[[int], str]
) -> list[dict[str, Any]]:
    """Return the opcodes that do a move, in their wire form.

    Args:
        step: the move.
        inst: the instance.
        node: returns the full name of a node by position.
    """
    result: list[dict[str, Any]] = []
    for word in letters(step, node).split():
        letter, _, target = word.partition(":")
        op: dict[str, Any] = {"instance_name": inst.name}
        if letter == "r":
            op |= {
                "OP_ID": "OP_INSTANCE_REPLACE_DISKS",
                "mode": "replace_new_secondary",
                "remote_node": target,
            }
        elif inst.forthcoming:
            op |= {"OP_ID": "OP_INSTANCE_FAILOVER"}
        else:
            op |= {
                "OP_ID": "OP_INSTANCE_MIGRATE",
                "allow_failover": True,
                "ignore_hvversions": True,
            }
        if letter == "fa":
            op["target_node"] = target
        result.append(op)
    return result


def listing(sets: list[list[list[str]]]) -> list[str]:
    """Yield the lines of a script: ``sets`` has jobs, which have commands."""
    lines = []
    for number, jobs in enumerate(sets, start=1):
        lines += ["", f"echo jobset {number}, {len(jobs)} jobs"]
        for place, job in enumerate(jobs, start=1):
            lines += [f"  echo job {number}/{place}", "  check"]
            lines += [f"  gnt-instance {command}" for command in job]
    return lines


def on_screen(lines: list[str]) -> list[str]:
    """Yield the lines of a script as they are shown: indented, without checks."""
    return [f"  {line}" for line in lines if line != "  check"]


def script(lines: list[str]) -> str:
    """Return a shell script that can be stopped between jobs."""
    return _SCRIPT_HEAD + "".join(f"{line}\n" for line in lines)
