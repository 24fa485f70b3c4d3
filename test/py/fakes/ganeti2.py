"""``config.data`` in the forms of Ganeti 2: what each release wrote, step by step.

Made from a file of 3.0: the fields and forms that a release did not have yet are taken
back. Debian's cfgupgrade of 3.0.2 reads these files, see test/py/daemon/test_take_over.py.
Configurations of other implementations of Ganeti 3 have mistakes that a take-over names.
"""

import copy
import json
import pathlib

_OLD_NAMES = {"plain": "lvm", "drbd": "drbd8"}


def as_of(data, minor):
    """Return a configuration in the form of release 2.minor."""
    data = copy.deepcopy(data)
    for release, step in _STEPS:
        if minor < release:
            step(data)
    data["version"] = 2000000 + 10000 * minor
    return data


def _drop(data, table, *fields):
    rows = [data["cluster"]] if table == "cluster" else data[table].values()
    for row in rows:
        for field in fields:
            row.pop(field, None)


def _disks(data):
    for instance in data["instances"].values():
        for disk in instance["disks"]:
            yield disk
            yield from disk["children"]


def _before_2_16(data):
    _drop(data, "cluster", "ssh_key_type", "ssh_key_bits")


def _before_2_14(data):
    """Instances contain their disks."""
    for instance in data["instances"].values():
        instance["disks"] = [data["disks"][key] for key in instance["disks"]]
        kinds = [disk["dev_type"] for disk in instance["disks"]]
        instance["disk_template"] = kinds[0] if kinds else "diskless"
        instance.pop("admin_state_source")
    for disk in _disks(data):
        for field in ("serial_no", "ctime", "mtime", "nodes"):
            disk.pop(field)
    del data["disks"]


def _before_2_13(data):
    del data["filters"]
    _drop(data, "cluster", "compression_tools", "max_tracked_jobs", "zeroing_image")
    _drop(data, "cluster", "install_image", "data_collectors")


def _before_2_12(data):
    _drop(data, "cluster", "osparams_private_cluster", "max_running_jobs")
    _drop(data, "cluster", "instance_communication_network", "enabled_user_shutdown")
    _drop(data, "instances", "osparams_private")
    for disk in _disks(data):
        disk["dev_type"] = _OLD_NAMES.get(disk["dev_type"], disk["dev_type"])
        disk["physical_id"] = disk["logical_id"]


def _before_2_11(data):
    _drop(data, "cluster", "candidate_certs", "default_iallocator_params")
    _drop(data, "cluster", "gluster_storage_dir")
    for name in ("ssh_port", "cpu_speed"):
        data["cluster"]["ndparams"].pop(name)
    for name in ("ext", "gluster"):
        data["cluster"]["diskparams"].pop(name, None)


def _before_2_9(data):
    """Names are keys, and refer to nodes."""
    names = {key: node["name"] for key, node in data["nodes"].items()}
    for instance in data["instances"].values():
        instance["primary_node"] = names[instance["primary_node"]]
        instance.pop("disks_active")
    for disk in _disks(data):
        if disk["dev_type"] == "drbd8":
            ends = [names[key] for key in disk["logical_id"][:2]]
            disk["logical_id"] = [*ends, *disk["logical_id"][2:]]
    data["cluster"]["master_node"] = names[data["cluster"]["master_node"]]
    for table in ("nodes", "instances"):
        data[table] = {row["name"]: row for row in data[table].values()}


def _before_2_8(data):
    """Policies have one pair of limits."""
    policies = [group["ipolicy"] for group in data["nodegroups"].values()]
    for policy in (data["cluster"]["ipolicy"], *policies):
        if "minmax" in policy:
            policy.update(policy.pop("minmax")[0])
    _drop(data, "cluster", "enabled_disk_templates", "dsahostkeypub")


def _before_2_7(data):
    del data["networks"]
    _drop(data, "nodegroups", "networks")
    for instance in data["instances"].values():
        for nic in instance["nics"]:
            for field in ("uuid", "network", "name"):
                nic.pop(field, None)


def _before_2_6(data):
    for instance in data["instances"].values():
        instance["admin_up"] = instance.pop("admin_state") == "up"
    records = [data["cluster"]["beparams"]["default"]]
    records += [instance["beparams"] for instance in data["instances"].values()]
    for beparams in records:
        memory = beparams.pop("maxmem", None)
        for field in ("minmem", "always_failover", "spindle_use"):
            beparams.pop(field, None)
        if memory is not None:
            beparams["memory"] = memory
    for table in ("cluster", "nodegroups"):
        _drop(data, table, "ipolicy", "diskparams")
        _drop(data, table, "hv_state_static", "disk_state_static")


def _before_2_5(data):
    _drop(data, "cluster", "master_netmask", "use_external_mip_script")
    _drop(data, "cluster", "shared_file_storage_dir")


def _before_2_4(data):
    """There are no groups and hardly any uuids."""
    del data["nodegroups"]
    _drop(data, "nodes", "group", "ndparams", "master_capable", "vm_capable", "powered")
    _drop(data, "cluster", "ndparams", "uid_pool", "prealloc_wipe_disks", "hidden_os")
    _drop(data, "cluster", "osparams", "os_hvp", "blacklisted_os", "primary_ip_family")
    _drop(data, "instances", "osparams")
    for disk in _disks(data):
        for field in ("uuid", "params", "name"):
            disk.pop(field, None)


def _before_2_1(data):
    for table in ("cluster", "nodes", "instances"):
        _drop(data, table, "uuid", "ctime", "mtime", "tags")
    cluster = data["cluster"]
    default = cluster.pop("nicparams")["default"]
    cluster["default_bridge"] = default["link"]
    cluster["default_hypervisor"] = cluster["enabled_hypervisors"][0]
    cluster["enabled_hypervisors"].insert(0, "xen-pvm")
    for instance in data["instances"].values():
        for nic in instance["nics"]:
            nic["bridge"] = nic.pop("nicparams").get("link")


_STEPS = (
    (16, _before_2_16),
    (14, _before_2_14),
    (13, _before_2_13),
    (12, _before_2_12),
    (11, _before_2_11),
    (9, _before_2_9),
    (8, _before_2_8),
    (7, _before_2_7),
    (6, _before_2_6),
    (5, _before_2_5),
    (4, _before_2_4),
    (1, _before_2_1),
)


_FILES = pathlib.Path(__file__).parents[2] / "data" / "config"
#: Made by Debian's Ganeti 3.0.2: two nodes, a network, two groups, a filter, three
#: instances.
DEBIAN = _FILES / "debian-3.0.2.json"
UNKNOWN = "00000000-0000-4000-8000-000000000000"


def debian():
    """Return the configuration that Debian's Ganeti 3.0.2 wrote."""
    return json.loads(DEBIAN.read_text())


def references(data):
    """Return a function for each reference; called with a copy, it breaks that one."""
    return list(_references(data))


def _references(data):
    yield lambda d: d["cluster"].update(master_node=UNKNOWN)
    for uuid in data["cluster"]["candidate_certs"]:
        yield lambda d, u=uuid: _rename(d["cluster"]["candidate_certs"], u)
    for uuid in data["nodes"]:
        yield lambda d, u=uuid: d["nodes"][u].update(group=UNKNOWN)
    for uuid, group in data["nodegroups"].items():
        for network in group["networks"]:
            yield lambda d, u=uuid, n=network: _rename(
                d["nodegroups"][u]["networks"], n
            )
    for uuid, disk in data["disks"].items():
        for place in range(len(disk["nodes"])):
            yield lambda d, u=uuid, p=place: _put(d["disks"][u]["nodes"], p)
        for place in (0, 1) if disk["dev_type"] == "drbd" else ():
            yield lambda d, u=uuid, p=place: _put(d["disks"][u]["logical_id"], p)
    for uuid, instance in data["instances"].items():
        yield lambda d, u=uuid: d["instances"][u].update(primary_node=UNKNOWN)
        for place in range(len(instance["disks"])):
            yield lambda d, u=uuid, p=place: _put(d["instances"][u]["disks"], p)
        for place, nic in enumerate(instance["nics"]):
            if nic.get("network"):
                yield lambda d, u=uuid, p=place: d["instances"][u]["nics"][p].update(
                    network=UNKNOWN
                )


def broken(data, change):
    """Return a copy of a configuration with a change."""
    actual = copy.deepcopy(data)
    change(actual)
    return actual


def _rename(mapping, key):
    mapping[UNKNOWN] = mapping.pop(key)


def _put(items, place):
    items[place] = UNKNOWN
