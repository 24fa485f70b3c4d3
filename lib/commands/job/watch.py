"""``watch`` and ``wait``: follow one job to its end."""

from ganeti.base import errors
from ganeti.base.constants import exitcodes
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import error_text, hints
from ganeti.commands.cli.waiting import jobs
from ganeti.commands.job.ids import parse_id


def _follow(ctx: CommandContext, job_id: int, on_log: jobs.OnLog | None) -> int:
    try:
        jobs.wait(ctx, job_id, on_log)
    except errors.LuxiError:
        raise
    except errors.GenericError as err:
        text, _ = error_text.describe(err)
        ctx.err(f"Job {job_id} failed: {text}")
        hints.show(ctx, hints.find(text))
        return exitcodes.EXIT_FAILURE
    return exitcodes.EXIT_SUCCESS


def watch(ctx: CommandContext) -> int:
    """Print the messages of a job until it ends."""
    job_id = parse_id(ctx.args[0])
    headline = f"Output from job {job_id} follows"
    ctx.out(headline)
    ctx.out("-" * len(headline))
    code = _follow(ctx, job_id, jobs.print_log(ctx))
    if code == exitcodes.EXIT_SUCCESS and ctx.shows_progress:
        # A job may have no messages, so print its end on a terminal.
        ctx.err(f"Job {job_id} was successful")
    return code


def wait(ctx: CommandContext) -> int:
    """Wait for a job; print no messages."""
    return _follow(ctx, parse_id(ctx.args[0]), None)
