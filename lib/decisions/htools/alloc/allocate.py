"""Allocation of one new instance, in one group or in the best of several.

The state is not changed; callers place the instance. Refusals are data;
`htools.hail.answer` makes the text.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec
import numpy as np

from ganeti.decisions.htools.model import formatting
from ganeti.decisions.htools.model.cluster import NONE, Group, Instance
from ganeti.decisions.htools.model.policy import AllocPolicy
from ganeti.decisions.htools.n1.check import GlobalN1
from ganeti.decisions.htools.rules import constraints
from ganeti.decisions.htools.score import placement
from ganeti.decisions.htools.state.amounts import Flags, Floats, Places
from ganeti.decisions.htools.state.node_state import ClusterState

#: Cost of a placement: the cluster's score, or the capacity lost for other instances.
Score = float | tuple[tuple[int, ...], float]
#: Most entries of one matrix (16 MiB).
_CHUNK: Final = 1 << 21


class AllocationOutcome(msgspec.Struct, frozen=True):
    """Result of one allocation.

    Attributes:
        nodes: positions, primary first; None without a solution.
        score: of the cluster with the instance on these nodes.
        failures: refused placements by kind, in the order of `constraints.KINDS`.
        successes: number of possible placements.
        problem: why no placement was tried, else empty.
    """

    nodes: tuple[int, ...] | None
    score: Score
    failures: Sequence[int]
    successes: int
    problem: str = ""


class CostFunction(Protocol):
    """Cost of an instance on some nodes."""

    def __call__(self, state: ClusterState, nodes: tuple[int, ...]) -> Score:
        """Return the cost; less is better."""


class AllocationRules(msgspec.Struct, frozen=True):
    """How to choose nodes.

    Attributes:
        capacity: the N+1 test of the present state; None for no test.
        ignore_soft: ignore the soft rules of a single node; those of a secondary always
            apply.
        cost_function: replaces the score and the N+1 test.
    """

    capacity: GlobalN1 | None = None
    ignore_soft: bool = False
    cost_function: CostFunction | None = None


#: Default rules.
_ALL_RULES: Final = AllocationRules()


def allocate(
    state: ClusterState,
    item: Instance,
    candidates: Sequence[int],
    count: int,
    rules: AllocationRules = _ALL_RULES,
) -> AllocationOutcome:
    """Return the best nodes for a new instance.

    Args:
        state: without the instance.
        item: the new instance.
        candidates: nodes that may be used; offline ones are left out.
        count: 1 or 2 nodes.
        rules: how to choose.
    """
    cost_function, capacity, strict = (
        rules.cost_function,
        rules.capacity,
        not rules.ignore_soft,
    )
    usable = placement.choose([node for node in candidates if state.online[node]])
    if count == 1:
        if not len(usable):
            return _nothing("No online nodes")
        if cost_function is not None:
            return _by_cost(state, item, usable, count, cost_function, strict=strict)
        return _single(state, item, usable, capacity, strict=strict)
    if not _partners(state, usable, usable).any():
        return _nothing("Not enough online nodes")
    if cost_function is not None:
        return _by_cost(state, item, usable, count, cost_function, strict=strict)
    return _pair(state, item, usable, usable, capacity, strict=strict)


def second(
    state: ClusterState,
    item: Instance,
    primary: int,
    rules: AllocationRules = _ALL_RULES,
) -> AllocationOutcome:
    """Return the best secondary in the group of a given primary.

    Args:
        state: without the instance.
        item: the instance, as DRBD.
        primary: its node; both nodes are in the outcome.
        rules: how to choose; the cost function is ignored.
    """
    first = placement.choose([primary])
    # Offline nodes as well, as in Ganeti.
    usable = np.nonzero(state.group == state.group[primary])[0]
    strict = not rules.ignore_soft
    return _pair(state, item, first, usable, rules.capacity, strict=strict)


def ranking(
    state: ClusterState,
    item: Instance,
    candidates: Sequence[int],
    count: int,
    *,
    most: int,
    rules: AllocationRules = _ALL_RULES,
) -> list[tuple[float, tuple[int, ...]]]:
    """Return score and nodes of the best placements, the best first.

    Args:
        state: without the instance.
        item: the new instance.
        candidates: nodes that may be used; offline ones are left out.
        count: 1 or 2 nodes; placements on two nodes differ in the first.
        most: largest number of placements returned.
        rules: how to choose; the cost function is ignored.
    """
    capacity, strict = rules.capacity, not rules.ignore_soft
    usable = placement.choose([node for node in candidates if state.online[node]])
    if not len(usable):
        return []
    own = _primary_codes(state, item, usable, strict=strict)
    # A refused primary refuses all its pairs, so these are not computed.
    firsts = usable[own == 0]
    if not len(firsts):
        return []
    if count > 1:
        return _best_pairs(state, item, usable, firsts, most=most, capacity=capacity)
    scores = placement.as_primary(state, item, firsts)
    ranked: list[tuple[float, tuple[int, ...]]] = []
    # Sorted from the end: of equal scores the later node comes first, as in Ganeti.
    for at in len(firsts) - 1 - np.argsort(scores[::-1], kind="stable"):
        node = int(firsts[at])
        if capacity is None or capacity.others_hold(item, node, NONE):
            ranked.append((float(scores[at]), (node,)))
        if len(ranked) == most:
            break
    return ranked


def _best_pairs(
    state: ClusterState,
    item: Instance,
    usable: Places,
    firsts: Places,
    *,
    most: int,
    capacity: GlobalN1 | None,
) -> list[tuple[float, tuple[int, ...]]]:
    """Return the best pair of each of the best primaries."""
    scorer = placement.PairPlacements(state, item)
    pairs_by_score: list[tuple[float, tuple[int, ...]]] = []
    # Some rows at once, so that no matrix has more than `_CHUNK` entries.
    step = max(1, _CHUNK // max(1, len(usable)))
    for start in range(0, len(firsts), step):
        part = firsts[start : start + step]
        # These primaries have passed their own rules.
        codes = _pair_codes(state, item, usable, part, np.zeros(len(part), np.int8))
        fine = (codes == 0) & _partners(state, part, usable)
        values = np.where(fine, scorer.scores(part, usable), np.inf)
        for row in np.argsort(values.min(axis=1), kind="stable")[:most]:
            # Alone, because `_take_rows` keeps only the best pair of all its rows.
            at = slice(row, row + 1)
            best = _Best()
            rows = _Rows(values[at], fine[at], part[at], usable)
            _take_rows(best, item, rows, capacity)
            if best.nodes is not None:
                pairs_by_score.append((best.score, best.nodes))
    return sorted(pairs_by_score)[:most]


def _nothing(problem: str) -> AllocationOutcome:
    return AllocationOutcome(None, 0.0, [0] * len(constraints.KINDS), 0, problem)


def _by_cost(
    state: ClusterState,
    item: Instance,
    usable: Places,
    count: int,
    cost_function: CostFunction,
    *,
    strict: bool,
) -> AllocationOutcome:
    own = _primary_codes(state, item, usable, strict=strict)
    if count == 1:
        trials: list[tuple[tuple[int, ...], int]] = [
            ((int(n),), int(code)) for n, code in zip(usable, own, strict=True)
        ]
    else:
        codes = _pair_codes(state, item, usable, usable, own)
        same = _partners(state, usable, usable)
        trials = [
            ((int(one), int(two)), int(codes[row, column]))
            for row, one in enumerate(usable)
            for column, two in enumerate(usable)
            if same[row, column]
        ]
    failures = _count(np.array([code for _nodes, code in trials], np.int8))
    fine = [nodes for nodes, code in trials if code == 0]
    costs = [(cost_function(state, nodes), nodes) for nodes in fine]
    if not costs:
        return AllocationOutcome(None, 0.0, failures, 0)
    # Reversed, since min returns the first of equal costs, and Ganeti the last.
    cost, nodes = min(reversed(costs), key=lambda pair: pair[0])
    return AllocationOutcome(nodes, cost, failures, len(fine))


def _partners(state: ClusterState, firsts: Places, seconds: Places) -> Flags:
    """Return [primary, secondary] -> whether they are different nodes of one group."""
    groups = state.group
    out = groups[firsts][:, None] == groups[seconds][None, :]
    return np.asarray(out & (firsts[:, None] != seconds[None, :]))


def _policy_codes(
    state: ClusterState, item: Instance, usable: Places
) -> constraints.Codes:
    known: dict[tuple[int, bool], int] = {}
    for node in usable:
        # A policy distinguishes nodes by nothing else, so few verdicts are computed.
        key = (int(state.group[node]), bool(state.exclusive[node]))
        if key not in known:
            rules = state.cluster.groups[key[0]].policy
            verdict = constraints.policy(item, rules, exclusive=key[1])
            known[key] = verdict[0] if verdict else 0
    return np.array(
        [known[int(state.group[n]), bool(state.exclusive[n])] for n in usable], np.int8
    )


def _primary_codes(
    state: ClusterState, item: Instance, usable: Places, *, strict: bool
) -> constraints.Codes:
    rules = _policy_codes(state, item, usable)
    own = constraints.verdict(
        constraints.primary(state, item, strict=strict), state.size
    )
    # Ganeti tests the policy first, so the summary counts its refusals.
    return np.where(rules != 0, rules, own[usable])


def _count(codes: constraints.Codes) -> list[int]:
    by_code = np.bincount(codes.ravel(), minlength=len(constraints.KINDS) + 1)
    # Code 0 is no refusal.
    return [int(number) for number in by_code[1:]]


def _single(
    state: ClusterState,
    item: Instance,
    usable: Places,
    capacity: GlobalN1 | None,
    *,
    strict: bool,
) -> AllocationOutcome:
    codes = _primary_codes(state, item, usable, strict=strict)
    failures = _count(codes)
    fine = usable[codes == 0]
    if not len(fine):
        return AllocationOutcome(None, 0.0, failures, 0)
    scores = placement.as_primary(state, item, fine)
    # Best first. As in Ganeti, N+1 is tested up to the first node that passes, and only
    # the nodes before it count as refused by it.
    order = np.argsort(scores[::-1], kind="stable")
    dropped = 0
    for position in len(fine) - 1 - order:
        node = int(fine[position])
        if capacity is None or capacity.others_hold(item, node, -1):
            failures[constraints.N1 - 1] += dropped
            left = len(fine) - dropped
            return AllocationOutcome((node,), float(scores[position]), failures, left)
        dropped += 1
    failures[constraints.N1 - 1] += dropped
    return AllocationOutcome(None, 0.0, failures, 0)


class _Best:
    """The best pair so far; on ties the later one is kept."""

    def __init__(self) -> None:
        self.nodes: tuple[int, int] | None = None
        self.score = float("inf")
        self.failures = np.zeros(len(constraints.KINDS), np.int64)
        self.successes = 0

    def offer(self, value: float, nodes: tuple[int, int]) -> None:
        if not self.score < value:
            self.score, self.nodes = value, nodes


def _pair(
    state: ClusterState,
    item: Instance,
    primaries: Places,
    usable: Places,
    capacity: GlobalN1 | None,
    *,
    strict: bool,
) -> AllocationOutcome:
    own = _primary_codes(state, item, primaries, strict=strict)
    scorer = placement.PairPlacements(state, item)
    best = _Best()
    step = max(1, _CHUNK // max(1, len(usable)))
    same = _partners(state, primaries, usable)
    for at in range(0, len(primaries), step):
        rows = slice(at, at + step)
        firsts = primaries[rows]
        codes = _pair_codes(state, item, usable, firsts, own[rows])
        # Neither possible nor refused: such a pair is never tried.
        codes[~same[rows]] = -1
        best.failures += _count(codes[codes >= 0])
        # A refused pair is never the best one.
        values = np.where(codes == 0, scorer.scores(firsts, usable), np.inf)
        chunk = _Rows(values, codes == 0, firsts, usable)
        _take_rows(best, item, chunk, capacity)
    score = None if best.nodes is None else best.score
    return AllocationOutcome(
        best.nodes,
        0.0 if score is None else score,
        [int(number) for number in best.failures],
        best.successes,
    )


def _pair_codes(
    state: ClusterState,
    item: Instance,
    usable: Places,
    firsts: Places,
    own: constraints.Codes,
) -> constraints.Codes:
    # `peers` has a row per secondary; the rules need a row per primary.
    peers = state.peers[:, firsts].T
    rules_failed = constraints.secondary(state, item, peers)
    codes = constraints.verdict(rules_failed, (len(firsts), state.size))[:, usable]
    return np.where(own[:, None] != 0, own[:, None], codes)


class _Rows(msgspec.Struct, frozen=True):
    """Scores [primary, secondary], the flags of possible pairs, and the nodes."""

    values: Floats
    fine: Flags
    firsts: Places
    seconds: Places


def _take_rows(
    best: _Best,
    item: Instance,
    rows: _Rows,
    capacity: GlobalN1 | None,
) -> None:
    """Offer the best pair of each primary that passes the N+1 test."""
    best.successes += int(rows.fine.sum())
    safe = rows.fine
    if capacity is not None:
        safe = rows.fine & capacity.failovers.pairs(
            capacity.state, item, rows.firsts, rows.seconds
        )
    # If all evacuees are DRBD primaries, `pairs` is the whole test.
    is_simple = capacity is None or not capacity.has_others
    for row, first in enumerate(rows.firsts):
        while safe[row].any():
            kept = np.where(safe[row], rows.values[row], np.inf)
            column = len(kept) - 1 - int(np.argmin(kept[::-1]))
            nodes = (int(first), int(rows.seconds[column]))
            if is_simple or (capacity and capacity.others_hold(item, *nodes)):
                _drop_better(best, rows.values[row], rows.fine[row], column)
                best.offer(float(kept[column]), nodes)
                break
            safe[row, column] = False
        else:
            # No pair of this primary is left, so N+1 refuses each possible one.
            dropped = int(rows.fine[row].sum())
            best.failures[constraints.N1 - 1] += dropped
            best.successes -= dropped


def _drop_better(best: _Best, values: Floats, fine: Flags, column: int) -> None:
    """Count the pairs better than the chosen one as failures of the N+1 test."""
    later = np.arange(len(values)) > column
    before = fine & ((values < values[column]) | ((values == values[column]) & later))
    dropped = int(before.sum())
    best.failures[constraints.N1 - 1] += dropped
    best.successes -= dropped


class GroupOutcome(msgspec.Struct, frozen=True):
    """Allocation in one group; ``left_out`` has the reason if it was not tried."""

    group: int
    outcome: AllocationOutcome
    left_out: str = ""


class GroupChoice(msgspec.Struct, frozen=True):
    """Allocation over all groups.

    Attributes:
        best: the selected group's outcome, None without a solution.
        groups: all outcomes, by group.
    """

    best: GroupOutcome | None
    groups: Sequence[GroupOutcome]


def over_groups(
    state: ClusterState,
    item: Instance,
    count: int,
    *,
    candidates: Sequence[int] | None = None,
    groups: Sequence[int] | None = None,
    rules: AllocationRules = _ALL_RULES,
) -> GroupChoice:
    """Return the best group and nodes for a new instance.

    Args:
        state: without the instance.
        item: the new instance.
        count: 1 or 2 nodes.
        candidates: nodes that may be used; default: all.
        groups: groups that may be used; default: all with nodes.
        rules: how to choose.
    """
    allowed = None if candidates is None else set(candidates)
    tried = []
    for group in sorted(set(state.group.tolist()) if groups is None else groups):
        record = state.cluster.groups[group]
        if not record.connects(item):
            text = (
                f"group {record.name} is not connected to a network"
                f" required by instance {item.name}"
            )
            tried.append(GroupOutcome(group, _nothing(""), text))
            continue
        nodes = [
            int(node)
            for node in np.nonzero(state.group == group)[0]
            if allowed is None or int(node) in allowed
        ]
        outcome = allocate(state, item, nodes, count, rules)
        tried.append(GroupOutcome(group, outcome))
    return GroupChoice(_best_group(state, tried), tried)


def _best_group(
    state: ClusterState, tried: Sequence[GroupOutcome]
) -> GroupOutcome | None:
    def rank(outcome: GroupOutcome) -> tuple[int, Any]:
        # The members of AllocPolicy are in the order of preference.
        policy = state.cluster.groups[outcome.group].alloc_policy
        return list(AllocPolicy).index(policy), outcome.outcome.score

    fine = [
        one
        for one in tried
        if one.outcome.nodes is not None
        and state.cluster.groups[one.group].alloc_policy != "unallocable"
    ]
    # Of equal groups the last one, as in Ganeti.
    return min(reversed(fine), key=rank, default=None)


def outcome_text(state: ClusterState, outcome: AllocationOutcome) -> str:
    """Return one group's outcome as text."""
    if outcome.problem:
        return outcome.problem
    failed = ", ".join(
        f"{kind}: {number}"
        for kind, number in zip(constraints.KINDS, outcome.failures, strict=True)
        if number
    )
    if outcome.nodes is None:
        failed = failed or "unknown reasons"
        return f"No valid allocation solutions, failure reasons: {failed}"
    names = "/".join(state.cluster.nodes[node].name for node in outcome.nodes)
    return (
        f"score: {_cost_text(outcome.score)}, successes {outcome.successes},"
        f" failures {sum(outcome.failures)} ({failed}) for node(s) {names}"
    )


def _cost_text(cost: Score) -> str:
    if isinstance(cost, float):
        return formatting.fixed(cost, 8)
    fewer, free = cost
    return f"([{','.join(map(str, fewer))}],{int(free)})"


def choice_text(state: ClusterState, choice: GroupChoice) -> str:
    """Return all groups' outcomes as text, the selected group first."""
    groups = state.cluster.groups
    out = []
    if choice.best is not None:
        out.append(f"Selected group: {groups[choice.best.group].name}")
    out += [
        outcome.left_out or group_text(groups[outcome.group], state, outcome.outcome)
        for outcome in choice.groups
    ]
    return ", ".join(out)


def group_text(group: Group, state: ClusterState, outcome: AllocationOutcome) -> str:
    """Return one group's outcome and name as text."""
    if outcome.problem:
        return f"Group {group.name}: error {outcome.problem}"
    return f"Group {group.name} ({group.alloc_policy}): {outcome_text(state, outcome)}"
