"""``list`` and ``list-fields``."""

from typing import Final

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing

_LIST_FIELDS: Final = (
    "tags",
    "disk.sizes",
    "nic.macs",
    "nic.ips",
    "nic.modes",
    "nic.links",
    "nic.bridges",
    "nic.networks",
    "snodes",
    "snodes.group",
    "snodes.group.uuid",
)


def list_objects(ctx: CommandContext) -> int:
    """List instances."""
    formats = dict.fromkeys(_LIST_FIELDS, listing.joined)
    return listing.list_objects(ctx, listing.Listing("instance", formats))


def list_fields(ctx: CommandContext) -> int:
    """List the fields of instances."""
    return listing.list_fields(ctx, "instance")
