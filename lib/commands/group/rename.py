"""``rename``: change the name of a node group."""

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, submission


def run(ctx: CommandContext) -> int:
    """Rename a node group."""
    old, new = ctx.args
    return submission.submit_or_run(
        ctx, jobs.op("OP_GROUP_RENAME", group_name=old, new_name=new)
    ).code
