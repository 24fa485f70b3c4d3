"""``test-osparams``: a job with secret parameters, which must not be stored."""

from ganeti.cli import jobs
from ganeti.cli.context import CommandContext


def run(ctx: CommandContext) -> None:
    """Submit the test opcode."""
    secret = ctx.opts.osparams_secret
    jobs.submit_or_run(ctx, jobs.op("OP_TEST_OS_PARAMS", osparams_secret=secret))
