"""The allocator's solver: turns a request into result, text and opcodes.

`solve` does everything except input and output; the master calls it directly.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from ganeti.decisions.htools.alloc import allocate, dedicated, evacuate
from ganeti.decisions.htools.balance import greedy, plan
from ganeti.decisions.htools.capacity import stop_reasons
from ganeti.decisions.htools.capacity.search import (
    CapacityOptions,
    CapacitySearch,
    NoRoomError,
)
from ganeti.decisions.htools.capacity.tiers import InstanceSize
from ganeti.decisions.htools.hail import request
from ganeti.decisions.htools.model.cluster import STATIC_KVM_MIB, Cluster, Instance
from ganeti.decisions.htools.model.json_reader import JsonPart
from ganeti.decisions.htools.model.policy import TEMPLATES
from ganeti.decisions.htools.n1.check import GlobalN1
from ganeti.decisions.htools.rules import reasons
from ganeti.decisions.htools.rules.move_constraints import MoveOptions
from ganeti.decisions.htools.state import node_state
from ganeti.decisions.htools.state.node_state import ClusterState

# Allocator mode ``capacity``: how many instances fit, and their nodes in order.
#
# The request has the size of one instance and whether sizes may shrink. The answer has
# each new instance with its nodes, and the reason why no further one fits. Source: the
# design for version 2.1, "Cluster capacity calculation".

CAPACITY_MODE: Final = "capacity"


class CapacityRequest(msgspec.Struct, frozen=True):
    """A capacity request.

    Attributes:
        sizes: initial sizes; several only with ``tiered``.
        how: other properties of the instances.
        tiered: whether sizes shrink.
        groups: positions of the only groups allowed; None for all.
    """

    sizes: Sequence[InstanceSize]
    how: CapacityOptions
    tiered: bool = False
    groups: Sequence[int] | None = None


def is_capacity_request(data: Any) -> bool:
    """Return whether a decoded request is of this mode."""
    request = data.get("request") if isinstance(data, dict) else None
    return isinstance(request, dict) and request.get("type") == CAPACITY_MODE


def read_capacity_request(
    data: Any, cluster: Cluster, *, capacity_checks: bool
) -> CapacityRequest:
    """Return the request.

    Raises:
        DataError: names the key, what was wanted and found.
    """
    part = JsonPart(data, "", "request").part("request")
    template = part.text("disk_template", TEMPLATES)
    count = part.size("required_nodes")
    how = CapacityOptions(
        template=template,
        spindle_use=part.size("spindle_use", 1),
        limit=part.size("limit") if part.has("limit") else None,
        capacity_checks=capacity_checks,
        extra_disk=part.size("disk_extra", 0),
    )
    if count != how.nodes:
        raise part.wrong("required_nodes", f"{how.nodes} for {template}", count)
    sizes = [_size(item) for item in part.parts("sizes")]
    if not sizes:
        raise part.wrong("sizes", "at least one size", [])
    tiered = part.flag("tiered", default=False)
    if len(sizes) > 1 and not tiered:
        raise part.wrong("sizes", "one size unless they shrink", len(sizes))
    return CapacityRequest(sizes, how, tiered, _groups(part, cluster))


def _size(part: JsonPart) -> InstanceSize:
    return InstanceSize(
        memory=part.size("memory"),
        disk=part.size("disk"),
        vcpus=part.size("vcpus"),
        spindles=part.size("spindles", 1),
    )


def _groups(part: JsonPart, cluster: Cluster) -> list[int] | None:
    if not part.has("groups"):
        return None
    out = []
    for name in part.texts("groups"):
        groups = [
            place
            for place, group in enumerate(cluster.groups)
            if name in (group.name, group.uuid)
        ]
        if len(groups) != 1:
            raise part.wrong("groups", "names or uuids of node groups", name)
        out += groups
    return out


def solve_capacity(
    cluster: Cluster, ask: CapacityRequest
) -> tuple[dict[str, Any], ClusterState]:
    """Return the answer (success, info, result), and the state with the instances."""
    state = ClusterState(cluster)
    try:
        search = CapacitySearch(state, ask.how, groups=ask.groups)
    except NoRoomError as err:
        info = f"Request failed: {err}"
        return {"success": False, "info": info, "result": []}, state
    sizes = ask.sizes
    outcome = search.tiered(sizes) if ask.tiered else search.standard(sizes[0])
    result = stop_reasons.data(search, outcome)
    info = f"Request successful: {result['count']} instances fit"
    return {"success": True, "info": info, "result": result}, outcome.after


# Allocator mode ``balance``: a limited number of moves that balance the cluster.
#
# Source: the design for version 2.1, "Cluster rebalancing". The request has the largest
# number of moves; the answer is an ordered list of relocations with their jobs.

BALANCE_MODE: Final = "balance"


def is_balance_request(data: Any) -> bool:
    """Return whether a decoded request is of this mode."""
    request = data.get("request") if isinstance(data, dict) else None
    return isinstance(request, dict) and request.get("type") == BALANCE_MODE


def read_balance_request(data: Any, *, ignore_soft: bool) -> plan.PlanOptions:
    """Return the options of a request; only the number of moves is required.

    Raises:
        DataError: names the key, what was wanted and found.
    """
    part = JsonPart(data, "", "request").part("request")
    default = greedy.BalanceGoal()
    return plan.PlanOptions(
        group=part.text("group_name") if part.has("group_name") else None,
        goal=greedy.BalanceGoal(
            min_gain=part.number("min_gain", default.min_gain, least=0),
            min_gain_limit=part.number("min_gain_limit", default.min_gain_limit),
            max_length=part.size("max_moves"),
            pairs=part.flag("search", default=False),
        ),
        options=MoveOptions(
            disk_moves=part.flag("disk_moves", default=True),
            instance_moves=part.flag("instance_moves", default=True),
            restricted=part.flag("restricted_migration", default=False),
            force=ignore_soft,
            evacuate=part.flag("evacuate", default=False),
        ),
    )


def solve_balance(
    cluster: Cluster, options: plan.PlanOptions
) -> tuple[dict[str, Any], ClusterState, list[plan.GroupPlan]]:
    """Return the answer (success, info, result), the state afterwards, the plans.

    The result is [moved, [], jobs], as for evacuations; each job does one move.

    Raises:
        DataError: the requested group does not exist.
    """
    plans = plan.plan(cluster, options)
    nodes = {node.name: place for place, node in enumerate(cluster.nodes)}
    instances = {item.name: place for place, item in enumerate(cluster.instances)}
    state = ClusterState(cluster)
    moved: list[list[Any]] = []
    opcodes: list[list[dict[str, Any]]] = []
    for group in plans:
        for move in group.moves:
            moved.append([move.instance, group.name, list(move.after)])
            opcodes.append(move.opcodes)
            first, *rest = (nodes[name] for name in move.after)
            index = instances[move.instance]
            state.remove(index)
            state.place(index, first, *rest)
    scores = ", ".join(
        f"{group.name} {group.before:.8f} -> {group.after:.8f}" for group in plans
    )
    info = f"Request successful: {len(moved)} moves, scores: {scores}"
    return {"success": True, "info": info, "result": [moved, [], opcodes]}, state, plans


_NO_USE: Final = (0.0, 0.0, 0.0, 0.0)
_OPS: Final = {
    "failover": "OP_INSTANCE_MIGRATE",
    "failover_to": "OP_INSTANCE_MIGRATE",
    "replace_secondary": "OP_INSTANCE_REPLACE_DISKS",
}


class SolverOptions(msgspec.Struct, frozen=True):
    """Options of the solver.

    Attributes:
        capacity_checks: test that the cluster survives the loss of any node.
        ignore_soft: ignore soft rules of target nodes.
        restrict_to: names of the only nodes for new instances.
        busy: whether instances count as using their nodes' resources.
        static_memory: MiB assumed for a KVM node itself.
    """

    capacity_checks: bool = True
    ignore_soft: bool = False
    restrict_to: Sequence[str] | None = None
    busy: bool = True
    static_memory: int = STATIC_KVM_MIB


class Solution(msgspec.Struct, frozen=True):
    """An answer, with the data to save and explain it.

    Attributes:
        answer: success, info, result.
        before: the cluster before.
        after: the state with all placements and moves.
        explanation: computes where each instance goes, and why not elsewhere.
    """

    answer: dict[str, Any]
    before: Cluster
    after: ClusterState
    explanation: Callable[[], list[reasons.Explanation]]


def solve(
    data: Any, options: SolverOptions, *, cluster: Cluster | None = None
) -> Solution:
    """Answer an allocator's request.

    Args:
        data: the decoded request.
        options: how to solve.
        cluster: replaces the cluster data of the request.

    Raises:
        DataError: the request is malformed; names the key.
    """
    if cluster is None:
        cluster = request.read_cluster(data, static_memory=options.static_memory)
    if not options.busy:
        cluster = _idle(cluster)
    if is_capacity_request(data):
        checked = options.capacity_checks
        many = read_capacity_request(data, cluster, capacity_checks=checked)
        answer, after = solve_capacity(cluster, many)
        return Solution(answer, cluster, after, lambda: _explain_capacity(answer))
    if is_balance_request(data):
        want = read_balance_request(data, ignore_soft=options.ignore_soft)
        answer, after, plans = solve_balance(cluster, want)
        return Solution(answer, cluster, after, lambda: _explain_moves(plans))
    try:
        ask = request.read_request(data, cluster, restrict_to=options.restrict_to)
    except request.ImpossibleRequest as err:
        return Solution(_failed(str(err)), cluster, ClusterState(cluster), list)
    if not options.busy:
        ask = _idle_new_instances(ask)
    return _Solver(cluster, ask, options).solve()


# The code that computes reasons is imported only if an explanation is requested.
def _explain_capacity(answer: dict[str, Any]) -> list[reasons.Explanation]:
    from ganeti.decisions.htools.hail import explain

    return explain.of_capacity(answer)


def _explain_moves(plans: Sequence["plan.GroupPlan"]) -> list[reasons.Explanation]:
    from ganeti.decisions.htools.hail import explain

    return explain.of_moves(plans)


def _idle(cluster: Cluster) -> Cluster:
    instances = tuple(
        msgspec.structs.replace(item, utilisation=_NO_USE) for item in cluster.instances
    )
    return msgspec.structs.replace(cluster, instances=instances)


def _idle_new_instances(ask: request.AllocatorRequest) -> request.AllocatorRequest:
    if isinstance(ask, request.MultiAllocateRequest):
        places = [_idle_place(place) for place in ask.places]
        return msgspec.structs.replace(ask, places=places)
    return _idle_place(ask) if isinstance(ask, request.AllocateRequest) else ask


def _idle_place(place: request.AllocateRequest) -> request.AllocateRequest:
    item = msgspec.structs.replace(place.item, utilisation=_NO_USE)
    return msgspec.structs.replace(place, item=item)


#: A forthcoming instance cannot migrate.
_FAILOVER: Final[dict[str, Any]] = {
    "OP_ID": "OP_INSTANCE_FAILOVER",
    "shutdown_timeout": 120,
    "ignore_consistency": False,
    "ignore_ipolicy": False,
    "cleanup": False,
}


class _Solver:
    """Solver of one request."""

    def __init__(
        self, cluster: Cluster, ask: request.AllocatorRequest, options: SolverOptions
    ) -> None:
        self.cluster, self.ask, self.options = cluster, ask, options
        self.state = ClusterState(
            cluster, new_instances=[place.item for place in self._places()]
        )

    def _places(self) -> Sequence[request.AllocateRequest]:
        if isinstance(self.ask, request.AllocateRequest):
            return [self.ask]
        if isinstance(self.ask, request.MultiAllocateRequest):
            return self.ask.places
        return []

    def solve(self) -> Solution:
        """Return the answer."""
        ask = self.ask
        if isinstance(ask, request.AllocateRequest):
            answer = self._allocate(ask)
        elif isinstance(ask, request.MultiAllocateRequest):
            answer = self._multi(ask)
        elif isinstance(ask, request.RelocateRequest):
            answer = self._relocate(ask)
        elif isinstance(ask, request.AddSecondaryRequest):
            answer = self._add_secondary(ask)
        elif isinstance(ask, request.EvacuateRequest):
            answer = self._evacuate(ask)
        else:
            answer = self._change_group(ask)
        return Solution(answer, self.cluster, self.state, self._explain)

    def _explain(self) -> list[reasons.Explanation]:
        from ganeti.decisions.htools.hail import explain

        return explain.Explainer(
            self.cluster,
            self.ask,
            self.state,
            capacity_checks=self.options.capacity_checks,
            ignore_soft=self.options.ignore_soft,
        ).explain()

    def _rules(
        self, state: ClusterState, cost: allocate.CostFunction | None
    ) -> allocate.AllocationRules:
        tested = self.options.capacity_checks and not cost
        capacity = GlobalN1(state) if tested else None
        return allocate.AllocationRules(capacity, self.options.ignore_soft, cost)

    # New instances
    def _place(
        self, place: request.AllocateRequest
    ) -> tuple[tuple[int, ...] | None, str]:
        """Return the nodes for one instance, None if there are none, and the text."""
        cost = None
        if dedicated.applies(self.cluster, place.group):
            cost = dedicated.cost_function(place.item)
        if place.group is not None:
            return self._in_group(place, place.group, cost)
        choice = allocate.over_groups(
            self.state,
            place.item,
            place.count,
            candidates=place.restrict_to,
            rules=self._rules(self.state, cost),
        )
        text = allocate.choice_text(self.state, choice)
        return (choice.best.outcome.nodes if choice.best else None), text

    def _in_group(
        self,
        place: request.AllocateRequest,
        group: int,
        cost: allocate.CostFunction | None,
    ) -> tuple[tuple[int, ...] | None, str]:
        """Allocate in one group; the rest of the cluster is ignored."""
        record = self.cluster.groups[group]
        if not record.connects(place.item):
            text = (
                f"The group {record.name} is not connected to a network"
                f" required by instance {place.item.name}"
            )
            return None, text
        new_instances = [one.item for one in self._places()]
        state, members = node_state.of_group(self.state, group, new_instances)
        allowed = place.allowed(self.cluster) or ()
        outcome = allocate.allocate(
            state,
            place.item,
            [at for at, node in enumerate(members) if node in allowed],
            place.count,
            self._rules(state, cost),
        )
        if outcome.problem:
            return None, outcome.problem
        text = allocate.group_text(record, state, outcome)
        if outcome.nodes is None:
            return None, text
        return tuple(members[node] for node in outcome.nodes), text

    def _names(self, nodes: Sequence[int]) -> list[str]:
        return [self.cluster.nodes[node].name for node in nodes]

    def _add(self, item: Instance, nodes: Sequence[int]) -> None:
        self.state.place(self.state.new(item), *nodes)

    def _allocate(self, ask: request.AllocateRequest) -> dict[str, Any]:
        nodes, text = self._place(ask)
        if nodes is None:
            return _failed(text)
        self._add(ask.item, nodes)
        return _done(text, self._names(nodes))

    def _multi(self, ask: request.MultiAllocateRequest) -> dict[str, Any]:
        """Place instances one after another; list those without a place."""
        placed: list[Any] = []
        failed = []
        for place in ask.places:
            nodes, _text = self._place(place)
            if nodes is None:
                failed.append(place.item.name)
                continue
            self._add(place.item, nodes)
            placed.append([place.item.name, self._names(nodes)])
        text = (
            f"{len(failed)} instances failed to allocate and"
            f" {len(placed)} were allocated successfully"
        )
        return _done(text, [placed, failed])

    # Instances that exist
    def _relocate(self, ask: request.RelocateRequest) -> dict[str, Any]:
        is_drbd = self.state.instances[ask.instance].template == "drbd"
        mode = "secondary-only" if is_drbd else "primary-only"
        mover = evacuate.Evacuator(self.state, ignore_soft=self.options.ignore_soft)
        moves = mover.evacuate(ask.instance, mode, set(ask.leave))
        if isinstance(moves, evacuate.EvacuationRefused):
            return _failed(moves.text)
        return _done("success", self._names([moves[-1].target]))

    def _add_secondary(self, ask: request.AddSecondaryRequest) -> dict[str, Any]:
        state, index = self.state, ask.instance
        item, primary = state.instances[index], state.pri[index]
        drbd = msgspec.structs.replace(item, template="drbd")
        mark = state.mark(index, [primary])
        state.remove(index)
        outcome = allocate.second(state, drbd, primary, self._rules(state, None))
        text = allocate.outcome_text(state, outcome)
        if outcome.nodes is None:
            state.restore(mark)
            return _failed(text)
        state.instances[index] = drbd
        state.place(index, *outcome.nodes)
        return _done(text, self._names(outcome.nodes)[1])

    def _evacuate(self, ask: request.EvacuateRequest) -> dict[str, Any]:
        mover = evacuate.Evacuator(self.state, ignore_soft=self.options.ignore_soft)
        leave = mover.forbidden(ask.instances, ask.mode)
        moves = [
            (index, mover.evacuate(index, ask.mode, leave)) for index in ask.instances
        ]
        return self._moved(moves)

    def _change_group(self, ask: request.ChangeGroupRequest) -> dict[str, Any]:
        state = self.state
        mover = evacuate.Evacuator(
            state,
            ignore_soft=self.options.ignore_soft,
            capacity=GlobalN1 if self.options.capacity_checks else None,
        )
        targets = mover.targets(ask.instances, ask.groups)
        if not targets:
            names = ", ".join(group.name for group in self.cluster.groups)
            why = f"no groups for evacuation: none besides the present ones, of {names}"
            return self._moved(
                [(n, evacuate.EvacuationRefused(why)) for n in ask.instances]
            )
        moves = [
            (index, mover.change_group(index, targets)[1]) for index in ask.instances
        ]
        return self._moved(moves)

    def _moved(
        self, moves_by_instance: Sequence[tuple[int, evacuate.EvacuationMoves]]
    ) -> dict[str, Any]:
        moved, failed, jobs = [], [], []
        for index, moves in moves_by_instance:
            name = self.state.instances[index].name
            if isinstance(moves, evacuate.EvacuationRefused):
                failed.append([name, moves.text])
                continue
            group = self.cluster.groups[self.state.group[self.state.pri[index]]].name
            nodes = [
                n for n in (self.state.pri[index], self.state.sec[index]) if n >= 0
            ]
            moved.append([name, group, self._names(nodes)])
            jobs.append([self._opcode(index, move) for move in moves])
        text = (
            f"{len(failed)} instances failed to move and"
            f" {len(moved)} were moved successfully"
        )
        return _done(text, [moved, failed, jobs])

    def _opcode(self, index: int, move: evacuate.EvacuationMove) -> dict[str, Any]:
        item = self.state.instances[index]
        out: dict[str, Any] = {"OP_ID": _OPS[move.kind], "instance_name": item.name}
        target = self.cluster.nodes[move.target].name if move.target >= 0 else None
        if move.kind == "replace_secondary":
            return out | {
                "early_release": False,
                "ignore_ipolicy": False,
                "mode": "replace_new_secondary",
                "disks": [],
                "remote_node": target,
            }
        if target is not None:
            out["target_node"] = target
        if item.forthcoming:
            return out | _FAILOVER
        return out | {
            "allow_runtime_changes": False,
            "ignore_ipolicy": False,
            "cleanup": False,
            "allow_failover": True,
            "ignore_hvversions": True,
        }


def _done(text: str, result: Any) -> dict[str, Any]:
    return {"success": True, "info": f"Request successful: {text}", "result": result}


def _failed(text: str) -> dict[str, Any]:
    return {"success": False, "info": f"Request failed: {text}", "result": []}
