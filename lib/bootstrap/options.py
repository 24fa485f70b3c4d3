"""Options of cluster init and node add."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

#: Shows the user progress or a warning: one line without newline.
Feedback = Callable[[str], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class InitOptions:
    """Properties of a new cluster, as given to ``gnt-cluster init``.

    None selects the built-in default. ``store`` is the address of a store in etcd, None
    for a file on each master candidate. Values of parameter dicts may be text; they are
    checked and converted to the types of the parameters. ``ipolicy`` has the keys of
    an instance policy.
    """

    cluster_name: str
    enabled_hypervisors: tuple[str, ...] | None = None
    enabled_disk_templates: tuple[str, ...] | None = None
    hvparams: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    beparams: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    nicparams: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    ndparams: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    diskparams: Mapping[str, Mapping[str, Any]] = dataclasses.field(
        default_factory=dict
    )
    ipolicy: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    hv_state: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    disk_state: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    candidate_pool_size: int | None = None
    mac_prefix: str | None = None
    master_netdev: str | None = None
    master_netmask: int | None = None
    create_bridge: bool = False
    primary_ip_version: int = 4
    secondary_ip: str | None = None
    vg_name: str | None = None
    drbd_helper: str | None = None
    file_storage_dir: str | None = None
    shared_file_storage_dir: str | None = None
    gluster_storage_dir: str | None = None
    modify_etc_hosts: bool = True
    modify_ssh_setup: bool = True
    ssh_key_type: str | None = None
    ssh_key_bits: int | None = None
    maintain_node_health: bool = False
    uid_pool: tuple[tuple[int, int], ...] = ()
    default_iallocator: str | None = None
    default_iallocator_params: Mapping[str, Any] = dataclasses.field(
        default_factory=dict
    )
    prealloc_wipe_disks: bool = False
    use_external_mip_script: bool = False
    install_image: str = ""
    zeroing_image: str = ""
    compression_tools: tuple[str, ...] | None = None
    enabled_user_shutdown: bool = False
    rapi_require_authentication: bool = True
    store: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class JoinRequest:
    """A request to prepare a node for OP_NODE_ADD.

    Attributes:
        name: as typed; it is resolved to the full name.
        readd: the node is in the configuration and is set up again.
        group: name of its node group, None for the only one.
        secondary_ip: of a new node; ignored with ``readd``.
        ssh_key_check: False accepts any host key.
        ssh_port: None for the port of its group, or else of the master.
        ask_host_key: decides about an unknown host key: (host, type, fingerprint).
        ask_password: returns the password of "user@host", None to give up.
        create_bridge: create the default bridge of guests if the node lacks it.
        debug: run the tools on the node with debug output.
    """

    name: str
    readd: bool = False
    group: str | None = None
    secondary_ip: str | None = None
    ssh_key_check: bool = True
    ssh_port: int | None = None
    ask_host_key: Callable[[str, str, str], bool] | None = None
    ask_password: Callable[[str], str | None] | None = None
    create_bridge: bool = False
    debug: bool = False


@dataclasses.dataclass(frozen=True)
class Joined:
    """A node that is ready for OP_NODE_ADD.

    Attributes:
        name: its full name.
        primary_ip: its address.
        secondary_ip: address for the opcode, None for the primary address.
        ssh_host_keys: its public SSH host keys, for the opcode; None if the cluster
            does not manage SSH keys.
        undo: removes from a new machine what it got, if the job was refused.
    """

    name: str
    primary_ip: str
    secondary_ip: str | None
    ssh_host_keys: tuple[str, ...] | None = None
    undo: Callable[[], None] = dataclasses.field(
        default=lambda: None, repr=False, compare=False
    )
