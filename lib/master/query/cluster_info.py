"""The cluster information dictionary, for LUXI, RAPI and the opcode alike."""

import platform
import sys
from typing import Any, Final

from ganeti.base.constants import versions
from ganeti.decisions.repair import duties
from ganeti.model import objects

#: Fields of the cluster record that keep their name.
_PLAIN: Final = (
    "enabled_hypervisors",
    "hvparams",
    "os_hvp",
    "beparams",
    "osparams",
    "ipolicy",
    "nicparams",
    "ndparams",
    "diskparams",
    "candidate_pool_size",
    "max_running_jobs",
    "max_tracked_jobs",
    "mac_prefix",
    "master_netdev",
    "master_netmask",
    "use_external_mip_script",
    "volume_group_name",
    "drbd_usermode_helper",
    "file_storage_dir",
    "shared_file_storage_dir",
    "gluster_storage_dir",
    "maintain_node_health",
    "ctime",
    "mtime",
    "serial_no",
    "uuid",
    "default_iallocator",
    "default_iallocator_params",
    "prealloc_wipe_disks",
    "enabled_disk_templates",
    "install_image",
    "instance_communication_network",
    "zeroing_image",
    "diagnose_data_collector_filename",
    "compression_tools",
    "enabled_user_shutdown",
    "rapi_require_authentication",
    "modify_ssh_setup",
    "ssh_key_type",
    "ssh_key_bits",
    "reserved_lvs",
    "hidden_os",
    "blacklisted_os",
)


def architecture() -> list[str]:
    """Return word size and machine type of this machine."""
    return ["64bits" if sys.maxsize > 2**32 else "32bits", platform.machine()]


def build_text() -> str:
    """Return the build identifier."""
    return f"(ganeti) version v{versions.RELEASE_VERSION}"


def cluster_info(snapshot: objects.Snapshot) -> dict[str, Any]:
    """Return the documented keys with JSON values; private values are left out."""
    cluster = snapshot.cluster
    master = snapshot.nodes.get(cluster.master_node)
    collectors = cluster.data_collectors
    info: dict[str, Any] = {
        "software_version": versions.RELEASE_VERSION,
        "protocol_version": versions.PROTOCOL_VERSION,
        "config_version": versions.CONFIG_VERSION,
        "os_api_version": max(versions.OS_API_VERSIONS),
        "export_version": versions.EXPORT_VERSION,
        "vcs_version": build_text(),
        "architecture": architecture(),
        "name": cluster.cluster_name,
        "master": master.name if master else None,
        "default_hypervisor": cluster.enabled_hypervisors[0],
        "tags": sorted(cluster.tags),
        "uid_pool": [list(item) for item in cluster.uid_pool],
        # Address family numbers of the C library: 2 is IPv4, 10 is IPv6 on Linux.
        "primary_ip_version": 4 if cluster.primary_ip_family == 2 else 6,
        "enabled_data_collectors": {
            name: row["active"] for name, row in collectors.items()
        },
        "data_collector_interval": {
            name: row["interval"] for name, row in collectors.items()
        },
    }
    for name in _PLAIN:
        value = getattr(cluster, name)
        info[name] = list(value) if isinstance(value, tuple) else value
    return info | duties.shown(cluster.maintenance)
