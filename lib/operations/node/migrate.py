"""OP_NODE_MIGRATE: submit a migration of each primary instance of a node."""

from collections.abc import Sequence
from typing import Any, ClassVar

from ganeti.master import locking
from ganeti.model import opcodes
from ganeti.model.objects import lookup
from ganeti.operations import base


class NodeMigrate(base.LogicalUnit[opcodes.NodeMigrate]):
    """Unit that submits one job per instance; each job chooses its own target."""

    HOOKS_PATH: ClassVar[str | None] = "node-migrate"
    HOOKS_TYPE: ClassVar[str | None] = "NODE"

    def check_arguments(self) -> None:
        """Check that the request is not contradictory."""
        if self.op.iallocator and self.op.target_node:
            raise self.prereq(
                f"node {self.op.node_name}: give either an allocator or a target node"
            )

    def expand_names(self) -> None:
        """Look the nodes up and lock the source."""
        snapshot = self.ctx.snapshot
        self.node = lookup.expand_node(snapshot, self.op.node_name)
        if self.op.target_node:
            lookup.expand_node(snapshot, self.op.target_node)
        self.locks.names[locking.Level.NODE] = [self.node]
        self.locks.shared.add(locking.Level.NODE)

    def hooks_env(self) -> dict[str, Any]:
        """Return the node and the run-time memory flag."""
        return {
            "OP_TARGET": self.ctx.snapshot.nodes[self.node].name,
            "NODE_NAME": self.ctx.snapshot.nodes[self.node].name,
            "ALLOW_RUNTIME_CHANGES": self.op.allow_runtime_changes,
        }

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the master, for both phases."""
        master = [self.ctx.snapshot.cluster.master_node]
        return master, master

    def execute(self) -> base.SubmitJobs:
        """Return the jobs."""
        snapshot, op = self.ctx.snapshot, self.op
        instances = sorted(
            (snapshot.instances[u] for u in snapshot.primary_instances(self.node)),
            # Reservations first, as they move without cost.
            key=lambda item: (not item.forthcoming, item.name),
        )
        return base.SubmitJobs(
            [
                [
                    opcodes.InstanceMigrate(
                        instance_name=item.name,
                        mode=op.mode,
                        live=op.live,
                        iallocator=op.iallocator,
                        target_node=op.target_node,
                        allow_runtime_changes=op.allow_runtime_changes,
                        ignore_ipolicy=op.ignore_ipolicy,
                        allow_failover=item.forthcoming,
                    )
                ]
                for item in instances
            ]
        )
