"""``diagnose``: state of the external storage providers on each node."""

from typing import Any, Final

from ganeti.cli import listing
from ganeti.cli.context import CommandContext
from ganeti.client.storage.providers import diagnose
from ganeti.constants import exitcodes
from ganeti.utils import nicesort

_FIELDS: Final = ["name", "node_status", "nodegroup_status"]
_COPY_FIELDS: Final = ("path", "valid", "message", "parameters")


def run(ctx: CommandContext) -> int:
    """Show the state of every provider on every node."""
    providers = diagnose(ctx, _FIELDS)
    names = dict(ctx.call("QueryNodes", [], ["uuid", "name"], False))
    if ctx.opts.json:
        listing.print_json(ctx, [_json(each, names) for each in providers])
    else:
        for provider in providers:
            _report(ctx, provider, names)
    return exitcodes.EXIT_SUCCESS if providers else exitcodes.EXIT_FAILURE


def _json(provider: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Return the JSON form: copies by node name, best first, with named fields."""
    nodes = {
        names.get(uuid, uuid): [_copy_json(copy) for copy in copies]
        for uuid, copies in provider["node_status"].items()
    }
    return {**provider, "node_status": nodes}


def _copy_json(copy: list[Any]) -> dict[str, Any]:
    fields = dict(zip(_COPY_FIELDS, copy, strict=True))
    return {**fields, "parameters": dict(fields["parameters"] or ())}


def _report(
    ctx: CommandContext, provider: dict[str, Any], names: dict[str, str]
) -> None:
    good: list[str] = []
    bad: list[str] = []
    statuses: dict[str, list[list[Any]]] = provider["node_status"]
    for uuid in sorted(statuses, key=lambda u: nicesort.key(str(names.get(u, u)))):
        copies = statuses[uuid]
        status = _status(copies[0]) if copies else "provider not found"
        lines = good if copies and copies[0][1] else bad
        lines.append(f"  Node: {names.get(uuid, uuid)}, status: {status}")
        lines += [
            f"    [hidden] path: {copy[0]}, status: {_validity(copy)}"
            for copy in copies[1:]
        ]
    ctx.out(f"Provider: {provider['name']}")
    ctx.out("---")
    for line in (*good, *bad):
        ctx.out(line)
    ctx.out("  --")
    for group in nicesort.nice_names(provider["nodegroup_status"]):
        is_valid = provider["nodegroup_status"][group]
        ctx.out(f"  For nodegroup: {group} --> {'valid' if is_valid else 'invalid'}")
    ctx.out()


def _validity(copy: list[Any]) -> str:
    return "valid" if copy[1] else f"invalid - {copy[2]}"


def _status(copy: list[Any]) -> str:
    path, is_valid, _message, parameters = copy
    text = f"{_validity(copy)} (path: {path})"
    if not is_valid:
        return text
    names = ", ".join(name for name, _text in parameters or ())
    return f"{text} [{f'parameters: {names}' if names else 'no parameters'}]"
