"""``remove``: remove nodes from the cluster."""

from ganeti.cli import executor, jobs
from ganeti.cli.context import CommandContext


def run(ctx: CommandContext) -> int:
    """Remove nodes; if one of several does not exist, remove none."""
    return executor.for_named(ctx, "node", jobs.op("OP_NODE_REMOVE"))
