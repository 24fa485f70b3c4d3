"""``list`` and ``list-fields``."""

from typing import Any

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing


def _parameters(value: dict[str, Any]) -> str:
    if not value:
        return "(empty)"
    return ", ".join(f"{key}={item}" for key, item in sorted(value.items()))


def list_objects(ctx: CommandContext) -> int:
    """List node groups."""
    formats = {
        "node_list": listing.joined,
        "pinst_list": listing.joined,
        "ndparams": _parameters,
    }
    return listing.list_objects(ctx, listing.Listing("group", formats))


def list_fields(ctx: CommandContext) -> int:
    """List the fields of node groups."""
    return listing.list_fields(ctx, "group")
