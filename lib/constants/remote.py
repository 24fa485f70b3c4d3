"""Methods and opcodes that the remote API uses; the master daemon refuses others."""

from typing import Final

#: Methods of LUXI.
METHODS: Final = frozenset(
    {
        "CancelIncident",
        "CancelJob",
        "DeleteFilter",
        "Query",
        "QueryClusterInfo",
        "QueryFields",
        "QueryFilters",
        "QueryJobs",
        "QueryJournal",
        "QueryMaintenance",
        "QueryNodeDeaths",
        "QueryNodes",
        "QueryObjects",
        "QueryTags",
        "ReplaceFilter",
        "SubmitJob",
        "WaitForJobChange",
        "WaitForJobChanges",
    }
)
#: Opcodes of jobs; those of the resources in `ganeti.rapi.resources`.
OPCODES: Final = frozenset(
    {
        "OP_BACKUP_EXPORT",
        "OP_BACKUP_PREPARE",
        "OP_CLUSTER_REDIST_CONF",
        "OP_CLUSTER_SET_PARAMS",
        "OP_GROUP_ADD",
        "OP_GROUP_ASSIGN_NODES",
        "OP_GROUP_REMOVE",
        "OP_GROUP_RENAME",
        "OP_GROUP_SET_PARAMS",
        "OP_INSTANCE_ACTIVATE_DISKS",
        "OP_INSTANCE_CREATE",
        "OP_INSTANCE_DEACTIVATE_DISKS",
        "OP_INSTANCE_FAILOVER",
        "OP_INSTANCE_GROW_DISK",
        "OP_INSTANCE_MIGRATE",
        "OP_INSTANCE_MULTI_ALLOC",
        "OP_INSTANCE_QUERY_DATA",
        "OP_INSTANCE_REBOOT",
        "OP_INSTANCE_RECREATE_DISKS",
        "OP_INSTANCE_REINSTALL",
        "OP_INSTANCE_REMOVE",
        "OP_INSTANCE_RENAME",
        "OP_INSTANCE_REPLACE_DISKS",
        "OP_INSTANCE_SET_PARAMS",
        "OP_INSTANCE_SHUTDOWN",
        "OP_INSTANCE_STARTUP",
        "OP_NETWORK_ADD",
        "OP_NETWORK_CONNECT",
        "OP_NETWORK_DISCONNECT",
        "OP_NETWORK_REMOVE",
        "OP_NETWORK_RENAME",
        "OP_NETWORK_SET_PARAMS",
        "OP_NODE_EVACUATE",
        "OP_NODE_MIGRATE",
        "OP_NODE_MODIFY_STORAGE",
        "OP_NODE_POWERCYCLE",
        "OP_NODE_QUERY_STORAGE",
        "OP_NODE_SET_PARAMS",
        "OP_OS_DIAGNOSE",
        "OP_REPAIR_NODE_STORAGE",
        "OP_TAGS_DEL",
        "OP_TAGS_SET",
    }
)
