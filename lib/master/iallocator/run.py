"""Running an allocator on the master node."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ganeti.base import errors
from ganeti.base.constants import disks, ecodes
from ganeti.base.text.units import exact_mib
from ganeti.master.iallocator import answer_checks, builtin, requests
from ganeti.master.iallocator.cluster_cache import ClusterCache
from ganeti.model import objects, serializer
from ganeti.model.objects import params
from ganeti.protocols import rpc
from ganeti.protocols.rpc import calls
from ganeti.protocols.rpc.answers import Guest, NodeInfo


def run(
    runner: rpc.Runner,
    snapshot: objects.Snapshot,
    name: str,
    request: requests.Request,
    *,
    explain: bool = False,
    cluster_cache: ClusterCache | None = None,
) -> answer_checks.Answer:
    """Run an allocator: the built-in one here, others as scripts on the master.

    Args:
        runner: calls nodes: all for their resources, the master for the script.
        snapshot: the cluster.
        name: name of the allocator.
        request: the request.
        explain: request the reasons for refused nodes, if the allocator supports it.
        cluster_cache: saves the built-in allocator from reading the cluster again.

    Raises:
        OpPrereqError: the script is missing, failed, or its answer is not JSON.
        ResultValidationError: its answer is malformed.
    """
    chosen = dict(snapshot.cluster.default_iallocator_params)
    if isinstance(request, requests.NodeEvacuate) and request.ignore_soft_errors:
        chosen["ignore-soft-errors"] = None
    request, reports, running = _prepare(runner, snapshot, request)
    if name == builtin.NAME and builtin.supports(chosen):
        memory = builtin.static_memory(chosen)
        reader = cluster_cache or ClusterCache()
        cluster = reader.read(snapshot, reports, running, static_memory=memory)
        answer = builtin.solve(cluster, request.to_dict(), chosen, explain=explain)
        return answer_checks.parse(name, answer, request, snapshot)
    asked = requests.build(snapshot, request, reports, running)
    text = serializer.dump(asked).decode()
    result = runner.call_node(
        snapshot.cluster.master_node, calls.iallocator_runner(name, text, chosen)
    )
    output = result.require(f"allocator {name}", ecodes.ECODE_ENVIRON)
    try:
        decoded = serializer.load(output)
    except errors.ParseError as err:
        raise errors.OpPrereqError(
            f"allocator {name}: its answer is {err.args[0]}", ecodes.ECODE_ENVIRON
        ) from err
    if isinstance(decoded, dict):
        decoded.pop("explanation", None)
    return answer_checks.parse(name, decoded, request, snapshot)


def run_first(
    names: Sequence[str],
    ask: Callable[[str], answer_checks.Answer],
    what: str = "",
    *,
    on_failure: Callable[[str, str], None] | None = None,
    ecode: str = ecodes.ECODE_NORES,
) -> tuple[str, answer_checks.Answer]:
    """Run allocators in order; return name and answer of the first that succeeds.

    If there are several, an allocator that fails is skipped.

    Args:
        names: names of the allocators.
        ask: runs one of them, as `run` does.
        what: name of the operation in the error.
        on_failure: called with the name of each skipped allocator and the reason.
        ecode: code of the error.

    Raises:
        OpPrereqError: none found a solution; has the text of each. Or, with a single
            allocator, see `run`.
        ResultValidationError: with a single allocator, see `run`.
    """
    refusals = []
    for name in names:
        try:
            answer = ask(name)
        except (errors.OpPrereqError, errors.ResultValidationError) as err:
            if len(names) == 1:
                raise
            text = str(err.args[0]).removeprefix(f"allocator {name}: ")
            if on_failure is not None:
                on_failure(name, text)
            refusals.append(f"{name}: {text}")
            continue
        if answer.success:
            return name, answer
        refusals.append(f"{name}: {answer.info}")
    start = f"{what}: " if what else ""
    raise errors.OpPrereqError(
        f"{start}no solution found by allocator {'; '.join(refusals)}", ecode
    )


def not_evacuable(
    runner: rpc.Runner,
    snapshot: objects.Snapshot,
    group: str,
    instances: Sequence[str],
    cluster_cache: ClusterCache,
) -> list[str]:
    """Return the names of nodes whose instances have no place when the node is lost.

    They are those that ``hcheck`` and the count of further instances find.

    Args:
        runner: calls nodes for their resources.
        snapshot: the cluster.
        group: uuid of the node group.
        instances: names of its instances.
        cluster_cache: saves reading the cluster again.

    Raises:
        OpPrereqError: a node's report or a policy is invalid.
    """
    asked = requests.NodeEvacuate(instances, "all")
    reports, running = _query_nodes(runner, snapshot, asked, group)
    memory = builtin.static_memory(snapshot.cluster.default_iallocator_params)
    cluster = cluster_cache.read(snapshot, reports, running, static_memory=memory)
    return builtin.not_evacuable(cluster, group)


def question(
    runner: rpc.Runner, snapshot: objects.Snapshot, request: requests.Request
) -> dict[str, Any]:
    """Return the complete input of an allocator, with the nodes' reports.

    Raises:
        OpPrereqError: no node has the space for disk files.
    """
    return requests.build(snapshot, *_prepare(runner, snapshot, request))


def _prepare(
    runner: rpc.Runner, snapshot: objects.Snapshot, request: requests.Request
) -> tuple[requests.Request, dict[str, NodeInfo], dict[str, dict[str, Guest]]]:
    """Return the request for nodes that have space, the reports, running instances."""
    reports, running = _query_nodes(runner, snapshot, request)
    return _where_files_fit(snapshot, request, reports), reports, running


def _where_files_fit(
    snapshot: objects.Snapshot,
    request: requests.Request,
    reports: Mapping[str, NodeInfo],
) -> requests.Request:
    """Return a request that leaves out nodes without the space for its disk files.

    Allocators count the space of volume groups alone.

    Raises:
        OpPrereqError: no node that could be used has the space.
    """
    if not isinstance(request, requests.Allocate) or request.disk_template != "file":
        return request
    wanted_mib = sum(int(disk["size"]) for disk in request.disks)
    free_mib = {
        snapshot.nodes[uuid].name: resources.free_disk
        for uuid, report in reports.items()
        if (resources := requests.read_resources(snapshot.nodes[uuid], report))
        is not None
        and resources.total_disk
    }
    full = {name for name, free in free_mib.items() if free < wanted_mib}
    if not full:
        return request
    names = request.restrict_to
    if names is None:
        names = [node.name for node in snapshot.nodes.values()]
    left = sorted(set(names) - full)
    if not left:
        most_mib = max(free_mib[name] for name in names)
        raise errors.OpPrereqError(
            f"instance {request.name}: needs {exact_mib(wanted_mib)} for disks of"
            f" template file in {snapshot.cluster.file_storage_dir}; no node has more"
            f" than {exact_mib(most_mib)} free",
            ecodes.ECODE_NORES,
        )
    return dataclasses.replace(request, restrict_to=left)


def _query_nodes(
    runner: rpc.Runner,
    snapshot: objects.Snapshot,
    request: requests.Request,
    group: str | None = None,
) -> tuple[dict[str, NodeInfo], dict[str, dict[str, Guest]]]:
    """Return by node uuid the payloads of ``node_info``, and the running instances.

    Asks the nodes of one group, by its uuid, or all.
    """
    nodes = [
        uuid
        for uuid, node in snapshot.nodes.items()
        if node.vm_capable and not node.offline and group in (None, node.group)
    ]
    kinds = list(snapshot.cluster.enabled_hypervisors)
    first = request.hypervisor if isinstance(request, requests.Allocate) else kinds[0]
    hv = params.hvparams_for(snapshot.cluster, first, "", {})
    units = _storage_units(snapshot, request)
    infos = runner.call_nodes(nodes, calls.node_info(units, [(first, hv)]))
    every = {kind: snapshot.cluster.hvparams.get(kind, {}) for kind in kinds}
    running = runner.call_nodes(nodes, calls.all_instances_info(kinds, every))
    return (
        {uuid: item.payload for uuid, item in infos.items() if not item.failed},
        {uuid: item.payload for uuid, item in running.items() if not item.failed},
    )


def _storage_units(
    snapshot: objects.Snapshot, request: requests.Request
) -> list[tuple[str, str, list[Any]]]:
    """Return the storage unit of a request's disks, if it has one."""
    cluster = snapshot.cluster
    kind = disks.MAP_DISK_TEMPLATE_STORAGE_TYPE[_template(snapshot, request)]
    places = {
        "file": cluster.file_storage_dir,
        "sharedfile": cluster.shared_file_storage_dir,
        "lvm-vg": cluster.volume_group_name,
    }
    key = places.get(kind)
    if not key:
        return []
    exclusive = cluster.ndparams.get("exclusive_storage", False)
    return [(kind, key, [exclusive] if kind == "lvm-vg" else [])]


def _template(snapshot: objects.Snapshot, request: requests.Request) -> str:
    """Return the disk template of a request, or the cluster's first.

    Among several instances, one with disks in a volume group is preferred.
    """
    if isinstance(request, requests.Allocate | requests.Capacity):
        return request.disk_template
    if isinstance(request, requests.MultiAllocate):
        templates = [item.disk_template for item in request.instances]
    else:
        uuids = [snapshot.uuid_of("instances", name) for name in _moving(request)]
        templates = [snapshot.disk_template(snapshot.instances[u or ""]) for u in uuids]
    known = [name for name in templates if name in disks.DTS_LVM]
    first = snapshot.cluster.enabled_disk_templates[0]
    if isinstance(request, requests.MultiAllocate):
        return next(iter(known or templates), first)
    return next(iter(known), first)


def _moving(request: requests.Request) -> Sequence[str]:
    """Return the names of the instances of a request."""
    if isinstance(request, requests.NodeEvacuate | requests.ChangeGroup):
        return request.instances
    if isinstance(request, requests.Relocate | requests.AllocateSecondary):
        return [request.name]
    return ()
