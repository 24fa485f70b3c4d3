"""``repair-disk-sizes``: correct the recorded sizes of disks."""

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, submission


def run(ctx: CommandContext) -> int:
    """Compare recorded disk sizes with those on the nodes and correct them."""
    operation = jobs.op("OP_CLUSTER_REPAIR_DISK_SIZES", instances=ctx.args)
    return submission.run(ctx, operation).code
