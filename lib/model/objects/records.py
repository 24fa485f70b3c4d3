"""The records of the configuration, one class per kind of object."""

from typing import Any, ClassVar, Self

import msgspec

from ganeti.base.constants.instance import (
    CREATION_INSTALLING,
    CREATION_INTERRUPTED,
    CREATION_RENAME_CUT,
)
from ganeti.base.constants.misc import COMMIT_POLICY_MAJORITY
from ganeti.base.constants.protocols.confd import CONFD_HMAC_SHA1


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False, gc=False):
    """An immutable configuration record.

    Fields named in ``SPARSE`` are left out of the stored form while they have
    their default. Containers inside a record are never changed in place: make a
    new record with `replace`.
    """

    SPARSE: ClassVar[frozenset[str]] = frozenset()

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)


class Disk(Record, frozen=True, kw_only=True):
    """One disk, or one part of it."""

    SPARSE: ClassVar[frozenset[str]] = frozenset(
        ("name", "spindles", "params", "forthcoming")
    )

    #: Decides the form of logical_id; diskless never occurs.
    dev_type: str
    #: See logical_ids.
    logical_id: tuple[Any, ...]
    size: int
    #: Equals the key of the containing map.
    uuid: str
    serial_no: int
    #: Nested whole objects, each with its own uuid and serial_no; only drbd has
    #: them: data, then metadata.
    children: "tuple[Disk, ...]" = ()
    #: Nodes that hold it; drbd and its children list both.
    nodes: tuple[str, ...] = ()
    #: Disk/N by position for top-level disks, "" for children.
    iv_name: str = ""
    mode: str = "rw"
    name: str | None = None
    spindles: int | None = None
    #: Normally {}; provider parameters of ext disks.
    params: dict[str, Any] | None = None
    #: Whether it is reserved only, see the field of instances.
    forthcoming: bool = False
    #: Creation, seconds since 1970.
    ctime: float = 0.0
    #: Last change.
    mtime: float = 0.0


class FilterRule(Record, frozen=True, kw_only=True):
    """One job filter rule."""

    watermark: int
    priority: int
    #: Name is jobid, opcode or reason.
    predicates: tuple[Any, ...]
    #: Case matters.
    action: Any
    reason_trail: tuple[Any, ...]
    #: Equals the key of the containing map.
    uuid: str


class NodeGroup(Record, frozen=True, kw_only=True):
    """Nodes that share policy, parameters and network connections."""

    SPARSE: ClassVar[frozenset[str]] = frozenset(
        ("hv_state_static", "disk_state_static")
    )

    name: str
    ndparams: dict[str, Any]
    alloc_policy: str
    ipolicy: dict[str, Any]
    diskparams: dict[str, Any]
    #: Connections.
    networks: dict[str, Any]
    #: Equals the key of the containing map.
    uuid: str
    serial_no: int
    #: Written empty; recomputed in memory from node.group.
    members: tuple[str, ...] = ()
    hv_state_static: dict[str, Any] = {}
    disk_state_static: dict[str, Any] = {}
    #: Creation, seconds since 1970.
    ctime: float = 0.0
    #: Last change.
    mtime: float = 0.0
    #: A set; written sorted.
    tags: tuple[str, ...] = ()


class Network(Record, frozen=True, kw_only=True):
    """An IPv4 network and its address pool."""

    SPARSE: ClassVar[frozenset[str]] = frozenset(
        (
            "mac_prefix",
            "network6",
            "gateway",
            "gateway6",
            "reservations",
            "ext_reservations",
        )
    )

    #: Not empty.
    name: str
    network: str
    #: Equals the key of the containing map.
    uuid: str
    serial_no: int
    mac_prefix: str | None = None
    network6: str | None = None
    gateway: str | None = None
    gateway6: str | None = None
    #: One character per address of the range, 1 taken.
    reservations: str | None = None
    #: Reserved by administrators: network and broadcast address, gateway, excluded
    #: ones.
    ext_reservations: str | None = None
    #: Creation, seconds since 1970.
    ctime: float = 0.0
    #: Last change.
    mtime: float = 0.0
    #: A set; written sorted.
    tags: tuple[str, ...] = ()


class Node(Record, frozen=True, kw_only=True):
    """One machine of the cluster."""

    SPARSE: ClassVar[frozenset[str]] = frozenset(
        ("hv_state_static", "disk_state_static", "ssh_host_keys")
    )

    #: DNS name.
    name: str
    primary_ip: str
    #: Equals primary_ip on single-homed clusters.
    secondary_ip: str
    #: At most one of the three.
    master_candidate: bool
    #: At most one of the three.
    offline: bool
    #: At most one of the three.
    drained: bool
    group: str
    master_capable: bool
    vm_capable: bool
    #: May be {}.
    ndparams: dict[str, Any]
    #: State recorded from out-of-band commands.
    powered: bool
    #: Equals the key of the containing map.
    uuid: str
    serial_no: int
    hv_state_static: dict[str, Any] = {}
    disk_state_static: dict[str, Any] = {}
    #: Public keys of its SSH server, ``type base64``; not in Ganeti, where nodes share
    #: those of the first master. Empty if they are not recorded.
    ssh_host_keys: tuple[str, ...] = ()
    #: Creation, seconds since 1970.
    ctime: float = 0.0
    #: Last change.
    mtime: float = 0.0
    #: A set; written sorted.
    tags: tuple[str, ...] = ()


class Cluster(Record, frozen=True, kw_only=True):
    """Settings of the cluster and defaults for everything in it."""

    SPARSE: ClassVar[frozenset[str]] = frozenset(
        (
            "dsahostkeypub",
            "volume_group_name",
            "drbd_usermode_helper",
            "commit_policy",
            "confd_detect_replays",
            "confd_hmac",
            "diagnose_data_collector_filename",
            "automation_limits",
            "automation_freeze",
            "node_death",
            "maintenance",
            "rapi_require_authentication",
        )
    )

    #: DNS name.
    cluster_name: str
    #: Base64 body of the host key; may be empty.
    rsahostkeypub: str
    #: 10999 in a new cluster.
    highest_used_port: int
    #: Free ports given back.
    tcpudp_port_pool: tuple[int, ...]
    #: Three octets, default aa:00:00.
    mac_prefix: str
    reserved_lvs: tuple[str, ...]
    master_node: str
    master_ip: str
    master_netdev: str
    #: Prefix length.
    master_netmask: int
    use_external_mip_script: bool
    #: Empty when unused.
    file_storage_dir: str
    shared_file_storage_dir: str
    gluster_storage_dir: str
    #: First is the default; not empty.
    enabled_hypervisors: tuple[str, ...]
    #: Must have an entry for each enabled hypervisor; filled with defaults when
    #: upgraded or created.
    hvparams: dict[str, Any]
    os_hvp: dict[str, Any]
    beparams: dict[str, Any]
    osparams: dict[str, Any]
    osparams_private_cluster: dict[str, Any]
    nicparams: dict[str, Any]
    ndparams: dict[str, Any]
    diskparams: dict[str, Any]
    ipolicy: dict[str, Any]
    #: Default 10 at creation.
    candidate_pool_size: int
    modify_etc_hosts: bool
    modify_ssh_setup: bool
    maintain_node_health: bool
    uid_pool: tuple[tuple[int, int], ...]
    #: May be empty.
    default_iallocator: str
    default_iallocator_params: dict[str, Any]
    hidden_os: tuple[str, ...]
    blacklisted_os: tuple[str, ...]
    primary_ip_family: int
    prealloc_wipe_disks: bool
    #: Not empty.
    enabled_disk_templates: tuple[str, ...]
    candidate_certs: dict[str, Any]
    #: Default 20.
    max_running_jobs: int
    #: Default 25.
    max_tracked_jobs: int
    install_image: str
    #: Network name, empty for off.
    instance_communication_network: str
    zeroing_image: str
    compression_tools: tuple[str, ...]
    enabled_user_shutdown: bool
    data_collectors: dict[str, Any]
    ssh_key_type: str
    ssh_key_bits: int
    uuid: str
    serial_no: int
    dsahostkeypub: str | None = None
    volume_group_name: str | None = None
    drbd_usermode_helper: str | None = None
    hv_state_static: dict[str, Any] = {}
    disk_state_static: dict[str, Any] = {}
    #: When commits are acknowledged, see `ganeti.base.constants.misc`.
    commit_policy: str = COMMIT_POLICY_MAJORITY
    #: Whether confd answers each request only once.
    confd_detect_replays: bool = False
    #: Signatures that confd accepts, see `ganeti.base.constants.protocols.confd`.
    confd_hmac: str = CONFD_HMAC_SHA1
    #: Command that diagnoses nodes, where a node allows it; empty for none.
    diagnose_data_collector_filename: str = ""
    #: Limits of automatons that are set, see `ganeti.decisions.repair.limits`.
    automation_limits: dict[str, float] = {}
    #: Why and since when no automaton acts: ``reason`` and ``time``; empty if they may.
    automation_freeze: dict[str, Any] = {}
    #: Whether dead nodes are fenced and their instances started elsewhere.
    node_death: bool = False
    #: Duties of the maintenance daemon that are set, see
    #: `ganeti.decisions.repair.duties`.
    maintenance: dict[str, Any] = {}
    #: Whether the remote API demands credentials for reading. New clusters do; earlier
    #: ones, and those of Ganeti, do not say it and go on as they were.
    rapi_require_authentication: bool = False
    #: Creation, seconds since 1970.
    ctime: float = 0.0
    #: Last change.
    mtime: float = 0.0
    #: A set; written sorted.
    tags: tuple[str, ...] = ()


class Reservation(Record, frozen=True, kw_only=True):
    """The terms of a reservation; kept after the instance was created."""

    SPARSE: ClassVar[frozenset[str]] = frozenset(("disk_template",))

    #: Seconds since 1970 at which it may be released; 0 for never.
    expires: float = 0.0
    #: Free text: who needs it.
    owner: str = ""
    #: ``low``, ``normal`` or ``high``, see `ganeti.base.constants.instance`.
    priority: str = "normal"
    #: Template that was wanted last, for the first disk; empty for the default.
    disk_template: str = ""


class CreationRequest(Record, frozen=True, kw_only=True):
    """The request that made an instance, so that its repetition makes no second one."""

    #: Chosen by the client; unique in the cluster.
    key: str
    #: Of the parameters of the request.
    digest: str


class Nic(Record, frozen=True, kw_only=True):
    """One network card of an instance."""

    SPARSE: ClassVar[frozenset[str]] = frozenset(("ip", "network", "name"))

    #: Lower case.
    mac: str
    #: May be {}.
    nicparams: dict[str, Any]
    uuid: str
    ip: str | None = None
    network: str | None = None
    name: str | None = None


class Instance(Record, frozen=True, kw_only=True):
    """One virtual machine: what it should be, not what it is doing."""

    SPARSE: ClassVar[frozenset[str]] = frozenset(
        (
            *("network_port", "forthcoming", "creation", "reservation", "request"),
            *("firmware_state", "tpm_state"),
        )
    )

    #: The uuid as long as a forthcoming instance has no name.
    name: str
    primary_node: str
    os: str
    hypervisor: str
    admin_state: str
    admin_state_source: str
    #: Whether disks should be assembled.
    disks_active: bool
    #: Equals the key of the containing map.
    uuid: str
    serial_no: int
    #: Only overrides.
    hvparams: dict[str, Any] = {}
    beparams: dict[str, Any] = {}
    osparams: dict[str, Any] = {}
    #: Clear text here, masked in answers.
    osparams_private: dict[str, Any] = {}
    #: In order, embedded.
    nics: tuple[Nic, ...] = ()
    #: In order, refer to the top-level disks map.
    disks: tuple[str, ...] = ()
    #: For consoles (VNC and so on), shared range with DRBD ports.
    network_port: int | None = None
    #: Whether it is only planned: its resources are reserved, and nothing is created
    #: on nodes.
    forthcoming: bool = False
    #: None if its resources were never reserved. Not in config.data.
    reservation: Reservation | None = None
    #: None if its creation had no key. Not in config.data.
    request: CreationRequest | None = None
    #: ``installing`` while its creation or reinstallation runs the OS script,
    #: ``interrupted`` if that ended before the script; ``renaming`` and
    #: ``rename-interrupted`` are the same of a rename; empty otherwise. Not in
    #: config.data.
    creation: str = ""
    #: Copy of the UEFI variables, for a start on another node: compressed, in base64.
    #: Not in config.data.
    firmware_state: str = ""
    #: Copy of the state of its TPM, likewise. It has the keys of the guest.
    tpm_state: str = ""
    #: Creation, seconds since 1970.
    ctime: float = 0.0
    #: Last change.
    mtime: float = 0.0
    #: A set; written sorted.
    tags: tuple[str, ...] = ()

    @property
    def is_unfinished(self) -> bool:
        """Whether a creation, reinstallation or rename ended before the OS script."""
        return self.creation == CREATION_INTERRUPTED or self.is_half_renamed

    @property
    def is_half_renamed(self) -> bool:
        """Whether a rename ended before the OS script."""
        return self.creation == CREATION_RENAME_CUT

    @property
    def is_nameless(self) -> bool:
        """Whether it is forthcoming and has no name yet."""
        return self.name == self.uuid

    @property
    def is_reserved(self) -> bool:
        """Whether memory is reserved for it that no guest uses yet.

        Besides forthcoming instances, these are reserved ones that are being created:
        other operations may not take their memory before they start.
        """
        if self.forthcoming:
            return True
        return self.reservation is not None and self.creation == CREATION_INSTALLING


class ConfigData(Record, frozen=True, kw_only=True):
    """The whole configuration, as in config.data."""

    version: int
    cluster: Cluster
    nodes: dict[str, Node]
    nodegroups: dict[str, NodeGroup]
    #: May be empty.
    instances: dict[str, Instance]
    #: May be empty.
    networks: dict[str, Network]
    #: May be empty.
    disks: dict[str, Disk]
    #: May be empty.
    filters: dict[str, FilterRule]
    serial_no: int
    #: Creation, seconds since 1970.
    ctime: float = 0.0
    #: Last change.
    mtime: float = 0.0
