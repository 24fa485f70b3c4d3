"""``modify``: change flags and parameters of a node."""

from ganeti.base import errors
from ganeti.base.constants import ecodes, exitcodes
from ganeti.commands.cli import param_options, prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, submission


def run(ctx: CommandContext) -> int:
    """Change a node."""
    opts = ctx.opts
    changes = {
        "master_candidate": opts.master_candidate,
        "offline": opts.offline,
        "drained": opts.drained,
        "master_capable": opts.master_capable,
        "vm_capable": opts.vm_capable,
        "secondary_ip": opts.secondary_ip,
        "ndparams": opts.ndparams,
        "powered": opts.node_powered,
        **param_options.state_parameters(opts),
    }
    if all(value is None for value in changes.values()):
        raise errors.OpPrereqError(
            "nothing to change: please give at least one parameter",
            ecodes.ECODE_INVAL,
        )
    question = (
        f"Node {ctx.args[0]} was offline: its instances may run elsewhere now, and its"
        " data may be old. It should be re-added with 'gnt-node add --readd' instead."
        " Do you want to set it online all the same?"
    )
    if opts.offline is False and not opts.force and not prompts.confirm(ctx, question):
        return exitcodes.EXIT_FAILURE
    operation = jobs.op(
        "OP_NODE_SET_PARAMS",
        node_name=ctx.args[0],
        force=opts.force,
        auto_promote=opts.auto_promote,
        **changes,
    )
    job = submission.submit_or_run(ctx, operation)
    if not job.is_done:
        return job.code
    param_options.report_changes(ctx, f"node {ctx.args[0]}", job.result)
    return job.code
