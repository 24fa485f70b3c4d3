"""``remove``: delete an empty node group."""

from ganeti.cli import jobs, submission
from ganeti.cli.context import CommandContext


def run(ctx: CommandContext) -> int:
    """Remove a node group."""
    return submission.submit_or_run(
        ctx, jobs.op("OP_GROUP_REMOVE", group_name=ctx.args[0])
    ).code
