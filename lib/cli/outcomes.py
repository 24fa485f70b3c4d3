"""The last line of commands that wait for several jobs."""

from collections.abc import Sequence

from ganeti.cli.context import CommandContext
from ganeti.cli.executor import JobOutcome
from ganeti.constants import exitcodes


def report(
    ctx: CommandContext, outcomes: Sequence[JobOutcome], *, good: str, bad: str
) -> int:
    """Say how the jobs ended; return the exit code.

    Args:
        ctx: the command.
        outcomes: of the jobs.
        good: line when all went well; with ``--dry-run`` another one.
        bad: line otherwise, with ``{}`` for the number of failures.
    """
    failed = sum(not outcome.success for outcome in outcomes)
    if failed:
        ctx.out(bad.format(failed))
        return exitcodes.EXIT_FAILURE
    ctx.out("Nothing was done." if ctx.option("dry_run") else good)
    return exitcodes.EXIT_SUCCESS
