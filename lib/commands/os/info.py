"""``info``: details of operating systems."""

from typing import Any, Final

from ganeti.commands.cli import definitions
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import info_tree, listing
from ganeti.commands.os.names import diagnose

_FIELDS: Final = [
    "name",
    "valid",
    "variants",
    "parameters",
    "api_versions",
    "blacklisted",
    "hidden",
    "os_hvp",
    "osparams",
    "trusted",
]


def run(ctx: CommandContext) -> None:
    """Show operating systems."""
    by_name = {os["name"]: os for os in diagnose(ctx, _FIELDS, generic=True)}
    names = ctx.args or list(by_name)
    if ctx.opts.json:
        listing.print_json(ctx, [_json(by_name.get(name)) for name in names])
        return
    for name in names:
        if name in by_name:
            _show(ctx, by_name[name])
        else:
            _show_cluster_only(ctx, name, by_name)
        ctx.out()


def _json(os: dict[str, Any] | None) -> dict[str, Any] | None:
    return os and definitions.with_named_parameters(os)


def _show(ctx: CommandContext, os: dict[str, Any]) -> None:
    ctx.out(f"{os['name']}:")
    for key in ("valid", "hidden", "blacklisted"):
        ctx.out(f"  - {key}: {os[key]}")
    if os["valid"]:
        _items(ctx, "API versions", os["api_versions"])
        _items(ctx, "variants", os["variants"])
        _items(ctx, "parameters", [f"{key}: {text}" for key, text in os["parameters"]])
    ctx.out(f"  - trusted: {os['trusted']}")


def _items(ctx: CommandContext, title: str, items: list[Any] | None) -> None:
    ctx.out(f"  - {title}:")
    for item in items or ():
        ctx.out(f"    - {item}")


def _show_cluster_only(ctx: CommandContext, name: str, systems: dict[str, Any]) -> None:
    """Show the cluster's settings for a name that no node knows."""
    hvparams = _first(systems, "os_hvp", name)
    parameters = _first(systems, "osparams", name)
    if not hvparams and not parameters:
        ctx.out(f"{name}: ")
        return
    pairs = info_tree.Pairs(
        [
            ("OS-specific hypervisor parameters", hvparams or {}),
            ("OS parameters", parameters or {}),
        ]
    )
    ctx.out(info_tree.render(info_tree.Pairs([(name, pairs)])))


def _first(systems: dict[str, Any], field: str, name: str) -> Any:
    for os in systems.values():
        value = (os[field] or {}).get(name)
        if value:
            return value
    return None
