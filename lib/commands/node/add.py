"""``add``: prepare a machine over SSH, then make it a node."""

import functools
from typing import Final

from ganeti.base import errors
from ganeti.base.constants import exitcodes
from ganeti.commands.cli import param_options, prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, plans

#: Ends of a job that has not added the node; after others it may have, or still will.
_REFUSALS: Final = (
    errors.HooksAbort,
    errors.JobCanceled,
    errors.JobQueueError,
    errors.OpExecError,
    errors.OpPrereqError,
)
_WARNING = """\
-- WARNING --
Performing this operation makes the target machine ({node}) a node of the
cluster: all master candidates can then log in to it as root. Its public SSH
host keys are recorded, and nodes know it by them alone.
"""


def run(ctx: CommandContext) -> int:
    """Add a node to the cluster, or add it again."""
    from ganeti.bootstrap import node_add, options

    opts = ctx.opts
    name = ctx.args[0]
    (changes_ssh,) = ctx.call("QueryConfigValues", ["modify_ssh_setup"])
    request = options.JoinRequest(
        name=name,
        readd=opts.readd,
        group=opts.nodegroup,
        secondary_ip=opts.secondary_ip,
        ssh_key_check=opts.ssh_key_check,
        ask_host_key=lambda host, kind, print_: prompts.confirm(
            ctx,
            f"The authenticity of host '{host}' can't be established.\n"
            f"{kind} key fingerprint is {print_}.\n"
            "Are you sure you want to continue connecting?",
        ),
        ask_password=functools.partial(prompts.password, ctx),
        create_bridge=opts.create_bridge,
        debug=bool(opts.debug or opts.verbose),
    )
    if plans.wanted(ctx):
        before = node_add.plan(ctx.paths, request)
        operation = _operation(ctx, name, opts.secondary_ip)
        return plans.show(ctx, [], before=[*before, plans.job(operation)])
    _check(ctx, _operation(ctx, name, None if opts.readd else opts.secondary_ip))
    if opts.node_setup and changes_ssh:
        ctx.err(_WARNING.format(node=name))
    joined = node_add.join(ctx.paths, request, feedback=ctx.err)
    operation = _operation(ctx, joined.name, joined.secondary_ip, joined.ssh_host_keys)
    try:
        jobs.run(ctx, operation)
    except _REFUSALS:
        joined.undo()
        raise
    return exitcodes.EXIT_SUCCESS


def _check(ctx: CommandContext, operation: jobs.Op) -> None:
    """Have the master check the request before anything changes on any machine.

    Raises:
        GenericError: the error with which the job would end.
    """
    ops = [{**operation, "dry_run": True}]
    (plan,) = jobs.explained_call(ctx, "PlanJob", ops, [ops])["opcodes"]
    if plan["error"] is not None:
        raise errors.decode(plan["error"]) or errors.OpExecError(str(plan["error"]))


def _operation(
    ctx: CommandContext,
    name: str,
    secondary_ip: str | None,
    host_keys: tuple[str, ...] | None = None,
) -> jobs.Op:
    opts = ctx.opts
    return jobs.op(
        "OP_NODE_ADD",
        node_name=name,
        secondary_ip=secondary_ip,
        readd=opts.readd,
        group=opts.nodegroup,
        vm_capable=opts.vm_capable,
        master_capable=opts.master_capable,
        ndparams=opts.ndparams,
        node_setup=opts.node_setup,
        ssh_host_keys=None if host_keys is None else list(host_keys),
        **param_options.state_parameters(opts),
    )
