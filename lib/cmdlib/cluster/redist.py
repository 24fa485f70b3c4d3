"""OP_CLUSTER_REDIST_CONF: send the configuration and shared files to all nodes."""

from ganeti import opcodes
from ganeti.cmdlib import ancillary
from ganeti.cmdlib.base import ALL, LogicalUnit
from ganeti.locking import Level


class ClusterRedistConf(LogicalUnit[opcodes.ClusterRedistConf]):
    """Touches the cluster record, which pushes configuration and ssconf."""

    def expand_names(self) -> None:
        """Lock groups and nodes."""
        for level in (Level.NODEGROUP, Level.NODE):
            self.locks.names[level] = ALL
            self.locks.shared.add(level)

    def execute(self) -> None:
        """Push both."""
        with self.ctx.config.edit(self.ctx.owner) as edit:
            edit.update_cluster()
        ancillary.redistribute(self.ctx)
