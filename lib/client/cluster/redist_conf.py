"""``redist-conf``: push the configuration to all nodes."""

from ganeti.cli import jobs
from ganeti.cli.context import CommandContext


def run(ctx: CommandContext) -> None:
    """Push configuration and ssconf files to all nodes."""
    operation = jobs.op("OP_CLUSTER_REDIST_CONF")
    if ctx.opts.yes_do_it:
        jobs.run_job(ctx, [jobs.with_generic(ctx, operation)], drained=True)
    else:
        jobs.submit_or_run(ctx, operation)
