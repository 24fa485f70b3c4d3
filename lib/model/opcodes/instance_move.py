"""Opcodes that move instances or export them."""

from typing import Annotated, Any, ClassVar

from ganeti.model import ht
from ganeti.model.ht import Doc
from ganeti.model.opcodes import common
from ganeti.model.opcodes.common import Opcode


class InstanceChangeGroup(
    Opcode, tag="OP_INSTANCE_CHANGE_GROUP", frozen=True, kw_only=True
):
    """Submit jobs moving an instance to another group."""

    SUMMARY_FIELD: ClassVar[str | None] = "instance_name"
    RESULT: ClassVar[Any] = ht.JobList
    SUBMITS_JOBS: ClassVar[bool] = True

    early_release: common.EarlyRelease = False
    iallocator: common.Iallocator = None
    instance_name: common.InstanceName
    instance_uuid: common.InstanceUuid = None
    target_groups: common.TargetGroups = None


class InstanceFailover(Opcode, tag="OP_INSTANCE_FAILOVER", frozen=True, kw_only=True):
    """Stop on primary, start on another node."""

    SUMMARY_FIELD: ClassVar[str | None] = "instance_name"
    RESULT: ClassVar[Any] = None

    cleanup: Annotated[bool, Doc("tidy up after an earlier migration that failed")] = (
        False
    )
    iallocator: common.Iallocator = None
    ignore_consistency: common.IgnoreConsistency = False
    ignore_ipolicy: common.IgnoreIpolicy = False
    instance_name: common.InstanceName
    instance_uuid: common.InstanceUuid = None
    shutdown_timeout: common.ShutdownTimeout = 120
    target_node: common.TargetNode = None
    target_node_uuid: common.TargetNodeUuid = None


class InstanceMigrate(Opcode, tag="OP_INSTANCE_MIGRATE", frozen=True, kw_only=True):
    """Live or non-live migration."""

    SUMMARY_FIELD: ClassVar[str | None] = "instance_name"
    RESULT: ClassVar[Any] = None

    allow_failover: Annotated[
        bool, Doc("fall back to failover when migration cannot be done")
    ] = False
    allow_runtime_changes: Annotated[
        bool, Doc("permit memory ballooning to fit the target")
    ] = True
    cleanup: Annotated[bool, Doc("tidy up after an earlier migration that failed")] = (
        False
    )
    iallocator: common.Iallocator = None
    ignore_hvversions: Annotated[bool, Doc("do not compare hypervisor versions")] = (
        False
    )
    ignore_ipolicy: common.IgnoreIpolicy = False
    instance_name: common.InstanceName
    instance_uuid: common.InstanceUuid = None
    live: Annotated[bool | None, Doc("deprecated form of mode")] = None
    mode: Annotated[
        ht.MigrationMode | None,
        Doc("live or non-live; null takes the hypervisor default"),
    ] = None
    target_node: common.TargetNode = None
    target_node_uuid: common.TargetNodeUuid = None


class InstanceMove(Opcode, tag="OP_INSTANCE_MOVE", frozen=True, kw_only=True):
    """Copy disks to another node and start there."""

    SUMMARY_FIELD: ClassVar[str | None] = "instance_name"
    RESULT: ClassVar[Any] = None

    compress: common.Compress = "none"
    ignore_consistency: common.IgnoreConsistency = False
    ignore_ipolicy: common.IgnoreIpolicy = False
    instance_name: common.InstanceName
    instance_uuid: common.InstanceUuid = None
    shutdown_timeout: common.ShutdownTimeout = 120
    target_node: Annotated[ht.NonEmptyStr, Doc("target node")]
    target_node_uuid: common.TargetNodeUuid = None


class BackupExport(Opcode, tag="OP_BACKUP_EXPORT", frozen=True, kw_only=True):
    """Export an instance to a node or to another cluster."""

    SUMMARY_FIELD: ClassVar[str | None] = "instance_name"
    RESULT: ClassVar[Any] = tuple[bool, list[bool]]

    compress: common.Compress = "none"
    destination_x509_ca: Annotated[
        ht.NonEmptyStr | None, Doc("signed CA of the receiver, PEM (remote export)")
    ] = None
    ignore_remove_failures: Annotated[
        bool, Doc("do not fail if removing the instance fails")
    ] = False
    instance_name: common.InstanceName
    instance_uuid: common.InstanceUuid = None
    long_sleep: Annotated[bool, Doc("allow long downtimes while exporting")] = False
    mode: Annotated[ht.ExportMode, Doc("local or remote export")] = "local"
    remove_instance: Annotated[bool, Doc("remove the instance after export")] = False
    shutdown: Annotated[bool, Doc("stop the instance before exporting")] = True
    shutdown_timeout: common.ShutdownTimeout = 120
    target_node: Annotated[
        ht.NonEmptyStr | list[Any],
        Doc(
            "node name (local) or per-disk receiver list (remote; an empty list removes"
            " the prepared key instead)"
        ),
    ]
    target_node_uuid: common.TargetNodeUuid = None
    x509_key_name: Annotated[
        list[Any] | None,
        Doc("[name, hmac, salt] from the prepare step (remote export)"),
    ] = None
    zero_free_space: Annotated[bool, Doc("zero unused disk space before exporting")] = (
        False
    )
    zeroing_timeout_fixed: Annotated[
        int | None, Doc("fixed seconds allowed for zeroing")
    ] = None
    zeroing_timeout_per_mib: Annotated[
        float | None, Doc("extra seconds allowed per MiB")
    ] = None


class BackupPrepare(Opcode, tag="OP_BACKUP_PREPARE", frozen=True, kw_only=True):
    """Get the data needed to start a remote export."""

    SUMMARY_FIELD: ClassVar[str | None] = "instance_name"
    RESULT: ClassVar[Any] = dict[str, Any] | None

    instance_name: common.InstanceName
    instance_uuid: common.InstanceUuid = None
    mode: Annotated[ht.ExportMode, Doc("local or remote export")]


class BackupRemove(Opcode, tag="OP_BACKUP_REMOVE", frozen=True, kw_only=True):
    """Delete stored exports of an instance."""

    SUMMARY_FIELD: ClassVar[str | None] = "instance_name"
    RESULT: ClassVar[Any] = None

    instance_name: common.InstanceName
    instance_uuid: common.InstanceUuid = None
