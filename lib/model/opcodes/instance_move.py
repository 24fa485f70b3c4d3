"""Opcodes: instance move."""

from typing import Annotated, Any, ClassVar

from ganeti.model import ht
from ganeti.model.ht import Doc
from ganeti.model.opcodes import common
from ganeti.model.opcodes.base import Opcode


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
