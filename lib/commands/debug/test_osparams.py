"""``test-osparams``: submit a job with secret parameters, which must not be stored."""

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, submission


def run(ctx: CommandContext) -> int:
    """Submit the test opcode."""
    secret = ctx.opts.osparams_secret
    return submission.submit_or_run(
        ctx, jobs.op("OP_TEST_OS_PARAMS", osparams_secret=secret)
    ).code
