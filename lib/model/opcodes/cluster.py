"""Opcodes: cluster."""

from typing import Annotated, Any, ClassVar, Literal

from ganeti.base.constants.parameters import forms
from ganeti.model import ht
from ganeti.model.ht import Doc
from ganeti.model.opcodes import common
from ganeti.model.opcodes.common import Opcode


class ClusterActivateMasterIp(
    Opcode, tag="OP_CLUSTER_ACTIVATE_MASTER_IP", frozen=True, kw_only=True
):
    """Bring the master IP up on the master."""

    RESULT: ClassVar[Any] = None


class ClusterConfigQuery(
    Opcode, tag="OP_CLUSTER_CONFIG_QUERY", frozen=True, kw_only=True
):
    """Read single cluster config values."""

    RESULT: ClassVar[Any] = list[Any]

    output_fields: common.OutputFields


class ClusterDeactivateMasterIp(
    Opcode, tag="OP_CLUSTER_DEACTIVATE_MASTER_IP", frozen=True, kw_only=True
):
    """Take the master IP down."""

    RESULT: ClassVar[Any] = None


class ClusterDestroy(Opcode, tag="OP_CLUSTER_DESTROY", frozen=True, kw_only=True):
    """Wipe an otherwise empty cluster; result is the master node uuid."""

    RESULT: ClassVar[Any] = ht.NonEmptyStr


class ClusterPostInit(Opcode, tag="OP_CLUSTER_POST_INIT", frozen=True, kw_only=True):
    """Run hooks after cluster creation, and set up the master node."""

    RESULT: ClassVar[Any] = bool


class ClusterQuery(Opcode, tag="OP_CLUSTER_QUERY", frozen=True, kw_only=True):
    """Cluster information dictionary."""

    RESULT: ClassVar[Any] = dict[str, Any]


class ClusterRedistConf(
    Opcode, tag="OP_CLUSTER_REDIST_CONF", frozen=True, kw_only=True
):
    """Push configuration and ancillary files to all nodes."""

    RESULT: ClassVar[Any] = None


class ClusterRename(Opcode, tag="OP_CLUSTER_RENAME", frozen=True, kw_only=True):
    """Change cluster name and master IP; result is the new name."""

    SUMMARY_FIELD: ClassVar[str | None] = "name"
    RESULT: ClassVar[Any] = ht.NonEmptyStr

    name: Annotated[ht.NonEmptyStr, Doc("new cluster name")]


class ClusterRenewCrypto(
    Opcode, tag="OP_CLUSTER_RENEW_CRYPTO", frozen=True, kw_only=True
):
    """Replace node certificates and/or SSH keys."""

    RESULT: ClassVar[Any] = None

    debug: Annotated[bool, Doc("make remote tools log debug output")] = False
    node_certificates: Annotated[bool, Doc("replace the node client certificates")] = (
        False
    )
    cluster_certificate: Annotated[
        bool,
        Doc("replace the authority of the cluster and all node certificates"),
    ] = False
    renew_ssh_keys: Annotated[bool, Doc("replace SSH keys on every node")] = False
    ssh_key_bits: Annotated[
        ht.PosInt | None, Doc("key length; null keeps the current one")
    ] = None
    ssh_host_keys: Annotated[
        bool, Doc("replace the SSH host keys of every node; not in Ganeti")
    ] = False
    ssh_key_type: Annotated[
        ht.SshKeyType | None, Doc("key type; null keeps the current one")
    ] = None
    verbose: common.Verbose = False


class ClusterRepairDiskSizes(
    Opcode, tag="OP_CLUSTER_REPAIR_DISK_SIZES", frozen=True, kw_only=True
):
    """Fix recorded disk sizes; result rows [instance, disk index, what, new size]."""

    RESULT: ClassVar[Any] = list[
        tuple[ht.NonEmptyStr, ht.NonNegInt, ht.NonEmptyStr, ht.NonNegInt]
    ]

    instances: Annotated[
        list[ht.NonEmptyStr], Doc("instances to check, empty for all")
    ] = []


class ClusterSetParams(Opcode, tag="OP_CLUSTER_SET_PARAMS", frozen=True, kw_only=True):
    """Change cluster settings."""

    RESULT: ClassVar[Any] = ht.JobList | None
    SUBMITS_JOBS: ClassVar[bool] = True

    add_uids: Annotated[
        list[tuple[int, int]] | None,
        Doc("uid ranges [low, high] to add to the pool"),
        forms.ANY,
    ] = None
    automation_limits: Annotated[
        dict[str, float | None] | None,
        Doc("limits of automatons, null removes one; not in Ganeti"),
    ] = None
    beparams: Annotated[
        dict[str, Any] | None, Doc("cluster default backend params (default profile)")
    ] = None
    blacklisted_os: Annotated[
        list[tuple[ht.DdmSimple, ht.NonEmptyStr]] | None,
        Doc("list edits [add|remove, os name] on the blacklist"),
    ] = None
    candidate_pool_size: Annotated[
        ht.PosInt | None, Doc("wanted number of master candidates")
    ] = None
    commit_policy: Annotated[
        Literal["majority", "availability"] | None,
        Doc("when changes are acknowledged; not in Ganeti"),
    ] = None
    compression_tools: Annotated[
        list[ht.NonEmptyStr] | None, Doc("names of allowed compression tools")
    ] = None
    confd_detect_replays: Annotated[
        bool | None, Doc("answer each request of confd once; not in Ganeti")
    ] = None
    confd_hmac: Annotated[
        Literal["sha1", "sha256", "both"] | None,
        Doc("signatures that confd accepts; not in Ganeti"),
    ] = None
    data_collector_interval: Annotated[
        dict[str, int] | None, Doc("collector name to interval in microseconds")
    ] = None
    default_iallocator: Annotated[
        str | None,
        Doc(
            "allocators used when none given, in order: NAME,... or, by type of"
            " request, TYPE=NAME,...:TYPE=...; empty string unsets"
        ),
        forms.ANY,
    ] = None
    default_iallocator_params: Annotated[
        dict[str, Any] | None, Doc("default allocator options"), forms.ANY
    ] = None
    disk_state: common.DiskState = None
    diskparams: common.Diskparams = None
    drbd_helper: Annotated[
        str | None,
        Doc("usermode helper path; empty string disables DRBD helper"),
        forms.ANY,
    ] = None
    enabled_data_collectors: Annotated[
        dict[str, bool] | None, Doc("collector name to on/off")
    ] = None
    enabled_disk_templates: Annotated[
        list[ht.DiskTemplate] | None, Doc("allowed disk templates")
    ] = None
    enabled_hypervisors: Annotated[
        list[ht.Hypervisor] | None,
        Doc("allowed hypervisors, first is the default"),
        forms.UNSEPARATED,
    ] = None
    enabled_user_shutdown: Annotated[
        bool | None, Doc("allow users to shut down from inside the guest")
    ] = None
    file_storage_dir: Annotated[
        str | None, Doc("cluster base dir of file disks"), forms.ANY
    ] = None
    force: common.Force = False
    gluster_storage_dir: Annotated[
        str | None, Doc("cluster base dir of gluster mounts"), forms.ANY
    ] = None
    hidden_os: Annotated[
        list[tuple[ht.DdmSimple, ht.NonEmptyStr]] | None,
        Doc("list edits [add|remove, os name] on the hidden list"),
    ] = None
    hv_state: common.HvState = None
    hvparams: Annotated[
        dict[str, dict[str, Any]] | None, Doc("hypervisor name to parameter defaults")
    ] = None
    install_image: Annotated[
        str | None, Doc("image (path or URL) of the helper OS"), forms.ANY
    ] = None
    instance_communication_network: Annotated[
        str | None, Doc("network name, empty string disables")
    ] = None
    ipolicy: common.Ipolicy = None
    mac_prefix: Annotated[
        ht.NonEmptyStr | None, Doc("first three octets for generated MACs")
    ] = None
    maintain_node_health: Annotated[
        bool | None, Doc("watcher kills unknown instances/disks")
    ] = None
    master_netdev: Annotated[str | None, Doc("interface carrying the master IP")] = None
    master_netmask: Annotated[
        ht.NonNegInt | None, Doc("prefix length of the master IP")
    ] = None
    max_running_jobs: Annotated[
        ht.PosInt | None, Doc("limit of simultaneously running jobs")
    ] = None
    max_tracked_jobs: Annotated[
        ht.PosInt | None, Doc("limit of jobs whose files are watched")
    ] = None
    modify_etc_hosts: Annotated[
        bool | None, Doc("keep /etc/hosts of the nodes in sync")
    ] = None
    ndparams: common.Ndparams = None
    nicparams: Annotated[ht.NicSpec | None, Doc("cluster default NIC params")] = None
    node_death: Annotated[
        bool | None,
        Doc("fence dead nodes and start their instances elsewhere; not in Ganeti"),
    ] = None
    os_hvp: Annotated[
        dict[str, dict[str, Any]] | None, Doc("OS name to hypervisor to params")
    ] = None
    osparams: Annotated[
        dict[str, dict[str, Any]] | None, Doc("OS name to parameters")
    ] = None
    osparams_private_cluster: Annotated[
        dict[str, dict[str, ht.Private]] | None, Doc("OS name to private params")
    ] = None
    prealloc_wipe_disks: Annotated[bool | None, Doc("wipe disks before use")] = None
    remove_uids: Annotated[
        list[tuple[int, int]] | None, Doc("uid ranges to take from the pool"), forms.ANY
    ] = None
    rapi_require_authentication: Annotated[
        bool | None,
        Doc("the remote API demands credentials for reading; not in Ganeti"),
    ] = None
    reserved_lvs: Annotated[
        list[ht.NonEmptyStr] | None, Doc("regular expressions of LVs to ignore")
    ] = None
    shared_file_storage_dir: Annotated[
        str | None, Doc("cluster base dir of sharedfile disks"), forms.ANY
    ] = None
    uid_pool: Annotated[
        list[tuple[int, int]] | None, Doc("replacement list of uid ranges"), forms.ANY
    ] = None
    use_external_mip_script: Annotated[
        bool | None, Doc("use the external master-IP script"), forms.ANY
    ] = None
    vg_name: Annotated[str | None, Doc("volume group; empty string disables LVM")] = (
        None
    )
    zeroing_image: Annotated[str | None, Doc("image used for zeroing"), forms.ANY] = (
        None
    )
    diagnose_data_collector_filename: Annotated[
        str | None, Doc("name of the diagnose script; empty string unsets"), forms.ANY
    ] = None
    maint_balance: Annotated[
        bool | None, Doc("let the maintenance daemon balance the cluster")
    ] = None
    maint_balance_threshold: Annotated[
        float | None, Doc("least score gain per balancing step")
    ] = None
    maint_round_delay: Annotated[
        int | None, Doc("least seconds between two rounds of the maintenance daemon")
    ] = None
    maint_balance_load: Annotated[
        bool | None, Doc("consider the load of CPUs when balancing; not in Ganeti")
    ] = None
    maint_balance_disk_moves: Annotated[
        bool | None, Doc("allow balancing to copy disks; not in Ganeti")
    ] = None
    maint_repairs: Annotated[
        bool | None,
        Doc("let the maintenance daemon repair instances by tags; not in Ganeti"),
    ] = None


class ClusterVerify(Opcode, tag="OP_CLUSTER_VERIFY", frozen=True, kw_only=True):
    """Submit one config verify job plus one job per group."""

    RESULT: ClassVar[Any] = ht.JobList
    SUBMITS_JOBS: ClassVar[bool] = True

    debug_simulate_errors: common.DebugSimulateErrors = False
    error_codes: common.ErrorCodes = False
    group_name: Annotated[ht.NonEmptyStr | None, Doc("node group, name or uuid")] = None
    ignore_errors: common.IgnoreErrors = []
    skip_checks: Annotated[
        list[ht.VerifyOptionalCheck], Doc("optional checks to leave out")
    ] = []
    verbose: common.Verbose = False
    verify_clutter: Annotated[bool, Doc("look for stray keys in authorized_keys")] = (
        False
    )


class ClusterVerifyConfig(
    Opcode, tag="OP_CLUSTER_VERIFY_CONFIG", frozen=True, kw_only=True
):
    """Verify configuration only; result true when clean."""

    RESULT: ClassVar[Any] = bool

    debug_simulate_errors: common.DebugSimulateErrors = False
    error_codes: common.ErrorCodes = False
    ignore_errors: common.IgnoreErrors = []
    verbose: common.Verbose = False


class ClusterVerifyDisks(
    Opcode, tag="OP_CLUSTER_VERIFY_DISKS", frozen=True, kw_only=True
):
    """Submit one disk verification job per group."""

    RESULT: ClassVar[Any] = ht.JobList
    SUBMITS_JOBS: ClassVar[bool] = True

    group_name: Annotated[ht.NonEmptyStr | None, Doc("node group, name or uuid")] = None
    is_strict: Annotated[bool, Doc("fail on errors instead of skipping")] = True


class ClusterVerifyGroup(
    Opcode, tag="OP_CLUSTER_VERIFY_GROUP", frozen=True, kw_only=True
):
    """Verify nodes and instances of one group; result true when clean."""

    SUMMARY_FIELD: ClassVar[str | None] = "group_name"
    RESULT: ClassVar[Any] = bool

    debug_simulate_errors: common.DebugSimulateErrors = False
    error_codes: common.ErrorCodes = False
    group_name: common.GroupName
    ignore_errors: common.IgnoreErrors = []
    skip_checks: Annotated[
        list[ht.VerifyOptionalCheck], Doc("optional checks to leave out")
    ] = []
    verbose: common.Verbose = False
    verify_clutter: Annotated[bool, Doc("look for stray keys in authorized_keys")] = (
        False
    )
