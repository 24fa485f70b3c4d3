"""``change-group``: move an instance to another node group."""

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import explain
from ganeti.commands.cli.waiting import executor, jobs


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
        return explain.run(ctx, operation, name)
    return executor.run_and_report(
        ctx,
        operation,
        good=f"Instance '{name}' changed group successfully.",
        bad=f"There were {{}} errors while changing group of instance '{name}'.",
    )
