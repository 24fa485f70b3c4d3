"""``remove``: remove a node from the cluster."""

from ganeti.cli import jobs, submission
from ganeti.cli.context import CommandContext


def run(ctx: CommandContext) -> int:
    """Remove a node."""
    operation = jobs.op("OP_NODE_REMOVE", node_name=ctx.args[0])
    return submission.run(ctx, operation).code
