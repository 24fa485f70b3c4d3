"""``assign-nodes``: move nodes into a group."""

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, submission


def run(ctx: CommandContext) -> int:
    """Move nodes into a group."""
    group, *nodes = ctx.args
    operation = jobs.op(
        "OP_GROUP_ASSIGN_NODES", group_name=group, nodes=nodes, force=ctx.opts.force
    )
    return submission.submit_or_run(ctx, operation).code
