"""``remove``: remove nodes from the cluster."""

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import executor, jobs


def run(ctx: CommandContext) -> int:
    """Remove nodes; if one of several does not exist, remove none."""
    return executor.for_named(ctx, "node", jobs.op("OP_NODE_REMOVE"))
