"""``connect`` and ``disconnect``: networks of node groups, one job per group."""

from collections.abc import Callable
from typing import Any

from ganeti.base.constants import exitcodes
from ganeti.commands.cli import param_options
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.cli.waiting import jobs, submission

_KEYS = ("mode", "link", "vlan")


def connect(ctx: CommandContext) -> int:
    """Connect a network to the named groups, or to all."""
    given = param_options.nic_parameters(ctx.opts.nicparams)
    defaults = ctx.call("QueryClusterInfo")["nicparams"]["default"]
    params = {key: given.get(key, defaults.get(key) or "") for key in _KEYS}
    if given.get("mode", defaults.get("mode")) != defaults.get("mode"):
        # The default link and VLAN belong to the default mode.
        params |= {key: given.get(key, "") for key in ("link", "vlan")}
    return _for_groups(
        ctx,
        lambda group: jobs.op(
            "OP_NETWORK_CONNECT",
            network_name=ctx.args[0],
            group_name=group,
            network_mode=params["mode"],
            network_link=params["link"],
            network_vlan=params["vlan"],
            conflicts_check=ctx.opts.conflicts_check,
        ),
    )


def disconnect(ctx: CommandContext) -> int:
    """Disconnect a network from the named groups, or from all."""
    return _for_groups(
        ctx,
        lambda group: jobs.op(
            "OP_NETWORK_DISCONNECT", network_name=ctx.args[0], group_name=group
        ),
    )


def _for_groups(ctx: CommandContext, operation: Callable[[str], dict[str, Any]]) -> int:
    groups = ctx.args[1:]
    if not groups:
        groups = [row["name"] for row in listing.query_objects(ctx, "group", ["name"])]
    ops = [jobs.with_generic(ctx, operation(group)) for group in groups]
    if (code := submission.planned(ctx, [[op] for op in ops])) is not None:
        return code
    for op in ops:
        submission.run(ctx, op, generic=False)
    return exitcodes.EXIT_SUCCESS
