"""Query fields of nodes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from ganeti.base.constants import disks, query
from ganeti.base.constants.parameters import params
from ganeti.base.constants.parameters.hvparams import HYPERVISOR
from ganeti.base.constants.protocols.oob import OOB_OPT_OUT
from ganeti.base.text import nicesort
from ganeti.master.query.model import (
    UNAVAIL,
    Cell,
    Field,
    Getter,
    QueryContext,
    Resource,
    by_name,
    common,
    failed_cell,
    maybe,
    normal,
    plain,
    rows_by_name,
)
from ganeti.model.objects import Node
from ganeti.model.objects import params as object_params
from ganeti.protocols.rpc import Answer, Request, calls
from ganeti.protocols.rpc.answers import NodeInfo

#: Name of the live data.
_INFO: Final = "node_info"
_KIND_OF_TYPE: Final = {
    "bool": query.QFT_BOOL,
    "int": query.QFT_NUMBER,
    "float": query.QFT_NUMBER_FLOAT,
}
_PARAM_TITLES: Final = {
    "exclusive_storage": "ExclusiveStorage",
    "oob_program": "OutOfBandProgram",
    "ovs": "OpenvSwitch",
    "ovs_link": "OpenvSwitchLink",
    "ovs_name": "OpenvSwitchName",
    "spindle_count": "SpindleCount",
}


def filled_ndparams(context: QueryContext) -> Callable[[Node], dict[str, Any]]:
    """Return a function for the node parameters in force."""
    snapshot = context.snapshot

    def get(node: Node) -> dict[str, Any]:
        base = context.once(
            ("ndparams", node.group),
            lambda: object_params.group_ndparams(
                snapshot, snapshot.nodegroups[node.group]
            ),
        )
        return {**base, **node.ndparams}

    return get


def param_fields(
    filled: Callable[[QueryContext], Callable[[Any], dict[str, Any]]],
) -> Iterable[Field]:
    """Yield one field for each node parameter.

    Args:
        filled: returns the function for a row's parameters.
    """
    for name, param in params.NODE.items():
        yield Field(
            f"ndp/{name}",
            _PARAM_TITLES.get(name, f"ndp/{name}"),
            _KIND_OF_TYPE.get(param.type, query.QFT_OTHER),
            f"Node parameter {name} in force: {param.meaning}",
            _bind_param(name, filled),
        )


def _bind_param(
    name: str, filled: Callable[[QueryContext], Callable[[Any], dict[str, Any]]]
) -> Callable[[QueryContext], Getter]:
    def bind(context: QueryContext) -> Getter:
        get = filled(context)
        return lambda row: maybe(get(row).get(name))

    return bind


# Live data
def _storage_units(
    context: QueryContext, node: Node
) -> list[tuple[str, str, list[Any]]]:
    """Return the default storage unit of a node, and its spindles if it has any.

    The default is that of the first enabled template that has one.
    """
    cluster = context.snapshot.cluster
    keys = {
        "lvm-vg": cluster.volume_group_name,
        "file": cluster.file_storage_dir,
        "sharedfile": cluster.shared_file_storage_dir,
        "gluster": cluster.gluster_storage_dir,
    }
    for template in cluster.enabled_disk_templates:
        kind = disks.MAP_DISK_TEMPLATE_STORAGE_TYPE[template]
        key = keys.get(kind)
        if not key:
            continue
        if kind != "lvm-vg":
            return [(kind, key, [])]
        exclusive = filled_ndparams(context)(node)["exclusive_storage"]
        return [("lvm-vg", key, [exclusive]), ("lvm-pv", key, [exclusive])]
    return []


def _fetch_info(
    context: QueryContext, rows: Sequence[Node]
) -> Mapping[str, Answer[NodeInfo]]:
    cluster = context.snapshot.cluster
    hypervisor = cluster.enabled_hypervisors[0]
    hvparams = {
        **{name: p.default for name, p in HYPERVISOR.get(hypervisor, {}).items()},
        **cluster.hvparams.get(hypervisor, {}),
    }

    def request(uuid: str) -> Request[NodeInfo]:
        units = _storage_units(context, context.snapshot.nodes[uuid])
        return calls.node_info(units, [(hypervisor, hvparams)])

    return context.call([node.uuid for node in rows if node.vm_capable], request)


def _live(
    name: str, title: str, kind: str, doc: str, get: Callable[[NodeInfo], Any]
) -> Field:
    """Return a field from the answer of ``node_info``.

    Args:
        name: of the field.
        title: of the field.
        kind: of the field.
        doc: of the field.
        get: returns the value in the payload, None if it is missing.
    """

    def bind(context: QueryContext) -> Getter:
        answers: Mapping[str, Answer[NodeInfo]] = context.live[_INFO]

        def cell(node: Node) -> Cell:
            if not node.vm_capable:
                return UNAVAIL
            result = answers.get(node.uuid)
            if result is None or result.failed:
                return failed_cell(result)
            return maybe(get(result.payload))

        return cell

    return Field(name, title, kind, doc, bind, live=_INFO)


def _hypervisor(key: str) -> Callable[[NodeInfo], Any]:
    return lambda info: getattr(info.host, key)


def _storage(key: str, *, spindles: bool) -> Callable[[NodeInfo], Any]:
    def get(info: NodeInfo) -> Any:
        for unit in info.storage or []:
            if unit is not None and (unit.type == "lvm-pv") == spindles:
                return getattr(unit, key)
        return None

    return get


def _whole(get: Callable[[NodeInfo], Any]) -> Callable[[NodeInfo], Any]:
    """Return sizes as whole MiB, also from texts of the node's tools."""

    def whole(info: NodeInfo) -> Any:
        value = get(info)
        return None if value is None else int(value)

    return whole


def _bind_copy_state(context: QueryContext) -> Getter:
    master, copies = context.snapshot.cluster.master_node, context.sources.copies()

    def get(node: Node) -> Cell:
        if node.uuid == master:
            return normal("master")
        copy = copies.get(node.uuid)
        if copy is None:
            return UNAVAIL
        return normal("current" if copy.is_current else "behind")

    return get


def _bind_copy_lag(context: QueryContext) -> Getter:
    revision, copies = context.snapshot.revision, context.sources.copies()

    def get(node: Node) -> Cell:
        copy = copies.get(node.uuid)
        if copy is None:
            return UNAVAIL
        return normal(max(0, revision - max(copy.revision, 0)))

    return get


_LIVE_FIELDS: Final = (
    _live(
        "bootid",
        "BootID",
        query.QFT_TEXT,
        "Changes at every boot",
        lambda info: info.boot_id,
    ),
    *(
        _live(name, title, query.QFT_NUMBER, doc, _hypervisor(key))
        for name, title, key, doc in (
            ("cnodes", "CNodes", "cpu_nodes", "NUMA domains"),
            ("cnos", "CNOs", "cpu_dom0", "Logical CPUs of the host itself"),
            ("csockets", "CSockets", "cpu_sockets", "CPU sockets"),
            ("ctotal", "CTotal", "cpu_total", "Logical CPUs"),
        )
    ),
    *(
        _live(name, title, query.QFT_UNIT, doc, _whole(_hypervisor(key)))
        for name, title, key, doc in (
            ("mfree", "MFree", "memory_free", "Free memory"),
            ("mnode", "MNode", "memory_dom0", "Memory used by the host itself"),
            ("mtotal", "MTotal", "memory_total", "All memory"),
        )
    ),
    *(
        _live(name, title, query.QFT_UNIT, doc, _whole(_storage(key, spindles=False)))
        for name, title, key, doc in (
            ("dfree", "DFree", "storage_free", "Free space for disks"),
            ("dtotal", "DTotal", "storage_size", "All space for disks"),
        )
    ),
    *(
        _live(name, title, query.QFT_NUMBER, doc, _whole(_storage(key, spindles=True)))
        for name, title, key, doc in (
            ("spfree", "SpFree", "storage_free", "Free spindles"),
            ("sptotal", "SpTotal", "storage_size", "All spindles"),
        )
    ),
)


# Configuration data
def _bind_group_name(context: QueryContext) -> Getter:
    names = {uuid: g.name for uuid, g in context.snapshot.nodegroups.items()}
    return lambda node: normal(names[node.group])


def _bind_is_master(context: QueryContext) -> Getter:
    master = context.snapshot.cluster.master_node
    return lambda node: normal(node.uuid == master)


def _bind_role(context: QueryContext) -> Getter:
    master = context.snapshot.cluster.master_node

    def get(node: Node) -> Cell:
        if node.uuid == master:
            return normal("M")
        if node.master_candidate:
            return normal("C")
        if node.drained:
            return normal("D")
        return normal("O" if node.offline else "R")

    return get


def _bind_powered(context: QueryContext) -> Getter:
    filled = filled_ndparams(context)
    none = ("", OOB_OPT_OUT)
    return lambda node: (
        UNAVAIL if filled(node)["oob_program"] in none else normal(node.powered)
    )


def _bind_ndparams(context: QueryContext) -> Getter:
    filled = filled_ndparams(context)
    return lambda node: normal(filled(node))


def _bind_instances(
    context: QueryContext, of_node: Callable[[str], Iterable[str]], *, count: bool
) -> Getter:
    instances = context.snapshot.instances

    def names(node: Node) -> Cell:
        instance_names = (instances[uuid].name for uuid in of_node(node.uuid))
        return normal(nicesort.nice_names(instance_names))

    if count:
        return lambda node: normal(sum(1 for _ in of_node(node.uuid)))
    return names


def _instances(name: str, title: str, kind: str, doc: str, *, primary: bool) -> Field:
    def bind(context: QueryContext) -> Getter:
        of_node = (
            context.snapshot.primary_instances
            if primary
            else context.snapshot.secondary_instances
        )
        return _bind_instances(context, of_node, count=kind == query.QFT_NUMBER)

    return Field(name, title, kind, doc, bind)


def _never_available(_context: QueryContext) -> Getter:
    return lambda _node: UNAVAIL


_FIELDS: Final = by_name(
    common("node"),
    _LIVE_FIELDS,
    param_fields(filled_ndparams),
    (
        plain(
            "name",
            "Node",
            query.QFT_TEXT,
            "Node name",
            lambda n: n.name,
            match="hostname",
        ),
        plain("pip", "PrimaryIP", query.QFT_TEXT, "Primary IP", lambda n: n.primary_ip),
        plain(
            "sip",
            "SecondaryIP",
            query.QFT_TEXT,
            "Secondary IP",
            lambda n: n.secondary_ip,
        ),
        plain(
            "drained",
            "Drained",
            query.QFT_BOOL,
            "Takes nothing",
            lambda n: n.drained,
        ),
        plain("offline", "Offline", query.QFT_BOOL, "Is offline", lambda n: n.offline),
        plain(
            "master_candidate",
            "MasterC",
            query.QFT_BOOL,
            "Is a master candidate",
            lambda n: n.master_candidate,
        ),
        plain(
            "master_capable",
            "MasterCapable",
            query.QFT_BOOL,
            "May become a master candidate",
            lambda n: n.master_capable,
        ),
        plain(
            "vm_capable",
            "VMCapable",
            query.QFT_BOOL,
            "May host instances",
            lambda n: n.vm_capable,
        ),
        plain(
            "custom_ndparams",
            "CustomNodeParameters",
            query.QFT_OTHER,
            "Node parameters set on the node",
            lambda n: n.ndparams,
        ),
        plain(
            "group.uuid",
            "GroupUUID",
            query.QFT_TEXT,
            "UUID of its group",
            lambda n: n.group,
        ),
        Field("group", "Group", query.QFT_TEXT, "Name of its group", _bind_group_name),
        Field("master", "IsMaster", query.QFT_BOOL, "Is the master", _bind_is_master),
        Field(
            "role",
            "Role",
            query.QFT_TEXT,
            "M master, C candidate, R regular, D drained, O offline",
            _bind_role,
        ),
        Field(
            "powered",
            "Powered",
            query.QFT_BOOL,
            "Recorded power state, if an out-of-band helper is set",
            _bind_powered,
        ),
        Field(
            "ndparams",
            "NodeParameters",
            query.QFT_OTHER,
            "Node parameters in force",
            _bind_ndparams,
        ),
        Field(
            "copy_state",
            "CopyState",
            query.QFT_TEXT,
            "State of its copy of configuration and jobs: master, current or behind;"
            " not in Ganeti",
            _bind_copy_state,
        ),
        Field(
            "copy_lag",
            "CopyLag",
            query.QFT_NUMBER,
            "Revisions that its copy lacks; not in Ganeti",
            _bind_copy_lag,
        ),
        Field(
            "hv_state",
            "HypervisorState",
            query.QFT_OTHER,
            "Unused",
            _never_available,
        ),
        Field("disk_state", "DiskState", query.QFT_OTHER, "Unused", _never_available),
        _instances(
            "pinst_cnt",
            "Pinst",
            query.QFT_NUMBER,
            "Primary instances",
            primary=True,
        ),
        _instances(
            "pinst_list",
            "PriInstances",
            query.QFT_OTHER,
            "Their names",
            primary=True,
        ),
        _instances(
            "sinst_cnt",
            "Sinst",
            query.QFT_NUMBER,
            "Secondary instances",
            primary=False,
        ),
        _instances(
            "sinst_list",
            "SecInstances",
            query.QFT_OTHER,
            "Their names",
            primary=False,
        ),
    ),
)


RESOURCE: Final = Resource(
    query.QR_NODE, "name", _FIELDS, rows_by_name("nodes"), {_INFO: _fetch_info}
)
