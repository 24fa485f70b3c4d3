"""Selection of the nodes that a command contacts."""

from typing import Any

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing


def online_nodes(
    ctx: CommandContext,
    names: list[str],
    *,
    group: str | None = None,
    fields: tuple[str, ...] = (),
) -> list[dict[str, Any]]:
    """Return the online ones of these nodes; print a note about the others.

    Args:
        ctx: the command.
        names: nodes; empty for all.
        group: restrict to this group, by name or uuid.
        fields: fields to query beside ``name``.

    Raises:
        OpPrereqError: a name is unknown.
    """
    everything = ["name", "offline", "group", "group.uuid", *fields]
    nodes = listing.named(ctx, "node", everything, names)
    if group:
        nodes = [n for n in nodes if group in (n["group"], n["group.uuid"])]
        if not nodes:
            raise errors.OpPrereqError(
                f"none of these nodes is in group {group!r}", ecodes.ECODE_NOENT
            )
    offline = [node["name"] for node in nodes if node["offline"]]
    if offline:
        ctx.err(f"Note: skipping offline node(s): {', '.join(offline)}")
    return [node for node in nodes if not node["offline"]]
