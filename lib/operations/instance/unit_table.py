"""The table of all units of instances."""

from typing import Any, Final

from ganeti.cmdlib import base
from ganeti.cmdlib.instance import (
    activate_disks,
    change_group,
    console,
    creation,
    deactivate_disks,
    failover,
    grow_disk,
    migrate,
    move,
    multi_alloc,
    query_data,
    reboot,
    recreate_disks,
    reinstall,
    remove,
    rename,
    replace_disks,
    set_params,
    shutdown,
    startup,
)

UNITS: Final[dict[str, type[base.LogicalUnit[Any]]]] = {
    "OP_INSTANCE_ACTIVATE_DISKS": activate_disks.InstanceActivateDisks,
    "OP_INSTANCE_CHANGE_GROUP": change_group.InstanceChangeGroup,
    "OP_INSTANCE_CONSOLE": console.InstanceConsole,
    "OP_INSTANCE_CREATE": creation.InstanceCreation,
    "OP_INSTANCE_DEACTIVATE_DISKS": deactivate_disks.InstanceDeactivateDisks,
    "OP_INSTANCE_FAILOVER": failover.InstanceFailover,
    "OP_INSTANCE_GROW_DISK": grow_disk.InstanceGrowDisk,
    "OP_INSTANCE_MIGRATE": migrate.InstanceMigrate,
    "OP_INSTANCE_MOVE": move.InstanceMove,
    "OP_INSTANCE_MULTI_ALLOC": multi_alloc.InstanceMultiAlloc,
    "OP_INSTANCE_QUERY_DATA": query_data.InstanceQueryData,
    "OP_INSTANCE_REBOOT": reboot.InstanceReboot,
    "OP_INSTANCE_RECREATE_DISKS": recreate_disks.InstanceRecreateDisks,
    "OP_INSTANCE_REINSTALL": reinstall.InstanceReinstall,
    "OP_INSTANCE_REMOVE": remove.InstanceRemove,
    "OP_INSTANCE_RENAME": rename.InstanceRename,
    "OP_INSTANCE_REPLACE_DISKS": replace_disks.InstanceReplaceDisks,
    "OP_INSTANCE_SET_PARAMS": set_params.InstanceSetParams,
    "OP_INSTANCE_SHUTDOWN": shutdown.InstanceShutdown,
    "OP_INSTANCE_STARTUP": startup.InstanceStartup,
}
