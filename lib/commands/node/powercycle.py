"""``powercycle``: reset a node hard."""

from typing import Final

from ganeti.commands.cli import prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.cli.waiting import jobs, submission

_EXIT_DECLINED: Final = 2


def run(ctx: CommandContext) -> int:
    """Reset a node."""
    node = ctx.args[0]
    if not ctx.opts.confirm:
        listing.named(
            ctx, "node", ["name"], [node]
        )  # refuse a wrong name before the question
        question = f"Are you sure you want to hard powercycle node {node}?"
        if not prompts.confirm(ctx, question):
            return _EXIT_DECLINED
    operation = jobs.op("OP_NODE_POWERCYCLE", node_name=node, force=ctx.opts.force)
    job = submission.submit_or_run(ctx, operation)
    if job.result:
        ctx.err(job.result)
    return job.code
