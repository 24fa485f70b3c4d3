"""Query fields of instances: data of the configuration."""

import functools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final

from ganeti.base.constants import query
from ganeti.base.constants.parameters import params
from ganeti.base.constants.parameters.hvparams import HYPERVISOR
from ganeti.master.query import instance_live, instance_parts
from ganeti.master.query.model import (
    Cell,
    Field,
    Getter,
    QueryContext,
    Resource,
    by_name,
    common,
    maybe,
    normal,
    optional,
    plain,
    rows_by_name,
    shared_column,
)
from ganeti.model.objects import Instance
from ganeti.model.objects import params as object_params

#: May only be set at cluster level.
_HVC_GLOBALS: Final = ("migration_bandwidth", "migration_mode", "migration_port")

_KIND_OF_TYPE: Final = {
    "bool": query.QFT_BOOL,
    "int": query.QFT_NUMBER,
    "float": query.QFT_NUMBER_FLOAT,
    "size": query.QFT_UNIT,
}
_BE_TITLES: Final = {
    "auto_balance": "Auto_balance",
    "maxmem": "ConfigMaxMem",
    "minmem": "ConfigMinMem",
    "vcpus": "ConfigVCPUs",
}
_HV_TITLES: Final = {
    "acpi": "ACPI",
    "boot_order": "Boot_order",
    "cdrom_image_path": "CDROM_image_path",
    "cpu_type": "cpu_type",
    "disk_type": "Disk_type",
    "initrd_path": "Initrd_path",
    "kernel_path": "Kernel_path",
    "nic_type": "NIC_type",
    "pae": "PAE",
    "pci_pass": "pci_pass",
    "vnc_bind_address": "VNC_bind_address",
}


# Parameters in force: the inherited part is computed once per query.
def _beparams(context: QueryContext) -> Callable[[Instance], dict[str, Any]]:
    base = object_params.beparams_for(context.snapshot.cluster, {})
    return lambda instance: _over(base, instance.beparams)


def _over(base: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    return {**base, **own} if own else base


def _beparam(context: QueryContext, key: str) -> Getter:
    base = object_params.beparams_for(context.snapshot.cluster, {}).get(key)
    return lambda instance: maybe(instance.beparams.get(key, base))


def _inherited_hvparams(context: QueryContext) -> Callable[[Instance], dict[str, Any]]:
    """Return a function for the parameters of an instance without its own ones."""
    cluster = context.snapshot.cluster

    def base(hypervisor: str, os: str) -> dict[str, Any]:
        filled = object_params.hvparams_for(cluster, hypervisor, os, {})
        return {
            name: value for name, value in filled.items() if name not in _HVC_GLOBALS
        }

    def get(instance: Instance) -> dict[str, Any]:
        hypervisor, os = instance.hypervisor, instance.os
        key = ("hvparams", hypervisor, os)
        return context.once(key, lambda: base(hypervisor, os))

    return get


def _hvparams(context: QueryContext) -> Callable[[Instance], dict[str, Any]]:
    inherited = _inherited_hvparams(context)
    return lambda instance: _over(inherited(instance), instance.hvparams)


def _hvparam(context: QueryContext, key: str) -> Getter:
    inherited = _inherited_hvparams(context)

    def get(instance: Instance) -> Cell:
        own = instance.hvparams
        return maybe(own[key] if key in own else inherited(instance).get(key))

    return get


def _hv_class(instance: Instance) -> Hashable:
    """Return the key that determines all hypervisor parameters in force."""
    own = instance.hvparams
    return instance.hypervisor, instance.os, repr(own) if own else ""


def _be_field(name: str, key: str, doc: str) -> Field:
    title = _BE_TITLES.get(key, name)
    kind = _KIND_OF_TYPE[params.BACKEND[key].type]
    return Field(name, title, kind, doc, lambda context: _beparam(context, key))


def _be_fields() -> Iterable[Field]:
    for name, param in params.BACKEND.items():
        if name != "memory":
            doc = f"Backend parameter {name} in force: {param.meaning}"
            yield _be_field(f"be/{name}", name, doc)
    yield _be_field("be/memory", "maxmem", "The same as be/maxmem")
    yield _be_field("vcpus", "vcpus", "The same as be/vcpus")


def _hv_fields() -> Iterable[Field]:
    listed = set(_HVC_GLOBALS)
    for table in HYPERVISOR.values():
        for name, param in table.items():
            if name in listed:
                continue
            listed.add(name)
            bind = functools.partial(_hvparam, key=name)
            yield Field(
                f"hv/{name}",
                _HV_TITLES.get(name, f"hv/{name}"),
                _KIND_OF_TYPE.get(param.type, query.QFT_OTHER),
                f"Hypervisor parameter {name} in force: {param.meaning}",
                bind,
                column=shared_column(bind, _hv_class),
            )


def _bind_filled(
    filled: Callable[[QueryContext], Callable[[Instance], dict[str, Any]]],
) -> Callable[[QueryContext], Getter]:
    def bind(context: QueryContext) -> Getter:
        get = filled(context)
        return lambda instance: normal(get(instance))

    return bind


def _osparams(context: QueryContext) -> Callable[[Instance], dict[str, Any]]:
    return lambda instance: object_params.fill_osparams(context.snapshot, instance)


# Nodes
def _of_primary(
    get: Callable[[QueryContext, str], Any],
) -> Callable[[QueryContext], Getter]:
    """Return a field of the primary node, computed once per node."""

    def bind(context: QueryContext) -> Getter:
        nodes = context.snapshot.nodes
        known: dict[str, Cell] = {}

        def cell(instance: Instance) -> Cell:
            uuid = instance.primary_node
            if uuid not in known:
                known[uuid] = maybe(get(context, uuid) if uuid in nodes else None)
            return known[uuid]

        return cell

    return bind


def _of_secondaries(
    get: Callable[[QueryContext, str], Any],
) -> Callable[[QueryContext], Getter]:
    def bind(context: QueryContext) -> Getter:
        snapshot = context.snapshot
        nodes = snapshot.nodes
        # Several fields of one query need them.
        known: dict[str, tuple[str, ...]] = context.once("secondaries", dict)
        cells: dict[tuple[str, ...], Cell] = {}

        def cell(instance: Instance) -> Cell:
            uuids = known.get(instance.uuid)
            if uuids is None:
                uuids = known[instance.uuid] = snapshot.secondary_nodes(instance)
            if uuids not in cells:
                cells[uuids] = normal(
                    [get(context, uuid) if uuid in nodes else None for uuid in uuids]
                )
            return cells[uuids]

        return cell

    return bind


def _node_name(context: QueryContext, uuid: str) -> str:
    return context.node_name(uuid)


def _group_uuid(context: QueryContext, uuid: str) -> str:
    return context.snapshot.nodes[uuid].group


def _group_name(context: QueryContext, uuid: str) -> str:
    return context.snapshot.nodegroups[_group_uuid(context, uuid)].name


_NODE_FIELDS: Final = (
    Field(
        "pnode",
        "Primary_node",
        query.QFT_TEXT,
        "Primary node",
        _of_primary(_node_name),
        match="hostname",
    ),
    Field(
        "pnode.group",
        "PrimaryNodeGroup",
        query.QFT_TEXT,
        "Group of the primary node",
        _of_primary(_group_name),
    ),
    Field(
        "pnode.group.uuid",
        "PrimaryNodeGroupUUID",
        query.QFT_TEXT,
        "UUID of the primary node's group",
        _of_primary(_group_uuid),
    ),
    Field(
        "snodes",
        "Secondary_Nodes",
        query.QFT_OTHER,
        "Secondary nodes",
        _of_secondaries(_node_name),
    ),
    Field(
        "snodes.group",
        "SecondaryNodesGroups",
        query.QFT_OTHER,
        "Groups of the secondary nodes",
        _of_secondaries(_group_name),
    ),
    Field(
        "snodes.group.uuid",
        "SecondaryNodesGroupsUUID",
        query.QFT_OTHER,
        "UUIDs of the secondary nodes' groups",
        _of_secondaries(_group_uuid),
    ),
)


def _term(name: str) -> Callable[[Instance], Any]:
    """Return a function for a term of reservations, None for other instances."""

    def get(instance: Instance) -> Any:
        if not instance.forthcoming:
            return None
        return getattr(instance.reservation, name, None) or None

    return get


_PLAIN_FIELDS: Final = (
    plain(
        "name",
        "Instance",
        query.QFT_TEXT,
        "Instance name",
        lambda i: i.name,
        match="hostname",
    ),
    plain(
        "admin_state",
        "InstanceState",
        query.QFT_TEXT,
        "Wanted state: up, down or offline",
        lambda i: i.admin_state,
    ),
    plain(
        "admin_state_source",
        "InstanceStateSource",
        query.QFT_TEXT,
        "Source of that state: admin or user",
        lambda i: i.admin_state_source,
    ),
    plain(
        "admin_up",
        "Autostart",
        query.QFT_BOOL,
        "Is wanted up",
        lambda i: i.admin_state == "up",
    ),
    plain(
        "custom_beparams",
        "CustomBackendParameters",
        query.QFT_OTHER,
        "Backend parameters set on the instance",
        lambda i: i.beparams,
    ),
    plain(
        "custom_hvparams",
        "CustomHypervisorParameters",
        query.QFT_OTHER,
        "Hypervisor parameters set on the instance",
        lambda i: i.hvparams,
    ),
    plain(
        "custom_nicparams",
        "CustomNicParameters",
        query.QFT_OTHER,
        "NIC parameters set on each NIC",
        lambda i: [nic.nicparams for nic in i.nics],
    ),
    plain(
        "custom_osparams",
        "CustomOpSysParameters",
        query.QFT_OTHER,
        "OS parameters set on the instance",
        lambda i: i.osparams,
    ),
    plain(
        "disk.count",
        "Disks",
        query.QFT_NUMBER,
        "Number of disks",
        lambda i: len(i.disks),
    ),
    plain(
        "disks_active",
        "DisksActive",
        query.QFT_BOOL,
        "Disks should be assembled",
        lambda i: i.disks_active,
    ),
    plain(
        "forthcoming",
        "Forthcoming",
        query.QFT_BOOL,
        "Only reserved, not created yet",
        lambda i: i.forthcoming,
    ),
    plain(
        "hypervisor",
        "Hypervisor",
        query.QFT_TEXT,
        "Hypervisor",
        lambda i: i.hypervisor,
    ),
    plain(
        "nic.count",
        "NICs",
        query.QFT_NUMBER,
        "Number of NICs",
        lambda i: len(i.nics),
    ),
    plain("os", "OS", query.QFT_TEXT, "Operating system", lambda i: i.os),
    optional(
        "expires",
        "Expires",
        query.QFT_TIMESTAMP,
        "When the reservation may be released",
        _term("expires"),
        absent=math.inf,
    ),
    optional(
        "owner",
        "Owner",
        query.QFT_TEXT,
        "Who needs the reservation",
        _term("owner"),
        absent="",
    ),
    optional(
        "reservation_priority",
        "Reservation_priority",
        query.QFT_TEXT,
        "Priority of the reservation: low, normal or high",
        _term("priority"),
        absent="",
    ),
    optional(
        "request_key",
        "Request_key",
        query.QFT_TEXT,
        "Key of the request that made it",
        lambda i: i.request.key if i.request else None,
        absent="",
    ),
    optional(
        "network_port",
        "Network_port",
        query.QFT_OTHER,
        "Port of the console",
        lambda i: i.network_port,
    ),
    Field(
        "disk_template",
        "Disk_template",
        query.QFT_TEXT,
        "Template, diskless without disks, mixed if they differ",
        instance_parts.bind_template,
    ),
    Field(
        "disk_usage",
        "DiskUsage",
        query.QFT_UNIT,
        "Space taken on each of its nodes",
        instance_parts.bind_disk_sum(instance_parts.disk_space),
    ),
    Field(
        "disk.total",
        "DiskTotal",
        query.QFT_UNIT,
        "Sum of the sizes of its disks",
        instance_parts.bind_disk_sum(lambda disk: disk.size),
    ),
    Field(
        "beparams",
        "BackendParameters",
        query.QFT_OTHER,
        "Backend parameters in force",
        _bind_filled(_beparams),
    ),
    Field(
        "hvparams",
        "HypervisorParameters",
        query.QFT_OTHER,
        "Hypervisor parameters in force",
        _bind_filled(_hvparams),
    ),
    Field(
        "osparams",
        "OpSysParameters",
        query.QFT_OTHER,
        "OS parameters in force, without private ones",
        _bind_filled(_osparams),
    ),
)


RESOURCE: Final = Resource(
    query.QR_INSTANCE,
    "name",
    by_name(
        common("instance"),
        _PLAIN_FIELDS,
        _NODE_FIELDS,
        _be_fields(),
        _hv_fields(),
        instance_parts.disk_fields(),
        instance_parts.nic_fields(),
        instance_live.FIELDS,
    ),
    rows_by_name("instances"),
    instance_live.FETCH,
    instance_live.STATES,
)
