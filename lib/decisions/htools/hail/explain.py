"""Explanation of the allocator's answers: reasons per instance and node, as data.

The decisions are repeated in order, each on the state at its time. This takes as long
as the answer itself and is done only on request.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from ganeti.decisions.htools.alloc import allocate, dedicated, evacuate, refusals
from ganeti.decisions.htools.balance import plan as balance_plan
from ganeti.decisions.htools.hail import request
from ganeti.decisions.htools.model.cluster import NONE, Cluster, Instance
from ganeti.decisions.htools.n1.check import GlobalN1
from ganeti.decisions.htools.rules.reasons import Explanation, Reason
from ganeti.decisions.htools.score import placement
from ganeti.decisions.htools.state import node_state
from ganeti.decisions.htools.state.node_state import ClusterState

#: Most possible places that are listed besides the chosen one.
_MOST: Final = 10
_SCORE: Final = "score with the instance there"


def of_moves(plans: Iterable[balance_plan.GroupPlan]) -> list[Explanation]:
    """Explain balancing moves by the score components that improve."""
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
            values = ("Score", name, "less than", before, after)
            yield Reason(move.after[0], "primary", *values)


def of_capacity(answer: Mapping[str, Any]) -> list[Explanation]:
    """Explain a capacity answer: nodes per instance, and why no further one fits."""
    if not answer["success"]:
        return []
    capacity = answer["result"]
    against = tuple(Reason.from_data(row) for row in capacity["stopped"]["reasons"])
    return [
        *(
            Explanation(row["name"], tuple(row["nodes"]), ())
            for row in capacity["instances"]
        ),
        Explanation("one more", (), against),
    ]


def _number(cost: allocate.Score) -> float:
    return cost if isinstance(cost, float) else cost[1]


class Explainer(msgspec.Struct, frozen=True):
    """Explanation of the answer to one request.

    Attributes:
        cluster: the cluster before.
        ask: the request.
        after: the state with all placements and moves.
        capacity_checks: whether the N+1 test was made.
        ignore_soft: whether soft rules were ignored.
    """

    cluster: Cluster
    ask: request.AllocatorRequest
    after: ClusterState
    capacity_checks: bool
    ignore_soft: bool

    def explain(self) -> list[Explanation]:
        """Explain each requested instance, in their order.

        Chosen nodes have no reasons against them: one may be refused in the order of
        the explanation, before other instances have moved, or in its other role.
        """
        return [item.without_chosen() for item in self._explained()]

    def _explained(self) -> list[Explanation]:
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
        nodes_by_name = {
            after.instances[index].name: (after.pri[index], after.sec[index])
            for index in range(known, len(after.instances))
        }
        out = []
        for place in places:
            nodes = nodes_by_name.get(place.item.name, ())
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
        """Return why possible nodes are worse: their group's policy, or the score."""
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
                values = (
                    "policy of the group",
                    "",
                    str(policy),
                    str(group.alloc_policy),
                )
                others.append(Reason(name, "primary", "Policy", *values))
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
        """Return why other nodes of the requested group are worse."""
        part, members = node_state.of_group(state, place.group or 0, items)
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
        """Compare the scores of first nodes with the score of the chosen one."""
        rows = [(value, pair[0], "primary") for value, pair in ranked]
        return self._compared(rows, chosen)

    def _compared(self, rows: Sequence[refusals.Other], chosen: int) -> list[Reason]:
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
        against = refusals.second(
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
            move_request = refusals.MoveRequest(
                index, mode, group, left, force=self.ignore_soft
            )
            out.append(self._moved(state, move_request, ()))
        return out

    def _moved(
        self,
        state: ClusterState,
        move_request: refusals.MoveRequest,
        before: Sequence[Reason],
    ) -> Explanation:
        """Explain one move and apply it to the state."""
        index, name = move_request.index, state.instances[move_request.index].name
        checked = refusals.refusals_of(state, move_request)
        old = state.pri[index], state.sec[index]
        new = self.after.pri[index], self.after.sec[index]
        against = tuple(dict.fromkeys([*before, *checked.reasons]))
        if old == new:
            return Explanation(name, (), against)
        chosen = new[1] if move_request.mode == "secondary-only" else new[0]
        better = tuple(self._compared(checked.others, chosen))
        state.remove(index)
        state.place(index, *new)
        return Explanation(name, self._named(new), against, better)

    def _change(
        self, state: ClusterState, index: int, targets: Sequence[int]
    ) -> Explanation:
        """Explain a move to another group: refused nodes, then the move."""
        item = state.instances[index]
        never = refusals.never(state, index, "all")
        if never is not None:
            return Explanation(item.name, (), (never,))
        if not targets:
            name = self.cluster.nodes[state.pri[index]].name
            values = ("target groups", "", "one other than the present one", "none")
            return Explanation(
                item.name, (), (Reason(name, "primary", "FailGroup", *values),)
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
        move_request = refusals.MoveRequest(index, "all", group, force=self.ignore_soft)
        others = self._other_groups(choice.groups, choice.best)
        explanation = self._moved(
            state, move_request, [r for r in against if r.node not in inside]
        )
        return msgspec.structs.replace(
            explanation, choice=(*explanation.choice, *others)
        )

    def _other_groups(
        self, groups: Iterable[allocate.GroupOutcome], best: allocate.GroupOutcome
    ) -> Iterator[Reason]:
        """Yield why other groups are worse, with the best node of each."""
        policy = self.cluster.groups[best.group].alloc_policy
        for one in groups:
            if one.outcome.nodes is None or one.group == best.group:
                continue
            own = self.cluster.groups[one.group].alloc_policy
            name = self.cluster.nodes[one.outcome.nodes[0]].name
            if own == policy:
                scores = _number(best.outcome.score), _number(one.outcome.score)
                values = ("Score", "score of the best place of the group", "less than")
                yield Reason(name, "primary", *values, *scores)
            else:
                values = ("Policy", "policy of the group", "")
                yield Reason(name, "primary", *values, str(policy), str(own))
