"""The table of all units about instances."""

from typing import Any, Final

from ganeti import opcodes
from ganeti.cmdlib import base
from ganeti.cmdlib.instance import (
    activate_disks,
    console,
    create,
    deactivate_disks,
    failover,
    grow_disk,
    migrate,
    query_data,
    reboot,
    recreate_disks,
    reinstall,
    remove,
    rename,
    set_params,
    shutdown,
    startup,
)

UNITS: Final[dict[type[opcodes.Opcode], type[base.LogicalUnit[Any]]]] = {
    opcodes.InstanceActivateDisks: activate_disks.InstanceActivateDisks,
    opcodes.InstanceConsole: console.InstanceConsole,
    opcodes.InstanceCreate: create.InstanceCreate,
    opcodes.InstanceDeactivateDisks: deactivate_disks.InstanceDeactivateDisks,
    opcodes.InstanceFailover: failover.InstanceFailover,
    opcodes.InstanceGrowDisk: grow_disk.InstanceGrowDisk,
    opcodes.InstanceMigrate: migrate.InstanceMigrate,
    opcodes.InstanceQueryData: query_data.InstanceQueryData,
    opcodes.InstanceReboot: reboot.InstanceReboot,
    opcodes.InstanceRecreateDisks: recreate_disks.InstanceRecreateDisks,
    opcodes.InstanceReinstall: reinstall.InstanceReinstall,
    opcodes.InstanceRemove: remove.InstanceRemove,
    opcodes.InstanceRename: rename.InstanceRename,
    opcodes.InstanceSetParams: set_params.InstanceSetParams,
    opcodes.InstanceShutdown: shutdown.InstanceShutdown,
    opcodes.InstanceStartup: startup.InstanceStartup,
}
