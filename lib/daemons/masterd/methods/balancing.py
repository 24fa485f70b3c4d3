"""LUXI methods that plan balancing, and count what fits; additions to Ganeti.

Nothing is locked or changed. For balancing, the cluster state is that of a query, as
for ``hbal -L``; moves are jobs, which the client may submit. For the count of instances
that still fit, the nodes are queried for their free resources.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.daemons.masterd.deps import MasterDeps
from ganeti.daemons.masterd.methods.calls import Later, method
from ganeti.master import iallocator, query
from ganeti.master.query import cluster_info
from ganeti.model import objects, opcodes
from ganeti.model.objects import allocators, lookup

if TYPE_CHECKING:
    from ganeti.decisions.htools.model.cluster import Cluster
from ganeti.base.constants import disks
from ganeti.master.iallocator import builtin
from ganeti.model.objects import params


class BalanceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The argument of ``PlanBalance``; every member is optional.

    Attributes:
        group: name or uuid of the group to balance; all groups by default.
        max_moves: largest number of moves; negative for no limit.
        min_gain: smallest gain per move while the score is below ``min_gain_limit``.
        min_gain_limit: see ``min_gain``.
        evacuate: only move instances that use an offline or drained node.
        disk_moves: allow moves that copy disks.
        instance_moves: allow moves that change the primary node.
        restricted: migrate no instances away from nodes that stay online.
        ignore_soft_errors: allow moves that only soft limits of policies forbid.
        search: search for pairs of moves when no single move improves the score.
        static_memory: MiB that a KVM node uses itself; 0 for the reported amount.
        explain: add reasons to the answer.
        nodes: names of the only nodes that moves may use; all by default.
        fixed: names of instances that may not move.
        first_set: plan only moves that can run at the same time, and say why there are
            no more.
        loads: load of the CPUs by name of the node; without it, no load is considered.
        domain_loads: the same for each guest of a node, by their names; for Xen.
        skip_silent: plan no move to or from a node that does not report its memory, and
            name it in the answer, instead of refusing.
        allocator: allocator that plans instead; ``.`` for the cluster's defaults in
            order. Its request contains the group, the number of moves, and whether to
            evacuate, to move disks and to search.
    """

    group: str | None = None
    max_moves: int = 100
    min_gain: float = 0.01
    min_gain_limit: float = 0.1
    evacuate: bool = False
    disk_moves: bool = True
    instance_moves: bool = True
    restricted: bool = False
    ignore_soft_errors: bool = False
    search: bool = False
    static_memory: int = 4096
    explain: bool = False
    allocator: str | None = None
    nodes: frozenset[str] | None = None
    fixed: frozenset[str] = frozenset()
    first_set: bool = False
    loads: dict[str, float] | None = None
    domain_loads: dict[str, dict[str, float]] | None = None
    skip_silent: bool = False


@method("PlanBalance")
def plan_balance(deps: MasterDeps, request: BalanceRequest | None = None) -> Later:
    """Plan the moves that balance the cluster; see `BalanceRequest` for the argument.

    Raises:
        OpPrereqError: the group does not exist, or no allocator can plan.
    """
    request = request or BalanceRequest()
    if request.group is not None:
        snapshot = deps.config.snapshot()
        group = snapshot.nodegroups[lookup.expand_group(snapshot, request.group)]
        request = msgspec.structs.replace(request, group=group.name)
    make = _plan if request.allocator is None else _ask
    return Later(deps.planning.submit(make, deps, request), can_cancel=True)


def _ask(deps: MasterDeps, request: BalanceRequest) -> dict[str, Any]:
    """Have an allocator plan; its plan has no scores, and its jobs run one by one."""
    snapshot = deps.config.snapshot()
    setting = snapshot.cluster.default_iallocator
    kind = iallocator.Balance.type
    names = allocators.chosen(request.allocator or "", setting, kind)
    if not all(names) or not names or request.max_moves < 0:
        raise errors.OpPrereqError(
            "balancing by an allocator: wanted its name and a number of moves of 0 or"
            f" more, found {', '.join(names)!r} and {request.max_moves}",
            ecodes.ECODE_INVAL,
        )
    allocator_request = iallocator.Balance(
        max_moves=request.max_moves,
        group_name=request.group,
        evacuate=request.evacuate,
        disk_moves=request.disk_moves,
        search=request.search,
    )
    _name, answer = iallocator.run_first(
        names, lambda name: iallocator.run(deps.rpc, snapshot, name, allocator_request)
    )
    targets: dict[str, list[list[str]]] = {}
    for instance, _group, nodes in answer.result.moved:
        targets.setdefault(instance, []).append(list(nodes))
    moves = [
        _move(snapshot, place, [opcodes.encode(op) for op in ops], targets)
        for place, ops in enumerate(job for job in answer.result.jobs if job)
    ]
    scores = dict.fromkeys(("score_before", "score_after", "score_ideal"))
    group = {"name": request.group or "all", "uuid": "", **scores, "moves": moves}
    reasons = {"stopped": answer.info, "kept": {}} if request.explain else {}
    return {"groups": [group | reasons]}


def _move(
    snapshot: objects.Snapshot,
    place: int,
    ops: list[dict[str, Any]],
    targets: dict[str, list[list[str]]],
) -> dict[str, Any]:
    """Return a job of an allocator as a move."""
    name = str(ops[0].get("instance_name"))
    uuid = snapshot.uuid_of("instances", name)
    item = snapshot.instances[uuid] if uuid else None
    before = (
        [item.primary_node, *snapshot.secondary_nodes(item)] if item is not None else []
    )
    after = targets.get(name) or [[]]
    return {
        "instance": name,
        "from": [snapshot.nodes[node].name for node in before if node],
        "to": after.pop(0),
        "how": " ".join(str(op["OP_ID"]) for op in ops),
        "score": None,
        "depends": [place - 1] if place else [],
        "opcodes": ops,
    }


def _plan(deps: MasterDeps, request: BalanceRequest) -> dict[str, Any]:
    # Imported here, because numpy takes a while to load and most masters never need it.
    import numpy as np

    from ganeti.decisions.htools.balance import greedy, plan
    from ganeti.decisions.htools.model import query as cluster_query
    from ganeti.decisions.htools.model.cluster import DataError
    from ganeti.decisions.htools.rules.move_constraints import MoveOptions

    tables = {
        kind: cluster_query.objects(
            query.query(deps.query_sources(), kind, fields, None).to_dict(),
            fields,
            kind,
        )
        for kind, fields in cluster_query.FIELDS.items()
    }
    silent: frozenset[str] = frozenset()
    if request.skip_silent:
        silent = cluster_query.silent(tables["node"])
    want = plan.PlanOptions(
        group=request.group,
        goal=greedy.BalanceGoal(
            min_gain=request.min_gain,
            # A silent node raises the score, which must not make small gains count.
            min_gain_limit=math.inf if silent else request.min_gain_limit,
            max_length=request.max_moves,
            pairs=request.search,
        ),
        options=MoveOptions(
            disk_moves=request.disk_moves,
            instance_moves=request.instance_moves,
            restricted=request.restricted,
            force=request.ignore_soft_errors,
            evacuate=request.evacuate,
        ),
        nodes=_without(silent, request.nodes, tables["node"]),
        fixed=request.fixed,
        first_set=request.first_set,
    )
    info = cluster_info.cluster_info(deps.config.snapshot())
    answers = cluster_query.QueryAnswers(
        "cluster", tables["group"], tables["node"], tables["instance"], info
    )
    try:
        with np.errstate(divide="ignore", invalid="ignore"):
            cluster = cluster_query.read_cluster(
                answers, static_memory=request.static_memory, offline=silent
            )
            if request.loads is not None:
                cluster = _loaded(cluster, request.loads)
            elif request.domain_loads is not None:
                cluster = _loaded_by_guest(cluster, request.domain_loads)
            plans = plan.plan(cluster, want)
    except DataError as err:
        raise errors.OpPrereqError(
            f"cannot plan balancing: {err}", ecodes.ECODE_STATE
        ) from err
    answer = plan.data(plans, explain=request.explain, stopped=request.first_set)
    return answer | ({"silent": sorted(silent)} if request.skip_silent else {})


def _without(
    silent: frozenset[str],
    nodes: frozenset[str] | None,
    rows: Sequence[Mapping[str, Any]],
) -> frozenset[str] | None:
    """Return the nodes that moves may use, None for all."""
    if not silent:
        return nodes
    every = frozenset(str(row["name"]) for row in rows)
    return (every if nodes is None else nodes) - silent


def _loaded(cluster: "Cluster", loads: Mapping[str, float]) -> "Cluster":
    """Return a cluster with the load of its nodes.

    Raises:
        DataError: a node that is not offline has none.
    """
    from ganeti.decisions.htools.model import mond
    from ganeti.decisions.htools.model.cluster import DataError

    reports = {node: {"cpu_total": load} for node, load in loads.items()}
    if missing := mond.missing(cluster, reports, mond.CPU):
        raise DataError(f"node {missing[0]}: wanted the load of its CPUs, found none")
    return mond.apply(cluster, reports, mond.CPU)


def _loaded_by_guest(
    cluster: "Cluster", loads: Mapping[str, Mapping[str, float]]
) -> "Cluster":
    """Return a cluster with the load of its instances.

    Raises:
        DataError: a node that is not offline, or an instance that runs, has none.
    """
    from ganeti.decisions.htools.model import mond
    from ganeti.decisions.htools.model.cluster import DataError

    if missing := mond.missing(cluster, loads, mond.XEN):
        raise DataError(f"node {missing[0]}: wanted the load of its guests, found none")
    if unknown := mond.unreported(cluster, loads):
        raise DataError(f"instance {unknown[0]}: wanted its load, found none")
    return mond.apply(cluster, loads, mond.XEN)


class CapacityRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The argument of ``QueryCapacity``; default sizes come from the instance policy.

    Attributes:
        disk_template: None for the first enabled one.
        memory, disk: in MiB.
        vcpus: of each instance.
        tiered: begin with the largest allowed size, and shrink it when no more fit.
        groups: names or uuids of the node groups to use; empty for all.
        limit: largest number of instances.
        allocator: allocator that answers; ``.`` for the cluster's defaults in order,
            the built-in one by default.
    """

    disk_template: str | None = None
    memory: int | None = None
    disk: int | None = None
    vcpus: int | None = None
    tiered: bool = False
    groups: Sequence[str] = ()
    limit: int | None = None
    allocator: str | None = None


@method("QueryCapacity")
def query_capacity(deps: MasterDeps, request: CapacityRequest) -> Later:
    """Count the instances that still fit; return placements, and why no more fit."""
    snapshot = deps.config.snapshot()
    question = build_request(snapshot, request)
    setting = snapshot.cluster.default_iallocator
    name = request.allocator or builtin.NAME
    names = allocators.chosen(name, setting, question.type)
    names = names or [builtin.NAME]
    return Later(
        deps.slow.submit(_ask_capacity, deps, names, question), can_cancel=True
    )


def _ask_capacity(
    deps: MasterDeps, names: Sequence[str], question: iallocator.Capacity
) -> dict[str, Any]:
    snapshot = deps.config.snapshot()
    _name, answer = iallocator.run_first(
        names, lambda name: iallocator.run(deps.rpc, snapshot, name, question)
    )
    return {
        "disk_template": question.disk_template,
        "tiered": question.tiered,
        "groups": question.groups,
        "sizes": [dict(size) for size in question.sizes],
        **answer.result,
    }


def build_request(
    snapshot: objects.Snapshot, request: CapacityRequest
) -> iallocator.Capacity:
    """Return the allocator's request, with default sizes from the policy.

    Raises:
        OpPrereqError: a template is not enabled, a group unknown, a size negative, or a
            disk wanted without disks.
    """
    cluster = snapshot.cluster
    template = request.disk_template or cluster.enabled_disk_templates[0]
    if template not in cluster.enabled_disk_templates:
        enabled = ", ".join(cluster.enabled_disk_templates)
        raise _invalid_capacity(
            f"disk template {template}: wanted one of the enabled templates {enabled}"
        )
    for name in ("memory", "disk", "vcpus", "limit"):
        value = getattr(request, name)
        least = 1 if name in ("memory", "vcpus") else 0
        if value is not None and value < least:
            raise _invalid_capacity(f"{name}: wanted {least} or more, found {value}")
    if template == disks.DT_DISKLESS and request.disk:
        others = [name for name in cluster.enabled_disk_templates if name != template]
        raise _invalid_capacity(
            f"disk: wanted none with disk template {template}, found {request.disk};"
            f" give another disk template, enabled are {', '.join(others) or 'none'}"
        )
    uuids = [lookup.expand_group(snapshot, name) for name in request.groups]
    groups = [snapshot.nodegroups[uuid] for uuid in dict.fromkeys(uuids)]
    policy = cluster.ipolicy
    if len(groups) == 1:
        policy = params.group_ipolicy(snapshot, groups[0])
    specs = [policy["std"]]
    if request.tiered:
        specs = [part["max"] for part in policy["minmax"]]
    sizes = [_capacity_size(spec, request, template) for spec in specs]
    unique = [size for at, size in enumerate(sizes) if size not in sizes[:at]]
    return iallocator.Capacity(
        disk_template=template,
        sizes=unique,
        spindle_use=int(policy["std"]["spindle-use"]),
        tiered=request.tiered,
        groups=[group.name for group in groups] or None,
        limit=request.limit,
    )


def _capacity_size(
    spec: dict[str, Any], request: CapacityRequest, template: str
) -> dict[str, int]:
    given = {"memory": request.memory, "disk": request.disk, "vcpus": request.vcpus}
    default = {
        "memory": spec["memory-size"],
        "disk": 0 if template == disks.DT_DISKLESS else spec["disk-size"],
        "vcpus": spec["cpu-count"],
    }
    out = {
        key: int(default[key] if value is None else value)
        for key, value in given.items()
    }
    return out | {"spindles": int(spec["spindle-use"])}


def _invalid_capacity(text: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(f"capacity: {text}", ecodes.ECODE_INVAL)
