"""``test-osparams``: submit a job with secret parameters, which must not be stored."""

from ganeti.cli import jobs, submission
from ganeti.cli.context import CommandContext


def run(ctx: CommandContext) -> int:
    """Submit the test opcode."""
    secret = ctx.opts.osparams_secret
    return submission.submit_or_run(
        ctx, jobs.op("OP_TEST_OS_PARAMS", osparams_secret=secret)
    ).code
