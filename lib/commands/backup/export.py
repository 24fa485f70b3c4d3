"""``export``: copy an instance into an export on a node."""

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, submission
from ganeti.commands.instance import devices


def run(ctx: CommandContext) -> int:
    """Export an instance."""
    opts = ctx.opts
    if not opts.node:
        raise devices.refusal("export: the target node is missing (-n)")
    operation = jobs.op(
        "OP_BACKUP_EXPORT",
        instance_name=ctx.args[0],
        target_node=opts.node,
        compress=opts.transport_compression,
        shutdown=opts.shutdown,
        shutdown_timeout=opts.shutdown_timeout,
        remove_instance=opts.remove_instance,
        ignore_remove_failures=opts.ignore_remove_failures,
        zero_free_space=opts.zero_free_space,
        zeroing_timeout_fixed=opts.zeroing_timeout_fixed,
        zeroing_timeout_per_mib=opts.zeroing_timeout_per_mib,
        long_sleep=opts.long_sleep,
    )
    return submission.submit_or_run(ctx, operation).code
