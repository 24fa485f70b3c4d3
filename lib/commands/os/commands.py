"""Commands of ``gnt-os``."""

from collections.abc import Sequence
from typing import Any, Final

from ganeti.base.constants import exitcodes
from ganeti.base.errors import refusal
from ganeti.base.text import nicesort
from ganeti.commands.cli import definitions, param_options
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import info_tree, listing, table
from ganeti.commands.cli.waiting import jobs, submission

_DIAGNOSE: Final = "OP_OS_DIAGNOSE"


def usable_names(ctx: CommandContext) -> list[str]:
    """Return the names of all usable systems, with variants, such as ``deb+min``."""
    systems = definitions.query(ctx, _DIAGNOSE, ["name", "variants"])
    return [
        f"{os['name']}+{variant}" if variant else os["name"]
        for os in systems
        for variant in os["variants"] or [""]
    ]


_INFO_FIELDS: Final = [
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


def info(ctx: CommandContext) -> None:
    """Show operating systems."""
    systems = definitions.query(ctx, _DIAGNOSE, _INFO_FIELDS)
    by_name = {os["name"]: os for os in systems}
    names = ctx.args or list(by_name)
    if ctx.opts.json:
        definitions.print_named(ctx, by_name, names)
        return
    for name in names:
        if name in by_name:
            _show(ctx, by_name[name])
        else:
            _show_cluster_only(ctx, name, by_name)
        ctx.out()


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


_DIAGNOSE_FIELDS: Final = [
    "name",
    "valid",
    "variants",
    "node_status",
    "hidden",
    "blacklisted",
]
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


def diagnose(ctx: CommandContext) -> int:
    """Show the state of every operating system on every node."""
    systems = definitions.query(ctx, _DIAGNOSE, _DIAGNOSE_FIELDS)
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


def _listed(name: str, *, wanted: bool | None) -> list[list[Any]] | None:
    return None if wanted is None else [["add" if wanted else "remove", name]]


def modify(ctx: CommandContext) -> int:
    """Change the cluster's settings of an operating system."""
    opts, name = ctx.opts, ctx.args[0]
    hvparams = param_options.by_ident(opts.hvparams, "hypervisor")
    changes = {
        "os_hvp": {name: hvparams} if hvparams else None,
        "osparams": {name: opts.osparams} if opts.osparams else None,
        "osparams_private_cluster": (
            {name: opts.osparams_private} if opts.osparams_private else None
        ),
        "hidden_os": _listed(name, wanted=opts.hidden),
        "blacklisted_os": _listed(name, wanted=opts.blacklisted),
    }
    if not any(changes.values()):
        raise refusal("nothing to change: please give at least one parameter")
    return submission.submit_or_run(
        ctx, jobs.op("OP_CLUSTER_SET_PARAMS", **changes)
    ).code


def list_names(ctx: CommandContext) -> None:
    """List operating systems with their variants."""
    names = usable_names(ctx)
    if ctx.opts.json:
        listing.print_json(ctx, [{"name": name} for name in names])
        return
    listing.print_table(ctx, [table.Column("Name")], [[name] for name in names])
