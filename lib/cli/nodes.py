"""Which nodes a command reaches."""

from typing import Any

from ganeti import errors
from ganeti.cli import listing
from ganeti.cli.context import Context
from ganeti.constants import ecodes


def online_nodes(
    ctx: Context,
    names: list[str],
    *,
    group: str | None = None,
    fields: tuple[str, ...] = (),
) -> list[dict[str, Any]]:
    """Return the online ones of these nodes; tell the user about the others.

    Args:
        ctx: the command.
        names: nodes, none for all.
        group: only nodes of this group, by name or uuid.
        fields: further fields beside ``name``.

    Raises:
        OpPrereqError: a name is unknown.
    """
    wanted: list[Any] = []
    if names:
        wanted.append(["|", *(["==", "name", name] for name in names)])
    if group:
        wanted.append(["|", ["==", "group", group], ["==", "group.uuid", group]])
    query = ["&", *wanted] if len(wanted) > 1 else wanted[0] if wanted else None
    nodes = listing.query_objects(ctx, "node", ["name", "offline", *fields], query)
    for name in names:
        if not any(
            node["name"] == name or node["name"].startswith(f"{name}.")
            for node in nodes
        ):
            where = f" in group {group}" if group else ""
            raise errors.OpPrereqError(
                f"node {name!r} not known{where}", ecodes.ECODE_NOENT
            )
    offline = [node["name"] for node in nodes if node["offline"]]
    if offline:
        ctx.err(f"Note: skipping offline node(s): {', '.join(offline)}")
    return [node for node in nodes if not node["offline"]]
