"""``activate-master-ip`` and ``deactivate-master-ip``."""

from ganeti.base.constants import exitcodes
from ganeti.commands.cli import prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, submission


def activate(ctx: CommandContext) -> int:
    """Set up the master IP address."""
    operation = jobs.op("OP_CLUSTER_ACTIVATE_MASTER_IP")
    return submission.run(ctx, operation, generic=False).code


def deactivate(ctx: CommandContext) -> int:
    """Remove the master IP address."""
    question = (
        "This will take down the master IP. It ends all connections to it, such as"
        " those of remote API clients. Continue?"
    )
    if not ctx.opts.confirm and not prompts.confirm(ctx, question):
        return exitcodes.EXIT_FAILURE
    operation = jobs.op("OP_CLUSTER_DEACTIVATE_MASTER_IP")
    return submission.run(ctx, operation, generic=False).code
