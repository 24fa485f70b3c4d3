"""OP_CLUSTER_QUERY: cluster information."""

from typing import Any

from ganeti import opcodes
from ganeti.cmdlib.base import LogicalUnit
from ganeti.query import cluster_info


class ClusterQuery(LogicalUnit[opcodes.ClusterQuery]):
    """Unit that returns the cluster information dictionary."""

    READS_ONLY = True

    def execute(self) -> dict[str, Any]:
        """Return the dictionary."""
        return cluster_info.cluster_info(self.ctx.snapshot)
