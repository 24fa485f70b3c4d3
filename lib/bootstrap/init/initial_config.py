"""The first configuration of a cluster, with all defaults filled in."""

import dataclasses
import re
import uuid
from collections.abc import Mapping
from typing import Any, Final

from ganeti.base.constants import disks, misc
from ganeti.base.constants.parameters import hvparams, params
from ganeti.base.constants.protocols import export, mond
from ganeti.base.errors import refusal
from ganeti.bootstrap.options import InitOptions
from ganeti.model.objects import Cluster, Node, NodeGroup
from ganeti.operations.parameters import device_params, typed_params
from ganeti.protocols import uidpool
from ganeti.protocols.ssh import host_keys, keys

_DEFAULT_DRBD_HELPER: Final = "/bin/true"
_DEFAULT_ENABLED_HYPERVISOR: Final = "xen-pvm"

#: One below the first port that is allocated.
FIRST_PORT_MARK: Final = 10999
DEFAULT_MAC_PREFIX: Final = "aa:00:00"
DEFAULT_POOL_SIZE: Final = 10
DEFAULT_MAX_RUNNING_JOBS: Final = 20
DEFAULT_MAX_TRACKED_JOBS: Final = 25
FIRST_GROUP: Final = "default"
#: Those documented templates whose disks this release can create.
_DEFAULT_TEMPLATES: Final = tuple(
    name
    for name in disks.DEFAULT_ENABLED_DISK_TEMPLATES
    if name in disks.OFFERED_DISK_TEMPLATES
)
_MICROSECONDS: Final = 1_000_000
_MAC_PREFIX: Final = re.compile(r"[0-9a-f]{2}:[0-9a-f]{2}:[0-9a-f]{2}")


@dataclasses.dataclass(frozen=True)
class MasterHost:
    """Checked properties of the first node, and the resolved name of the cluster.

    Attributes:
        hostname: of the master node.
        primary_ip: of the master node.
        secondary_ip: of the master node.
        cluster_name: full name.
        master_ip: address of that name.
        netmask: prefix length of the master address.
        family: address family number.
        host_keys: public SSH host keys, ``type base64``.
        file_storage_dir: empty if file disks are not used.
        shared_file_storage_dir: empty if shared file disks are not used.
        gluster_storage_dir: empty if Gluster disks are not used.
        default_iallocator: empty for none.
        has_default_kernel: whether the default *kernel_path* of KVM is a file here.
    """

    hostname: str
    primary_ip: str
    secondary_ip: str
    cluster_name: str
    master_ip: str
    netmask: int
    family: int
    host_keys: tuple[str, ...] = ()
    file_storage_dir: str = ""
    shared_file_storage_dir: str = ""
    gluster_storage_dir: str = ""
    default_iallocator: str = ""
    has_default_kernel: bool = True


@dataclasses.dataclass(frozen=True)
class FirstRecords:
    """The cluster with its only node group and its only node."""

    cluster: Cluster
    group: NodeGroup
    node: Node


def enabled_hypervisors(options: InitOptions) -> tuple[str, ...]:
    """Return the hypervisors to enable, the default first.

    Raises:
        OpPrereqError: the list is empty or contains an unknown hypervisor.
    """
    default = (_DEFAULT_ENABLED_HYPERVISOR,)
    return _checked_names(
        default if options.enabled_hypervisors is None else options.enabled_hypervisors,
        hvparams.HYPER_TYPES,
        "enabled hypervisors",
    )


def enabled_templates(options: InitOptions) -> tuple[str, ...]:
    """Return the disk templates to enable.

    Raises:
        OpPrereqError: the list is empty or contains an unknown template.
    """
    given = options.enabled_disk_templates
    return _checked_names(
        _DEFAULT_TEMPLATES if given is None else given,
        disks.DISK_TEMPLATES,
        "enabled disk templates",
    )


def check_offered(options: InitOptions) -> None:
    """Check that this release can create disks of the templates to enable.

    Raises:
        OpPrereqError: it cannot; `gnt-cluster modify` refuses the same.
    """
    templates = enabled_templates(options)
    absent = [name for name in templates if name not in disks.OFFERED_DISK_TEMPLATES]
    if absent:
        raise refusal(
            f"enabled disk templates: {', '.join(absent)}: not offered by this release;"
            f" offered are {', '.join(disks.OFFERED_DISK_TEMPLATES)}"
        )


def _checked_names(
    names: tuple[str, ...], allowed: tuple[str, ...], subject: str
) -> tuple[str, ...]:
    """Return names without repetitions; refuse an empty list and unknown names."""
    unknown = [name for name in names if name not in allowed]
    if unknown or not names:
        listed = ", ".join(unknown) or "none"
        raise refusal(f"{subject}: wanted some of {', '.join(allowed)}, found {listed}")
    return tuple(dict.fromkeys(names))


def filled_hvparams(
    options: InitOptions, *, has_default_kernel: bool
) -> dict[str, dict[str, Any]]:
    """Return hypervisor -> parameters; those of enabled hypervisors are checked.

    If KVM's default kernel does not exist, which is usual, ``kernel_path`` is empty
    unless the options set it; guests then boot from their disks.

    Raises:
        OpPrereqError: an unknown hypervisor or parameter, or a wrong value.
    """
    for name in options.hvparams:
        _checked_names((name,), hvparams.HYPER_TYPES, "hypervisor parameters")
    enabled = enabled_hypervisors(options)
    filled = {}
    for name, table in hvparams.HYPERVISOR.items():
        given = typed_params.hypervisor(
            name, options.hvparams.get(name, {}), allow_cluster_only=True
        )
        defaults = {key: row.default for key, row in table.items()}
        if name == "kvm" and not has_default_kernel:
            defaults["kernel_path"] = ""
        filled[name] = defaults | given
        if name in enabled:
            typed_params.check_hypervisor_syntax(name, filled[name])
    return filled


def filled_beparams(options: InitOptions) -> dict[str, Any]:
    """Return the default backend parameters.

    Raises:
        OpPrereqError: an unknown parameter or a wrong value.
    """
    defaults = {
        name: row.default for name, row in params.BACKEND.items() if name != "memory"
    }
    filled = defaults | typed_params.backend(options.beparams)
    typed_params.check_memory_order(filled, "backend parameters")
    return filled


def filled_nicparams(options: InitOptions) -> dict[str, Any]:
    """Return the default NIC parameters.

    Raises:
        OpPrereqError: an unknown parameter, mode, or an empty link.
    """
    given = typed_params.typed(options.nicparams, params.NIC, "NIC parameter")
    filled = {name: row.default for name, row in params.NIC.items()}
    if given.get("mode") == "openvswitch":
        # The default link is the name of a bridge, and no switch has it.
        filled["link"] = params.NODE["ovs_name"].default
    filled |= device_params.check_nic(given, "NIC parameters")
    if filled["mode"] == "bridged" and not filled["link"]:
        raise refusal(
            "NIC parameter link: wanted a bridge for mode bridged, found nothing"
        )
    return filled


def filled_ndparams(options: InitOptions) -> dict[str, Any]:
    """Return the default node parameters."""
    defaults = {name: row.default for name, row in params.NODE.items()}
    return defaults | typed_params.node(options.ndparams)


def filled_diskparams(options: InitOptions) -> dict[str, dict[str, Any]]:
    """Return disk template -> default parameters.

    Mirrors keep their metadata in the cluster's volume group unless another is named.
    """
    for name in options.diskparams:
        _checked_names((name,), disks.DISK_TEMPLATES, "disk parameters")
    filled = {
        name: {key: row.default for key, row in table.items()}
        | device_params.typed(
            name, options.diskparams.get(name, {}), f"disk template {name}: parameter"
        )
        for name, table in params.DISK.items()
    }
    for name, values in filled.items():
        device_params.check_stripes(values, f"disk template {name}: parameter")
    # The default of the parameter comes before the group of the data, and names a group
    # that this cluster may not have.
    if options.vg_name and not options.diskparams.get("drbd", {}).get("metavg"):
        filled["drbd"]["metavg"] = options.vg_name
    return filled


def filled_ipolicy(options: InitOptions) -> dict[str, Any]:
    """Return the cluster's instance policy.

    Raises:
        OpPrereqError: an unknown key, or a template that is not enabled.
    """
    given = dict(options.ipolicy)
    for key in given:
        _checked_names((key,), params.IPOLICY_ALL_KEYS, "instance policy")
    enabled = enabled_templates(options)
    policy: dict[str, Any] = dict(params.IPOLICY_DEFAULTS) | {
        params.IPOLICY_DTS: list(enabled)
    }
    policy |= given
    _checked_names(
        tuple(policy[params.IPOLICY_DTS]), enabled, "instance policy disk-templates"
    )
    return policy


def mac_prefix(options: InitOptions) -> str:
    """Return the first three octets of generated MAC addresses.

    Raises:
        OpPrereqError: malformed, or the prefix of multicast addresses.
    """
    prefix = (options.mac_prefix or DEFAULT_MAC_PREFIX).lower()
    # The lowest bit of the first octet marks multicast addresses.
    if not _MAC_PREFIX.fullmatch(prefix) or int(prefix[:2], 16) & 1:
        raise refusal(
            "MAC prefix: wanted three octets of a unicast address such as"
            f" {DEFAULT_MAC_PREFIX}, found {prefix!r}"
        )
    return prefix


def ssh_key(options: InitOptions) -> tuple[str, int]:
    """Return type and length of root's SSH keys.

    Raises:
        OpPrereqError: unsupported type or length.
    """
    kind = options.ssh_key_type or "rsa"
    return kind, keys.check_type(kind, options.ssh_key_bits)


def make(options: InitOptions, host: MasterHost, now: float) -> FirstRecords:
    """Return the records of a cluster with one node.

    Args:
        options: of the new cluster.
        host: its first node.
        now: Unix seconds.

    Raises:
        OpPrereqError: an option is wrong.
    """
    group = NodeGroup(
        name=FIRST_GROUP,
        ndparams={},
        alloc_policy="preferred",
        ipolicy={},
        diskparams={},
        networks={},
        **_identity(now),
    )
    node = Node(
        name=host.hostname,
        primary_ip=host.primary_ip,
        secondary_ip=host.secondary_ip,
        master_candidate=True,
        offline=False,
        drained=False,
        group=group.uuid,
        master_capable=True,
        vm_capable=True,
        ndparams={},
        powered=True,
        ssh_host_keys=host.host_keys if options.modify_ssh_setup else (),
        **_identity(now),
    )
    cluster = Cluster(
        **_naming(options, host),
        **_parameters(options, host),
        **_policies(options),
        **_identity(now),
        master_node=node.uuid,
    )
    return FirstRecords(cluster, group, node)


def _identity(now: float) -> dict[str, Any]:
    return {"uuid": str(uuid.uuid4()), "serial_no": 1, "ctime": now, "mtime": now}


def _naming(options: InitOptions, host: MasterHost) -> dict[str, Any]:
    bridge = misc.DEFAULT_BRIDGE
    return {
        "cluster_name": host.cluster_name,
        "rsahostkeypub": host_keys.rsa_body(host.host_keys),
        "highest_used_port": FIRST_PORT_MARK,
        "tcpudp_port_pool": (),
        "mac_prefix": mac_prefix(options),
        "reserved_lvs": (),
        "master_ip": host.master_ip,
        "master_netdev": options.master_netdev or bridge,
        "master_netmask": host.netmask,
        "use_external_mip_script": options.use_external_mip_script,
        "file_storage_dir": host.file_storage_dir,
        "shared_file_storage_dir": host.shared_file_storage_dir,
        "gluster_storage_dir": host.gluster_storage_dir,
        "primary_ip_family": host.family,
        "default_iallocator": host.default_iallocator,
        "default_iallocator_params": dict(options.default_iallocator_params),
    }


def _parameters(options: InitOptions, host: MasterHost) -> dict[str, Any]:
    templates = enabled_templates(options)
    uses_lvm = bool(set(templates) & set(disks.DTS_LVM))
    vg_name = options.vg_name
    if vg_name is None and uses_lvm:
        vg_name = disks.DEFAULT_VG
    helper = options.drbd_helper
    if helper is None and "drbd" in templates:
        helper = _DEFAULT_DRBD_HELPER
    return {
        "enabled_hypervisors": enabled_hypervisors(options),
        "hvparams": filled_hvparams(
            options, has_default_kernel=host.has_default_kernel
        ),
        "os_hvp": {},
        "beparams": {"default": filled_beparams(options)},
        "osparams": {},
        "osparams_private_cluster": {},
        "nicparams": {"default": filled_nicparams(options)},
        "ndparams": filled_ndparams(options),
        "diskparams": filled_diskparams(options),
        "ipolicy": filled_ipolicy(options),
        "enabled_disk_templates": templates,
        "volume_group_name": vg_name or None,
        "drbd_usermode_helper": helper or None,
        "hv_state_static": _state(options.hv_state),
        "disk_state_static": _state(options.disk_state),
    }


def _state(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: dict(values) for name, values in given.items()}


def _policies(options: InitOptions) -> dict[str, Any]:
    kind, bits = ssh_key(options)
    tools = options.compression_tools
    return {
        "candidate_pool_size": _pool_size(options),
        "modify_etc_hosts": options.modify_etc_hosts,
        "modify_ssh_setup": options.modify_ssh_setup,
        "maintain_node_health": options.maintain_node_health,
        "uid_pool": _uid_pool(options),
        "hidden_os": (),
        "blacklisted_os": (),
        "prealloc_wipe_disks": options.prealloc_wipe_disks,
        "candidate_certs": {},
        "max_running_jobs": DEFAULT_MAX_RUNNING_JOBS,
        "max_tracked_jobs": DEFAULT_MAX_TRACKED_JOBS,
        "install_image": options.install_image,
        "instance_communication_network": "",
        "zeroing_image": options.zeroing_image,
        "compression_tools": export.IEC_DEFAULT_TOOLS if tools is None else tools,
        "enabled_user_shutdown": options.enabled_user_shutdown,
        "rapi_require_authentication": options.rapi_require_authentication,
        "data_collectors": {
            name: {"active": True, "interval": mond.MOND_TIME_INTERVAL * _MICROSECONDS}
            for name in mond.DATA_COLLECTOR_NAMES
        },
        "ssh_key_type": kind,
        "ssh_key_bits": bits,
    }


def _pool_size(options: InitOptions) -> int:
    size = options.candidate_pool_size
    if size is not None and size < 1:
        raise refusal(f"candidate pool size: wanted 1 or more, found {size}")
    return DEFAULT_POOL_SIZE if size is None else size


def _uid_pool(options: InitOptions) -> tuple[tuple[int, int], ...]:
    pool = tuple(sorted(options.uid_pool))
    uidpool.check(pool)
    uidpool.check_overlaps(pool)
    return pool
