"""``list`` and ``list-fields``."""

from ganeti.commands.cli import filters
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.filter import rules


def list_objects(ctx: CommandContext) -> int:
    """List job filter rules."""
    words = ctx.args
    is_filter = len(words) == 1 and filters.looks_like_filter(words[0])
    if not is_filter:
        # A query refuses an unknown name, but compares a uuid with any value.
        rules.require(ctx, [word for word in words if not filters.is_glob(word)])
    rules.warn(ctx)
    return listing.list_objects(ctx, listing.Listing("filter", name_field="uuid"))


def list_fields(ctx: CommandContext) -> int:
    """List the fields of job filter rules."""
    return listing.list_fields(ctx, "filter")
