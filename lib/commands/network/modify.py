"""``modify``: change a network."""

from ganeti.base.constants import exitcodes
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, submission
from ganeti.commands.network import values


def run(ctx: CommandContext) -> int:
    """Change a network; the value ``none`` removes one."""
    opts = ctx.opts
    changes = {
        "gateway": opts.gateway,
        "network6": opts.network6,
        "gateway6": opts.gateway6,
        "mac_prefix": opts.mac_prefix,
        "add_reserved_ips": values.addresses(opts.add_reserved_ips),
        "remove_reserved_ips": values.addresses(opts.remove_reserved_ips),
    }
    if all(value is None for value in changes.values()):
        # The text of clients of earlier releases, which scripts may compare.
        ctx.err("Please give at least one of the parameters.")
        return exitcodes.EXIT_FAILURE
    operation = jobs.op("OP_NETWORK_SET_PARAMS", network_name=ctx.args[0], **changes)
    return submission.submit_or_run(ctx, operation).code
