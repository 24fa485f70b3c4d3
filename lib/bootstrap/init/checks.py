"""Prerequisites of a new cluster on this machine.

The checks change nothing, except that they create the directories of file disks.
They run in the documented order: the machine first, then the request.
"""

import os
import socket
from typing import Final

from ganeti import _buildconf
from ganeti.base import errors, pathutils
from ganeti.base.constants import daemons, disks, ecodes, misc
from ganeti.base.constants.parameters import hvparams
from ganeti.base.errors import refusal
from ganeti.base.net import ip, netutils
from ganeti.base.pathutils import Paths
from ganeti.base.process import Runner
from ganeti.bootstrap.init import initial_config
from ganeti.bootstrap.options import InitOptions
from ganeti.master.iallocator import builtin, defaults
from ganeti.node.services import Services
from ganeti.protocols.ssh import host_keys

#: Seconds to wait for an answer from the cluster's address, which must be unused.
_PING_TIMEOUT_S: Final = 5.0
_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}
_FULL_PREFIX: Final = {socket.AF_INET: 32, socket.AF_INET6: 128}
_DEFAULT_KERNEL: Final = str(hvparams.HYPERVISOR["kvm"]["kernel_path"].default)
#: Any of these files shows that this node is in a cluster.
_CLUSTER_FILES: Final = ("store.db", "config.data", "server.pem", "ssconf_cluster_name")
#: Smallest useful LVM volume group, in MiB.
_MIN_VG_MIB: Final = disks.MIN_VG_SIZE


def gather(
    paths: Paths, process: Runner, options: InitOptions
) -> initial_config.MasterHost:
    """Check all prerequisites of a new cluster; return the data of its first node.

    Raises:
        OpPrereqError: a prerequisite is not met. Nothing was changed, except that
            directories of file disks may have been created.
    """
    check_unused(paths)
    # Without its users, confd or the remote API would refuse to start after all files
    # have been written.
    Services(paths, process).check_users()
    initial_config.enabled_hypervisors(options)
    family = family_of(options)
    hostname, primary_ip = own_name(paths, family)
    cluster_name = canonical_name(options.cluster_name, paths)
    master_ip = _host(cluster_name, paths, family)[1][0]
    _check_master_ip(paths, master_ip, primary_ip)
    secondary_ip = _secondary_ip(options, primary_ip, family)
    templates = initial_config.enabled_templates(options)
    _check_lvm(process, options, templates)
    storage = _storage_dirs(paths, options, templates)
    initial_config.mac_prefix(options)
    if not paths.is_virtual:
        _check_netdev(options)
    return initial_config.MasterHost(
        hostname=hostname,
        primary_ip=primary_ip,
        secondary_ip=secondary_ip,
        cluster_name=cluster_name,
        master_ip=master_ip,
        netmask=_netmask(options, family),
        family=int(family),
        host_keys=_host_keys(paths, options),
        default_iallocator=(
            builtin.NAME
            if options.default_iallocator is None
            else defaults.checked(
                options.default_iallocator, paths.iallocator_search_path
            )
        ),
        has_default_kernel=os.path.isfile(_DEFAULT_KERNEL),
        **storage,
    )


def check_unused(paths: Paths) -> None:
    """Refuse a node that is already in a cluster.

    Raises:
        OpPrereqError: a cluster file exists; the message names it.
    """
    for name in _CLUSTER_FILES:
        if os.path.exists(paths.data(name)):
            raise errors.OpPrereqError(
                f"node {paths.hostname}: already in a cluster, the file"
                f" {paths.data(name)} exists",
                ecodes.ECODE_STATE,
            )


def family_of(options: InitOptions) -> socket.AddressFamily:
    """Return the family of primary addresses.

    Raises:
        OpPrereqError: the version is not 4 or 6.
    """
    if options.primary_ip_version not in _FAMILIES:
        raise refusal(
            f"primary IP version: wanted 4 or 6, found {options.primary_ip_version}"
        )
    return _FAMILIES[options.primary_ip_version]


def own_name(paths: Paths, family: socket.AddressFamily) -> tuple[str, str]:
    """Return full name and primary address of this node.

    Raises:
        OpPrereqError: the name has no address, or none of this machine.
    """
    name = canonical_name(paths.hostname, paths)
    address = _host(name, paths, family)[1][0]
    if not paths.is_virtual and netutils.is_loopback(address):
        raise errors.OpPrereqError(
            f"node {name}: its name resolves to the loopback address {address}; correct"
            " DNS or /etc/hosts",
            ecodes.ECODE_ENVIRON,
        )
    if not netutils.owns_address(address):
        raise errors.OpPrereqError(
            f"node {name}: its name resolves to {address}, which is not an address of"
            " this machine",
            ecodes.ECODE_ENVIRON,
        )
    return name, address


def _host(
    name: str, paths: Paths, family: int = socket.AF_UNSPEC
) -> tuple[str, list[str]]:
    try:
        return netutils.lookup_host(name, paths, want=family)
    except errors.ResolverError as err:
        raise errors.OpPrereqError(
            f"{name}: its address cannot be found: {err.args[-1]}",
            ecodes.ECODE_RESOLVER,
        ) from err


def canonical_name(name: str, paths: Paths) -> str:
    """Return the full form of a host name.

    Raises:
        OpPrereqError: the name cannot be resolved.
    """
    return _host(name, paths)[0]


def _check_master_ip(paths: Paths, master_ip: str, primary_ip: str) -> None:
    if master_ip == primary_ip:
        raise errors.OpPrereqError(
            f"cluster address {master_ip}: is the address of this node; the cluster"
            " needs a separate address",
            ecodes.ECODE_NOTUNIQUE,
        )
    port = daemons.DAEMONS["ganeti-noded"].port or 0
    # All loopback addresses answer; only an accepted connection shows another user.
    if netutils.tcp_ping(
        master_ip,
        port,
        timeout_s=_PING_TIMEOUT_S,
        live_port_needed=paths.is_virtual,
    ):
        raise errors.OpPrereqError(
            f"cluster address {master_ip}: already in use, a machine answers there",
            ecodes.ECODE_NOTUNIQUE,
        )


def _secondary_ip(
    options: InitOptions, primary_ip: str, family: socket.AddressFamily
) -> str:
    address = options.secondary_ip
    if not address:
        if family == socket.AF_INET6:
            raise refusal(
                "secondary IP: with IPv6 primary addresses, an IPv4 address is required"
            )
        return primary_ip
    if not netutils.is_address(address) or netutils.family(address) != socket.AF_INET:
        raise refusal(f"secondary IP: wanted an IPv4 address, found {address!r}")
    if address != primary_ip and not netutils.owns_address(address):
        raise errors.OpPrereqError(
            f"secondary IP {address}: is not an address of this machine",
            ecodes.ECODE_ENVIRON,
        )
    return address


def _netmask(options: InitOptions, family: socket.AddressFamily) -> int:
    full = _FULL_PREFIX[family]
    mask = full if options.master_netmask is None else options.master_netmask
    if not 1 <= mask <= full:
        raise refusal(
            f"master netmask: wanted a prefix length of 1 to {full}, found {mask}"
        )
    return mask


def _check_lvm(
    process: Runner, options: InitOptions, templates: tuple[str, ...]
) -> None:
    if not set(templates) & set(disks.DTS_LVM):
        if options.vg_name:
            raise refusal(
                f"volume group {options.vg_name}: no enabled disk template uses it"
            )
        return
    name = disks.DEFAULT_VG if options.vg_name is None else options.vg_name
    if not name:
        raise refusal(
            "volume group: must be set while disk template plain or drbd is enabled"
        )
    words = ("vgs", "--noheadings", "--nosuffix", "--units=m", "-ovg_size", name)
    try:
        result = process.run(words, timeout_s=60)
    except errors.CommandError as err:
        raise errors.OpPrereqError(
            f"volume group {name}: LVM is not installed", ecodes.ECODE_ENVIRON
        ) from err
    if result.failed:
        raise errors.OpPrereqError(
            f"volume group {name}: {result.output.strip()}", ecodes.ECODE_ENVIRON
        )
    size_mib = float(result.stdout.strip())
    if size_mib < _MIN_VG_MIB:
        raise errors.OpPrereqError(
            f"volume group {name}: wanted at least {_MIN_VG_MIB} MiB, found"
            f" {size_mib:.0f}",
            ecodes.ECODE_ENVIRON,
        )


def _storage_dirs(
    paths: Paths, options: InitOptions, templates: tuple[str, ...]
) -> dict[str, str]:
    """Return field of `MasterHost` -> storage directory, empty for unused templates.

    Directories of enabled templates are created, except for Gluster.
    """
    chosen = {}
    for template, field, given, default in (
        ("file", "file_storage_dir", options.file_storage_dir, None),
        (
            "sharedfile",
            "shared_file_storage_dir",
            options.shared_file_storage_dir,
            _buildconf.SHARED_FILE_STORAGE_DIR,
        ),
        ("gluster", "gluster_storage_dir", options.gluster_storage_dir, ""),
    ):
        path = given
        if path is None and template in templates:
            path = _buildconf.FILE_STORAGE_DIR if default is None else default
        path = path or ""
        # Volumes of Gluster are mounted there at their first use.
        if template in templates and template != "gluster":
            _check_storage_dir(paths, path, template)
        chosen[field] = path
    return chosen


def _check_storage_dir(paths: Paths, path: str, template: str) -> None:
    if not os.path.isabs(path) or os.path.normpath(path) != path:
        raise refusal(
            f"directory of {template} disks: wanted an absolute path, found {path!r}"
        )
    local = path if path.startswith(f"{paths.root}/") else paths.at(path)
    system = pathutils.system_directory_around(local.removeprefix(paths.root))
    if system is not None:
        raise refusal(
            f"directory of {template} disks: wanted a path outside of the system"
            f" directory {system}, found {path!r}"
        )
    try:
        os.makedirs(local, mode=0o750, exist_ok=True)
    except OSError as err:
        raise errors.OpPrereqError(
            f"directory of {template} disks {path}: {err.strerror}",
            ecodes.ECODE_ENVIRON,
        ) from err


def _check_netdev(options: InitOptions) -> None:
    name = options.master_netdev or misc.DEFAULT_BRIDGE
    if not (ip.is_interface(name) and os.path.exists(f"/sys/class/net/{name}")):
        raise refusal(
            f"master netdev {name!r:.100}: no such network interface on this machine;"
            f" found {', '.join(sorted(os.listdir('/sys/class/net')))}"
        )


def _host_keys(paths: Paths, options: InitOptions) -> tuple[str, ...]:
    """Return the machine's public SSH host keys.

    Raises:
        OpPrereqError: there is none, and the cluster manages SSH; or one is damaged.
    """
    present = host_keys.own(paths.sshd_dir)
    if not present and options.modify_ssh_setup:
        raise errors.OpPrereqError(
            f"SSH host keys: none in {paths.sshd_dir}; install an SSH server, run"
            " ssh-keygen -A, or use --no-ssh-init",
            ecodes.ECODE_ENVIRON,
        )
    return present
