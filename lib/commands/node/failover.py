"""``failover``: fail over all primary instances of a node."""

from typing import Final

from ganeti.base.constants import exitcodes
from ganeti.base.text import nicesort
from ganeti.commands.cli import prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.cli.waiting import jobs
from ganeti.commands.cli.waiting.executor import JobExecutor

_EXIT_DECLINED: Final = 2


def run(ctx: CommandContext) -> int:
    """Fail over the primary instances of a node."""
    opts = ctx.opts
    (node,) = listing.named(ctx, "node", ["name", "pinst_list"], ctx.args)
    instances = nicesort.nice_names(node["pinst_list"])
    if not instances:
        ctx.err(f"No primary instances on node {node['name']}, exiting.")
        return exitcodes.EXIT_SUCCESS
    question = f"Fail over instance(s) {', '.join(instances)}?"
    if not opts.force and not prompts.confirm(ctx, question):
        return _EXIT_DECLINED
    executor = JobExecutor(ctx)
    for name in instances:
        executor.add(
            name,
            jobs.op(
                "OP_INSTANCE_FAILOVER",
                instance_name=name,
                ignore_consistency=opts.ignore_consistency,
                iallocator=opts.iallocator,
            ),
        )
    if (code := executor.planned()) is not None:
        return code
    failed = sum(not outcome.success for outcome in executor.finish())
    if failed:
        ctx.out(
            f"There were errors during the failover:\n{failed} error(s) out of"
            f" {len(instances)} instance(s)."
        )
        return exitcodes.EXIT_FAILURE
    ctx.out(f"All {len(instances)} instance(s) failed over successfully.")
    return exitcodes.EXIT_SUCCESS
