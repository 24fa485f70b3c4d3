"""``info``: node groups and parameters of external storage providers."""

from typing import Any, Final

from ganeti.base.text import nicesort
from ganeti.commands.cli import definitions
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.storage.providers import diagnose

_FIELDS: Final = ["name", "nodegroup_status", "parameters"]


def run(ctx: CommandContext) -> None:
    """Show providers."""
    by_name = {row["name"]: row for row in diagnose(ctx, _FIELDS)}
    names = ctx.args or nicesort.nice_names(by_name)
    if ctx.opts.json:
        listing.print_json(ctx, [_json(by_name.get(name)) for name in names])
        return
    for name in names:
        if name in by_name:
            _show(ctx, by_name[name])
        else:
            ctx.out(f"{name}: Not Found")
        ctx.out()


def _json(provider: dict[str, Any] | None) -> dict[str, Any] | None:
    return provider and definitions.with_named_parameters(provider)


def _show(ctx: CommandContext, provider: dict[str, Any]) -> None:
    ctx.out(f"{provider['name']}:")
    groups = [
        name for name, is_valid in provider["nodegroup_status"].items() if is_valid
    ]
    if groups:
        ctx.out("  - Valid for nodegroups:")
        for group in nicesort.nice_names(groups):
            ctx.out(f"      {group}")
        ctx.out("  - Supported parameters:")
        for name, text in provider["parameters"] or ():
            ctx.out(f"      {name}: {text}")
    else:
        ctx.out("  - Invalid for all nodegroups")
