"""``master-failover``: make this node the master."""

from ganeti.base.constants import exitcodes
from ganeti.commands.cli import prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import plans

_QUESTION = (
    "This will perform the failover even if most other nodes are down, or if this node"
    " is outdated. This is dangerous as it can lead to a non-consistent cluster. Check"
    " the gnt-cluster(8) man page before proceeding. Continue?"
)


def run(ctx: CommandContext) -> int:
    """Make this node the master."""
    opts = ctx.opts
    from ganeti.base import clock, process
    from ganeti.bootstrap import failover

    options = failover.FailoverOptions(
        no_voting=bool(opts.no_voting),
        ignore_offline_nodes=bool(opts.ignore_offline_nodes),
        accept_loss=bool(opts.accept_loss),
    )
    if plans.wanted(ctx):
        steps = failover.plan(ctx.paths, options, feedback=ctx.err)
        return plans.show(ctx, [], before=steps)
    if opts.no_voting and not opts.yes_do_it and not prompts.confirm(ctx, _QUESTION):
        return exitcodes.EXIT_FAILURE
    effects = (ctx.paths, process.SystemRunner(), clock.SystemClock())
    is_clean = failover.fail_over(*effects, options, feedback=ctx.err)
    return exitcodes.EXIT_SUCCESS if is_clean else exitcodes.EXIT_FAILURE
