"""OP_NODE_POWERCYCLE: hard reset of a node whose daemon still answers."""

from ganeti.base.constants import ecodes
from ganeti.model import opcodes
from ganeti.model.objects import lookup, params
from ganeti.operations.base import LogicalUnit


class NodePowercycle(LogicalUnit[opcodes.NodePowercycle]):
    """Unit that has the node daemon reset its node; deliberately takes no locks."""

    def expand_names(self) -> None:
        """Look the node up."""
        self.uuid = lookup.expand_node(self.ctx.snapshot, self.op.node_name)

    def check_prereq(self) -> None:
        """Refuse to reset the master without force."""
        snapshot = self.ctx.snapshot
        if self.uuid == snapshot.cluster.master_node and not self.op.force:
            raise self.prereq(
                f"node {snapshot.nodes[self.uuid].name}: is the master, which can"
                " only be reset with force",
                ecodes.ECODE_INVAL,
            )

    def execute(self) -> str | None:
        """Call the node, which answers before it resets."""
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
