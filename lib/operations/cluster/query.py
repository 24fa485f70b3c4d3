"""OP_CLUSTER_QUERY: cluster information."""

from typing import Any

from ganeti.master.query import cluster_info
from ganeti.model import opcodes
from ganeti.operations.base import LogicalUnit


class ClusterQuery(LogicalUnit[opcodes.ClusterQuery]):
    """Unit that returns the cluster information dictionary."""

    READS_ONLY = True

    def execute(self) -> dict[str, Any]:
        """Return the dictionary."""
        return cluster_info.cluster_info(self.ctx.snapshot)
