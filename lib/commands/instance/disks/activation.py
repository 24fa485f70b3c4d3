"""``activate-disks`` and ``deactivate-disks``."""

from typing import Any

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import executor, jobs, submission
from ganeti.commands.instance import selection


def activate(ctx: CommandContext) -> int:
    """Assemble the disks of instances; print their paths."""

    def show(devices: Any) -> None:
        for node, name, device in devices or ():
            ctx.out(f"{node}:{name}:{device}")

    def show_outcome(outcome: executor.JobOutcome) -> None:
        show(outcome.result[-1])

    operation = jobs.op(
        "OP_INSTANCE_ACTIVATE_DISKS",
        ignore_size=ctx.opts.ignore_size,
        wait_for_sync=ctx.opts.wait_for_sync,
    )
    if len(ctx.args) > 1:
        names = selection.known(ctx, ctx.args)
        return selection.for_names(ctx, names, lambda _: operation, show_outcome)
    named = {**operation, "instance_name": ctx.args[0]}
    job = submission.submit_or_run(ctx, named)
    show(job.result)
    return job.code


def deactivate(ctx: CommandContext) -> int:
    """Disassemble the disks of stopped instances."""
    operation = jobs.op("OP_INSTANCE_DEACTIVATE_DISKS", force=ctx.opts.force)
    if len(ctx.args) > 1:
        names = selection.known(ctx, ctx.args)
        return selection.for_names(ctx, names, lambda _: operation)
    named = {**operation, "instance_name": ctx.args[0]}
    return submission.submit_or_run(ctx, named).code
