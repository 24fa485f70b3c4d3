"""``redist-conf``: push the configuration to all nodes."""

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, submission


def run(ctx: CommandContext) -> int:
    """Push configuration and ssconf files to all nodes."""
    operation = jobs.op("OP_CLUSTER_REDIST_CONF")
    if ctx.opts.yes_do_it:
        ops = [jobs.with_generic(ctx, operation)]
        return submission.run_job(ctx, ops, drained=True).code
    return submission.submit_or_run(ctx, operation).code
