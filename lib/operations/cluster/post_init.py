"""OP_CLUSTER_POST_INIT: the first job of a new cluster."""

from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.base.constants.protocols import hooks
from ganeti.model import opcodes
from ganeti.operations import candidate_role
from ganeti.operations.base import LogicalUnit
from ganeti.operations.node import ovs


class ClusterPostInit(LogicalUnit[opcodes.ClusterPostInit]):
    """Unit that sets up the master node and runs the hooks of a new cluster."""

    EXCLUSIVE = True
    HOOKS_PATH = "cluster-init"
    HOOKS_TYPE = hooks.HTYPE_CLUSTER

    def hooks_env(self) -> Mapping[str, Any]:
        """Return the cluster's name."""
        return {"OP_TARGET": self.ctx.snapshot.cluster.cluster_name}

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return no nodes for the pre phase, the master for the post phase."""
        return (), (self.ctx.snapshot.cluster.master_node,)

    def execute(self) -> bool:
        """Record the master's certificate and configure its virtual switch."""
        snapshot = self.ctx.snapshot
        master = snapshot.nodes[snapshot.cluster.master_node]
        candidate_role.record_certificate(self.ctx, master)
        ovs.configure(self.ctx, master)
        return True
