"""LUXI methods that query."""

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants import query as c
from ganeti.daemons.masterd import cluster_facts
from ganeti.daemons.masterd.deps import MasterDeps
from ganeti.daemons.masterd.methods.calls import JobId, Later, Malformed, method
from ganeti.master import query
from ganeti.master.query import cluster_info
from ganeti.model import objects, qlang
from ganeti.model.objects import lookup
from ganeti.protocols.luxi.server import Encoded


def _ask(executor: Executor, function: Callable[..., Any], *args: Any) -> Later:
    return Later(executor.submit(function, *args), can_cancel=True)


@method("Query")
def query_(
    deps: MasterDeps, what: str, fields: list[str], qfilter: Any = None
) -> Later:
    """Answer a query of a resource that the master daemon serves."""
    _check_resource(what)
    if what not in c.QR_VIA_LUXI:
        raise errors.GenericError(f"Resource '{what}' is queried by an opcode")
    try:
        qlang.check(qfilter)
    except errors.ParseError as err:
        raise Malformed(str(err)) from err
    is_slow = query.asks_nodes(what, fields, qfilter)
    return _ask(
        deps.slow if is_slow else deps.quick,
        lambda: query.query(deps.listing_sources(), what, fields, qfilter).to_dict(),
    )


def _check_resource(what: str) -> None:
    if what not in query.RESOURCES:
        raise Malformed(f"{what!r} is not a resource")


@method("QueryFields")
def query_fields(
    deps: MasterDeps, what: str, fields: list[str] | None = None
) -> dict[str, Any]:
    """Return the definitions of fields."""
    del deps
    _check_resource(what)
    return {"fields": query.describe(what, fields)}


def _legacy(
    deps: MasterDeps, what: str, names: list[Any], fields: list[str], *, lock: bool
) -> Later:
    _refuse_lock(lock=lock)
    is_slow = what == c.QR_EXPORT or _is_slow(what, fields)
    return _ask(
        deps.slow if is_slow else deps.quick,
        lambda: query.legacy(deps.listing_sources(), what, names, fields),
    )


def _refuse_lock(*, lock: bool) -> None:
    if lock:
        raise errors.OpPrereqError("Sync queries are not allowed", ecodes.ECODE_INVAL)


@method("QueryObjects")
def query_objects(
    deps: MasterDeps,
    what: str,
    names: list[str],
    fields: list[str],
    lock: bool = False,
) -> Later:
    """Return objects as the remote API shows them, all without names; not in Ganeti.

    Clients that ask for all objects together share one answer.
    """
    _check_resource(what)
    if what not in c.QR_VIA_LUXI:
        raise errors.GenericError(f"Resource '{what}' is queried by an opcode")
    _refuse_lock(lock=lock)

    def compute() -> bytes:
        return query.objects(deps.listing_sources(), what, names, fields, deps.lists)

    executor = deps.slow if _is_slow(what, fields) else deps.quick
    if names:
        return Later(executor.submit(compute), Encoded, can_cancel=True)
    key = (what, *fields)
    return Later(deps.shared_answers.ask(executor, key, compute), Encoded)


def _is_slow(what: str, fields: list[str]) -> bool:
    return query.asks_nodes(what, fields, None)


@method("QueryNodes")
def query_nodes(
    deps: MasterDeps, names: list[str], fields: list[str], lock: bool = False
) -> Later:
    """List nodes by the older method."""
    return _legacy(deps, c.QR_NODE, names, fields, lock=lock)


@method("QueryInstances")
def query_instances(
    deps: MasterDeps, names: list[str], fields: list[str], lock: bool = False
) -> Later:
    """List instances by the older method."""
    return _legacy(deps, c.QR_INSTANCE, names, fields, lock=lock)


@method("QueryGroups")
def query_groups(
    deps: MasterDeps, names: list[str], fields: list[str], lock: bool = False
) -> Later:
    """List node groups by the older method."""
    return _legacy(deps, c.QR_GROUP, names, fields, lock=lock)


@method("QueryNetworks")
def query_networks(
    deps: MasterDeps, names: list[str], fields: list[str], lock: bool = False
) -> Later:
    """List networks by the older method."""
    return _legacy(deps, c.QR_NETWORK, names, fields, lock=lock)


@method("QueryFilters")
def query_filters(
    deps: MasterDeps, uuids: list[str] | None, fields: list[str]
) -> Later:
    """List job filters."""
    return _legacy(deps, c.QR_FILTER, uuids or [], fields, lock=False)


@method("QueryExports")
def query_exports(deps: MasterDeps, nodes: list[str], lock: bool = False) -> Later:
    """List exports by the older method."""
    return _legacy(deps, c.QR_EXPORT, nodes, ["node", "export"], lock=lock)


@method("QueryJobs")
def query_jobs(deps: MasterDeps, ids: list[JobId] | None, fields: list[str]) -> Later:
    """List all live jobs, or the given ones, in the order of their ids."""
    return _legacy(deps, c.QR_JOB, list(ids or ()), fields, lock=False)


@method("QueryDiskName")
def query_disk_name(deps: MasterDeps, disk_uuid: str) -> str | None:
    """Return the name of a disk; null without one. Not in Ganeti."""
    disk = deps.config.snapshot().disks.get(disk_uuid)
    return disk.name if disk is not None else None


@method("QueryClusterInfo")
def query_cluster_info(deps: MasterDeps) -> dict[str, Any]:
    """Return the settings of the cluster."""
    return cluster_info.cluster_info(deps.config.snapshot())


def _master_name(deps: MasterDeps) -> str | None:
    snapshot = deps.config.snapshot()
    node = snapshot.nodes.get(snapshot.cluster.master_node)
    return None if node is None else node.name


_CONFIG_VALUES: Final[dict[str, Callable[[MasterDeps], Any]]] = {
    "cluster_name": lambda deps: deps.config.snapshot().cluster.cluster_name,
    "watcher_pause": lambda deps: cluster_facts.watcher_pause(deps.paths, deps.clock),
    "master_node": _master_name,
    "drain_flag": lambda deps: deps.queue.is_drained,
    "modify_ssh_setup": lambda deps: deps.config.snapshot().cluster.modify_ssh_setup,
    "ssh_key_type": lambda deps: deps.config.snapshot().cluster.ssh_key_type,
    "ssh_key_bits": lambda deps: deps.config.snapshot().cluster.ssh_key_bits,
}


def _no_value(_deps: MasterDeps) -> None:
    return None


@method("QueryConfigValues")
def query_config_values(deps: MasterDeps, fields: list[str]) -> list[Any]:
    """Return some configuration values; null for unknown ones."""
    return [_CONFIG_VALUES.get(name, _no_value)(deps) for name in fields]


def _tagged(table: str) -> Callable[[objects.Snapshot, str], Any]:
    def find(snapshot: objects.Snapshot, name: str) -> Any:
        return snapshot.table(table)[lookup.expand(snapshot, table, name)]

    return find


_TAGGED: Final[dict[str, Callable[[objects.Snapshot, str], Any]]] = {
    "cluster": lambda snapshot, _name: snapshot.cluster,
    "node": _tagged("nodes"),
    "nodegroup": _tagged("nodegroups"),
    "instance": _tagged("instances"),
    "network": _tagged("networks"),
}


@method("QueryTags")
def query_tags(deps: MasterDeps, kind: str, name: str = "") -> list[str]:
    """Return the tags of an object, sorted."""
    find = _TAGGED.get(kind)
    if find is None:
        raise Malformed(f"{kind!r} is not a kind of object with tags")
    return sorted(find(deps.config.snapshot(), name).tags)
