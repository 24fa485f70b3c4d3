"""Hook variables of an instance, without prefix; see the hooks tables."""

from typing import Any, Final

from ganeti.model import objects
from ganeti.model.objects import params

_FILE_KINDS: Final = frozenset({"file", "sharedfile", "gluster"})


def instance_env(
    snapshot: objects.Snapshot,
    instance: objects.Instance,
    *,
    status: Any = None,
    disks: tuple[objects.Disk, ...] | None = None,
    is_new: bool = False,
) -> dict[str, Any]:
    """Return the variables of every instance operation.

    Args:
        snapshot: for filled parameters and node names.
        instance: the instance, which may not be in the snapshot yet.
        status: its state, the recorded one if None.
        disks: its disks, the recorded ones if None.
        is_new: leave out variables that only existing disks have.
    """
    backend = params.fill_beparams(snapshot, instance)
    if disks is None:
        disks = snapshot.instance_disks(instance)
    secondaries = sorted(
        {node for disk in disks if disk.dev_type == "drbd" for node in disk.nodes}
        - {instance.primary_node}
    )
    env: dict[str, Any] = {
        "OP_TARGET": instance.name,
        "INSTANCE_NAME": instance.name,
        "INSTANCE_PRIMARY": snapshot.nodes[instance.primary_node].name,
        "INSTANCE_SECONDARIES": " ".join(snapshot.nodes[n].name for n in secondaries),
        "INSTANCE_OS_TYPE": instance.os,
        "INSTANCE_STATUS": instance.admin_state if status is None else status,
        "INSTANCE_MINMEM": backend["minmem"],
        "INSTANCE_MAXMEM": backend["maxmem"],
        "INSTANCE_MEMORY": backend["maxmem"],
        "INSTANCE_VCPUS": backend["vcpus"],
        "INSTANCE_DISK_TEMPLATE": _template(disks),
        "INSTANCE_HYPERVISOR": instance.hypervisor,
        "INSTANCE_NIC_COUNT": len(instance.nics),
        "INSTANCE_DISK_COUNT": len(disks),
        "INSTANCE_TAGS": " ".join(sorted(instance.tags)),
    }
    for index, nic in enumerate(instance.nics):
        env |= _nic_env(snapshot, nic, f"INSTANCE_NIC{index}_")
    for index, disk in enumerate(disks):
        env |= _disk_env(disk, f"INSTANCE_DISK{index}_", is_new=is_new)
    env |= {f"INSTANCE_BE_{name}": value for name, value in backend.items()}
    hypervisor = params.fill_hvparams(snapshot, instance)
    env |= {f"INSTANCE_HV_{name}": value for name, value in hypervisor.items()}
    return env


def _template(disks: tuple[objects.Disk, ...]) -> str:
    kinds = {disk.dev_type for disk in disks}
    if not kinds:
        return "diskless"
    return kinds.pop() if len(kinds) == 1 else "mixed"


def _nic_env(
    snapshot: objects.Snapshot, nic: objects.Nic, prefix: str
) -> dict[str, Any]:
    filled = params.fill_nicparams(snapshot, nic)
    env: dict[str, Any] = {
        "UUID": nic.uuid,
        "IP": nic.ip or "",
        "MAC": nic.mac,
        "MODE": filled["mode"],
        "LINK": filled["link"],
        "VLAN": filled.get("vlan", ""),
    }
    if nic.name:
        env["NAME"] = nic.name
    if filled["mode"] in ("bridged", "openvswitch"):
        env["BRIDGE"] = filled["link"]
    if nic.network:
        env |= _network_env(snapshot, nic.network)
    return {f"{prefix}{name}": value for name, value in env.items()}


def _network_env(snapshot: objects.Snapshot, uuid: str) -> dict[str, Any]:
    network = snapshot.networks.get(uuid)
    if network is None:
        return {"NETWORK_NAME": uuid, "NETWORK_UUID": uuid, "NETWORK_TAGS": ""}
    env: dict[str, Any] = {
        "NETWORK_NAME": network.name,
        "NETWORK_UUID": uuid,
        "NETWORK_TAGS": " ".join(sorted(network.tags)),
    }
    optional = {
        "NETWORK_SUBNET": network.network,
        "NETWORK_GATEWAY": network.gateway,
        "NETWORK_SUBNET6": network.network6,
        "NETWORK_GATEWAY6": network.gateway6,
        "NETWORK_MAC_PREFIX": network.mac_prefix,
    }
    return env | {name: value for name, value in optional.items() if value}


def _disk_env(disk: objects.Disk, prefix: str, *, is_new: bool) -> dict[str, Any]:
    env: dict[str, Any] = {
        "UUID": "" if is_new else disk.uuid,
        "SIZE": disk.size,
        "MODE": disk.mode,
    }
    if disk.name:
        env["NAME"] = disk.name
    if not is_new:
        env["DEV_TYPE"] = disk.dev_type
        env |= _location_env(disk)
    return {f"{prefix}{name}": value for name, value in env.items()}


def _location_env(disk: objects.Disk) -> dict[str, Any]:
    where = disk.logical_id
    if disk.dev_type == "plain":
        return {"VG": where[0], "ID": where[1]}
    if disk.dev_type in _FILE_KINDS or disk.dev_type in ("blockdev", "rbd"):
        return {"DRIVER": where[0], "ID": where[1]}
    if disk.dev_type == "ext":
        return {"PROVIDER": where[0], "ID": where[1]}
    if disk.dev_type == "drbd":
        data, meta = disk.children
        return {
            "PNODE": where[0],
            "SNODE": where[1],
            "PORT": where[2],
            "PMINOR": where[3],
            "SMINOR": where[4],
            "DATA_VG": data.logical_id[0],
            "DATA_ID": data.logical_id[1],
            "META_VG": meta.logical_id[0],
            "META_ID": meta.logical_id[1],
        }
    return {}
