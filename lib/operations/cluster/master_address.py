"""OP_CLUSTER_ACTIVATE_MASTER_IP and OP_CLUSTER_DEACTIVATE_MASTER_IP."""

from ganeti.model import opcodes
from ganeti.operations import master_ip
from ganeti.operations.base import LogicalUnit


class ClusterActivateMasterIp(LogicalUnit[opcodes.ClusterActivateMasterIp]):
    """Unit that activates the master IP on the master node."""

    EXCLUSIVE = True

    def execute(self) -> None:
        """Activate the address."""
        master_ip.turn_up(self.ctx).unwrap("cannot activate the master IP address")


class ClusterDeactivateMasterIp(LogicalUnit[opcodes.ClusterDeactivateMasterIp]):
    """Unit that deactivates the master IP; connections to it break."""

    EXCLUSIVE = True

    def execute(self) -> None:
        """Deactivate the address."""
        master_ip.turn_down(self.ctx).unwrap("cannot deactivate the master IP address")
