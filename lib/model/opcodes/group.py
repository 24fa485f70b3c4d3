"""Opcodes: group."""

from typing import Annotated, Any, ClassVar

from ganeti.model import ht
from ganeti.model.ht import Doc
from ganeti.model.opcodes import common
from ganeti.model.opcodes.common import Opcode


class GroupAdd(Opcode, tag="OP_GROUP_ADD", frozen=True, kw_only=True):
    """Create a node group."""

    SUMMARY_FIELD: ClassVar[str | None] = "group_name"
    RESULT: ClassVar[Any] = ht.JobList | None
    SUBMITS_JOBS: ClassVar[bool] = True

    alloc_policy: Annotated[
        ht.AllocPolicy | None, Doc("allocation policy of the group")
    ] = None
    disk_state: common.DiskState = None
    diskparams: common.Diskparams = None
    group_name: common.GroupName
    hv_state: common.HvState = None
    ipolicy: common.Ipolicy = None
    ndparams: common.Ndparams = None


class GroupAssignNodes(Opcode, tag="OP_GROUP_ASSIGN_NODES", frozen=True, kw_only=True):
    """Move nodes into a group."""

    SUMMARY_FIELD: ClassVar[str | None] = "group_name"
    RESULT: ClassVar[Any] = None

    force: common.Force = False
    group_name: common.GroupName
    node_uuids: common.NodeUuids = None
    nodes: Annotated[list[ht.NonEmptyStr], Doc("nodes to move into the group")]


class GroupEvacuate(Opcode, tag="OP_GROUP_EVACUATE", frozen=True, kw_only=True):
    """Submit jobs moving all instances out of a group."""

    SUMMARY_FIELD: ClassVar[str | None] = "group_name"
    RESULT: ClassVar[Any] = ht.JobList
    SUBMITS_JOBS: ClassVar[bool] = True

    early_release: common.EarlyRelease = False
    force_failover: Annotated[bool, Doc("always fail over instead of migrating")] = (
        False
    )
    group_name: common.GroupName
    iallocator: common.Iallocator = None
    sequential: Annotated[bool, Doc("run the resulting jobs one after the other")] = (
        False
    )
    target_groups: common.TargetGroups = None


class GroupRemove(Opcode, tag="OP_GROUP_REMOVE", frozen=True, kw_only=True):
    """Delete an empty group."""

    SUMMARY_FIELD: ClassVar[str | None] = "group_name"
    RESULT: ClassVar[Any] = None

    group_name: common.GroupName


class GroupRename(Opcode, tag="OP_GROUP_RENAME", frozen=True, kw_only=True):
    """Rename a group; result is the new name."""

    RESULT: ClassVar[Any] = ht.NonEmptyStr

    group_name: common.GroupName
    new_name: common.NewName


class GroupSetParams(Opcode, tag="OP_GROUP_SET_PARAMS", frozen=True, kw_only=True):
    """Change a group; result lists [what, new value]."""

    SUMMARY_FIELD: ClassVar[str | None] = "group_name"
    RESULT: ClassVar[Any] = list[tuple[ht.NonEmptyStr, Any]]

    alloc_policy: Annotated[
        ht.AllocPolicy | None, Doc("allocation policy of the group")
    ] = None
    disk_state: common.DiskState = None
    diskparams: common.Diskparams = None
    group_name: common.GroupName
    hv_state: common.HvState = None
    ipolicy: common.Ipolicy = None
    ndparams: common.Ndparams = None


class GroupVerifyDisks(Opcode, tag="OP_GROUP_VERIFY_DISKS", frozen=True, kw_only=True):
    """Check the disks of a group.

    The result is node to error text, instances that need activation, and instance to
    missing [node, volume] pairs.
    """

    SUMMARY_FIELD: ClassVar[str | None] = "group_name"
    RESULT: ClassVar[Any] = tuple[dict[str, str], list[str], dict[str, list[list[str]]]]

    group_name: common.GroupName
    is_strict: Annotated[bool, Doc("fail on errors instead of skipping")] = True
