"""``repair-disk-sizes``: correct the recorded sizes of disks."""

from ganeti.cli import jobs
from ganeti.cli.context import CommandContext


def run(ctx: CommandContext) -> None:
    """Compare recorded disk sizes with those on the nodes and correct them."""
    jobs.run(ctx, jobs.op("OP_CLUSTER_REPAIR_DISK_SIZES", instances=ctx.args))
