"""``list`` and ``list-fields``."""

from ganeti.cli import listing
from ganeti.cli.context import Context


def list_objects(ctx: Context) -> int:
    """List job filter rules."""
    return listing.list_objects(ctx, listing.Listing("filter", name_field="uuid"))


def list_fields(ctx: Context) -> int:
    """List the fields of job filter rules."""
    return listing.list_fields(ctx, "filter")
