"""``add``: create a network."""

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, submission
from ganeti.commands.network import values


def run(ctx: CommandContext) -> int:
    """Create a network."""
    opts = ctx.opts
    if not opts.network:
        raise errors.OpPrereqError(
            "The --network option must be given", ecodes.ECODE_INVAL
        )
    operation = jobs.op(
        "OP_NETWORK_ADD",
        network_name=ctx.args[0],
        network=opts.network,
        gateway=opts.gateway,
        network6=opts.network6,
        gateway6=opts.gateway6,
        mac_prefix=opts.mac_prefix,
        add_reserved_ips=values.addresses(opts.add_reserved_ips),
        conflicts_check=opts.conflicts_check,
        tags=values.listed(opts.tags),
    )
    return submission.submit_or_run(ctx, operation).code
