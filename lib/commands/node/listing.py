"""``list`` and ``list-fields``."""

from typing import Any

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing


def list_objects(ctx: CommandContext) -> int:
    """List nodes."""
    fields = ("pinst_list", "sinst_list", "tags")
    formats = dict.fromkeys(fields, listing.joined)
    nodes = listing.Listing("node", formats, explain=_explain)
    return listing.list_objects(ctx, nodes)


def _explain(ctx: CommandContext) -> None:
    warn_of_power(ctx, listing.query_objects(ctx, "node", list(POWER_FIELDS)))


#: Fields that `warn_of_power` needs.
POWER_FIELDS = ("name", "powered", "offline")


def warn_of_power(ctx: CommandContext, nodes: list[dict[str, Any]]) -> None:
    """Name the nodes that are recorded as off without being marked offline."""
    for node in nodes:
        if node["powered"] is False and not node["offline"]:
            name = node["name"]
            ctx.err(
                f"Node {name} is recorded as powered off and is not marked offline, so"
                " no call reaches it. If it is on: gnt-node modify --node-powered=yes"
                f" {name}; if it is off: gnt-node modify --offline=yes {name}"
            )


def list_fields(ctx: CommandContext) -> int:
    """List the fields of nodes."""
    return listing.list_fields(ctx, "node")
