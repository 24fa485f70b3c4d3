"""``lost-changes``: list what lost histories hold, see ``ganeti.store.branches``."""

from ganeti.cli.context import CommandContext
from ganeti.constants import exitcodes


def run(ctx: CommandContext) -> int:
    """List the kept files of this node, with their change-sets and jobs."""
    from ganeti.store import branches

    paths = list(ctx.args) or branches.files(ctx.paths.store_db)
    if not paths:
        ctx.out("No lost history is kept on this node")
        return exitcodes.EXIT_SUCCESS
    for path in paths:
        branch = branches.read(path)
        ctx.out(path)
        if not branch.is_complete:
            ctx.out("  older lost changes are no longer kept")
        for group in branch.groups:
            ctx.out(f"  revision {group.revision}, term {group.term}:")
            for line in branches.describe(group):
                ctx.out(f"    {line}")
        for job in branch.jobs:
            ctx.out(f"  job {job.job_id}: {job.status}: {', '.join(job.opcodes)}")
    return exitcodes.EXIT_SUCCESS
