"""OP_REPAIR_COMMAND: run one repair script on one node."""

from ganeti.master.locking import Level
from ganeti.model import opcodes
from ganeti.model.objects import lookup
from ganeti.operations.base import LogicalUnit


class RepairCommand(LogicalUnit[opcodes.RepairCommand]):
    """Unit that runs a repair script; the result is its output."""

    def expand_names(self) -> None:
        """Lock the node."""
        self.uuid = lookup.expand_node(self.ctx.snapshot, self.op.node_name)
        self.locks.names[Level.NODE] = [self.uuid]

    def execute(self) -> str:
        """Run the script."""
        answer = self.ctx.rpc.call_one(
            "repair_command", self.uuid, self.op.command, self.op.input
        )
        return str(answer.unwrap(f"repair command {self.op.command} failed"))
