"""``modify``: parameters and visibility of an operating system."""

from typing import Any

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.commands.cli import param_options
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, submission


def _listed(name: str, *, wanted: bool | None) -> list[list[Any]] | None:
    return None if wanted is None else [["add" if wanted else "remove", name]]


def run(ctx: CommandContext) -> int:
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
        raise errors.OpPrereqError(
            "nothing to change: please give at least one parameter",
            ecodes.ECODE_INVAL,
        )
    return submission.submit_or_run(
        ctx, jobs.op("OP_CLUSTER_SET_PARAMS", **changes)
    ).code
