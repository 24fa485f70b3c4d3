"""``archive`` and ``autoarchive``."""

from typing import Final

from ganeti.base.constants import exitcodes
from ganeti.base.text.units import parse_duration
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.job.ids import parse_id

#: Time limit for the master in seconds: half of a client's time limit.
_TIMEOUT_S: Final = 89
_ALL: Final = -1


def archive(ctx: CommandContext) -> int:
    """Archive finished jobs."""
    code = exitcodes.EXIT_SUCCESS
    for word in ctx.args:
        job_id = parse_id(word)
        if not ctx.call("ArchiveJob", job_id):
            ctx.err(f"Failed to archive job with ID '{job_id}'")
            code = exitcodes.EXIT_FAILURE
    return code


def autoarchive(ctx: CommandContext) -> None:
    """Archive finished jobs older than an age."""
    word = ctx.args[0]
    age = _ALL if word == "all" else parse_duration(word)
    archived, left = ctx.call("AutoArchiveJobs", age, _TIMEOUT_S)
    ctx.out(f"Archived {archived} jobs, {left} unchecked left")
