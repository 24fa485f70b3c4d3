"""OP_RESTRICTED_COMMAND: run one of the commands that administrators allow."""

from ganeti.master.locking import Level
from ganeti.model import opcodes
from ganeti.model.objects import lookup
from ganeti.operations.base import LogicalUnit


class RestrictedCommand(LogicalUnit[opcodes.RestrictedCommand]):
    """Unit that runs a command on nodes; the result has [ok, output] per node."""

    def check_arguments(self) -> None:
        """Check that nodes are named."""
        if not (self.op.nodes or self.op.node_uuids):
            raise self.prereq("restricted command: no nodes were given")

    def expand_names(self) -> None:
        """Lock the nodes, exclusively if requested."""
        self.nodes = lookup.expand_nodes(
            self.ctx.snapshot, self.op.nodes, self.op.node_uuids
        )
        self.locks.names[Level.NODE] = self.nodes
        if not self.op.use_locking:
            self.locks.shared.add(Level.NODE)

    def execute(self) -> list[tuple[bool, str]]:
        """Run it on all nodes in parallel."""
        answers = self.ctx.rpc.call(
            "restricted_command", self.nodes, (self.op.command,)
        )
        rows = []
        for uuid in self.nodes:
            answer = answers[uuid]
            if answer.failed:
                rows.append(
                    (
                        False,
                        f"Command on node '{answer.node}' failed: {answer.fail_msg}",
                    )
                )
            else:
                rows.append((True, str(answer.payload)))
        return rows
