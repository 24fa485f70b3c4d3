"""``rename``: change the cluster's name and address."""

from ganeti.base.constants import exitcodes
from ganeti.commands.cli import prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, submission


def run(ctx: CommandContext) -> int:
    """Rename the cluster."""
    (old,) = ctx.call("QueryConfigValues", ["cluster_name"])
    new = ctx.args[0]
    question = (
        f"This will rename the cluster from '{old}' to '{new}'. If you are connected"
        " over the network to the cluster name, the operation is very dangerous as the"
        " IP address will be removed from the node and the change may not go through."
        " Continue?"
    )
    if not ctx.opts.force and not prompts.confirm(ctx, question):
        return exitcodes.EXIT_FAILURE
    job = submission.run(ctx, jobs.op("OP_CLUSTER_RENAME", name=new))
    if job.result:
        ctx.out(f"Cluster renamed from '{old}' to '{job.result}'")
    return job.code
