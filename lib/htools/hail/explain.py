"""Why an answer of the allocator is what it is: for each instance and node, as data.

The decisions are made again one after the other, on the state that each of them met; so
this costs as much as answering, and is done only when somebody wants to know.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from ganeti.htools.alloc import allocate, dedicated, evacuate, move_refusals, refusals
from ganeti.htools.balance import plan as balance_plan
from ganeti.htools.hail import request
from ganeti.htools.model.cluster import NONE, Cluster, Instance
from ganeti.htools.n1.check import GlobalN1
from ganeti.htools.rules.reasons import Explanation, Reason
from ganeti.htools.score import placement
from ganeti.htools.state import group_state
from ganeti.htools.state.node_state import ClusterState

#: Possible places that are told of beside the chosen one.
_MOST: Final = 10
_SCORE: Final = "score with it there"


def of_moves(plans: Iterable[balance_plan.GroupPlan]) -> list[Explanation]:
    """Explain moves that balance, by the parts of the score that get better."""
    return [
        Explanation(move.instance, move.after, (), tuple(_gains(move)))
        for plan in plans
        for move in plan.moves
    ] + [
        Explanation(name, (reason.node,), (reason,))
        for plan in plans
        for name, reason in plan.reasons.items()
    ]


def _gains(move: balance_plan.PlannedMove) -> Iterator[Reason]:
    for name, (before, after) in move.components.items():
        if after < before:
            words = ("Score", name, "less than", before, after)
            yield Reason(move.after[0], "primary", *words)


def of_capacity(answer: Mapping[str, Any]) -> list[Explanation]:
    """Explain how many instances fit: where each goes, and why not one more."""
    if not answer["success"]:
        return []
    result = answer["result"]
    against = tuple(Reason(**row) for row in result["stopped"]["reasons"])
    return [
        *(
            Explanation(row["name"], tuple(row["nodes"]), ())
            for row in result["instances"]
        ),
        Explanation("one more", (), against),
    ]


def _number(cost: allocate.Score) -> float:
    return cost if isinstance(cost, float) else cost[1]


class Explainer(msgspec.Struct, frozen=True):
    """Explains the answer to one request.

    Attributes:
        cluster: as it was.
        ask: the request.
        after: the state with everything that was found.
        capacity_checks: whether nodes had to be safe to lose.
        ignore_soft: whether soft rules did not count.
    """

    cluster: Cluster
    ask: request.AllocatorRequest
    after: ClusterState
    capacity_checks: bool
    ignore_soft: bool

    def explain(self) -> list[Explanation]:
        """Explain each instance that was asked for, in their order."""
        ask = self.ask
        if isinstance(ask, request.AllocateRequest):
            return self._new_instances([ask])
        if isinstance(ask, request.MultiAllocateRequest):
            return self._new_instances(ask.places)
        state = ClusterState(self.cluster)
        if isinstance(ask, request.AddSecondaryRequest):
            return [self._second(state, ask.instance)]
        if isinstance(ask, request.RelocateRequest):
            is_drbd = state.instances[ask.instance].template == "drbd"
            mode = "secondary-only" if is_drbd else "primary-only"
            return self._moves(state, [ask.instance], mode, ask.leave)
        mover = evacuate.Evacuator(state)
        if isinstance(ask, request.EvacuateRequest):
            leave = mover.forbidden(ask.instances, ask.mode)
            return self._moves(state, ask.instances, ask.mode, leave)
        targets = mover.targets(ask.instances, ask.groups)
        return [self._change(state, index, targets) for index in ask.instances]

    def _capacity(self, state: ClusterState) -> GlobalN1 | None:
        return GlobalN1(state) if self.capacity_checks else None

    def _named(self, nodes: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.cluster.nodes[n].name for n in nodes if n != NONE)

    # New instances
    def _new_instances(
        self, places: Sequence[request.AllocateRequest]
    ) -> list[Explanation]:
        items = [place.item for place in places]
        state, after = ClusterState(self.cluster, new_instances=items), self.after
        known = len(self.cluster.instances)
        went = {
            after.instances[index].name: (after.pri[index], after.sec[index])
            for index in range(known, len(after.instances))
        }
        out = []
        for place in places:
            nodes = went.get(place.item.name, ())
            out.append(self._new_instance(state, place, nodes, items))
            if nodes:
                state.place(state.new(place.item), *nodes)
        return out

    def _new_instance(
        self,
        state: ClusterState,
        place: request.AllocateRequest,
        nodes: Sequence[int],
        items: Sequence[Instance],
    ) -> Explanation:
        allowed = place.allowed(self.cluster)
        against = refusals.against(
            state,
            place.item,
            range(state.size) if allowed is None else allowed,
            place.count,
            capacity=self._capacity(state),
            any_group=place.group is None,
            force=self.ignore_soft,
        )
        better: list[Reason] = []
        if nodes and not dedicated.applies(self.cluster, place.group):
            if place.group is None:
                better = self._worse(state, place, nodes, against)
            else:
                better = self._worse_in_group(state, place, nodes, items)
        return Explanation(
            place.item.name, self._named(nodes), tuple(against), tuple(better)
        )

    def _worse(
        self,
        state: ClusterState,
        place: request.AllocateRequest,
        nodes: Sequence[int],
        against: Iterable[Reason],
    ) -> list[Reason]:
        """Tell why possible nodes are worse: their group's policy, or their score."""
        groups, chosen = self.cluster.groups, int(state.group[nodes[0]])
        policy = groups[chosen].alloc_policy
        refused = {reason.node for reason in against if reason.role == "primary"}
        outside = {r.node for r in against if refusals.is_outside(r)}
        allowed = place.allowed(self.cluster)
        every = range(state.size) if allowed is None else allowed
        alike, others = [], []
        for node in every:
            group, name = groups[state.group[node]], self.cluster.nodes[node].name
            if name not in outside and group.alloc_policy == policy:
                alike.append(node)
            elif name not in refused:
                words = (
                    "policy of the group",
                    "",
                    str(policy),
                    str(group.alloc_policy),
                )
                others.append(Reason(name, "primary", "Policy", *words))
        rules = allocate.AllocationRules(self._capacity(state), self.ignore_soft)
        ranked = allocate.ranking(
            state, place.item, alike, place.count, most=_MOST, rules=rules
        )
        return [*self._scores(ranked, nodes[0]), *others]

    def _worse_in_group(
        self,
        state: ClusterState,
        place: request.AllocateRequest,
        nodes: Sequence[int],
        items: Sequence[Instance],
    ) -> list[Reason]:
        """Tell of other nodes of the only group, where other groups do not count."""
        part, members = group_state.of_group(state, place.group or 0, items)
        allowed = place.allowed(self.cluster) or ()
        ranked = allocate.ranking(
            part,
            place.item,
            [at for at, node in enumerate(members) if node in allowed],
            place.count,
            most=_MOST,
            rules=allocate.AllocationRules(self._capacity(part), self.ignore_soft),
        )
        whole = [(value, tuple(members[at] for at in pair)) for value, pair in ranked]
        return self._scores(whole, nodes[0])

    def _scores(
        self, ranked: Sequence[tuple[float, tuple[int, ...]]], chosen: int
    ) -> list[Reason]:
        """Compare the scores of first nodes with that of the chosen one."""
        rows = [(value, pair[0], "primary") for value, pair in ranked]
        return self._compared(rows, chosen)

    def _compared(
        self, rows: Sequence[move_refusals.Other], chosen: int
    ) -> list[Reason]:
        if not rows:
            return []
        own = [value for value, node, _role in rows if node == chosen]
        best = own[0] if own else rows[0][0]
        return [
            Reason(
                self.cluster.nodes[node].name,
                role,
                "Score",
                _SCORE,
                "less than",
                best,
                value,
            )
            for value, node, role in rows[:_MOST]
            if node != chosen
        ]

    # Instances that exist
    def _second(self, state: ClusterState, index: int) -> Explanation:
        item, primary = state.instances[index], state.pri[index]
        drbd = msgspec.structs.replace(item, template="drbd")
        state.remove(index)
        capacity = self._capacity(state)
        against = move_refusals.second(
            state, drbd, primary, capacity, force=self.ignore_soft
        )
        chosen = self.after.sec[index]
        if chosen == NONE:
            return Explanation(item.name, (), tuple(against))
        refused = {reason.node for reason in against if reason.role == "secondary"}
        fine = [
            int(node)
            for node in np.nonzero(state.group == state.group[primary])[0]
            if node != primary and self.cluster.nodes[node].name not in refused
        ]
        values = placement.PairPlacements(state, drbd).scores(
            np.array([primary]), np.array(fine)
        )
        rows = sorted(
            (value, node, "secondary")
            for value, node in zip(values[0].tolist(), fine, strict=True)
        )
        nodes = self._named((primary, chosen))
        better = self._compared(rows, chosen)
        return Explanation(item.name, nodes, tuple(against), tuple(better))

    def _moves(
        self,
        state: ClusterState,
        instances: Sequence[int],
        mode: str,
        leave: Iterable[int],
    ) -> list[Explanation]:
        """Explain moves within groups."""
        left = frozenset(leave)
        out = []
        for index in instances:
            group = int(state.group[state.pri[index]])
            trip = move_refusals.MoveRequest(
                index, mode, group, left, force=self.ignore_soft
            )
            out.append(self._moved(state, trip, ()))
        return out

    def _moved(
        self,
        state: ClusterState,
        trip: move_refusals.MoveRequest,
        before: Sequence[Reason],
    ) -> Explanation:
        """Explain one move, and do it."""
        index, name = trip.index, state.instances[trip.index].name
        move_refusals_of = move_refusals.refusals_of(state, trip)
        old = state.pri[index], state.sec[index]
        new = self.after.pri[index], self.after.sec[index]
        against = tuple(dict.fromkeys([*before, *move_refusals_of.reasons]))
        if old == new:
            return Explanation(name, (), against)
        chosen = new[1] if trip.mode == "secondary-only" else new[0]
        better = tuple(self._compared(move_refusals_of.others, chosen))
        state.remove(index)
        state.place(index, *new)
        return Explanation(name, self._named(new), against, better)

    def _change(
        self, state: ClusterState, index: int, targets: Sequence[int]
    ) -> Explanation:
        """Explain a move to another group: against all nodes there, then the way."""
        item = state.instances[index]
        never = move_refusals.never(state, index, "all")
        if never is not None:
            return Explanation(item.name, (), (never,))
        if not targets:
            name = self.cluster.nodes[state.pri[index]].name
            words = ("target groups", "", "one beside the present one", "none")
            return Explanation(
                item.name, (), (Reason(name, "primary", "FailGroup", *words),)
            )
        count = 2 if item.template == "drbd" else 1
        capacity = self._capacity(state)
        members = [node for group in targets for node in self.cluster.members(group)]
        against = refusals.against(state, item, members, count, capacity=capacity)
        choice = allocate.over_groups(
            state, item, count, groups=targets, rules=allocate.AllocationRules(capacity)
        )
        if choice.best is None:
            return Explanation(item.name, (), tuple(against))
        group = choice.best.group
        inside = {self.cluster.nodes[n].name for n in self.cluster.members(group)}
        trip = move_refusals.MoveRequest(index, "all", group, force=self.ignore_soft)
        others = self._other_groups(choice.groups, choice.best)
        explanation = self._moved(
            state, trip, [r for r in against if r.node not in inside]
        )
        return msgspec.structs.replace(
            explanation, choice=(*explanation.choice, *others)
        )

    def _other_groups(
        self, groups: Iterable[allocate.GroupOutcome], best: allocate.GroupOutcome
    ) -> Iterator[Reason]:
        """Tell why other groups are worse, with the best node of each."""
        policy = self.cluster.groups[best.group].alloc_policy
        for one in groups:
            if one.outcome.nodes is None or one.group == best.group:
                continue
            own = self.cluster.groups[one.group].alloc_policy
            name = self.cluster.nodes[one.outcome.nodes[0]].name
            if own == policy:
                values = _number(best.outcome.score), _number(one.outcome.score)
                words = ("Score", "score of the best place of the group", "less than")
                yield Reason(name, "primary", *words, *values)
            else:
                words = ("Policy", "policy of the group", "")
                yield Reason(name, "primary", *words, str(policy), str(own))
