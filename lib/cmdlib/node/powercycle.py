"""OP_NODE_POWERCYCLE: reset a machine whose software still answers a little."""

from ganeti import opcodes
from ganeti.cmdlib.base import LogicalUnit
from ganeti.constants import ecodes
from ganeti.objects import lookup, params


class NodePowercycle(LogicalUnit[opcodes.NodePowercycle]):
    """Asks the node daemon to reset its machine; takes no locks on purpose."""

    def expand_names(self) -> None:
        """Find the node."""
        self.uuid = lookup.expand_node(self.ctx.snapshot, self.op.node_name)

    def check_prereq(self) -> None:
        """Check that the master is reset only on purpose."""
        snapshot = self.ctx.snapshot
        if self.uuid == snapshot.cluster.master_node and not self.op.force:
            raise self.prereq(
                f"node {snapshot.nodes[self.uuid].name}: is the master, which is reset"
                " only with force",
                ecodes.ECODE_INVAL,
            )

    def execute(self) -> str | None:
        """Ask; the node answers before it resets."""
        cluster = self.ctx.snapshot.cluster
        hypervisor = cluster.enabled_hypervisors[0]
        answer = self.ctx.rpc.call_one(
            "node_powercycle",
            self.uuid,
            hypervisor,
            params.hvparams_for(cluster, hypervisor, "", {}),
        )
        text = answer.unwrap("cannot schedule the reset")
        return str(text) if text else None
