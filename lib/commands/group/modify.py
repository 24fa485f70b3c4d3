"""``modify``: change a node group."""

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.commands.cli import ipolicy, param_options
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, submission


def run(ctx: CommandContext) -> int:
    """Change a node group."""
    opts = ctx.opts
    changes = {
        "alloc_policy": opts.alloc_policy,
        "ndparams": opts.ndparams,
        "diskparams": param_options.by_ident(opts.diskparams, "disk template") or None,
        "ipolicy": ipolicy.from_options(ctx, group=True) or None,
        **param_options.state_parameters(opts),
    }
    if all(value is None for value in changes.values()):
        raise errors.OpPrereqError(
            "nothing to change: please give at least one parameter",
            ecodes.ECODE_INVAL,
        )
    operation = jobs.op("OP_GROUP_SET_PARAMS", group_name=ctx.args[0], **changes)
    job = submission.submit_or_run(ctx, operation)
    if not job.is_done:
        return job.code
    param_options.report_changes(ctx, f"node group {ctx.args[0]}", job.result)
    return job.code
