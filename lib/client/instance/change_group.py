"""``change-group``: move an instance to another node group."""

from ganeti.cli import executor, explain, jobs
from ganeti.cli.context import CommandContext
from ganeti.cli.outcomes import report
from ganeti.constants import exitcodes


def run(ctx: CommandContext) -> int:
    """Move an instance to another group."""
    opts, name = ctx.opts, ctx.args[0]
    operation = jobs.op(
        "OP_INSTANCE_CHANGE_GROUP",
        instance_name=name,
        iallocator=opts.iallocator,
        target_groups=opts.to or None,
        early_release=opts.early_release,
    )
    if opts.explain:
        explain.run(ctx, operation, name)
        return exitcodes.EXIT_SUCCESS
    return report(
        ctx,
        executor.run_with_jobs(ctx, operation),
        good=f"Instance '{name}' changed group successfully.",
        bad=f"There were {{}} errors while changing group of instance '{name}'.",
    )
