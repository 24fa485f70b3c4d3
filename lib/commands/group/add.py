"""``add``: create a node group."""

from ganeti.cli import executor, ipolicy, jobs, param_options, submission
from ganeti.cli.context import CommandContext


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
