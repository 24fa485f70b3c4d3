"""LUXI methods that query: objects, jobs, numbers for monitoring, stored copies."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final

import msgspec

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
from ganeti.store import choice

# LUXI method about the copies on master candidates; not in Ganeti.


@method("QueryCopies")
def query_copies(deps: MasterDeps) -> dict[str, Any] | Later:
    """Return how the master acknowledges changes, and which candidates have them.

    Keys: ``policy``, ``revision`` (of the master), ``term``, ``warning`` (empty while
    a majority has the newest changes), ``copies``: a list by name of ``name``,
    ``is_current``, ``revision`` (-1 if none is known), ``lag`` (in revisions),
    ``trouble`` and ``wants_restart`` (it refuses the master's term, and a restart of
    the master daemon takes one that it accepts); ``confd``: how candidates answer
    queries of their copies, ``hmac`` and ``detect_replays``; and ``store``: ``file``,
    or the address of a store in etcd. Its servers have the copies that count; the list
    shows the files that follow them.
    """
    if choice.is_etcd(deps.paths):
        return Later(deps.slow.submit(_described_copies, deps))
    return _described_copies(deps)


def _described_copies(deps: MasterDeps) -> dict[str, Any]:
    snapshot = deps.config.snapshot()
    copies = [
        {
            "name": snapshot.nodes[uuid].name,
            "is_current": copy.is_current,
            "revision": copy.revision,
            "lag": max(0, snapshot.revision - max(copy.revision, 0)),
            "trouble": copy.trouble,
            "wants_restart": copy.wants_restart,
        }
        for uuid, copy in deps.copies().items()
        if uuid in snapshot.nodes
    ]
    return {
        "policy": snapshot.cluster.commit_policy,
        "revision": snapshot.revision,
        "term": str(deps.store.term),
        "warning": deps.store.exposure(),
        "store": choice.describe(deps.paths),
        "confd": {
            "hmac": snapshot.cluster.confd_hmac,
            "detect_replays": snapshot.cluster.confd_detect_replays,
        },
        "copies": sorted(copies, key=lambda row: str(row["name"])),
    }


# Numbers about the master daemon for monitoring.

_ADMIN: Final = ("up", "down", "offline")


class _Opcode(msgspec.Struct):
    op_id: str = msgspec.field(name="OP_ID")


@method("QueryMetrics")
def query_metrics(deps: MasterDeps) -> Later:
    """Return numbers for monitoring; an addition to Ganeti."""
    return Later(deps.slow.submit(numbers, deps), can_cancel=True)


def numbers(deps: MasterDeps) -> dict[str, Any]:
    """Return the present numbers; no node is asked."""
    jobs: Counter[tuple[str, str]] = Counter()
    for job in deps.queue.jobs(with_logs=False):
        if not job.is_final:
            opcode = msgspec.json.decode(job.ops[0].input, type=_Opcode).op_id
            jobs[job.status.value, opcode] += 1
    waits: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for lock in cluster_facts.locks(deps.queue, deps.locks):
        level = lock.name.partition("/")[0]
        held[level] += bool(lock.owners)
        waits[level] += sum(len(names) for _mode, names in lock.pending)
    statistics = deps.queue.statistics()
    snapshot = deps.config.snapshot()
    states = Counter(each.admin_state for each in snapshot.instances.values())
    incidents = Counter(i.state.value for i in deps.maintenance.state().incidents)
    deaths = deps.config.node_deaths.state()
    return {
        "jobs": [[*key, count] for key, count in sorted(jobs.items())],
        "queue": {
            "unfinished": statistics.unfinished,
            "running": statistics.running,
            "workers": statistics.workers,
            "last_id": deps.queue.last_id,
        },
        "locks": [[level, held[level], waits[level]] for level in sorted(held)],
        "calls": deps.call_times.rows(),
        "incidents": dict(incidents),
        "nodes": {
            "total": len(snapshot.nodes),
            "offline": sum(node.offline for node in snapshot.nodes.values()),
            "drained": sum(node.drained for node in snapshot.nodes.values()),
        },
        "instances": {state: states[state] for state in _ADMIN},
        "is_frozen": bool(snapshot.cluster.automation_freeze),
        "revision": snapshot.revision,
        "node_deaths": dict(Counter(each.phase.value for each in deaths.deaths)),
        "refused_deaths": dict(
            Counter(each.limit for each in deaths.deaths if each.limit)
        ),
        "fenced": len(deaths.fenced),
    }


_FIRST_PAGE: Final = query.Wanted()


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
    _check_filter(qfilter)
    is_slow = query.asks_nodes(what, fields, qfilter)
    return _ask(
        deps.slow if is_slow else deps.quick,
        lambda: query.query(deps.listing_sources(), what, fields, qfilter).to_dict(),
    )


def _check_filter(qfilter: Any) -> None:
    try:
        qlang.check(qfilter)
    except errors.ParseError as err:
        raise Malformed(str(err)) from err


@method("QueryPage")
def query_page(
    deps: MasterDeps,
    what: str,
    fields: list[str],
    qfilter: Any = None,
    page: query.Wanted = _FIRST_PAGE,
) -> Later:
    """Return one page of the rows of a query, sorted; not in Ganeti.

    The answer has the members of that of ``Query``, ``next`` (the cursor of the next
    page, null after the last one) and ``count`` (null if it was not wanted).
    """
    _check_resource(what)
    _check_filter(qfilter)
    is_slow = query.asks_nodes(what, [*fields, page.sort.removeprefix("-")], qfilter)

    def compute() -> dict[str, Any]:
        sources = deps.listing_sources()
        answer = query.page(sources, what, fields, qfilter, page, orders=deps.orders)
        return answer.to_dict()

    if not is_slow:
        return _ask(deps.quick, compute)
    # Nodes are asked once for clients that want the same at the same time.
    key = ("QueryPage", what, *fields, msgspec.json.encode([qfilter, page]))
    return Later(deps.shared_answers.ask(deps.slow, key, compute))


@method("Search")
def search(
    deps: MasterDeps, text: str, limit: int = 20, kinds: list[str] | None = None
) -> Later:
    """Return the objects that match a text, the best first; not in Ganeti.

    A row has ``kind``, ``name``, ``match`` (exact, prefix or part), and the ``field``
    and ``value`` that match.
    """

    def compute() -> list[dict[str, Any]]:
        sources = deps.listing_sources()
        matches = deps.search_index.find(sources, text, kinds or (), limit)
        return [match._asdict() for match in matches]

    return _ask(deps.quick, compute)


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
