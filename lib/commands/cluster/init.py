"""``init``: create a cluster with this machine as its master."""

from collections.abc import Iterable
from typing import Any

from ganeti.base.constants import exitcodes
from ganeti.base.errors import refusal
from ganeti.commands.cli import ipolicy, param_options
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import plans


def run(ctx: CommandContext) -> int:
    """Initialise a cluster."""
    from ganeti.base import clock, process
    from ganeti.bootstrap import options
    from ganeti.bootstrap.init import initialise

    names = options.InitOptions.__dataclass_fields__
    request = options.InitOptions(cluster_name=ctx.args[0], **_fields(ctx, names))
    effects = (ctx.paths, process.SystemRunner(), clock.SystemClock())
    if plans.wanted(ctx):
        before = initialise.plan(*effects, request)
        return plans.show(ctx, [], before=before)
    initialise.init_cluster(*effects, request, feedback=ctx.err)
    return exitcodes.EXIT_SUCCESS


def _fields(ctx: CommandContext, names: Iterable[str]) -> dict[str, Any]:
    """Return the fields that the options set; all others have built-in defaults.

    Options of the name of a field set it, except for those that are parsed here.
    """
    opts = ctx.opts
    fields = {name: ctx.option(name) for name in names} | {
        "hv_state": param_options.by_ident(opts.hv_state, "hypervisor state") or None,
        "disk_state": param_options.disk_state(opts.disk_state) or None,
        "hvparams": param_options.by_ident(opts.hvparams, "hypervisor"),
        "diskparams": param_options.by_ident(opts.diskparams, "disk template"),
        "ipolicy": ipolicy.from_options(ctx),
        "enabled_hypervisors": _words(opts.enabled_hypervisors),
        "enabled_disk_templates": _words(opts.enabled_disk_templates),
        "compression_tools": _words(opts.compression_tools) or None,
        "uid_pool": _uid_pool(opts.uid_pool),
        "master_netmask": _number("--master-netmask", opts.master_netmask),
        "primary_ip_version": _number("--primary-ip-version", opts.primary_ip_version),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _words(text: str | None) -> tuple[str, ...] | None:
    words = param_options.split_words(text)
    return None if words is None else tuple(words)


def _uid_pool(text: str | None) -> tuple[tuple[int, int], ...] | None:
    ranges = param_options.uid_ranges(text)
    return None if ranges is None else tuple((low, high) for low, high in ranges)


def _number(option: str, text: Any) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError as err:
        raise refusal(f"{option}: wanted a number, found {text!r}") from err
