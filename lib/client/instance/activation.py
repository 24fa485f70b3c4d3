"""``activate-disks`` and ``deactivate-disks``."""

from ganeti.cli import jobs
from ganeti.cli.context import CommandContext


def activate(ctx: CommandContext) -> None:
    """Assemble the disks of an instance; print where they are."""
    operation = jobs.op(
        "OP_INSTANCE_ACTIVATE_DISKS",
        instance_name=ctx.args[0],
        ignore_size=ctx.opts.ignore_size,
        wait_for_sync=ctx.opts.wait_for_sync,
    )
    for node, name, device in jobs.submit_or_run(ctx, operation):
        ctx.out(f"{node}:{name}:{device}")


def deactivate(ctx: CommandContext) -> None:
    """Take the disks of a stopped instance apart."""
    operation = jobs.op(
        "OP_INSTANCE_DEACTIVATE_DISKS",
        instance_name=ctx.args[0],
        force=ctx.opts.force,
    )
    jobs.submit_or_run(ctx, operation)
