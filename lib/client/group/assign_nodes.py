"""``assign-nodes``: move nodes into a group."""

from ganeti.cli import jobs
from ganeti.cli.context import CommandContext


def run(ctx: CommandContext) -> None:
    """Move nodes into a group."""
    group, *nodes = ctx.args
    operation = jobs.op(
        "OP_GROUP_ASSIGN_NODES", group_name=group, nodes=nodes, force=ctx.opts.force
    )
    jobs.submit_or_run(ctx, operation)
