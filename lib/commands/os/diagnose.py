"""``diagnose``: state of the operating systems on each node."""

from collections.abc import Sequence
from typing import Any, Final

from ganeti.base.constants import exitcodes
from ganeti.base.text import nicesort
from ganeti.commands.cli import definitions
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.os.names import diagnose

_FIELDS: Final = ["name", "valid", "variants", "node_status", "hidden", "blacklisted"]
_COPY_FIELDS: Final = (
    "path",
    "valid",
    "message",
    "variants",
    "parameters",
    "api_versions",
    "trusted",
)
_API_VARIANTS: Final = 15
_API_PARAMETERS: Final = 20


def run(ctx: CommandContext) -> int:
    """Show the state of every operating system on every node."""
    systems = diagnose(ctx, _FIELDS, generic=True)
    names = dict(ctx.call("QueryNodes", [], ["uuid", "name"], False))
    if ctx.opts.json:
        listing.print_json(
            ctx,
            [definitions.with_named_copies(os, names, _COPY_FIELDS) for os in systems],
        )
    code = exitcodes.EXIT_SUCCESS
    for os in systems:
        valid = _report(ctx, os, names)
        if not valid:
            code = exitcodes.EXIT_FAILURE
    return code


def _report(ctx: CommandContext, os: dict[str, Any], names: dict[str, str]) -> bool:
    statuses = os["node_status"]
    good, bad = definitions.lines_of_nodes(statuses, names, _status, "OS not found")
    valid = bool(os["valid"])
    overall = "valid" if valid else "partial valid" if good else "invalid"
    if ctx.opts.json:
        return valid
    flags = "".join(f" [{flag}]" for flag in ("hidden", "blacklisted") if os[flag])
    ctx.out(f"OS: {os['name']} [global status: {overall}]{flags}")
    variants = _common_variants(statuses)
    if variants:
        ctx.out(f"  Variants: [{', '.join(variants)}]")
    for line in (*good, *bad):
        ctx.out(line)
    ctx.out()
    return valid


def _common_variants(statuses: dict[str, list[list[Any]]]) -> list[str]:
    """Return the variants that all nodes with a valid copy have.

    The field ``variants`` is empty as soon as one node has no valid copy.
    """
    valid = [copies[0] for copies in statuses.values() if copies and copies[0][1]]
    if not valid:
        return []
    place = _COPY_FIELDS.index("variants")
    shared = set.intersection(*(set(copy[place]) for copy in valid))
    return nicesort.nice_names(shared)


def _status(copy: Sequence[Any]) -> str:
    path, valid, _, variants, parameters, versions, trusted = copy
    text = f"{definitions.validity(copy)} (path: {path})"
    if not valid:
        return text
    parts = [
        f"API versions: {', '.join(map(str, versions))}"
        if versions
        else "no API versions declared"
    ]
    highest = max(versions, default=0)
    if variants:
        parts.append(f"variants: {', '.join(variants)}")
    elif highest >= _API_VARIANTS:
        parts.append("no variants")
    if parameters:
        parts.append(f"parameters: {', '.join(key for key, _ in parameters)}")
    elif highest >= _API_PARAMETERS:
        parts.append("no parameters")
    parts.append("trusted" if trusted else "untrusted")
    return text + "".join(f" [{part}]" for part in parts)
