"""The command ``list`` of the programs: apart, because it has to start fast.

Nothing here is about jobs, questions or info trees, which take longer to load.
"""

from typing import Any, Final

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.cli.output.table import timestamp

_INSTANCE_LISTS: Final = (
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


def instances(ctx: CommandContext) -> int:
    """List instances."""
    formats = dict.fromkeys(_INSTANCE_LISTS, listing.joined)
    return listing.list_objects(ctx, listing.Listing("instance", formats))


def nodes(ctx: CommandContext) -> int:
    """List nodes."""
    fields = ("pinst_list", "sinst_list", "tags")
    formats = dict.fromkeys(fields, listing.joined)
    if ctx.opts.output is None and not ctx.opts.json and ctx.effects.stdout.isatty():
        # For people; programs get the documented columns.
        ctx.opts.output = "+role"
    return listing.list_objects(ctx, listing.Listing("node", formats, explain=_explain))


def _explain(ctx: CommandContext) -> None:
    fields = ["name", "powered", "offline"]
    warn_of_power(ctx, listing.query_objects(ctx, "node", fields))


def warn_of_power(ctx: CommandContext, nodes: list[dict[str, Any]]) -> None:
    """Name the nodes that are recorded as off without being marked offline.

    Args:
        ctx: the command.
        nodes: their fields ``name``, ``powered`` and ``offline``.
    """
    for node in nodes:
        if node["powered"] is False and not node["offline"]:
            name = node["name"]
            ctx.err(
                f"Node {name} is recorded as powered off and is not marked offline, so"
                " no call reaches it. If it is on: gnt-node modify --node-powered=yes"
                f" {name}; if it is off: gnt-node modify --offline=yes {name}"
            )


def _parameters(value: dict[str, Any]) -> str:
    if not value:
        return "(empty)"
    return ", ".join(f"{key}={item}" for key, item in sorted(value.items()))


def groups(ctx: CommandContext) -> int:
    """List node groups."""
    formats = {
        "node_list": listing.joined,
        "pinst_list": listing.joined,
        "ndparams": _parameters,
    }
    return listing.list_objects(ctx, listing.Listing("group", formats))


def _connected_groups(value: list[list[str]]) -> str:
    return ", ".join(
        f"{group} ({mode}, {link}, {vlan})" for group, mode, link, vlan in value
    )


def networks(ctx: CommandContext) -> int:
    """List networks."""
    formats = {
        "group_list": _connected_groups,
        "inst_list": listing.joined,
        "tags": listing.joined,
    }
    return listing.list_objects(ctx, listing.Listing("network", formats))


def exports(ctx: CommandContext) -> int:
    """List exports, of all nodes or of the given ones."""
    ctx.args = ctx.opts.nodes
    return listing.list_objects(ctx, listing.Listing("export", name_field="node"))


def _timestamps(value: list[Any]) -> str:
    return str([timestamp(item, micro=True) for item in value])


JOBS = listing.Listing(
    "job",
    {
        "summary": listing.joined,
        "opstart": _timestamps,
        "opexec": _timestamps,
        "opend": _timestamps,
    },
    name_field="id",
    numeric=True,
)


def status_filter(states: tuple[str, ...] | None) -> list[Any] | None:
    """Return the filter for jobs in these states, None for all jobs."""
    if states is None:
        return None
    return ["|", *(["==", "status", state] for state in states)]


def jobs(ctx: CommandContext) -> int:
    """List jobs."""
    states = ctx.opts.status_filter
    if ctx.opts.archived and ctx.opts.output is None:
        ctx.opts.output = "+archived"
    elif ctx.opts.archived and "archived" not in ctx.opts.output.split(","):
        ctx.opts.output += ",archived"
    return listing.list_objects(ctx, JOBS, also=status_filter(states))
