"""``remove``: delete empty node groups."""

from ganeti.cli import executor, jobs
from ganeti.cli.context import CommandContext


def run(ctx: CommandContext) -> int:
    """Remove node groups; if one of several does not exist, remove none."""
    return executor.for_named(ctx, "group", jobs.op("OP_GROUP_REMOVE"))
