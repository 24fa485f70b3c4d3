"""Opcodes: instance disks."""

from typing import Annotated, Any, ClassVar

from ganeti.model import ht
from ganeti.model.ht import Doc
from ganeti.model.opcodes import common
from ganeti.model.opcodes.base import Opcode


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
