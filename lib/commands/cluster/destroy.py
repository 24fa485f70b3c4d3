"""``destroy``: remove an empty cluster."""

from ganeti.cli import jobs, plans
from ganeti.cli.app import CliError
from ganeti.cli.context import CommandContext
from ganeti.constants import exitcodes


def run(ctx: CommandContext) -> int:
    """Destroy the cluster and remove its configuration from this node."""
    from ganeti import process
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
