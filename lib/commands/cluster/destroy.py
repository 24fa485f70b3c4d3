"""``destroy``: remove an empty cluster."""

from ganeti.base.constants import exitcodes
from ganeti.commands.cli.app import CliError
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, plans


def run(ctx: CommandContext) -> int:
    """Destroy the cluster and remove its configuration from this node."""
    from ganeti.base import process
    from ganeti.bootstrap import destroy

    operation = jobs.op("OP_CLUSTER_DESTROY")
    if plans.wanted(ctx):
        return plans.show(ctx, [[operation]], after=destroy.steps(ctx.paths))
    if not ctx.opts.yes_do_it:
        raise CliError(
            "Destroying a cluster is irreversible. If you really want to destroy this"
            " cluster, add the option --yes-do-it."
        )
    jobs.run(ctx, operation)
    destroy.finalize_destroy(ctx.paths, process.SystemRunner(), feedback=ctx.err)
    return exitcodes.EXIT_SUCCESS
