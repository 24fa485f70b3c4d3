"""``list`` and ``list-fields``."""

from ganeti.cli import listing
from ganeti.cli.context import CommandContext


def list_objects(ctx: CommandContext) -> int:
    """List nodes."""
    fields = ("pinst_list", "sinst_list", "tags")
    formats = dict.fromkeys(fields, listing.joined)
    return listing.list_objects(ctx, listing.Listing("node", formats))


def list_fields(ctx: CommandContext) -> int:
    """List the fields of nodes."""
    return listing.list_fields(ctx, "node")
