"""``list`` and ``list-fields``."""

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing


def list_objects(ctx: CommandContext) -> int:
    """List exports, of all nodes or of the given ones."""
    ctx.args = ctx.opts.nodes
    return listing.list_objects(ctx, listing.Listing("export", name_field="node"))


def list_fields(ctx: CommandContext) -> int:
    """List the fields of exports."""
    return listing.list_fields(ctx, "export")
