"""The table of all logical units of this release."""

from typing import Any, Final

from ganeti.operations import debug_units, query_units, tag_units
from ganeti.operations.backup import remote_export, stored_exports
from ganeti.operations.base import LogicalUnit
from ganeti.operations.cluster import cluster_units, renew_crypto, verify, verify_group
from ganeti.operations.cluster.set_params import ClusterSetParams
from ganeti.operations.group import group_units, verify_disks
from ganeti.operations.instance.create import create, node_choice, reinstall
from ganeti.operations.instance.devices import set_params
from ganeti.operations.instance.disks import (
    disk_units,
    grow_disk,
    recreate_disks,
    replace_disks,
)
from ganeti.operations.instance.move import failover, migrate, move, moving_many
from ganeti.operations.instance.run import power, remove, rename
from ganeti.operations.instance.show import query_data
from ganeti.operations.network import network_units
from ganeti.operations.node import add, node_units, oob, storage_units
from ganeti.operations.node.set_params import NodeSetParams

#: Logical unit by opcode id.
UNITS: Final[dict[str, type[LogicalUnit[Any]]]] = {
    "OP_BACKUP_EXPORT": remote_export.BackupExporting,
    "OP_BACKUP_PREPARE": remote_export.BackupPrepare,
    "OP_BACKUP_REMOVE": stored_exports.BackupRemove,
    "OP_CLUSTER_ACTIVATE_MASTER_IP": cluster_units.ClusterActivateMasterIp,
    "OP_CLUSTER_CONFIG_QUERY": query_units.ClusterConfigQuery,
    "OP_CLUSTER_DEACTIVATE_MASTER_IP": cluster_units.ClusterDeactivateMasterIp,
    "OP_CLUSTER_DESTROY": cluster_units.ClusterDestroy,
    "OP_CLUSTER_POST_INIT": cluster_units.ClusterPostInit,
    "OP_CLUSTER_QUERY": query_units.ClusterQuery,
    "OP_CLUSTER_REDIST_CONF": cluster_units.ClusterRedistConf,
    "OP_CLUSTER_RENAME": cluster_units.ClusterRename,
    "OP_CLUSTER_RENEW_CRYPTO": renew_crypto.ClusterRenewCrypto,
    "OP_CLUSTER_REPAIR_DISK_SIZES": disk_units.ClusterRepairDiskSizes,
    "OP_CLUSTER_SET_PARAMS": ClusterSetParams,
    "OP_CLUSTER_VERIFY": verify.ClusterVerify,
    "OP_CLUSTER_VERIFY_CONFIG": verify.ClusterVerifyConfig,
    "OP_CLUSTER_VERIFY_DISKS": verify.ClusterVerifyDisks,
    "OP_CLUSTER_VERIFY_GROUP": verify_group.ClusterVerifyGroup,
    "OP_EXT_STORAGE_DIAGNOSE": query_units.ExtStorageDiagnose,
    "OP_GROUP_ADD": group_units.GroupAdd,
    "OP_GROUP_ASSIGN_NODES": group_units.GroupAssignNodes,
    "OP_GROUP_EVACUATE": moving_many.GroupEvacuate,
    "OP_GROUP_REMOVE": group_units.GroupRemove,
    "OP_GROUP_RENAME": group_units.GroupRename,
    "OP_GROUP_SET_PARAMS": group_units.GroupSetParams,
    "OP_GROUP_VERIFY_DISKS": verify_disks.GroupVerifyDisks,
    "OP_INSTANCE_ACTIVATE_DISKS": disk_units.InstanceActivateDisks,
    "OP_INSTANCE_CHANGE_GROUP": moving_many.InstanceChangeGroup,
    "OP_INSTANCE_CONSOLE": query_data.InstanceConsole,
    "OP_INSTANCE_CREATE": create.InstanceCreate,
    "OP_INSTANCE_DEACTIVATE_DISKS": disk_units.InstanceDeactivateDisks,
    "OP_INSTANCE_FAILOVER": failover.InstanceFailover,
    "OP_INSTANCE_GROW_DISK": grow_disk.InstanceGrowDisk,
    "OP_INSTANCE_MIGRATE": migrate.InstanceMigrate,
    "OP_INSTANCE_MOVE": move.InstanceMove,
    "OP_INSTANCE_MULTI_ALLOC": node_choice.InstanceMultiAlloc,
    "OP_INSTANCE_QUERY_DATA": query_data.InstanceQueryData,
    "OP_INSTANCE_REBOOT": power.InstanceReboot,
    "OP_INSTANCE_RECREATE_DISKS": recreate_disks.InstanceRecreateDisks,
    "OP_INSTANCE_REINSTALL": reinstall.InstanceReinstall,
    "OP_INSTANCE_REMOVE": remove.InstanceRemove,
    "OP_INSTANCE_RENAME": rename.InstanceRename,
    "OP_INSTANCE_REPLACE_DISKS": replace_disks.InstanceReplaceDisks,
    "OP_INSTANCE_SET_PARAMS": set_params.InstanceSetParams,
    "OP_INSTANCE_SHUTDOWN": power.InstanceShutdown,
    "OP_INSTANCE_STARTUP": power.InstanceStartup,
    "OP_NETWORK_ADD": network_units.NetworkAdd,
    "OP_NETWORK_CONNECT": network_units.NetworkConnect,
    "OP_NETWORK_DISCONNECT": network_units.NetworkDisconnect,
    "OP_NETWORK_REMOVE": network_units.NetworkRemove,
    "OP_NETWORK_RENAME": network_units.NetworkRename,
    "OP_NETWORK_SET_PARAMS": network_units.NetworkSetParams,
    "OP_NODE_ADD": add.NodeAdd,
    "OP_NODE_EVACUATE": moving_many.NodeEvacuate,
    "OP_NODE_MIGRATE": moving_many.NodeMigrate,
    "OP_NODE_MODIFY_STORAGE": storage_units.NodeModifyStorage,
    "OP_NODE_POWERCYCLE": node_units.NodePowercycle,
    "OP_NODE_QUERYVOLS": storage_units.NodeQueryvols,
    "OP_NODE_QUERY_STORAGE": storage_units.NodeQueryStorage,
    "OP_NODE_REMOVE": node_units.NodeRemove,
    "OP_NODE_SET_PARAMS": NodeSetParams,
    "OP_OOB_COMMAND": oob.OobCommand,
    "OP_OS_DIAGNOSE": query_units.OsDiagnose,
    "OP_QUERY": query_units.Query,
    "OP_QUERY_FIELDS": query_units.QueryFields,
    "OP_REPAIR_COMMAND": node_units.RepairCommand,
    "OP_REPAIR_NODE_STORAGE": storage_units.RepairNodeStorage,
    "OP_RESTRICTED_COMMAND": node_units.RestrictedCommand,
    "OP_TAGS_DEL": tag_units.TagsDel,
    "OP_TAGS_GET": tag_units.TagsGet,
    "OP_TAGS_SEARCH": tag_units.TagsSearch,
    "OP_TAGS_SET": tag_units.TagsSet,
    "OP_TEST_ALLOCATOR": debug_units.TestAllocator,
    "OP_TEST_DELAY": debug_units.TestDelay,
    "OP_TEST_JQUEUE": debug_units.TestJqueue,
    "OP_TEST_OS_PARAMS": debug_units.TestOsParams,
}
