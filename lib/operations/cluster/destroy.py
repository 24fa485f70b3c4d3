"""OP_CLUSTER_DESTROY: the last job of a cluster."""

from collections.abc import Mapping
from typing import Any

from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols import hooks
from ganeti.model import opcodes
from ganeti.operations import master_ip, post_hooks
from ganeti.operations.base import LogicalUnit


class ClusterDestroy(LogicalUnit[opcodes.ClusterDestroy]):
    """Unit that deactivates the master IP; the client then stops the daemons.

    The unit runs the hooks itself, on the master: afterwards no daemon is left for it.
    """

    EXCLUSIVE = True
    HOOKS_PATH = "cluster-destroy"
    HOOKS_TYPE = hooks.HTYPE_CLUSTER

    def hooks_env(self) -> Mapping[str, Any]:
        """Return the cluster's name."""
        return {"OP_TARGET": self.ctx.snapshot.cluster.cluster_name}

    def check_prereq(self) -> None:
        """Check that only the master is left."""
        snapshot = self.ctx.snapshot
        others = len(snapshot.nodes) - 1
        if others:
            raise self.prereq(
                f"cluster {snapshot.cluster.cluster_name}: still has {others} node(s)"
                " besides the master",
                ecodes.ECODE_INVAL,
            )
        if snapshot.instances:
            raise self.prereq(
                f"cluster {snapshot.cluster.cluster_name}: still has"
                f" {len(snapshot.instances)} instance(s)",
                ecodes.ECODE_INVAL,
            )

    def execute(self) -> str:
        """Run the hooks, deactivate the address, return the master's uuid."""
        master = self.ctx.snapshot.cluster.master_node
        post_hooks.run_post(self, (master,))
        answer = master_ip.turn_down(self.ctx)
        if answer.failed:
            self.ctx.log.warn(
                answer.describe("cannot deactivate the master IP address")
            )
        return master
