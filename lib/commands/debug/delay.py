"""``delay``: a job that sleeps."""

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.commands.cli import values
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, submission


def run(ctx: CommandContext) -> int:
    """Sleep on the master and on nodes."""
    opts = ctx.opts
    try:
        duration = values.finite(ctx.args[0])
    except ValueError as err:
        raise errors.OpPrereqError(
            f"delay: wanted seconds, found {ctx.args[0]!r}", ecodes.ECODE_INVAL
        ) from err
    operation = jobs.op(
        "OP_TEST_DELAY",
        duration=duration,
        on_master=opts.on_master,
        on_nodes=opts.on_nodes,
        repeat=opts.repeat,
        interruptible=opts.interruptible,
        no_locks=opts.no_locks,
    )
    return submission.submit_or_run(ctx, operation).code
