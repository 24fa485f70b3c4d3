"""``rename``: change the name of a stopped instance."""

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, submission


def run(ctx: CommandContext) -> int:
    """Rename an instance."""
    old, new = ctx.args
    operation = jobs.op(
        "OP_INSTANCE_RENAME",
        instance_name=old,
        new_name=new,
        ip_check=ctx.opts.ip_check,
        name_check=ctx.opts.name_check,
    )
    job = submission.submit_or_run(ctx, operation)
    if job.result:
        ctx.out(f"Instance '{old}' renamed to '{job.result}'")
    return job.code
