"""``repair-disk-sizes``: correct the recorded sizes of disks."""

from ganeti.cli import jobs, submission
from ganeti.cli.context import CommandContext


def run(ctx: CommandContext) -> int:
    """Compare recorded disk sizes with those on the nodes and correct them."""
    operation = jobs.op("OP_CLUSTER_REPAIR_DISK_SIZES", instances=ctx.args)
    return submission.run(ctx, operation).code
