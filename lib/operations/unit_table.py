"""The table of all logical units of this release."""

from typing import Any, Final

from ganeti.operations.backup.modes import BackupExporting
from ganeti.operations.backup.prepare import BackupPrepare
from ganeti.operations.backup.remove import BackupRemove
from ganeti.operations.base import LogicalUnit
from ganeti.operations.cluster.config_query import ClusterConfigQuery
from ganeti.operations.cluster.destroy import ClusterDestroy
from ganeti.operations.cluster.master_address import (
    ClusterActivateMasterIp,
    ClusterDeactivateMasterIp,
)
from ganeti.operations.cluster.post_init import ClusterPostInit
from ganeti.operations.cluster.query import ClusterQuery
from ganeti.operations.cluster.redist import ClusterRedistConf
from ganeti.operations.cluster.rename import ClusterRename
from ganeti.operations.cluster.renew_crypto import ClusterRenewCrypto
from ganeti.operations.cluster.repair_sizes import ClusterRepairDiskSizes
from ganeti.operations.cluster.set_params import ClusterSetParams
from ganeti.operations.cluster.verification.verify import ClusterVerify
from ganeti.operations.cluster.verification.verify_config import ClusterVerifyConfig
from ganeti.operations.cluster.verification.verify_disks import ClusterVerifyDisks
from ganeti.operations.cluster.verification.verify_group import ClusterVerifyGroup
from ganeti.operations.group.add import GroupAdd
from ganeti.operations.group.assign import GroupAssignNodes
from ganeti.operations.group.evacuate import GroupEvacuate
from ganeti.operations.group.remove import GroupRemove
from ganeti.operations.group.rename import GroupRename
from ganeti.operations.group.set_params import GroupSetParams
from ganeti.operations.group.verify_disks import GroupVerifyDisks
from ganeti.operations.instance.unit_table import UNITS as INSTANCE_UNITS
from ganeti.operations.network.add import NetworkAdd
from ganeti.operations.network.connect import NetworkConnect
from ganeti.operations.network.disconnect import NetworkDisconnect
from ganeti.operations.network.remove import NetworkRemove
from ganeti.operations.network.rename import NetworkRename
from ganeti.operations.network.set_params import NetworkSetParams
from ganeti.operations.node.add import NodeAdd
from ganeti.operations.node.evacuate import NodeEvacuate
from ganeti.operations.node.migrate import NodeMigrate
from ganeti.operations.node.oob import OobCommand
from ganeti.operations.node.powercycle import NodePowercycle
from ganeti.operations.node.query_storage import NodeQueryStorage
from ganeti.operations.node.query_volumes import NodeQueryvols
from ganeti.operations.node.remove import NodeRemove
from ganeti.operations.node.repair_command import RepairCommand
from ganeti.operations.node.restricted import RestrictedCommand
from ganeti.operations.node.set_params import NodeSetParams
from ganeti.operations.node.storage_units import NodeModifyStorage, RepairNodeStorage
from ganeti.operations.os.diagnose import ExtStorageDiagnose, OsDiagnose
from ganeti.operations.query.query import Query, QueryFields
from ganeti.operations.tags.change import TagsDel, TagsSet
from ganeti.operations.tags.get import TagsGet
from ganeti.operations.tags.search import TagsSearch
from ganeti.operations.test.allocator import TestAllocator
from ganeti.operations.test.delay import TestDelay
from ganeti.operations.test.jqueue import TestJqueue
from ganeti.operations.test.osparams import TestOsParams

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
