"""``list`` and ``list-fields``."""

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing


def _connections(value: list[list[str]]) -> str:
    return ", ".join(
        f"{group} ({mode}, {link}, {vlan})" for group, mode, link, vlan in value
    )


def list_objects(ctx: CommandContext) -> int:
    """List networks."""
    formats = {
        "group_list": _connections,
        "inst_list": listing.joined,
        "tags": listing.joined,
    }
    return listing.list_objects(ctx, listing.Listing("network", formats))


def list_fields(ctx: CommandContext) -> int:
    """List the fields of networks."""
    return listing.list_fields(ctx, "network")
