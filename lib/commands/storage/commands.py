"""Commands of ``gnt-storage``."""

from collections.abc import Sequence
from typing import Any, Final

from ganeti.base.constants import exitcodes
from ganeti.base.text import nicesort
from ganeti.commands.cli import definitions
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing

_DIAGNOSE: Final = "OP_EXT_STORAGE_DIAGNOSE"
_INFO_FIELDS: Final = ["name", "nodegroup_status", "parameters"]


def info(ctx: CommandContext) -> None:
    """Show providers."""
    providers = definitions.query(ctx, _DIAGNOSE, _INFO_FIELDS)
    by_name = {provider["name"]: provider for provider in providers}
    names = ctx.args or nicesort.nice_names(by_name)
    if ctx.opts.json:
        definitions.print_named(ctx, by_name, names)
        return
    for name in names:
        if name in by_name:
            _show(ctx, by_name[name])
        else:
            ctx.out(f"{name}: Not Found")
        ctx.out()


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


_DIAGNOSE_FIELDS: Final = ["name", "node_status", "nodegroup_status"]
_COPY_FIELDS: Final = ("path", "valid", "message", "parameters")


def diagnose(ctx: CommandContext) -> int:
    """Show the state of every provider on every node."""
    providers = definitions.query(ctx, _DIAGNOSE, _DIAGNOSE_FIELDS)
    names = dict(ctx.call("QueryNodes", [], ["uuid", "name"], False))
    if ctx.opts.json:
        listing.print_json(
            ctx,
            [
                definitions.with_named_copies(each, names, _COPY_FIELDS)
                for each in providers
            ],
        )
    else:
        for provider in providers:
            _report(ctx, provider, names)
    return exitcodes.EXIT_SUCCESS if providers else exitcodes.EXIT_FAILURE


def _report(
    ctx: CommandContext, provider: dict[str, Any], names: dict[str, str]
) -> None:
    good, bad = definitions.lines_of_nodes(
        provider["node_status"], names, _status, "provider not found"
    )
    ctx.out(f"Provider: {provider['name']}")
    ctx.out("---")
    for line in (*good, *bad):
        ctx.out(line)
    ctx.out("  --")
    for group in nicesort.nice_names(provider["nodegroup_status"]):
        is_valid = provider["nodegroup_status"][group]
        ctx.out(f"  For nodegroup: {group} --> {'valid' if is_valid else 'invalid'}")
    ctx.out()


def _status(copy: Sequence[Any]) -> str:
    path, is_valid, _message, parameters = copy
    text = f"{definitions.validity(copy)} (path: {path})"
    if not is_valid:
        return text
    names = ", ".join(name for name, _text in parameters or ())
    return f"{text} [{f'parameters: {names}' if names else 'no parameters'}]"
