"""``list-incidents``, ``maintd-cancel`` and ``remove-repair``: faults of nodes."""

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ganeti.base.text.control_chars import escape
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing, table
from ganeti.commands.cli.output.text import timestamp
from ganeti.decisions.repair.incidents import MaintenanceState, as_listed

#: Characters of a report in the table.
_WIDTH: Final = 80
_COLUMNS: Final = (
    table.Column("Incident"),
    table.Column("Node"),
    table.Column("Action"),
    table.Column("State"),
    table.Column("Changed"),
    table.Column("Jobs"),
    table.Column("Note"),
)


def show(ctx: CommandContext) -> None:
    """List the incidents, the newest first."""
    state = msgspec.convert(ctx.call("QueryMaintenance"), MaintenanceState)
    names: dict[str, str] = {}
    if state.incidents:
        rows = listing.query_objects(ctx, "node", ["uuid", "name"])
        names = {row["uuid"]: row["name"] for row in rows}
    incidents = as_listed(state, names)
    if ctx.opts.json:
        listing.print_json(ctx, incidents)
        return
    cells = [_cells(item) for item in incidents]
    text = table.render(
        _COLUMNS,
        list(zip(*cells, strict=True)) or [()] * len(_COLUMNS),
        separator=ctx.opts.separator,
        headers=not ctx.opts.no_headers,
    )
    if text:
        ctx.out(text)


def _cells(item: Mapping[str, Any]) -> tuple[str, ...]:
    texts = (
        item["uuid"],
        item["node_name"] or item["node"],
        item["action"],
        item["repair-status"],
        timestamp(item["mtime"]),
        ",".join(map(str, item["jobs"])) or "-",
        item["note"] or _details(item["original"]),
    )
    return tuple(escape(text) for text in texts)


def _details(original: Any) -> str:
    """Return the report, which a node has written, as one short line."""
    text = json.dumps(original, sort_keys=True)
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}..."


def cancel(ctx: CommandContext) -> None:
    """Cancel an incident."""
    ctx.call("CancelIncident", ctx.args[0])


def remove(ctx: CommandContext) -> None:
    """Forget an incident."""
    ctx.call("RemoveIncident", ctx.args[0])
