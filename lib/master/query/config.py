"""Query fields of groups, networks, job filters and exports."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ganeti.base.constants import disks, query
from ganeti.base.net import ip
from ganeti.base.text import nicesort
from ganeti.decisions.jobs import filters
from ganeti.master.query.model import (
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
    optional,
    plain,
    rows_by_name,
)
from ganeti.master.query.node import param_fields
from ganeti.model.objects import FilterRule, Network, NodeGroup, params
from ganeti.protocols.rpc import calls


def _bound(
    name: str,
    title: str,
    kind: str,
    doc: str,
    get: Callable[[QueryContext, Any], Any],
) -> Field:
    """Return a field whose value needs the snapshot."""
    return Field(name, title, kind, doc, lambda ctx: lambda row: normal(get(ctx, row)))


# Groups
def _group_ndparams(context: QueryContext) -> Callable[[NodeGroup], dict[str, Any]]:
    return lambda group: params.group_ndparams(context.snapshot, group)


def _group_diskparams(context: QueryContext, group: NodeGroup) -> dict[str, Any]:
    return {
        template: params.fill_diskparams(context.snapshot, group.uuid, template)
        for template in disks.DISK_TEMPLATES
    }


def _group_nodes(context: QueryContext, group: NodeGroup) -> list[str]:
    nodes = context.snapshot.nodes_in_group(group.uuid)
    return nicesort.nice_names(context.node_name(uuid) for uuid in nodes)


def _group_instances(context: QueryContext, group: NodeGroup) -> list[str]:
    snapshot = context.snapshot
    return nicesort.nice_names(
        snapshot.instances[uuid].name
        for node in snapshot.nodes_in_group(group.uuid)
        for uuid in snapshot.primary_instances(node)
    )


def _group_instance_count(context: QueryContext, group: NodeGroup) -> int:
    snapshot = context.snapshot
    nodes = snapshot.nodes_in_group(group.uuid)
    return sum(len(snapshot.primary_instances(node)) for node in nodes)


GROUP: Final = Resource(
    query.QR_GROUP,
    "name",
    by_name(
        common("group"),
        param_fields(_group_ndparams),
        (
            plain("name", "Group", query.QFT_TEXT, "Group name", lambda g: g.name),
            plain(
                "alloc_policy",
                "AllocPolicy",
                query.QFT_TEXT,
                "Whether allocators may use it",
                lambda g: g.alloc_policy,
            ),
            plain(
                "custom_diskparams",
                "CustomDiskParameters",
                query.QFT_OTHER,
                "Disk parameters set on the group",
                lambda g: g.diskparams,
            ),
            plain(
                "custom_ipolicy",
                "CustomInstancePolicy",
                query.QFT_OTHER,
                "Instance policy set on the group",
                lambda g: g.ipolicy,
            ),
            plain(
                "custom_ndparams",
                "CustomNDParams",
                query.QFT_OTHER,
                "Node parameters set on the group",
                lambda g: g.ndparams,
            ),
            _bound(
                "diskparams",
                "DiskParameters",
                query.QFT_OTHER,
                "Disk parameters in force, by template",
                _group_diskparams,
            ),
            _bound(
                "ipolicy",
                "InstancePolicy",
                query.QFT_OTHER,
                "Instance policy in force",
                lambda ctx, g: params.group_ipolicy(ctx.snapshot, g),
            ),
            _bound(
                "ndparams",
                "NDParams",
                query.QFT_OTHER,
                "Node parameters in force",
                lambda ctx, g: params.group_ndparams(ctx.snapshot, g),
            ),
            _bound(
                "node_cnt",
                "Nodes",
                query.QFT_NUMBER,
                "Nodes in the group",
                lambda ctx, g: len(ctx.snapshot.nodes_in_group(g.uuid)),
            ),
            _bound(
                "node_list",
                "NodeList",
                query.QFT_OTHER,
                "Their names",
                _group_nodes,
            ),
            _bound(
                "pinst_cnt",
                "Instances",
                query.QFT_NUMBER,
                "Instances with their primary node in the group",
                _group_instance_count,
            ),
            _bound(
                "pinst_list",
                "InstanceList",
                query.QFT_OTHER,
                "Their names",
                _group_instances,
            ),
        ),
    ),
    rows_by_name("nodegroups"),
)


# Networks
def _taken(network: Network) -> str:
    """Return one character per address: X reserved, . free."""
    pools = (network.reservations or "", network.ext_reservations or "")
    size = max(map(len, pools))
    bits = [int(pool.ljust(size, "0"), 2) if pool else 0 for pool in pools]
    text = format(bits[0] | bits[1], f"0{size}b") if size else ""
    return text.replace("1", "X").replace("0", ".")


def _external(network: Network) -> str:
    """Return the externally reserved addresses as text."""
    bits = network.ext_reservations or ""
    addresses = ip.ipv4_range(network.network, strict=False)
    return ", ".join(
        str(addresses[index]) for index, bit in enumerate(bits) if bit == "1"
    )


def _network_groups(context: QueryContext, network: Network) -> list[list[str]]:
    groups = nicesort.nice_sorted(
        context.snapshot.nodegroups.values(), lambda group: group.name
    )
    return [
        [group.name, *(str(link.get(key, "")) for key in ("mode", "link", "vlan"))]
        for group in groups
        if (link := group.networks.get(network.uuid)) is not None
    ]


def _users_by_network(context: QueryContext) -> dict[str, list[str]]:
    """Return the names of the instances with a NIC in each network."""

    def make() -> dict[str, list[str]]:
        users: dict[str, set[str]] = {}
        names = context.snapshot.names("networks")
        for instance in context.snapshot.instances.values():
            for nic in instance.nics:
                if nic.network is not None:
                    uuid = names.get(nic.network, nic.network)
                    users.setdefault(uuid, set()).add(instance.name)
        return {
            uuid: nicesort.nice_names(instances) for uuid, instances in users.items()
        }

    return context.once("network users", make)


NETWORK: Final = Resource(
    query.QR_NETWORK,
    "name",
    by_name(
        common("network"),
        (
            plain("name", "Network", query.QFT_TEXT, "Network name", lambda n: n.name),
            plain(
                "network",
                "Subnet",
                query.QFT_TEXT,
                "IPv4 subnet",
                lambda n: n.network,
            ),
            optional(
                "gateway",
                "Gateway",
                query.QFT_OTHER,
                "Gateway",
                lambda n: n.gateway,
            ),
            optional(
                "network6",
                "IPv6Subnet",
                query.QFT_OTHER,
                "IPv6 subnet",
                lambda n: n.network6,
            ),
            optional(
                "gateway6",
                "IPv6Gateway",
                query.QFT_OTHER,
                "IPv6 gateway",
                lambda n: n.gateway6,
            ),
            optional(
                "mac_prefix",
                "MacPrefix",
                query.QFT_OTHER,
                "Prefix of generated MAC addresses",
                lambda n: n.mac_prefix,
            ),
            plain(
                "free_count",
                "FreeCount",
                query.QFT_NUMBER,
                "Free addresses",
                lambda n: _taken(n).count("."),
            ),
            plain(
                "reserved_count",
                "ReservedCount",
                query.QFT_NUMBER,
                "Reserved addresses",
                lambda n: _taken(n).count("X"),
            ),
            plain("map", "Map", query.QFT_TEXT, "X reserved, . free", _taken),
            plain(
                "external_reservations",
                "ExternalReservations",
                query.QFT_TEXT,
                "Addresses reserved by administrators",
                _external,
            ),
            _bound(
                "group_cnt",
                "NodeGroups",
                query.QFT_NUMBER,
                "Connected groups",
                lambda ctx, n: len(_network_groups(ctx, n)),
            ),
            _bound(
                "group_list",
                "GroupList",
                query.QFT_OTHER,
                "Connected groups with mode, link and vlan",
                _network_groups,
            ),
            _bound(
                "inst_cnt",
                "Instances",
                query.QFT_NUMBER,
                "Instances that use it",
                lambda ctx, n: len(_users_by_network(ctx).get(n.uuid, ())),
            ),
            _bound(
                "inst_list",
                "InstanceList",
                query.QFT_OTHER,
                "Their names",
                lambda ctx, n: _users_by_network(ctx).get(n.uuid, []),
            ),
        ),
    ),
    rows_by_name("networks"),
)


# Job filters
def _filter_rows(
    context: QueryContext, names: Sequence[Any] | None
) -> Sequence[FilterRule]:
    # No field is called "name", so requests cannot select by name.
    del names
    return sorted(
        context.snapshot.filters.values(),
        key=lambda rule: (rule.priority, rule.watermark, rule.uuid),
    )


FILTER: Final = Resource(
    query.QR_FILTER,
    "name",
    by_name(
        plain(name, title, query.QFT_OTHER, doc, get)
        for name, title, doc, get in (
            ("action", "Action", "Action for matching jobs", lambda r: r.action),
            (
                "predicates",
                "Predicates",
                "Predicates that a job must fulfil",
                lambda r: r.predicates,
            ),
            (
                "priority",
                "Priority",
                "Rules with smaller values are evaluated first",
                lambda r: r.priority,
            ),
            (
                "problem",
                "Problem",
                "Why the rule cannot be evaluated and is skipped, null if it can",
                filters.problem,
            ),
            (
                "reason_trail",
                "ReasonTrail",
                "Reason trail of the rule",
                lambda r: r.reason_trail,
            ),
            ("uuid", "UUID", "UUID of the rule", lambda r: r.uuid),
            (
                "watermark",
                "Watermark",
                "Highest job id when it was set",
                lambda r: r.watermark,
            ),
        )
    ),
    _filter_rows,
)


# Exports
class _ExportRow(NamedTuple):
    node: str
    export: Cell


def _export_rows(
    context: QueryContext, names: Sequence[Any] | None
) -> list[_ExportRow]:
    nodes = rows_by_name("nodes")(context, names)
    answers = context.call([node.uuid for node in nodes], calls.export_list())
    rows = []
    for node in nodes:
        result = answers[node.uuid]
        if result.failed:
            rows.append(_ExportRow(node.name, failed_cell(result)))
        else:
            names_sent = nicesort.nice_names(result.payload)
            rows.extend(_ExportRow(node.name, normal(name)) for name in names_sent)
    return rows


def _bind_export(_context: QueryContext) -> Getter:
    return lambda row: maybe(row.export[1]) if row.export[0] == 0 else row.export


EXPORT: Final = Resource(
    query.QR_EXPORT,
    "node",
    by_name(
        (
            plain(
                "node",
                "Node",
                query.QFT_TEXT,
                "Node that holds it",
                lambda row: row.node,
                match="hostname",
            ),
            Field(
                "export",
                "Export",
                query.QFT_TEXT,
                "Name of the export",
                _bind_export,
            ),
        )
    ),
    _export_rows,
)
