"""A balancing plan for a whole cluster, with its reasons, as data for programs.

`plan` goes through the node groups; ``balance.greedy`` decides on moves. The result has
names of objects, so that it stays valid without the cluster records.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from ganeti.decisions.htools.balance import greedy
from ganeti.decisions.htools.balance import search as balance_search
from ganeti.decisions.htools.model.cluster import (
    MOVABLE_TEMPLATES,
    NONE,
    Cluster,
    DataError,
    Instance,
)
from ganeti.decisions.htools.rules.move_constraints import MoveOptions
from ganeti.decisions.htools.rules.reasons import Reason
from ganeti.decisions.htools.score import components as score_components
from ganeti.decisions.htools.state import node_state

#: Smaller changes of a component are left out of plans.
_NOTHING: Final = 5e-9


class PlanOptions(msgspec.Struct, frozen=True):
    """Groups, goal and moves of a plan.

    Attributes:
        group: name or uuid of the only group to balance; None for all.
        goal: when to stop; its ``max_length`` limits all groups together.
        options: which moves are allowed.
        nodes: names of the only nodes that moves may use; None for all.
        fixed: names of instances that may not move.
        first_set: end the plan of each group before the first move that uses a node of
            an earlier one, so that all of them can run at the same time.
    """

    group: str | None = None
    goal: greedy.BalanceGoal = msgspec.field(default_factory=greedy.BalanceGoal)
    options: MoveOptions = msgspec.field(default_factory=MoveOptions)
    nodes: frozenset[str] | None = None
    fixed: frozenset[str] = frozenset()
    first_set: bool = False


class PlannedMove(msgspec.Struct, frozen=True):
    """One move of a plan.

    Attributes:
        instance: its name.
        before: names of its nodes, primary first.
        after: the same after the move.
        letters: the kind of move, as in the lines of hbal.
        score: of the group afterwards.
        components: components of the score that changed: name -> (before, after).
        depends: positions of earlier moves that must have ended.
        opcodes: that do the move, in wire form.
    """

    instance: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    letters: str
    score: float
    components: dict[str, tuple[float, float]]
    depends: tuple[int, ...]
    opcodes: list[dict[str, Any]]


class GroupPlan(msgspec.Struct, frozen=True):
    """The plan of one group: scores, moves, why it ends, and who may not move.

    ``first`` is the position of its first move in the whole plan. ``kept`` and
    ``reasons`` describe the same instances, as text and as data.
    """

    name: str
    uuid: str
    before: float
    after: float
    ideal: float
    first: int
    moves: list[PlannedMove]
    stopped: str
    kept: dict[str, str]
    reasons: dict[str, Reason]


def plan(cluster: Cluster, want: PlanOptions) -> list[GroupPlan]:
    """Plan the moves that balance groups of a cluster.

    Raises:
        DataError: there is no such group.
    """
    # Groups are balanced one by one, and no group sees both nodes of such an instance.
    split = {cluster.instances[index].name for index in cluster.split()}
    held = split | _held(cluster, want)
    cluster = msgspec.structs.replace(
        cluster,
        instances=tuple(
            msgspec.structs.replace(i, movable=i.movable and i.name not in held)
            for i in cluster.instances
        ),
    )
    result: list[GroupPlan] = []
    left = want.goal.max_length
    for number in _groups(cluster, want.group):
        planner = _Planner(cluster.only_group(number), want, split)
        result.append(planner.plan(left, sum(len(done.moves) for done in result)))
        # The limit of moves is one for the whole plan; a negative number is no limit.
        if left >= 0:
            left -= len(result[-1].moves)
    return result


def _held(cluster: Cluster, want: PlanOptions) -> set[str]:
    """Return the instances that the options keep where they are."""
    if want.nodes is None:
        return set(want.fixed)
    others = {n for n, node in enumerate(cluster.nodes) if node.name not in want.nodes}
    used = {
        item.name
        for item in cluster.instances
        if item.primary in others or item.secondary in others
    }
    return used | want.fixed


def _groups(cluster: Cluster, wanted: str | None) -> list[int]:
    if wanted is None:
        return sorted({node.group for node in cluster.nodes})
    result = [
        number
        for number, group in enumerate(cluster.groups)
        if wanted in {group.name, group.uuid}
    ]
    if len(result) != 1:
        raise DataError(f"node group {wanted!r}: wanted one that exists, found none")
    return result


class _Planner:
    """Plans one group, of whose part of the cluster it has the state."""

    def __init__(self, part: Cluster, want: PlanOptions, split: set[str]) -> None:
        self._part, self._want, self._split = part, want, split
        self._names = [node.name for node in part.nodes]
        self._options = want.options
        if want.nodes is not None:
            others = {n for n, name in enumerate(self._names) if name not in want.nodes}
            self._options = msgspec.structs.replace(
                want.options, no_targets=frozenset(others)
            )
        #: Whether the plan ended before a move that has to wait for an earlier one.
        self._is_cut = False
        self._state = node_state.derive(part)

    def plan(self, most: int, first: int) -> GroupPlan:
        """Plan at most so many moves (below 0 for any number)."""
        now, goal = (
            self._state,
            msgspec.structs.replace(self._want.goal, max_length=most),
        )
        before, lowest = score_components.value(now), score_components.ideal(now)
        kept = dict(self._kept())
        moves: list[PlannedMove] = []
        if self._part.instances and before - lowest >= goal.min_score and most != 0:
            moves = self._moves(goal, lowest)
        group = self._part.groups[0]
        after = score_components.value(now)
        if self._is_cut:
            after = moves[-1].score
        return GroupPlan(
            name=group.name,
            uuid=group.uuid,
            before=before,
            after=after,
            ideal=lowest,
            first=first,
            moves=moves,
            stopped=self._stopped(goal, len(moves), lowest),
            kept={name: words for name, (words, _reason) in kept.items()},
            reasons={name: reason for name, (_words, reason) in kept.items()},
        )

    def _moves(self, goal: greedy.BalanceGoal, lowest: float) -> list[PlannedMove]:
        now, moves = self._state, list[PlannedMove]()
        parts = score_components.components(now)
        last: dict[int, int] = {}
        for step in greedy.plan(now, goal, self._options, lowest):
            nodes = {*step.before, *step.after} - {NONE}
            if self._want.first_set and nodes & last.keys():
                self._is_cut = True
                break
            then, parts = parts, score_components.components(now)
            # A move waits for the last earlier move of each of its nodes, and so for
            # all of them.
            depends = sorted({last[node] for node in nodes if node in last})
            last |= dict.fromkeys(nodes, len(moves))
            inst = self._part.instances[step.inst]
            moves.append(
                PlannedMove(
                    instance=inst.name,
                    before=self._named(step.before),
                    after=self._named(step.after),
                    letters=greedy.letters(step, self._names.__getitem__),
                    score=step.score,
                    components={
                        name: (then[name], value)
                        for name, value in parts.items()
                        if abs(value - then[name]) > _NOTHING
                    },
                    depends=tuple(depends),
                    opcodes=greedy.opcodes(step, inst, self._names.__getitem__),
                )
            )
        return moves

    def _named(self, nodes: Sequence[int]) -> tuple[str, ...]:
        return tuple(self._names[node] for node in nodes if node != NONE)

    def _stopped(self, goal: greedy.BalanceGoal, made: int, lowest: float) -> str:
        """Return why there are no more moves."""
        if self._is_cut:
            return "the next move uses a node of an earlier one"
        current = score_components.value(self._state)
        if not self._part.instances:
            return "the group has no instances"
        if current - lowest <= goal.min_score:
            return "the score cannot get lower"
        if 0 <= goal.max_length <= made:
            return "the number of moves is limited"
        search = balance_search.MoveSearch(self._state, self._options)
        best = search.best()
        if best is None:
            return "no move is possible"
        index, _move, score = best
        name = self._part.instances[index].name
        if not score < current:
            change = f"{score - current:+.8f}"
            tried = "no move and no pair of moves" if goal.pairs else "no move"
            return f"{tried} lowers the score; the best one is of {name}: {change}"
        return (
            f"the best move left, of {name}, gains {current - score:.8f}, less than"
            f" {goal.min_gain:g}"
        )

    def _is_outside(self, inst: Instance) -> bool:
        """Return whether an instance uses a node that the plan may not use."""
        used = {inst.primary, inst.secondary}
        return bool(used & self._options.no_targets)

    def _kept(self) -> Iterator[tuple[str, tuple[str, Reason]]]:
        """Return which instances may not move, and why: as text and as data."""
        may = balance_search.eligible(self._state, self._options)
        for index, inst in enumerate(self._part.instances):
            if not may[index]:
                words, *data = self._why(inst)
                node = self._names[inst.primary]
                reason = Reason(node, "primary", "FailMove", data[0], "", *data[1:])
                yield inst.name, (words, reason)

    def _why(self, inst: Instance) -> tuple[str, str, str, str]:
        """Return the text; and check, wanted and found."""
        if inst.name in self._split:
            words = "its nodes are in different groups"
            return words, "groups of its nodes", "the same", "different ones"
        if inst.template not in MOVABLE_TEMPLATES:
            words = f"its disks ({inst.template}) are on one node"
            return words, "disk template", "one that can move", inst.template
        if not inst.migrates:
            words = "it shares directories of its node, so it cannot migrate live"
            return words, "shared directories", "none", "some"
        if inst.name in self._want.fixed:
            words = "it was moved a short time ago"
            return words, "last move", "long ago", "a short time ago"
        if self._want.nodes is not None and self._is_outside(inst):
            words = "one of its nodes must not be used"
            return words, "its nodes", "usable ones", "others"
        if not inst.auto_balance:
            return "it is not balanced automatically", "auto balance", "on", "off"
        words = "none of its nodes is offline"
        return words, "state of its nodes", "one offline or drained", "all online"


def data(
    plans: Sequence[GroupPlan], *, explain: bool, stopped: bool = False
) -> dict[str, Any]:
    """Return plans as JSON types.

    Args:
        plans: of all groups.
        explain: add why they end and why the rest stays.
        stopped: add why they end.
    """
    ends = [{"stopped": done.stopped} if stopped else {} for done in plans]
    groups = [_group(done, explain=explain) for done in plans]
    return {"groups": [group | end for group, end in zip(groups, ends, strict=True)]}


def _group(done: GroupPlan, *, explain: bool) -> dict[str, Any]:
    out: dict[str, Any] = {
        "name": done.name,
        "uuid": done.uuid,
        "score_before": done.before,
        "score_after": done.after,
        "score_ideal": done.ideal,
        "moves": [_move(move, done.first, explain=explain) for move in done.moves],
    }
    if explain:
        reasons = {name: reason.data() for name, reason in done.reasons.items()}
        out |= {"stopped": done.stopped, "kept": dict(done.kept), "reasons": reasons}
    return out


def _move(move: PlannedMove, first: int, *, explain: bool) -> dict[str, Any]:
    out: dict[str, Any] = {
        "instance": move.instance,
        "from": list(move.before),
        "to": list(move.after),
        "how": move.letters,
        "score": move.score,
        "depends": [first + place for place in move.depends],
        "opcodes": move.opcodes,
    }
    if explain:
        out["components"] = {
            name: list(change) for name, change in move.components.items()
        }
    return out
