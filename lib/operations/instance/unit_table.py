"""The table of all units of instances."""

from typing import Any, Final

from ganeti.operations import base
from ganeti.operations.instance.create import creation, multi_alloc, reinstall
from ganeti.operations.instance.devices import set_params
from ganeti.operations.instance.disks import (
    activate_disks,
    deactivate_disks,
    grow_disk,
    recreate_disks,
    replace_disks,
)
from ganeti.operations.instance.move import change_group, failover, migrate, move
from ganeti.operations.instance.run import (
    console,
    reboot,
    remove,
    rename,
    shutdown,
    startup,
)
from ganeti.operations.instance.show import query_data

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
