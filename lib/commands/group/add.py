"""``add``: create a node group."""

from ganeti.commands.cli import ipolicy, param_options
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import executor, jobs, submission


def run(ctx: CommandContext) -> int:
    """Create a node group."""
    opts = ctx.opts
    operation = jobs.op(
        "OP_GROUP_ADD",
        group_name=ctx.args[0],
        alloc_policy=opts.alloc_policy,
        ndparams=opts.ndparams,
        diskparams=param_options.by_ident(opts.diskparams, "disk template") or None,
        ipolicy=ipolicy.from_options(ctx, group=True) or None,
        **param_options.state_parameters(opts),
    )
    job = submission.submit_or_run(ctx, operation)
    if isinstance(job.result, dict):
        executor.wait_for_jobs(ctx, job.result)
    return job.code
