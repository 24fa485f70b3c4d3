"""Opcodes: instance move."""

from typing import Annotated, Any, ClassVar

from ganeti import ht
from ganeti.ht import Doc
from ganeti.opcodes.base import Opcode


class InstanceChangeGroup(
    Opcode, tag="OP_INSTANCE_CHANGE_GROUP", frozen=True, kw_only=True
):
    """Submit jobs moving an instance to another group."""

    SUMMARY_FIELD: ClassVar[str | None] = "instance_name"
    RESULT: ClassVar[Any] = ht.JobList
    SUBMITS_JOBS: ClassVar[bool] = True

    early_release: Annotated[
        bool, Doc("drop locks on old storage before it is removed")
    ] = False
    iallocator: Annotated[ht.NonEmptyStr | None, Doc("allocator plugin name")] = None
    instance_name: Annotated[str, Doc("instance name")]
    instance_uuid: Annotated[
        ht.NonEmptyStr | None,
        Doc("instance uuid; filled in by the server, may be omitted"),
    ] = None
    target_groups: Annotated[
        list[ht.NonEmptyStr] | None, Doc("allowed target groups; null means all others")
    ] = None


class InstanceFailover(Opcode, tag="OP_INSTANCE_FAILOVER", frozen=True, kw_only=True):
    """Stop on primary, start on another node."""

    SUMMARY_FIELD: ClassVar[str | None] = "instance_name"
    RESULT: ClassVar[Any] = None

    cleanup: Annotated[bool, Doc("tidy up after an earlier migration that failed")] = (
        False
    )
    iallocator: Annotated[ht.NonEmptyStr | None, Doc("allocator plugin name")] = None
    ignore_consistency: Annotated[
        bool, Doc("go on even if disks are not consistent")
    ] = False
    ignore_ipolicy: Annotated[bool, Doc("do not enforce the instance policy")] = False
    instance_name: Annotated[str, Doc("instance name")]
    instance_uuid: Annotated[
        ht.NonEmptyStr | None,
        Doc("instance uuid; filled in by the server, may be omitted"),
    ] = None
    shutdown_timeout: Annotated[
        ht.NonNegInt, Doc("seconds to wait for a clean stop")
    ] = 120
    target_node: Annotated[ht.NonEmptyStr | None, Doc("target node")] = None
    target_node_uuid: Annotated[
        ht.NonEmptyStr | None, Doc("uuid of the target node, server filled")
    ] = None


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
    iallocator: Annotated[ht.NonEmptyStr | None, Doc("allocator plugin name")] = None
    ignore_hvversions: Annotated[bool, Doc("do not compare hypervisor versions")] = (
        False
    )
    ignore_ipolicy: Annotated[bool, Doc("do not enforce the instance policy")] = False
    instance_name: Annotated[str, Doc("instance name")]
    instance_uuid: Annotated[
        ht.NonEmptyStr | None,
        Doc("instance uuid; filled in by the server, may be omitted"),
    ] = None
    live: Annotated[bool | None, Doc("deprecated form of mode")] = None
    mode: Annotated[
        ht.MigrationMode | None,
        Doc("live or non-live; null takes the hypervisor default"),
    ] = None
    target_node: Annotated[ht.NonEmptyStr | None, Doc("target node")] = None
    target_node_uuid: Annotated[
        ht.NonEmptyStr | None, Doc("uuid of the target node, server filled")
    ] = None


class InstanceMove(Opcode, tag="OP_INSTANCE_MOVE", frozen=True, kw_only=True):
    """Copy disks to another node and start there."""

    SUMMARY_FIELD: ClassVar[str | None] = "instance_name"
    RESULT: ClassVar[Any] = None

    compress: Annotated[str, Doc("compression tool for the transfer")] = "none"
    ignore_consistency: Annotated[
        bool, Doc("go on even if disks are not consistent")
    ] = False
    ignore_ipolicy: Annotated[bool, Doc("do not enforce the instance policy")] = False
    instance_name: Annotated[str, Doc("instance name")]
    instance_uuid: Annotated[
        ht.NonEmptyStr | None,
        Doc("instance uuid; filled in by the server, may be omitted"),
    ] = None
    shutdown_timeout: Annotated[
        ht.NonNegInt, Doc("seconds to wait for a clean stop")
    ] = 120
    target_node: Annotated[ht.NonEmptyStr, Doc("target node")]
    target_node_uuid: Annotated[
        ht.NonEmptyStr | None, Doc("uuid of the target node, server filled")
    ] = None
