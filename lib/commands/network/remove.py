"""``remove``: delete a network."""

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, submission


def run(ctx: CommandContext) -> int:
    """Remove a network."""
    operation = jobs.op(
        "OP_NETWORK_REMOVE", network_name=ctx.args[0], force=ctx.opts.force
    )
    return submission.submit_or_run(ctx, operation).code
