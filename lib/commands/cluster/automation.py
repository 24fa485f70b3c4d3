"""Commands of ``gnt-cluster`` on automatons: freeze, thaw, and faults of nodes."""

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.errors import refusal
from ganeti.base.text.control_chars import escape
from ganeti.base.text.units import parse_duration
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import colours, listing, table
from ganeti.commands.cli.output.table import timestamp
from ganeti.commands.cli.values import finite
from ganeti.decisions.repair.incidents import MaintenanceState, as_listed
from ganeti.decisions.repair.limits import (
    FENCED_PER_HOUR,
    MOVED_SHARE,
    NAMES,
    QUIET_TIME,
)

_WANTED: Final = {
    MOVED_SHARE: "percent such as 10",
    QUIET_TIME: "a time such as 10m",
    FENCED_PER_HOUR: "a number such as 2",
}


def freeze(ctx: CommandContext) -> None:
    """Let no automaton act."""
    ctx.call("FreezeAutomation", " ".join(ctx.args))
    ctx.out("Automation is frozen; gnt-cluster thaw ends that.")


def thaw(ctx: CommandContext) -> None:
    """Let automatons act again."""
    ctx.call("ThawAutomation")
    ctx.out("Automation is no longer frozen.")


def parse_limits(given: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the limits in an option; None removes one.

    Raises:
        OpPrereqError: a limit is unknown, or its value is no number.
    """
    return {name: _limit(name, value) for name, value in given.items()}


def _limit(name: str, value: Any) -> float | None:
    if name not in NAMES:
        raise refusal(
            f"--automation-limits: wanted one of {', '.join(NAMES)}, found {name!r}"
        )
    if value is None:
        return None
    try:
        if name == QUIET_TIME:
            return float(parse_duration(str(value)))
        if name == FENCED_PER_HOUR:
            return finite(int(str(value)))
        return finite(str(value).removesuffix("%"))
    except (ValueError, errors.OpPrereqError) as err:
        raise refusal(
            f"--automation-limits: {name}: wanted {_WANTED[name]}, found {str(value)!r}"
        ) from err


def limits_text(limits: Mapping[str, float]) -> str:
    """Return the limits as the option takes them."""
    return ",".join(f"{name}={limits[name]:g}" for name in NAMES if name in limits)


def freeze_text(state: Mapping[str, Any]) -> str:
    """Return the row of a freeze in the list of parts that are off."""
    why = f" ({state['reason']})" if state["reason"] else ""
    since = timestamp(state["time"])
    return f"automation{why} (frozen since {since}; gnt-cluster thaw)"


def death_text(death: Mapping[str, Any]) -> str:
    """Return the row of a node that does not answer."""
    text = f"{death['name']}: {death['phase']} since {timestamp(death['since'])}"
    return f"{text}: {death['reason']}" if death["reason"] else text


#: Characters of a report in the table.
_WIDTH: Final = 80
_COLUMNS: Final = [
    table.Column(title, style=colours.of_state if title == "State" else None)
    for title in ("Incident", "Node", "Action", "State", "Changed", "Jobs", "Note")
]


def show_incidents(ctx: CommandContext) -> None:
    """List the incidents, the newest first."""
    state = msgspec.convert(ctx.call("QueryMaintenance"), MaintenanceState)
    names: dict[str, str] = {}
    if state.incidents:
        nodes = listing.query_objects(ctx, "node", ["uuid", "name"])
        names = {node["uuid"]: node["name"] for node in nodes}
    incidents = as_listed(state, names)
    if ctx.opts.json:
        listing.print_json(ctx, incidents)
        return
    rows = [_incident_cells(item) for item in incidents]
    listing.print_table(ctx, _COLUMNS, rows, pad_header=False)


def _incident_cells(item: Mapping[str, Any]) -> tuple[str, ...]:
    texts = (
        item["uuid"],
        item["node_name"] or item["node"],
        item["action"],
        item["repair-status"],
        timestamp(item["mtime"]),
        ",".join(map(str, item["jobs"])) or "-",
        item["note"] or _repair_details(item["original"]),
    )
    return tuple(escape(text) for text in texts)


def _repair_details(original: Any) -> str:
    """Return the report, which a node has written, as one short line."""
    text = json.dumps(original, sort_keys=True)
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}..."


def cancel_maintenance(ctx: CommandContext) -> None:
    """Cancel an incident."""
    ctx.call("CancelIncident", ctx.args[0])


def remove_repair(ctx: CommandContext) -> None:
    """Forget an incident."""
    ctx.call("RemoveIncident", ctx.args[0])
