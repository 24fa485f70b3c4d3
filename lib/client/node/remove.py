"""``remove``: take a node out of the cluster."""

from ganeti.cli import jobs
from ganeti.cli.context import CommandContext


def run(ctx: CommandContext) -> None:
    """Remove a node."""
    jobs.run(ctx, jobs.op("OP_NODE_REMOVE", node_name=ctx.args[0]))
