"""``remove``: remove the exports of an instance."""

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, submission


def run(ctx: CommandContext) -> int:
    """Remove exports by the name of their instance, which may no longer exist."""
    operation = jobs.op("OP_BACKUP_REMOVE", instance_name=ctx.args[0])
    return submission.submit_or_run(ctx, operation).code
