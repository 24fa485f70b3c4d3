"""``add``: prepare a machine over SSH, then make it a node; and ``modify``."""

import functools
from typing import Final

from ganeti.base import errors
from ganeti.base.constants import exitcodes
from ganeti.commands.cli import prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, operation, plans

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
        addition = _addition(ctx, name, opts.secondary_ip)
        return plans.show(ctx, [], before=[*before, plans.job(addition)])
    _check(ctx, _addition(ctx, name, None if opts.readd else opts.secondary_ip))
    if opts.node_setup and changes_ssh:
        ctx.err(_WARNING.format(node=name))
    joined = node_add.join(ctx.paths, request, feedback=ctx.err)
    addition = _addition(ctx, joined.name, joined.secondary_ip, joined.ssh_host_keys)
    try:
        jobs.run(ctx, addition)
    except _REFUSALS:
        joined.undo()
        raise
    return exitcodes.EXIT_SUCCESS


def _check(ctx: CommandContext, addition: jobs.Op) -> None:
    """Have the master check the request before anything changes on any machine.

    Raises:
        GenericError: the error with which the job would end.
    """
    ops = [{**addition, "dry_run": True}]
    (plan,) = jobs.explained_call(ctx, "PlanJob", ops, [ops])["opcodes"]
    if plan["error"] is not None:
        raise errors.decode(plan["error"]) or errors.OpExecError(str(plan["error"]))


def _addition(
    ctx: CommandContext,
    name: str,
    secondary_ip: str | None,
    host_keys: tuple[str, ...] | None = None,
) -> jobs.Op:
    return operation.fill(
        ctx,
        node_name=name,
        secondary_ip=secondary_ip,
        ssh_host_keys=None if host_keys is None else list(host_keys),
    )


def modify(ctx: CommandContext) -> int:
    """Change a node."""
    opts = ctx.opts
    operation.require_changes(ctx, operation.fill(ctx))
    question = (
        f"Node {ctx.args[0]} was offline: its instances may run elsewhere now, and its"
        " data may be old. It should be re-added with 'gnt-node add --readd' instead."
        " Do you want to set it online all the same?"
    )
    if opts.offline is False and not opts.force and not prompts.confirm(ctx, question):
        return exitcodes.EXIT_FAILURE
    return operation.run(ctx)
