"""``lost-changes``: list what lost histories hold, see ``copies.branches``."""

from typing import Any

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing


def run(ctx: CommandContext) -> None:
    """List the kept files of this node, with their change-sets and jobs."""
    from ganeti.store.copies import branches

    paths = list(ctx.args) or branches.files(ctx.paths.store_db)
    branches_kept = [_document(path) for path in paths]
    if ctx.opts.json:
        listing.print_json(ctx, branches_kept)
        return
    if not branches_kept:
        ctx.out("No lost history is kept on this node")
    for branch in branches_kept:
        _show(ctx, branch)


def _document(path: str) -> dict[str, Any]:
    from ganeti.store.copies import branches

    branch = branches.read(path)
    return {
        "path": path,
        "is_complete": branch.is_complete,
        "is_compared": branch.is_compared,
        "groups": [
            {
                "revision": group.revision,
                "term": group.term,
                "changes": group.changes,
            }
            for group in branch.groups
        ],
        "jobs": [
            {"id": job.job_id, "status": job.status, "opcodes": job.opcodes}
            for job in branch.jobs
        ],
    }


def _show(ctx: CommandContext, branch: dict[str, Any]) -> None:
    ctx.out(branch["path"])
    if not branch["is_compared"]:
        ctx.out(
            "  this node was demoted before its copy was compared with the master's:"
            " the cluster may lack these changes"
        )
    elif not branch["is_complete"]:
        ctx.out("  older lost changes are no longer kept")
    for group in branch["groups"]:
        ctx.out(f"  revision {group['revision']}, term {group['term']}:")
        for line in group["changes"]:
            ctx.out(f"    {line}")
    for job in branch["jobs"]:
        ctx.out(f"  job {job['id']}: {job['status']}: {', '.join(job['opcodes'])}")
