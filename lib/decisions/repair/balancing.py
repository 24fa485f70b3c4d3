"""One step of balancing, as a function of planned moves and of what is allowed. Pure.

The planner of the master daemon says which moves lower the score of a node group; here
the limits of automation decide which of them become jobs.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

import msgspec

from ganeti.decisions.repair import journal
from ganeti.decisions.repair.duties import Duties
from ganeti.decisions.repair.journal import (
    CLUSTER,
    GROUP,
    INSTANCE,
    NODE,
    Decision,
    Item,
)
from ganeti.decisions.repair.limits import MOVED_SHARE, Act, Automation
from ganeti.decisions.repair.rounds import Job

_BALANCE: Final = "balance"


class PlannedMove(msgspec.Struct, frozen=True):
    """A move of a plan: names of nodes before and after, its opcodes, and the score."""

    instance: str
    before: tuple[str, ...] = msgspec.field(name="from")
    after: tuple[str, ...] = msgspec.field(name="to")
    opcodes: list[dict[str, Any]]
    score: float


class GroupPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a group; ``stopped`` says why it has no more moves."""

    name: str
    score: float = msgspec.field(name="score_before")
    moves: tuple[PlannedMove, ...]
    stopped: str = ""


class Answer(msgspec.Struct, frozen=True):
    """Plans of all groups, and the nodes that no move may use as they are silent."""

    groups: tuple[GroupPlan, ...]
    silent: tuple[str, ...] = ()


class Bounds(NamedTuple):
    """Everything that limits a step.

    Attributes:
        automation: limits, with the moves that are under way.
        free: names of the nodes that jobs may use.
        now: seconds since 1970.
        round: UUID of the round, for the reason trails.
    """

    automation: Automation
    free: AbstractSet[str]
    now: float
    round: str


class Step(NamedTuple):
    """The decision.

    Attributes:
        jobs: to submit.
        items: for the journal, in the order of the jobs.
        is_vain: whether no move was planned, so that the result stays the same until
            something changes.
    """

    jobs: Sequence[Job]
    items: Sequence[Item]
    is_vain: bool


def decide(answer: Answer, duties: Duties, bounds: Bounds) -> Step:
    """Return the jobs of the moves that limits permit, and why others wait.

    Args:
        answer: plans whose moves can run at the same time.
        duties: settings.
        bounds: see `Bounds`.
    """
    automation = bounds.automation
    jobs: list[Job] = []
    items = [_silent(node) for node in answer.silent]
    for group in answer.groups:
        # Groups have no nodes in common, so each begins with all free ones.
        left, score = set(bounds.free), group.score
        for move in group.moves:
            nodes = {*move.before, *move.after}
            refusal = automation.refusal(Act.MOVE, bounds.now, move.instance)
            gain = f"score of group {group.name}: {score:.4f} -> {move.score:.4f}"
            if not nodes <= left:
                item = _item(move, Decision.WAITING, "another job uses its nodes")
            elif refusal is not None:
                # Moves of balancing in excess are no mass event, so they wait.
                is_share = refusal.limit == MOVED_SHARE
                decision = Decision.WAITING if is_share else Decision.REFUSED
                item = _item(move, decision, refusal.text, refusal.limit)
            else:
                left -= nodes
                automation = automation.with_move(move.instance)
                item = _item(move, Decision.CHOSEN, gain)
                jobs.append(_job(move, group.name, bounds))
                score = move.score
            items.append(item)
        if not group.moves and group.stopped:
            items.append(_kept(group, duties))
    is_vain = not answer.silent and not any(group.moves for group in answer.groups)
    return Step(jobs, items, is_vain)


def _silent(node: str) -> Item:
    return Item(
        kind=NODE,
        name=node,
        decision=Decision.REFUSED,
        action=_BALANCE,
        reason="it does not report its memory; nothing is moved to or from it",
    )


def _item(move: PlannedMove, decision: Decision, reason: str, limit: str = "") -> Item:
    is_chosen = decision is Decision.CHOSEN
    return Item(
        kind=INSTANCE,
        name=move.instance,
        decision=decision,
        action=f"balance: {':'.join(move.before)} to {':'.join(move.after)}",
        reason=reason,
        jobs=(0,) if is_chosen else (),
        nodes=tuple(dict.fromkeys((*move.before, *move.after))),
        moves=is_chosen,
        limit=limit,
    )


def _kept(group: GroupPlan, duties: Duties) -> Item:
    """Return the item of a group without a move.

    With a load every plan has other figures, and each would be another entry.
    """
    vain = f"no move gains {duties.balance_threshold:g}"
    return Item(
        kind=GROUP,
        name=group.name,
        decision=Decision.REFUSED,
        action=_BALANCE,
        reason=vain if duties.balance_load else group.stopped,
    )


def _job(move: PlannedMove, group: str, bounds: Bounds) -> Job:
    text = f"Balancing group {group}: moving {move.instance}"
    trail = journal.maintd_trail([text], bounds.round, bounds.now)
    return Job([{**op, "reason": trail} for op in move.opcodes], "")


def nothing(name: str, reason: str, limit: str = "", action: str = _BALANCE) -> Item:
    """Return the item of a cluster in which nothing is done.

    Args:
        name: of the cluster.
        reason: why.
        limit: that refuses everything.
        action: what is not done.
    """
    return Item(
        kind=CLUSTER,
        name=name,
        decision=Decision.REFUSED,
        action=action,
        reason=reason,
        limit=limit,
    )


def read(answer: Mapping[str, Any]) -> Answer:
    """Return the plans in an answer of the master daemon.

    Raises:
        ValidationError: it has another form.
    """
    return msgspec.convert(answer, Answer)
