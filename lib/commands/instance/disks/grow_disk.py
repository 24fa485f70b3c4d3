"""``grow-disk``: enlarge one disk."""

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, submission
from ganeti.commands.instance import devices


def run(ctx: CommandContext) -> int:
    """Enlarge a disk by an amount, or to a size."""
    name, disk, amount = ctx.args
    operation = jobs.op(
        "OP_INSTANCE_GROW_DISK",
        instance_name=name,
        disk=devices.parse_index(disk, "disk"),
        amount=devices.parse_size(amount, "amount"),
        absolute=ctx.opts.absolute,
        wait_for_sync=ctx.opts.wait_for_sync,
        ignore_ipolicy=ctx.opts.ignore_ipolicy,
    )
    return submission.submit_or_run(ctx, operation).code
