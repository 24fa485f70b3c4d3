"""``rename``: change the name of a network."""

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, submission


def run(ctx: CommandContext) -> int:
    """Rename a network."""
    old, new = ctx.args
    operation = jobs.op("OP_NETWORK_RENAME", network_name=old, new_name=new)
    return submission.submit_or_run(ctx, operation).code
