"""``config.data`` of Ganeti 2.0 to 2.16, converted to the form of 3.0.

Each step looks at the form of the data and not at the version in the file, so that a
file that an earlier conversion left half way is accepted, too. Only the parts that a
step touches are checked here; `ganeti.master.config.import_config`, which runs
afterwards, checks all of them.
"""

import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import disks
from ganeti.base.constants.parameters import hvparams, params
from ganeti.base.constants.parameters.forms import Param
from ganeti.base.constants.protocols import export, mond

_Row = dict[str, Any]
#: First and last version of Ganeti 2 that can be converted.
FIRST_VERSION: Final = 2000000
LAST_VERSION: Final = 2160000
#: Files of directories for disks are used since this version.
_LISTED_DIRECTORIES: Final = 2070000
_NODE_CERTIFICATES: Final = 2110000
_SSH_KEY_TYPES: Final = 2160000
_TEMPLATE_NAMES: Final = {"lvm": "plain", "drbd8": "drbd"}
_TABLES: Final = ("nodes", "nodegroups", "instances", "networks", "disks", "filters")
_FIRST_GROUP: Final = "default"
#: Microseconds.
_INTERVAL: Final = mond.MOND_TIME_INTERVAL * 1_000_000
#: Values of fields that a release before the field's introduction did not write.
_CLUSTER: Final[_Row] = {
    "serial_no": 1,
    "rsahostkeypub": "",
    "tcpudp_port_pool": [],
    "mac_prefix": "aa:00:00",
    "reserved_lvs": [],
    "use_external_mip_script": False,
    "file_storage_dir": "",
    "shared_file_storage_dir": "",
    "gluster_storage_dir": "",
    "os_hvp": {},
    "osparams": {},
    "osparams_private_cluster": {},
    "candidate_pool_size": 10,
    "modify_etc_hosts": True,
    "modify_ssh_setup": True,
    "maintain_node_health": False,
    "uid_pool": [],
    "default_iallocator": "",
    "default_iallocator_params": {},
    "hidden_os": [],
    "blacklisted_os": [],
    "primary_ip_family": 2,
    "prealloc_wipe_disks": False,
    "candidate_certs": {},
    "max_running_jobs": 20,
    "max_tracked_jobs": 25,
    "install_image": "",
    "instance_communication_network": "",
    "zeroing_image": "",
    "compression_tools": list(export.IEC_DEFAULT_TOOLS),
    "enabled_user_shutdown": False,
    # Before 2.16 the keys of root were always of this kind.
    "ssh_key_type": "dsa",
    "ssh_key_bits": 1024,
}
_NODE: Final[_Row] = {
    "serial_no": 1,
    "master_candidate": False,
    "offline": False,
    "drained": False,
    "master_capable": True,
    "vm_capable": True,
    "ndparams": {},
    "powered": True,
}
_GROUP: Final[_Row] = {
    "serial_no": 1,
    "ndparams": {},
    "alloc_policy": "preferred",
    "ipolicy": {},
    "diskparams": {},
    "networks": {},
}
_INSTANCE: Final[_Row] = {"serial_no": 1, "admin_state_source": "admin"}
_IPV6: Final = 10
#: Types of the fields that the conversion reads, by kind of object.
_SHAPES: Final[dict[str, dict[str, type]]] = {
    "cluster": {"hvparams": dict, "diskparams": dict, "beparams": dict}
    | {"nicparams": dict, "ndparams": dict, "ipolicy": dict}
    | {"enabled_hypervisors": list, "enabled_disk_templates": list}
    | {"uuid": str, "master_node": str, "primary_ip_family": int},
    "nodes": {"uuid": str, "name": str},
    "nodegroups": {"uuid": str, "name": str, "ipolicy": dict},
    "networks": {"uuid": str},
    "filters": {"uuid": str},
    "instances": {"uuid": str, "name": str, "primary_node": str, "admin_state": str}
    | {"disks": list, "nics": list, "beparams": dict},
    "disks": {
        "uuid": str,
        "dev_type": str,
        "nodes": list,
        "logical_id": list,
        "children": list,
    },
    "nics": {"uuid": str, "nicparams": dict},
    "ipolicy": {"minmax": list, "min": dict, "max": dict, "std": dict},
    "minmax": {"min": dict, "max": dict},
}
_POLICY: Final[Mapping[str, Any]] = params.IPOLICY_DEFAULTS
_JSON_TYPES: Final[dict[type, str]] = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "a number",
}
#: Fields of the cluster that hold objects by name.
_BY_NAME: Final = ("hvparams", "diskparams", "beparams", "nicparams")


def is_convertible(version: object) -> bool:
    """Return whether `convert` knows a version number."""
    return (
        isinstance(version, int)
        and not isinstance(version, bool)
        and FIRST_VERSION <= version <= LAST_VERSION
    )


def convert(data: _Row) -> None:
    """Give a configuration the form of release 3.0, except for the version number.

    Args:
        data: the decoded JSON, which is changed in place.

    Raises:
        ConfigurationError: a part has an unexpected type.
    """
    for table in _TABLES:
        data.setdefault(table, {})
    data.setdefault("serial_no", 1)
    _check(data)
    _add_uuids(data)
    _split_disks(data)
    for table in _TABLES:
        # Before 2.9 some tables had names as keys.
        data[table] = {row["uuid"]: row for row in data[table].values()}
    _refer_to_nodes(data)
    for instance in data["instances"].values():
        _instance(instance)
    for network in data["networks"].values():
        _drop(network, "family", "network_type")
        network.setdefault("serial_no", 1)
    _cluster(data)
    _groups(data)


def _check(data: _Row) -> None:
    """Refuse types that no release wrote."""
    _check_one("cluster", data.get("cluster"), "cluster")
    for field in _BY_NAME:
        rows = data["cluster"].get(field) or {}
        for name, row in rows.items():
            _wanted(f"cluster: {field}: {name}", row, dict)
    for table in _TABLES:
        _wanted(table, data[table], dict)
        for key, row in data[table].items():
            _check_one(table, row, f"{table}/{key}")


def _check_one(kind: str, record: Any, where: str) -> None:
    _wanted(where, record, dict)
    for field, wanted in _SHAPES[kind].items():
        if record.get(field) is None:
            # A step that looks for a field that is missing must see that it is.
            record.pop(field, None)
        else:
            _wanted(f"{where}: {field}", record[field], wanted)
    if "ipolicy" in record:
        _check_one("ipolicy", record["ipolicy"], f"{where}: ipolicy")
    parts = [
        (field, field if field != "children" else "disks")
        for field in ("nics", "children", "minmax")
    ]
    if kind == "instances":
        parts.append(("disks", "disks"))
    for field, part_kind in parts:
        for index, part in enumerate(record.get(field, ())):
            # Since 2.14 an instance lists the uuids of its disks.
            if not (field == "disks" and isinstance(part, str)):
                _check_one(part_kind, part, f"{where}: {field}/{index}")


def _wanted(where: str, value: Any, wanted: type) -> None:
    if not isinstance(value, wanted):
        raise errors.ConfigurationError(
            f"config.data: {where}: wanted {_JSON_TYPES[wanted]}, found {value!r:.80}"
        )


def advice(version: object) -> list[str]:
    """Return the steps that remain for the administrator after a conversion."""
    steps: list[str] = []
    if not isinstance(version, int) or not is_convertible(version):
        return steps
    if version < _NODE_CERTIFICATES:
        steps.append(
            "nodes have no certificates of their own yet: run 'gnt-cluster"
            " renew-crypto --new-node-certificates' once the daemons run"
        )
    if version < _SSH_KEY_TYPES:
        steps.append(
            "root's SSH keys are recorded as DSA, which current OpenSSH refuses: run"
            " 'gnt-cluster renew-crypto --new-ssh-keys --ssh-key-type=rsa'"
        )
    return steps


def directories(data: Any, version: object) -> list[str]:
    """Return the directories for disks that earlier releases allowed without a list.

    Args:
        data: the decoded JSON of ``config.data``, not yet converted.
        version: of the file.
    """
    cluster = data.get("cluster") if isinstance(data, dict) else None
    if not isinstance(cluster, dict) or not is_convertible(version):
        return []
    if isinstance(version, int) and version >= _LISTED_DIRECTORIES:
        return []
    names = ("file_storage_dir", "shared_file_storage_dir")
    values = [cluster.get(name) for name in names]
    return [
        value for value in values if isinstance(value, str) and value.startswith("/")
    ]


def _fill(record: _Row, defaults: Mapping[str, Any]) -> None:
    """Set fields that are missing or null; each record gets containers of its own."""
    for name, value in defaults.items():
        if record.get(name) is None:
            record[name] = (
                type(value)(value) if isinstance(value, (dict, list)) else value
            )


def _drop(record: _Row, *fields: str) -> None:
    for field in fields:
        record.pop(field, None)


def _add_uuids(data: _Row) -> None:
    """Give every object a uuid; releases before 2.1 to 2.10 had few of them."""
    records = [data["cluster"]]
    records += [row for table in _TABLES for row in data[table].values()]
    for instance in data["instances"].values():
        records += instance.get("nics", ())
        records += [
            part
            for disk in instance.get("disks", ())
            if isinstance(disk, dict)
            for part in _whole_disk(disk)
        ]
    for record in records:
        record.setdefault("uuid", str(uuid.uuid4()))


def _whole_disk(disk: _Row) -> Iterator[_Row]:
    yield disk
    for child in disk.get("children", ()):
        yield from _whole_disk(child)


def _split_disks(data: _Row) -> None:
    """Move disks that instances contain, as before 2.14, to the table of disks."""
    for instance in data["instances"].values():
        items = instance.get("disks", [])
        for index, disk in enumerate(items):
            if not isinstance(disk, str):
                for part in _whole_disk(disk):
                    _disk(part, instance)
                disk["iv_name"] = f"disk/{index}"
                data["disks"][disk["uuid"]] = disk
                items[index] = disk["uuid"]
    for disk in data["disks"].values():
        for part in _whole_disk(disk):
            _rename_template(part)


def _rename_template(disk: _Row) -> None:
    _drop(disk, "physical_id")
    if "dev_type" in disk:
        disk["dev_type"] = _TEMPLATE_NAMES.get(disk["dev_type"], disk["dev_type"])


def _disk(disk: _Row, instance: _Row) -> None:
    """Complete one disk, or a part of one, of an instance."""
    _rename_template(disk)
    stamp = instance.get("ctime") or 0.0
    _fill(
        disk,
        {"children": [], "mode": "rw", "params": {}, "serial_no": 1}
        | {"ctime": stamp, "mtime": stamp},
    )
    disk["iv_name"] = ""
    disk.setdefault("nodes", _disk_nodes(disk, instance))
    for child in disk["children"]:
        child.setdefault("nodes", list(disk["nodes"]))


def _disk_nodes(disk: _Row, instance: _Row) -> list[Any]:
    """Return the nodes that hold a disk, by name or uuid as in the file."""
    kind = disk.get("dev_type")
    if kind == "drbd":
        ends: list[Any] = disk.get("logical_id", [])
        return ends[:2]
    is_local = kind in disks.DTS_LVM or kind == "file"
    return [instance.get("primary_node")] if is_local else []


def _refer_to_nodes(data: _Row) -> None:
    """Replace the names of nodes in references, as before 2.9, by uuids."""
    known = {row.get("name"): row["uuid"] for row in data["nodes"].values()}

    def uuid_of(value: Any) -> Any:
        return known.get(value, value) if isinstance(value, str) else value

    for instance in data["instances"].values():
        if "primary_node" in instance:
            instance["primary_node"] = uuid_of(instance["primary_node"])
    for disk in data["disks"].values():
        for part in _whole_disk(disk):
            part["nodes"] = [uuid_of(node) for node in part.get("nodes", ())]
            if part.get("dev_type") == "drbd":
                ends = part.get("logical_id", [])
                part["logical_id"] = [*map(uuid_of, ends[:2]), *ends[2:]]
    cluster = data["cluster"]
    if "master_node" in cluster:
        cluster["master_node"] = uuid_of(cluster["master_node"])


def _instance(instance: _Row) -> None:
    """Complete an instance."""
    was_up = instance.pop("admin_up", False) is True
    instance.setdefault("admin_state", "up" if was_up else "down")
    instance.setdefault("disks_active", instance["admin_state"] == "up")
    _fill(instance, _INSTANCE)
    # Computed from the disks since 2.15.
    _drop(instance, "disk_template")
    _split_memory(instance.get("beparams", {}))
    for nic in instance.get("nics", ()):
        nic.setdefault("nicparams", {})
        bridge = nic.pop("bridge", None)
        if bridge and not nic["nicparams"]:
            nic["nicparams"] = {"mode": "bridged", "link": bridge}


def _split_memory(beparams: _Row) -> None:
    """Replace ``memory``, as before 2.6, by its two successors."""
    if "memory" in beparams:
        memory = beparams.pop("memory")
        beparams.setdefault("minmem", memory)
        beparams.setdefault("maxmem", memory)


def _cluster(data: _Row) -> None:
    """Complete the cluster."""
    cluster = data["cluster"]
    _first_hypervisor(cluster)
    bridge = cluster.pop("default_bridge", None)
    if bridge and "nicparams" not in cluster:
        cluster["nicparams"] = {"default": {"mode": "bridged", "link": bridge}}
    _fill(cluster, _CLUSTER)
    netmask = 128 if cluster["primary_ip_family"] == _IPV6 else 32
    collectors = {
        name: {"active": True, "interval": _INTERVAL}
        for name in mond.DATA_COLLECTOR_NAMES
    }
    _fill(cluster, {"master_netmask": netmask, "data_collectors": collectors})
    _fill(cluster, {"enabled_disk_templates": _used_templates(data)})
    _cluster_parameters(cluster)
    policy = cluster.setdefault("ipolicy", {})
    enabled = cluster["enabled_disk_templates"]
    _split_limits(policy, params.ISPECS_MINMAX_DEFAULTS)
    _fill(policy, {**_POLICY, "disk-templates": enabled})
    _fill(policy["std"], _POLICY["std"])


def _first_hypervisor(cluster: _Row) -> None:
    """Put the default hypervisor first, where all releases since 2.1 look for it."""
    default = cluster.pop("default_hypervisor", None)
    enabled = cluster.get("enabled_hypervisors", [])
    if default in enabled:
        enabled.remove(default)
        enabled.insert(0, default)


def _used_templates(data: _Row) -> list[str]:
    """Return the templates of existing disks, and those of a volume group."""
    used = {disk.get("dev_type") for disk in data["disks"].values()}
    if any(not instance.get("disks") for instance in data["instances"].values()):
        used.add(disks.DT_DISKLESS)
    if data["cluster"].get("volume_group_name"):
        used.update(disks.DTS_LVM)
    return sorted(used.intersection(disks.DISK_TEMPLATES)) or [disks.DT_DISKLESS]


def _cluster_parameters(cluster: _Row) -> None:
    """Complete the default parameters, of which earlier releases had fewer."""
    for field, defaults in (
        ("hvparams", _built_in(hvparams.HYPERVISOR)),
        ("diskparams", _built_in(params.DISK)),
        ("beparams", {"default": _defaults(params.BACKEND)}),
        ("nicparams", {"default": _defaults(params.NIC)}),
    ):
        rows = cluster.setdefault(field, {})
        for name, values in defaults.items():
            row = rows.setdefault(name, {})
            if field == "beparams":
                _split_memory(row)
            _fill(row, values)
    _fill(cluster.setdefault("ndparams", {}), _defaults(params.NODE))


def _built_in(tables: Mapping[str, Mapping[str, Param]]) -> dict[str, _Row]:
    return {name: _defaults(table) for name, table in tables.items()}


def _defaults(table: Mapping[str, Param]) -> _Row:
    return {
        name: param.default
        for name, param in table.items()
        if param.default is not None and not param.added
    }


def _split_limits(policy: _Row, limits: Mapping[str, Any]) -> None:
    """Replace the separate limits of releases before 2.8 by the list of 2.8."""
    old = {name: policy.pop(name) for name in ("min", "max") if name in policy}
    if old and "minmax" not in policy:
        policy["minmax"] = [old]
    for pair in policy.get("minmax", ()):
        for name in ("min", "max"):
            _fill(pair.setdefault(name, {}), limits[name])


def _groups(data: _Row) -> None:
    """Complete groups and nodes; before 2.4 there were no groups."""
    pairs = data["cluster"]["ipolicy"]["minmax"]
    limits = pairs[0] if pairs else params.ISPECS_MINMAX_DEFAULTS
    groups = data["nodegroups"]
    if not groups:
        first = {"name": _FIRST_GROUP, "uuid": str(uuid.uuid4())}
        groups[first["uuid"]] = first
    for group in groups.values():
        _fill(group, _GROUP)
        # Computed from the nodes.
        group["members"] = []
        _drop(group["ipolicy"], "std")
        _split_limits(group["ipolicy"], limits)
    names = {group.get("name"): key for key, group in groups.items()}
    default = names.get(_FIRST_GROUP, next(iter(groups)))
    for node in data["nodes"].values():
        _fill(node, _NODE)
        _fill(node, {"group": default, "secondary_ip": node.get("primary_ip")})
