"""The cluster record."""

from typing import Any, ClassVar

from ganeti.base.constants.commit import COMMIT_POLICY_MAJORITY
from ganeti.base.constants.protocols.confd import CONFD_HMAC_SHA1
from ganeti.model.objects.base import Record


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
    #: When commits are acknowledged, see `ganeti.base.constants.commit`.
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
