"""Allocator mode ``balance``: a limited number of moves that balance the cluster.

Source: the design for version 2.1, "Cluster rebalancing". The request has the largest
number of moves; the answer is an ordered list of relocations with their jobs.
"""

from typing import Any, Final

from ganeti.decisions.htools.balance import greedy, plan
from ganeti.decisions.htools.model.cluster import Cluster
from ganeti.decisions.htools.model.json_reader import JsonPart
from ganeti.decisions.htools.rules.move_constraints import MoveOptions
from ganeti.decisions.htools.state.node_state import ClusterState

MODE: Final = "balance"


def is_asked(data: Any) -> bool:
    """Return whether a decoded request is of this mode."""
    request = data.get("request") if isinstance(data, dict) else None
    return isinstance(request, dict) and request.get("type") == MODE


def read(data: Any, *, ignore_soft: bool) -> plan.PlanOptions:
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


def solve(
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
