"""OP_INSTANCE_ACTIVATE_DISKS: assemble an instance's disks without starting it."""

from typing import ClassVar

from ganeti.model import opcodes
from ganeti.operations.instance import common
from ganeti.operations.instance.disks import disks_on_nodes as disks
from ganeti.operations.instance.disks import mirrors


class InstanceActivateDisks(common.InstanceUnit[opcodes.InstanceActivateDisks]):
    """Unit that assembles the disks, and may wait for their synchronisation."""

    NEEDS_EXISTING: ClassVar[str] = "it has no disks on nodes that could be activated"
    HOOKS_TYPE: ClassVar[str | None] = None
    LOCK_NODES: ClassVar[bool] = True

    def check_prereq(self) -> None:
        """Refuse if the primary node is offline or outdated, or another one runs it."""
        self.require_online_primary()
        self.require_nowhere_else("have its disks activated", must_answer=False)
        mirrors.require_right_side(self.ctx, self.instance)

    def execute(self) -> list[tuple[str, str, str | None]]:
        """Assemble the disks; return (node, disk, device path) rows."""
        rows = disks.assemble(
            self.ctx,
            self.instance,
            ignore_size=self.op.ignore_size,
            # The guest goes on; and the watcher tries again.
            stays_active=self.instance.disks_active,
        )
        if self.op.wait_for_sync:
            degraded = mirrors.wait_for_sync(self.ctx, self.instance)
            if degraded:
                raise mirrors.degraded_error(self.instance, degraded)
        return rows
