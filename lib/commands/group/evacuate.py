"""``evacuate``: move all instances out of a group."""

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import explain
from ganeti.commands.cli.waiting import executor, jobs


def run(ctx: CommandContext) -> int:
    """Evacuate a node group."""
    opts = ctx.opts
    operation = jobs.op(
        "OP_GROUP_EVACUATE",
        group_name=ctx.args[0],
        iallocator=opts.iallocator,
        target_groups=opts.to or None,
        early_release=opts.early_release,
        sequential=opts.sequential,
        force_failover=opts.force_failover,
    )
    if opts.explain:
        return explain.run(ctx, operation)
    return executor.run_and_report(
        ctx,
        operation,
        good="All instances evacuated successfully.",
        bad="There were {} errors during the evacuation.",
    )
