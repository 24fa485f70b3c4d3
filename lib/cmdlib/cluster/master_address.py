"""OP_CLUSTER_ACTIVATE_MASTER_IP and OP_CLUSTER_DEACTIVATE_MASTER_IP."""

from ganeti import opcodes
from ganeti.cmdlib import master_ip
from ganeti.cmdlib.base import LogicalUnit


class ClusterActivateMasterIp(LogicalUnit[opcodes.ClusterActivateMasterIp]):
    """Raises the master's address on the master."""

    EXCLUSIVE = True

    def execute(self) -> None:
        """Raise it."""
        master_ip.turn_up(self.ctx).unwrap("cannot raise the master address")


class ClusterDeactivateMasterIp(LogicalUnit[opcodes.ClusterDeactivateMasterIp]):
    """Drops the master's address; connections to it break."""

    EXCLUSIVE = True

    def execute(self) -> None:
        """Drop it."""
        master_ip.turn_down(self.ctx).unwrap("cannot drop the master address")
