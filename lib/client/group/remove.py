"""``remove``: delete an empty node group."""

from ganeti.cli import jobs
from ganeti.cli.context import CommandContext


def run(ctx: CommandContext) -> None:
    """Remove a node group."""
    jobs.submit_or_run(ctx, jobs.op("OP_GROUP_REMOVE", group_name=ctx.args[0]))
