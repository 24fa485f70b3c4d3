"""OP_INSTANCE_DEACTIVATE_DISKS: shut an instance's disks down."""

from typing import ClassVar

from ganeti.base import errors
from ganeti.model import opcodes
from ganeti.operations.instance import common
from ganeti.operations.instance.disks import disks_on_nodes as disks
from ganeti.operations.instance.run import elsewhere


class InstanceDeactivateDisks(common.InstanceUnit[opcodes.InstanceDeactivateDisks]):
    """Unit that shuts disks down; refuses while the guest uses them, unless forced."""

    NEEDS_EXISTING: ClassVar[str] = "it has no disks on nodes that could be deactivated"
    HOOKS_TYPE: ClassVar[str | None] = None
    LOCK_NODES: ClassVar[bool] = True

    def check_prereq(self) -> None:
        """Refuse if the instance runs on any node, unless forced."""
        if self.op.force:
            elsewhere.warn(self.ctx, self.instance, "may lose its disks there")
            return
        self.require_online_primary()
        if self.runtime_info():
            raise self.prereq(
                f"instance {self.instance.name}: is running, its disks are in use",
                "wrong_state",
            )
        self.require_nowhere_else("have its disks deactivated", must_answer=False)

    def execute(self) -> None:
        """Shut the disks down."""
        if not disks.shutdown(self.ctx, self.instance, ignore_primary=self.op.force):
            raise errors.OpExecError(
                f"instance {self.instance.name}: not all disks could be shut down"
            )
