"""Opcodes of a present instance and of its disks."""

from typing import Annotated, Any, ClassVar

from ganeti.base.constants.parameters import forms
from ganeti.model import ht
from ganeti.model.ht import Doc
from ganeti.model.opcodes import common
from ganeti.model.opcodes.common import Opcode


class InstanceConsole(Opcode, tag="OP_INSTANCE_CONSOLE", frozen=True, kw_only=True):
    """Result describes how to reach the console."""

    SUMMARY_FIELD: ClassVar[str | None] = "instance_name"
    RESULT: ClassVar[Any] = dict[str, Any]

    instance_name: common.InstanceName
    instance_uuid: common.InstanceUuid = None


class InstanceQueryData(
    Opcode, tag="OP_INSTANCE_QUERY_DATA", frozen=True, kw_only=True
):
    """Detailed per-instance dictionary."""

    RESULT: ClassVar[Any] = dict[str, dict[str, Any]]

    instances: Annotated[list[ht.NonEmptyStr], Doc("instances, empty for all")] = []
    static: Annotated[bool, Doc("answer from configuration only")] = False
    use_locking: common.UseLocking = False


class InstanceReboot(Opcode, tag="OP_INSTANCE_REBOOT", frozen=True, kw_only=True):
    """Reboot."""

    SUMMARY_FIELD: ClassVar[str | None] = "instance_name"
    RESULT: ClassVar[Any] = None

    ignore_secondaries: Annotated[bool, Doc("go on if only secondary disks fail")] = (
        False
    )
    instance_name: common.InstanceName
    instance_uuid: common.InstanceUuid = None
    reboot_type: Annotated[ht.RebootType, Doc("soft, hard or full")]
    shutdown_timeout: common.ShutdownTimeout = 120


class InstanceSetParams(
    Opcode, tag="OP_INSTANCE_SET_PARAMS", frozen=True, kw_only=True
):
    """Change an instance; result lists [what, new value]."""

    SUMMARY_FIELD: ClassVar[str | None] = "instance_name"
    RESULT: ClassVar[Any] = list[tuple[ht.NonEmptyStr, Any]]

    beparams: Annotated[
        dict[str, Any], Doc("backend params to change; value 'default' resets")
    ] = {}
    conflicts_check: common.ConflictsCheck = True
    disk_template: common.DiskTemplate = None
    disks: Annotated[ht.DiskMods, Doc("disk modifications")] = []
    expires: common.ReservationExpires = None
    ext_params: Annotated[
        dict[str, Any],
        Doc("parameters for an external storage provider on conversion"),
        forms.ANY,
    ] = {}
    file_driver: Annotated[
        ht.FileDriver | None,
        Doc("recorded only: hypervisors choose how to open files"),
    ] = None
    file_storage_dir: Annotated[
        ht.NonEmptyStr | None,
        Doc("sub directory below the cluster's base dir"),
        forms.ANY,
    ] = None
    force: common.Force = False
    force_variant: common.ForceVariant = False
    hotplug: Annotated[
        bool, Doc("try to apply device changes to the running instance")
    ] = True
    hvparams: Annotated[dict[str, Any], Doc("hypervisor parameters")] = {}
    iallocator: common.Iallocator = None
    ignore_ipolicy: common.IgnoreIpolicy = False
    instance_communication: Annotated[
        bool | None, Doc("give the instance a communication NIC")
    ] = None
    instance_name: common.InstanceName
    instance_uuid: common.InstanceUuid = None
    nics: Annotated[ht.NicMods, Doc("NIC modifications")] = []
    offline: Annotated[bool | None, Doc("mark or unmark the instance as offline")] = (
        None
    )
    os_name: Annotated[ht.NonEmptyStr | None, Doc("new OS, without reinstalling")] = (
        None
    )
    osparams: Annotated[dict[str, Any], Doc("OS parameters")] = {}
    osparams_private: common.OsparamsPrivate = None
    owner: common.ReservationOwner = None
    pnode: Annotated[ht.NonEmptyStr | None, Doc("primary node")] = None
    pnode_uuid: Annotated[
        ht.NonEmptyStr | None, Doc("uuid of the primary node, server filled")
    ] = None
    remote_node: Annotated[
        ht.NonEmptyStr | None, Doc("secondary node for the new template")
    ] = None
    remote_node_uuid: common.RemoteNodeUuid = None
    reservation_priority: common.ReservationPriority = None
    runtime_mem: Annotated[
        ht.PosInt | None, Doc("balloon the running instance to this MiB")
    ] = None
    wait_for_sync: common.WaitForSync = True


class InstanceShutdown(Opcode, tag="OP_INSTANCE_SHUTDOWN", frozen=True, kw_only=True):
    """Stop."""

    SUMMARY_FIELD: ClassVar[str | None] = "instance_name"
    RESULT: ClassVar[Any] = None

    admin_state_source: Annotated[
        ht.AdminStateSource | None,
        Doc("who asked for the admin-state change; null means admin"),
    ] = None
    force: common.Force = False
    ignore_offline_nodes: Annotated[
        bool, Doc("only change the recorded state if the node is offline")
    ] = False
    instance_name: common.InstanceName
    instance_uuid: common.InstanceUuid = None
    no_remember: Annotated[bool, Doc("do not record the new admin state")] = False
    timeout: Annotated[ht.NonNegInt, Doc("seconds to wait for a clean stop")] = 120


class InstanceStartup(Opcode, tag="OP_INSTANCE_STARTUP", frozen=True, kw_only=True):
    """Start."""

    SUMMARY_FIELD: ClassVar[str | None] = "instance_name"
    RESULT: ClassVar[Any] = None

    beparams: Annotated[dict[str, Any], Doc("backend params for this start only")] = {}
    force: common.Force = False
    hvparams: Annotated[
        dict[str, Any], Doc("hypervisor params for this start only")
    ] = {}
    ignore_offline_nodes: Annotated[
        bool, Doc("only change the recorded state if the node is offline")
    ] = False
    instance_name: common.InstanceName
    instance_uuid: common.InstanceUuid = None
    no_remember: Annotated[bool, Doc("do not record the new admin state")] = False
    shutdown_timeout: common.ShutdownTimeout = 120
    startup_paused: Annotated[bool, Doc("leave the guest paused after start")] = False


class InstanceActivateDisks(
    Opcode, tag="OP_INSTANCE_ACTIVATE_DISKS", frozen=True, kw_only=True
):
    """Assemble disks; result rows [node, disk name, device path]."""

    SUMMARY_FIELD: ClassVar[str | None] = "instance_name"
    RESULT: ClassVar[Any] = list[
        tuple[ht.NonEmptyStr, ht.NonEmptyStr, ht.NonEmptyStr | None]
    ]

    ignore_size: Annotated[
        bool, Doc("activate disks without checking recorded size")
    ] = False
    instance_name: common.InstanceName
    instance_uuid: common.InstanceUuid = None
    wait_for_sync: common.WaitForSync = False


class InstanceDeactivateDisks(
    Opcode, tag="OP_INSTANCE_DEACTIVATE_DISKS", frozen=True, kw_only=True
):
    """Shut disks down."""

    SUMMARY_FIELD: ClassVar[str | None] = "instance_name"
    RESULT: ClassVar[Any] = None

    force: common.Force = False
    instance_name: common.InstanceName
    instance_uuid: common.InstanceUuid = None


class InstanceGrowDisk(Opcode, tag="OP_INSTANCE_GROW_DISK", frozen=True, kw_only=True):
    """Enlarge a disk."""

    SUMMARY_FIELD: ClassVar[str | None] = "instance_name"
    RESULT: ClassVar[Any] = None

    absolute: Annotated[
        bool, Doc("treat amount as the final disk size instead of an increment")
    ] = False
    amount: Annotated[ht.NonNegInt, Doc("MiB to add, or final MiB when absolute")]
    disk: Annotated[ht.DiskIndex, Doc("index of the disk")]
    ignore_ipolicy: common.IgnoreIpolicy = False
    instance_name: common.InstanceName
    instance_uuid: common.InstanceUuid = None
    wait_for_sync: common.WaitForSync = True


class InstanceRecreateDisks(
    Opcode, tag="OP_INSTANCE_RECREATE_DISKS", frozen=True, kw_only=True
):
    """Create lost disks again, without data."""

    SUMMARY_FIELD: ClassVar[str | None] = "instance_name"
    RESULT: ClassVar[Any] = None

    disks: Annotated[
        ht.RecreateDisks, Doc("indices, or [index, changes] pairs; empty means all")
    ] = []
    iallocator: common.Iallocator = None
    instance_name: common.InstanceName
    instance_uuid: common.InstanceUuid = None
    node_uuids: common.NodeUuids = None
    nodes: Annotated[list[ht.NonEmptyStr], Doc("new nodes if disks should move")] = []


class InstanceReplaceDisks(
    Opcode, tag="OP_INSTANCE_REPLACE_DISKS", frozen=True, kw_only=True
):
    """Replace DRBD disks or the secondary node."""

    SUMMARY_FIELD: ClassVar[str | None] = "instance_name"
    RESULT: ClassVar[Any] = None

    disks: Annotated[
        list[ht.DiskIndex], Doc("indices to replace; empty means all")
    ] = []
    early_release: common.EarlyRelease = False
    iallocator: common.Iallocator = None
    ignore_ipolicy: common.IgnoreIpolicy = False
    instance_name: common.InstanceName
    instance_uuid: common.InstanceUuid = None
    mode: Annotated[ht.ReplaceDisksMode, Doc("which side to replace")]
    remote_node: Annotated[ht.NonEmptyStr | None, Doc("new secondary node")] = None
    remote_node_uuid: common.RemoteNodeUuid = None
