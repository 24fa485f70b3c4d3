"""``remove``: take a node out of the cluster."""

from ganeti.cli import jobs
from ganeti.cli.context import Context


def run(ctx: Context) -> None:
    """Remove a node."""
    jobs.run(ctx, jobs.op("OP_NODE_REMOVE", node_name=ctx.args[0]))
