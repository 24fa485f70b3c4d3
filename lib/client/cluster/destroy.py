"""``destroy``: remove an empty cluster."""

from ganeti.cli import jobs
from ganeti.cli.app import CommandError
from ganeti.cli.context import Context


def run(ctx: Context) -> None:
    """Destroy the cluster and leave this node without one."""
    if not ctx.opts.yes_do_it:
        raise CommandError(
            "Destroying a cluster is irreversible. If you really want to destroy this"
            " cluster, add the option --yes-do-it."
        )
    from ganeti import process
    from ganeti.bootstrap import destroying

    jobs.run(ctx, jobs.op("OP_CLUSTER_DESTROY"))
    destroying.finalize_destroy(ctx.paths, process.SystemRunner(), feedback=ctx.err)
