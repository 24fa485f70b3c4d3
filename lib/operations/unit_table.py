"""The table of all logical units of this release."""

from typing import Any, Final

from ganeti.cmdlib.backup.modes import BackupExporting
from ganeti.cmdlib.backup.prepare import BackupPrepare
from ganeti.cmdlib.backup.remove import BackupRemove
from ganeti.cmdlib.base import LogicalUnit
from ganeti.cmdlib.cluster.config_query import ClusterConfigQuery
from ganeti.cmdlib.cluster.destroy import ClusterDestroy
from ganeti.cmdlib.cluster.master_address import (
    ClusterActivateMasterIp,
    ClusterDeactivateMasterIp,
)
from ganeti.cmdlib.cluster.post_init import ClusterPostInit
from ganeti.cmdlib.cluster.query import ClusterQuery
from ganeti.cmdlib.cluster.redist import ClusterRedistConf
from ganeti.cmdlib.cluster.rename import ClusterRename
from ganeti.cmdlib.cluster.renew_crypto import ClusterRenewCrypto
from ganeti.cmdlib.cluster.repair_sizes import ClusterRepairDiskSizes
from ganeti.cmdlib.cluster.set_params import ClusterSetParams
from ganeti.cmdlib.cluster.verify import ClusterVerify
from ganeti.cmdlib.cluster.verify_config import ClusterVerifyConfig
from ganeti.cmdlib.cluster.verify_disks import ClusterVerifyDisks
from ganeti.cmdlib.cluster.verify_group import ClusterVerifyGroup
from ganeti.cmdlib.group.add import GroupAdd
from ganeti.cmdlib.group.assign import GroupAssignNodes
from ganeti.cmdlib.group.evacuate import GroupEvacuate
from ganeti.cmdlib.group.remove import GroupRemove
from ganeti.cmdlib.group.rename import GroupRename
from ganeti.cmdlib.group.set_params import GroupSetParams
from ganeti.cmdlib.group.verify_disks import GroupVerifyDisks
from ganeti.cmdlib.instance.unit_table import UNITS as INSTANCE_UNITS
from ganeti.cmdlib.network.add import NetworkAdd
from ganeti.cmdlib.network.connect import NetworkConnect
from ganeti.cmdlib.network.disconnect import NetworkDisconnect
from ganeti.cmdlib.network.remove import NetworkRemove
from ganeti.cmdlib.network.rename import NetworkRename
from ganeti.cmdlib.network.set_params import NetworkSetParams
from ganeti.cmdlib.node.add import NodeAdd
from ganeti.cmdlib.node.evacuate import NodeEvacuate
from ganeti.cmdlib.node.migrate import NodeMigrate
from ganeti.cmdlib.node.oob import OobCommand
from ganeti.cmdlib.node.powercycle import NodePowercycle
from ganeti.cmdlib.node.query_storage import NodeQueryStorage
from ganeti.cmdlib.node.query_volumes import NodeQueryvols
from ganeti.cmdlib.node.remove import NodeRemove
from ganeti.cmdlib.node.repair_command import RepairCommand
from ganeti.cmdlib.node.restricted import RestrictedCommand
from ganeti.cmdlib.node.set_params import NodeSetParams
from ganeti.cmdlib.node.storage_units import NodeModifyStorage, RepairNodeStorage
from ganeti.cmdlib.os.diagnose import ExtStorageDiagnose, OsDiagnose
from ganeti.cmdlib.query.query import Query, QueryFields
from ganeti.cmdlib.tags.change import TagsDel, TagsSet
from ganeti.cmdlib.tags.get import TagsGet
from ganeti.cmdlib.tags.search import TagsSearch
from ganeti.cmdlib.test.allocator import TestAllocator
from ganeti.cmdlib.test.delay import TestDelay
from ganeti.cmdlib.test.jqueue import TestJqueue
from ganeti.cmdlib.test.osparams import TestOsParams

#: Logical unit by opcode id.
UNITS: Final[dict[str, type[LogicalUnit[Any]]]] = {
    **INSTANCE_UNITS,
    "OP_BACKUP_EXPORT": BackupExporting,
    "OP_BACKUP_PREPARE": BackupPrepare,
    "OP_BACKUP_REMOVE": BackupRemove,
    "OP_CLUSTER_ACTIVATE_MASTER_IP": ClusterActivateMasterIp,
    "OP_CLUSTER_CONFIG_QUERY": ClusterConfigQuery,
    "OP_CLUSTER_DEACTIVATE_MASTER_IP": ClusterDeactivateMasterIp,
    "OP_CLUSTER_DESTROY": ClusterDestroy,
    "OP_CLUSTER_POST_INIT": ClusterPostInit,
    "OP_CLUSTER_QUERY": ClusterQuery,
    "OP_CLUSTER_REDIST_CONF": ClusterRedistConf,
    "OP_CLUSTER_RENAME": ClusterRename,
    "OP_CLUSTER_RENEW_CRYPTO": ClusterRenewCrypto,
    "OP_CLUSTER_REPAIR_DISK_SIZES": ClusterRepairDiskSizes,
    "OP_CLUSTER_SET_PARAMS": ClusterSetParams,
    "OP_CLUSTER_VERIFY": ClusterVerify,
    "OP_CLUSTER_VERIFY_CONFIG": ClusterVerifyConfig,
    "OP_CLUSTER_VERIFY_DISKS": ClusterVerifyDisks,
    "OP_CLUSTER_VERIFY_GROUP": ClusterVerifyGroup,
    "OP_EXT_STORAGE_DIAGNOSE": ExtStorageDiagnose,
    "OP_GROUP_ADD": GroupAdd,
    "OP_GROUP_ASSIGN_NODES": GroupAssignNodes,
    "OP_GROUP_EVACUATE": GroupEvacuate,
    "OP_GROUP_REMOVE": GroupRemove,
    "OP_GROUP_RENAME": GroupRename,
    "OP_GROUP_SET_PARAMS": GroupSetParams,
    "OP_GROUP_VERIFY_DISKS": GroupVerifyDisks,
    "OP_NETWORK_ADD": NetworkAdd,
    "OP_NETWORK_CONNECT": NetworkConnect,
    "OP_NETWORK_DISCONNECT": NetworkDisconnect,
    "OP_NETWORK_REMOVE": NetworkRemove,
    "OP_NETWORK_RENAME": NetworkRename,
    "OP_NETWORK_SET_PARAMS": NetworkSetParams,
    "OP_NODE_ADD": NodeAdd,
    "OP_NODE_EVACUATE": NodeEvacuate,
    "OP_NODE_MIGRATE": NodeMigrate,
    "OP_NODE_MODIFY_STORAGE": NodeModifyStorage,
    "OP_NODE_POWERCYCLE": NodePowercycle,
    "OP_NODE_QUERYVOLS": NodeQueryvols,
    "OP_NODE_QUERY_STORAGE": NodeQueryStorage,
    "OP_NODE_REMOVE": NodeRemove,
    "OP_NODE_SET_PARAMS": NodeSetParams,
    "OP_OOB_COMMAND": OobCommand,
    "OP_OS_DIAGNOSE": OsDiagnose,
    "OP_QUERY": Query,
    "OP_QUERY_FIELDS": QueryFields,
    "OP_REPAIR_COMMAND": RepairCommand,
    "OP_REPAIR_NODE_STORAGE": RepairNodeStorage,
    "OP_RESTRICTED_COMMAND": RestrictedCommand,
    "OP_TAGS_DEL": TagsDel,
    "OP_TAGS_GET": TagsGet,
    "OP_TAGS_SEARCH": TagsSearch,
    "OP_TAGS_SET": TagsSet,
    "OP_TEST_ALLOCATOR": TestAllocator,
    "OP_TEST_DELAY": TestDelay,
    "OP_TEST_JQUEUE": TestJqueue,
    "OP_TEST_OS_PARAMS": TestOsParams,
}
