"""``move``: copy an instance to another node."""

from ganeti.base.constants import exitcodes
from ganeti.commands.cli import prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, submission
from ganeti.commands.instance import devices


def run(ctx: CommandContext) -> int:
    """Move an instance."""
    opts, name = ctx.opts, ctx.args[0]
    if not opts.node:
        raise devices.refusal("move: the target node is missing (-n)")
    question = (
        f"Instance {name} will be moved. This requires a shutdown of the instance."
        " Continue?"
    )
    if not opts.force and not prompts.confirm(ctx, question):
        return exitcodes.EXIT_FAILURE
    operation = jobs.op(
        "OP_INSTANCE_MOVE",
        instance_name=name,
        target_node=opts.node,
        compress=opts.compress,
        shutdown_timeout=opts.shutdown_timeout,
        ignore_consistency=opts.ignore_consistency,
        ignore_ipolicy=opts.ignore_ipolicy,
    )
    return submission.submit_or_run(ctx, operation).code
