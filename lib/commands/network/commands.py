"""Commands of ``gnt-network``: connections, info and modify."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import exitcodes
from ganeti.commands.cli import param_options
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.cli.waiting import jobs, operation, submission

_KEYS = ("mode", "link", "vlan")


def connect(ctx: CommandContext) -> int:
    """Connect a network to the named groups, or to all."""
    given = param_options.nic_parameters(ctx.opts.nicparams)
    defaults = ctx.call("QueryClusterInfo")["nicparams"]["default"]
    params = {key: given.get(key, defaults.get(key) or "") for key in _KEYS}
    if given.get("mode", defaults.get("mode")) != defaults.get("mode"):
        # The default link and VLAN belong to the default mode.
        params |= {key: given.get(key, "") for key in ("link", "vlan")}
    return _for_groups(ctx, {f"network_{key}": params[key] for key in _KEYS})


def disconnect(ctx: CommandContext) -> int:
    """Disconnect a network from the named groups, or from all."""
    return _for_groups(ctx, {})


def _for_groups(ctx: CommandContext, parameters: dict[str, str]) -> int:
    groups = ctx.args[1:]
    if not groups:
        groups = [row["name"] for row in listing.query_objects(ctx, "group", ["name"])]
    ops = [
        jobs.with_generic(ctx, operation.fill(ctx, group_name=group, **parameters))
        for group in groups
    ]
    if (code := submission.planned(ctx, [[op] for op in ops])) is not None:
        return code
    for op in ops:
        submission.run(ctx, op, generic=False)
    return exitcodes.EXIT_SUCCESS


FIELDS: Final = [
    *("name", "uuid", "serial_no", "network", "gateway", "network6", "gateway6"),
    *("mac_prefix", "free_count", "reserved_count", "map", "external_reservations"),
    *("group_list", "inst_list", "tags"),
]
#: Addresses in one line of the map, and columns of the list of reserved ones.
_WIDTH: Final = 64


def info(ctx: CommandContext) -> None:
    """Show networks."""
    networks = listing.named(ctx, "network", FIELDS, ctx.args)
    users = _users(ctx, networks)
    if ctx.opts.json:
        listing.print_json(ctx, [_json(network, users) for network in networks])
        return
    lines = [line for network in networks for line in _lines(network, users)]
    if lines:
        ctx.out("\n".join(lines))


def _users(
    ctx: CommandContext, networks: Sequence[dict[str, Any]]
) -> dict[str, dict[str, list[tuple[int, str | None]]]]:
    """Return network uuid -> name of an instance -> index and address of its NICs."""
    names = sorted({name for network in networks for name in network["inst_list"]})
    if not names:
        return {}
    wanted = ["|", *(["==", "name", name] for name in names)]
    fields = ["name", "nic.networks", "nic.ips"]
    users: dict[str, dict[str, list[tuple[int, str | None]]]] = {}
    for row in listing.query_objects(ctx, "instance", fields, wanted):
        nics = zip(row["nic.networks"], row["nic.ips"], strict=True)
        for index, (uuid, address) in enumerate(nics):
            of_network = users.setdefault(uuid, {})
            of_network.setdefault(row["name"], []).append((index, address))
    return users


def _lines(network: dict[str, Any], users: dict[str, Any]) -> Iterator[str]:
    free = network["free_count"]
    size = free + network["reserved_count"]
    yield f"Network name: {network['name']}"
    yield f"UUID: {network['uuid']}"
    yield f"Serial number: {network['serial_no']}"
    yield f"  Subnet: {network['network']}"
    yield f"  Gateway: {network['gateway']}"
    yield f"  IPv6 Subnet: {network['network6']}"
    yield f"  IPv6 Gateway: {network['gateway6']}"
    yield f"  Mac Prefix: {network['mac_prefix']}"
    yield f"  Size: {size}"
    yield f"  Free: {free} ({100 * free / size if size else 0:.2f}%)"
    yield "  Usage map:"
    for start in range(0, size, _WIDTH):
        part = network["map"][start : start + _WIDTH]
        yield f"     {start:4} {part:{_WIDTH}} {start + _WIDTH - 1}"
    yield "         (X) used    (.) free"
    yield from _reserved(network)
    yield from _groups(network)
    yield from _instances(network, users.get(network["uuid"], {}))


def _reserved(network: dict[str, Any]) -> Iterator[str]:
    if network["external_reservations"]:
        yield "  externally reserved IPs:"
        for line in textwrap.wrap(network["external_reservations"], width=_WIDTH):
            yield f"    {line}"


def _groups(network: dict[str, Any]) -> Iterator[str]:
    if not network["group_list"]:
        yield "  not connected to any node group"
        return
    yield "  connected to node groups:"
    for group, mode, link, vlan in network["group_list"]:
        yield f"    {group} (mode:{mode} link:{link} vlan:{vlan})"


def _instances(network: dict[str, Any], users: dict[str, Any]) -> Iterator[str]:
    names = network["inst_list"]
    if not names:
        yield "  not used by any instances"
        return
    yield f"  used by {len(names)} instances:"
    for name in names:
        nics = ", ".join(f"{index}:{address}" for index, address in users.get(name, ()))
        yield f"    {name}: {nics}"


def _json(network: dict[str, Any], users: dict[str, Any]) -> dict[str, Any]:
    nics = users.get(network["uuid"], {})
    reserved = network["external_reservations"]
    keys = ("group", "mode", "link", "vlan")
    lists = {"group_list", "inst_list", "external_reservations", "reserved_count"}
    return {
        **{key: network[key] for key in FIELDS if key not in lists},
        "size": network["free_count"] + network["reserved_count"],
        "external_reservations": reserved.split(", ") if reserved else [],
        "groups": [dict(zip(keys, row, strict=True)) for row in network["group_list"]],
        "instances": [
            {
                "name": name,
                "nics": [
                    {"index": index, "ip": address}
                    for index, address in nics.get(name, ())
                ],
            }
            for name in network["inst_list"]
        ],
    }


def modify(ctx: CommandContext) -> int:
    """Change a network; the value ``none`` removes one."""
    request = operation.fill(ctx)
    try:
        operation.require_changes(ctx, request)
    except errors.OpPrereqError:
        # The text of clients of earlier releases, which scripts may compare.
        ctx.err("Please give at least one of the parameters.")
        return exitcodes.EXIT_FAILURE
    return operation.run(ctx)
