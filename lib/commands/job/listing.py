"""``list`` and ``list-fields``."""

from typing import Any

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.cli.output.text import timestamp


def _timestamps(value: list[Any]) -> str:
    return str([timestamp(item, micro=True) for item in value])


LISTING = listing.Listing(
    "job",
    {
        "summary": listing.joined,
        "opstart": _timestamps,
        "opexec": _timestamps,
        "opend": _timestamps,
    },
    name_field="id",
    numeric=True,
)


def status_filter(states: tuple[str, ...] | None) -> list[Any] | None:
    """Return the filter for jobs in these states, None for all jobs."""
    if states is None:
        return None
    return ["|", *(["==", "status", state] for state in states)]


def list_objects(ctx: CommandContext) -> int:
    """List jobs."""
    states = ctx.opts.status_filter
    if ctx.opts.archived and ctx.opts.output is None:
        ctx.opts.output = "+archived"
    elif ctx.opts.archived and "archived" not in ctx.opts.output.split(","):
        ctx.opts.output += ",archived"
    return listing.list_objects(ctx, LISTING, also=status_filter(states))


def list_fields(ctx: CommandContext) -> int:
    """List the fields of jobs."""
    return listing.list_fields(ctx, "job")
