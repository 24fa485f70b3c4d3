"""``rename``: give a node group another name."""

from ganeti.cli import jobs
from ganeti.cli.context import CommandContext


def run(ctx: CommandContext) -> None:
    """Rename a node group."""
    old, new = ctx.args
    jobs.submit_or_run(ctx, jobs.op("OP_GROUP_RENAME", group_name=old, new_name=new))
