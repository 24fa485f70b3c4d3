"""Opcodes: node."""

from typing import Annotated, Any, ClassVar

from ganeti.model import ht
from ganeti.model.ht import Doc
from ganeti.model.opcodes import common
from ganeti.model.opcodes.common import Opcode


class NodeAdd(Opcode, tag="OP_NODE_ADD", frozen=True, kw_only=True):
    """Add or re-add a node."""

    SUMMARY_FIELD: ClassVar[str | None] = "node_name"
    RESULT: ClassVar[Any] = None

    disk_state: common.DiskState = None
    group: Annotated[ht.NonEmptyStr | None, Doc("initial node group, name or uuid")] = (
        None
    )
    hv_state: common.HvState = None
    master_capable: Annotated[
        bool | None, Doc("may the node become master/candidate")
    ] = None
    ndparams: common.Ndparams = None
    node_name: common.NodeName
    node_setup: Annotated[bool, Doc("copy SSH/daemon credentials to the new node")] = (
        False
    )
    primary_ip: Annotated[
        ht.NonEmptyStr | None, Doc("ignored on input, filled by the server")
    ] = None
    readd: Annotated[bool, Doc("re-add a node that is already configured")] = False
    secondary_ip: Annotated[
        ht.NonEmptyStr | None, Doc("secondary (replication) IP")
    ] = None
    ssh_host_keys: Annotated[
        list[ht.NonEmptyStr] | None,
        Doc("public SSH host keys; null keeps the recorded ones; not in Ganeti"),
    ] = None
    vm_capable: Annotated[bool | None, Doc("may the node host instances")] = None


class NodeEvacuate(Opcode, tag="OP_NODE_EVACUATE", frozen=True, kw_only=True):
    """Submit jobs moving instances off a node."""

    SUMMARY_FIELD: ClassVar[str | None] = "node_name"
    RESULT: ClassVar[Any] = ht.JobList
    SUBMITS_JOBS: ClassVar[bool] = True

    early_release: common.EarlyRelease = False
    iallocator: common.Iallocator = None
    ignore_soft_errors: Annotated[
        bool | None, Doc("let the allocator ignore soft errors")
    ] = None
    mode: Annotated[ht.EvacuateMode, Doc("which instances to move away")]
    node_name: common.NodeName
    node_uuid: common.NodeUuid = None
    remote_node: Annotated[ht.NonEmptyStr | None, Doc("new secondary node")] = None
    remote_node_uuid: common.RemoteNodeUuid = None


class NodeMigrate(Opcode, tag="OP_NODE_MIGRATE", frozen=True, kw_only=True):
    """Submit jobs migrating all primaries off a node."""

    SUMMARY_FIELD: ClassVar[str | None] = "node_name"
    RESULT: ClassVar[Any] = ht.JobList
    SUBMITS_JOBS: ClassVar[bool] = True

    allow_runtime_changes: Annotated[
        bool, Doc("permit memory ballooning to fit the target")
    ] = True
    iallocator: common.Iallocator = None
    ignore_ipolicy: common.IgnoreIpolicy = False
    live: Annotated[bool | None, Doc("deprecated form of mode")] = None
    mode: Annotated[
        ht.MigrationMode | None,
        Doc("live or non-live; null takes the hypervisor default"),
    ] = None
    node_name: common.NodeName
    node_uuid: common.NodeUuid = None
    target_node: common.TargetNode = None
    target_node_uuid: common.TargetNodeUuid = None


class NodeModifyStorage(
    Opcode, tag="OP_NODE_MODIFY_STORAGE", frozen=True, kw_only=True
):
    """Change a storage unit on a node."""

    SUMMARY_FIELD: ClassVar[str | None] = "node_name"
    RESULT: ClassVar[Any] = None

    changes: Annotated[
        dict[str, Any], Doc("storage fields to change, e.g. allocatable for lvm-pv")
    ]
    name: Annotated[ht.NonEmptyStr | None, Doc("name of the storage unit")] = None
    node_name: common.NodeName
    node_uuid: common.NodeUuid = None
    storage_type: Annotated[ht.StorageType, Doc("storage type")]


class NodePowercycle(Opcode, tag="OP_NODE_POWERCYCLE", frozen=True, kw_only=True):
    """Hard reset a node."""

    SUMMARY_FIELD: ClassVar[str | None] = "node_name"
    RESULT: ClassVar[Any] = ht.NonEmptyStr | None

    force: common.Force = False
    node_name: common.NodeName
    node_uuid: common.NodeUuid = None


class NodeQueryvols(Opcode, tag="OP_NODE_QUERYVOLS", frozen=True, kw_only=True):
    """List logical volumes; rows follow output_fields."""

    RESULT: ClassVar[Any] = list[Any]

    nodes: Annotated[list[ht.NonEmptyStr], Doc("node names, empty for all")] = []
    output_fields: common.OutputFields


class NodeQueryStorage(Opcode, tag="OP_NODE_QUERY_STORAGE", frozen=True, kw_only=True):
    """List storage units; rows follow output_fields."""

    RESULT: ClassVar[Any] = list[list[Any]]

    name: Annotated[ht.NonEmptyStr | None, Doc("name of the storage unit")] = None
    nodes: Annotated[list[ht.NonEmptyStr], Doc("node names, empty for all")] = []
    output_fields: common.OutputFields
    storage_type: Annotated[ht.StorageType | None, Doc("storage type")] = None


class NodeRemove(Opcode, tag="OP_NODE_REMOVE", frozen=True, kw_only=True):
    """Remove a node."""

    SUMMARY_FIELD: ClassVar[str | None] = "node_name"
    RESULT: ClassVar[Any] = None

    node_name: common.NodeName
    node_uuid: common.NodeUuid = None


class NodeSetParams(Opcode, tag="OP_NODE_SET_PARAMS", frozen=True, kw_only=True):
    """Change node flags; result lists [what, new value]."""

    SUMMARY_FIELD: ClassVar[str | None] = "node_name"
    RESULT: ClassVar[Any] = list[tuple[ht.NonEmptyStr, Any]]

    auto_promote: Annotated[
        bool, Doc("promote other nodes when the candidate pool would be too small")
    ] = False
    disk_state: common.DiskState = None
    drained: Annotated[bool | None, Doc("set or clear the drained flag")] = None
    force: common.Force = False
    hv_state: common.HvState = None
    master_candidate: Annotated[bool | None, Doc("set or clear the candidate flag")] = (
        None
    )
    master_capable: Annotated[
        bool | None, Doc("may the node become master/candidate")
    ] = None
    ndparams: common.Ndparams = None
    node_death: Annotated[
        bool, Doc("refuse unless the node is dead and confirmed off; not in Ganeti")
    ] = False
    node_name: common.NodeName
    node_uuid: common.NodeUuid = None
    offline: Annotated[bool | None, Doc("set or clear the offline flag")] = None
    powered: Annotated[bool | None, Doc("record the node as powered on/off")] = None
    secondary_ip: Annotated[
        ht.NonEmptyStr | None, Doc("secondary (replication) IP")
    ] = None
    vm_capable: Annotated[bool | None, Doc("may the node host instances")] = None


class OobCommand(Opcode, tag="OP_OOB_COMMAND", frozen=True, kw_only=True):
    """Run the out-of-band helper.

    The result is a list of [status, data] pairs per node; the first pair is the node
    name.
    """

    RESULT: ClassVar[Any] = list[list[tuple[ht.ResultStatus, Any]]]

    auto_promote: Annotated[
        bool, Doc("with mark_offline, promote other nodes if needed; not in Ganeti")
    ] = False
    command: Annotated[ht.OobCommand, Doc("which out-of-band command")]
    ignore_status: Annotated[
        bool, Doc("allow power-off although the node is not offline")
    ] = False
    mark_offline: Annotated[
        bool,
        Doc("mark nodes offline that are proved to be off; not in Ganeti"),
    ] = False
    node_death: Annotated[
        bool, Doc("refuse unless the nodes are dead; not in Ganeti")
    ] = False
    node_names: Annotated[
        list[ht.NonEmptyStr], Doc("nodes to act on, empty for all")
    ] = []
    node_uuids: common.NodeUuids = None
    power_delay: Annotated[float, Doc("seconds between power-on of two nodes")] = 2.0
    timeout: Annotated[int, Doc("seconds until the helper is killed")] = 60


class RepairCommand(Opcode, tag="OP_REPAIR_COMMAND", frozen=True, kw_only=True):
    """Run one named repair script on one node; the result is its output."""

    RESULT: ClassVar[Any] = str

    command: Annotated[ht.NonEmptyStr, Doc("file name of the repair script")]
    input: Annotated[ht.NonEmptyStr | None, Doc("text for stdin of the script")] = None
    node_name: Annotated[ht.NonEmptyStr, Doc("node to run on")]


class RepairNodeStorage(
    Opcode, tag="OP_REPAIR_NODE_STORAGE", frozen=True, kw_only=True
):
    """Repair a storage unit."""

    SUMMARY_FIELD: ClassVar[str | None] = "node_name"
    RESULT: ClassVar[Any] = None

    ignore_consistency: common.IgnoreConsistency = False
    name: Annotated[ht.NonEmptyStr | None, Doc("name of the storage unit")] = None
    node_name: common.NodeName
    node_uuid: common.NodeUuid = None
    storage_type: Annotated[ht.StorageType, Doc("storage type")]


class RestrictedCommand(Opcode, tag="OP_RESTRICTED_COMMAND", frozen=True, kw_only=True):
    """Run a restricted command; result rows [ok, output]."""

    RESULT: ClassVar[Any] = list[tuple[bool, str]]

    command: Annotated[ht.NonEmptyStr, Doc("name of the restricted command")]
    node_uuids: common.NodeUuids = None
    nodes: Annotated[list[ht.NonEmptyStr], Doc("nodes to run on")]
    use_locking: common.UseLocking = False
