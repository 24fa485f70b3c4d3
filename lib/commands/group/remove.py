"""``remove``: delete empty node groups."""

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import executor, jobs


def run(ctx: CommandContext) -> int:
    """Remove node groups; if one of several does not exist, remove none."""
    return executor.for_named(ctx, "group", jobs.op("OP_GROUP_REMOVE"))
