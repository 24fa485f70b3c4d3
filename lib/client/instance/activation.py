"""``activate-disks`` and ``deactivate-disks``."""

from ganeti.cli import jobs, submission
from ganeti.cli.context import CommandContext


def activate(ctx: CommandContext) -> int:
    """Assemble the disks of an instance; print their paths."""
    operation = jobs.op(
        "OP_INSTANCE_ACTIVATE_DISKS",
        instance_name=ctx.args[0],
        ignore_size=ctx.opts.ignore_size,
        wait_for_sync=ctx.opts.wait_for_sync,
    )
    job = submission.submit_or_run(ctx, operation)
    for node, name, device in job.result or ():
        ctx.out(f"{node}:{name}:{device}")
    return job.code


def deactivate(ctx: CommandContext) -> int:
    """Disassemble the disks of a stopped instance."""
    operation = jobs.op(
        "OP_INSTANCE_DEACTIVATE_DISKS",
        instance_name=ctx.args[0],
        force=ctx.opts.force,
    )
    return submission.submit_or_run(ctx, operation).code
