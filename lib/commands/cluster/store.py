"""Commands of ``gnt-cluster`` on the store: copies, moves to etcd and lost changes."""

import os
from typing import Any

from ganeti.base.constants import exitcodes
from ganeti.commands.cli import local, prompts
from ganeti.commands.cli.app import CliError
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.cli.waiting import plans

_RESTORE_QUESTION = (
    "This replaces the configuration of the cluster by that of the backup: revision"
    " {revision}, {nodes} nodes, {instances} instances. Changes made since then are"
    " undone in the configuration, but not on the nodes. Continue?"
)


def back_up(ctx: CommandContext) -> int:
    """Write a backup."""
    from ganeti.base import clock
    from ganeti.bootstrap import store_backup

    local.check_is_master(ctx.paths)
    path = os.path.abspath(ctx.args[0])
    done = store_backup.back_up(ctx.paths, path, clock.SystemClock())
    ctx.out(
        f"{path}: revision {done.revision}, {len(done.snapshot.nodes)} nodes,"
        f" {len(done.snapshot.instances)} instances"
    )
    return exitcodes.EXIT_SUCCESS


def restore(ctx: CommandContext) -> int:
    """Restore a backup."""
    from ganeti.base import clock, process
    from ganeti.bootstrap import store_backup

    local.check_is_master(ctx.paths)
    path = os.path.abspath(ctx.args[0])
    done = store_backup.read(path)
    store_backup.check(ctx.paths, done.snapshot)
    if plans.wanted(ctx):
        return plans.show(ctx, [], before=store_backup.steps(path, done))
    question = _RESTORE_QUESTION.format(
        revision=done.revision,
        nodes=len(done.snapshot.nodes),
        instances=len(done.snapshot.instances),
    )
    if not ctx.opts.force and not prompts.confirm(ctx, question):
        return exitcodes.EXIT_FAILURE
    effects = (ctx.paths, process.SystemRunner(), clock.SystemClock())
    store_backup.restore(*effects, path, feedback=ctx.err)
    return exitcodes.EXIT_SUCCESS


def migrate_store(ctx: CommandContext) -> int:
    """Move the store."""
    from ganeti.base import clock, process
    from ganeti.bootstrap import store_moves

    local.check_is_master(ctx.paths)
    if not ctx.opts.target:
        raise CliError("--to: wanted etcd://HOST:PORT,... or file")
    move = store_moves.Move(
        ctx.paths,
        process.SystemRunner(),
        clock.SystemClock(),
        ctx.opts.target,
        ctx.err,
    )
    if plans.wanted(ctx):
        return plans.show(ctx, [], before=move.steps())
    move.run()
    return exitcodes.EXIT_SUCCESS


def show_lost_changes(ctx: CommandContext) -> None:
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
