"""``failover``: stop instances, and start them on another node."""

from ganeti.base.constants import exitcodes
from ganeti.commands.cli import prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs
from ganeti.commands.instance import devices, selection


def run(ctx: CommandContext) -> int:
    """Fail instances over; if one of several does not exist, fail over none."""
    opts = ctx.opts
    if opts.iallocator and opts.dst_node:
        raise devices.refusal("--iallocator and --target-node exclude each other")
    if not (opts.force or opts.explain):
        selection.known(ctx, ctx.args)
        question = (
            f"Failover will happen to image {', '.join(ctx.args)}. This requires a"
            " shutdown of the instance. Continue?"
        )
        if not prompts.confirm(ctx, question):
            return exitcodes.EXIT_FAILURE
    warning = (
        "To ignore the consistency of the disks may lose data. Are you sure that the"
        " primary node is down and the instance does not run there?"
    )
    # Scripts that force it cannot answer.
    asks = not opts.force or prompts.has_terminal(ctx)
    if opts.ignore_consistency and asks and not prompts.confirm(ctx, warning):
        return exitcodes.EXIT_FAILURE
    operation = jobs.op(
        "OP_INSTANCE_FAILOVER",
        ignore_consistency=opts.ignore_consistency,
        shutdown_timeout=opts.shutdown_timeout,
        iallocator=opts.iallocator,
        target_node=opts.dst_node,
        ignore_ipolicy=opts.ignore_ipolicy,
        cleanup=opts.cleanup,
    )
    return selection.for_arguments(ctx, operation)
