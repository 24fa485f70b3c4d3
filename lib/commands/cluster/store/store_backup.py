"""``backup-store`` and ``restore-store``: configuration and jobs in one file."""

import os

from ganeti.base.constants import exitcodes
from ganeti.commands.cli import local, prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import plans

_QUESTION = (
    "This replaces the configuration of the cluster by that of the backup: revision"
    " {revision}, {nodes} nodes, {instances} instances. Changes made since then are"
    " undone in the configuration, but not on the nodes. Continue?"
)


def back_up(ctx: CommandContext) -> int:
    """Write a backup."""
    from ganeti.base import clock
    from ganeti.bootstrap.stores import store_backup

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
    from ganeti.bootstrap.stores import store_backup

    local.check_is_master(ctx.paths)
    path = os.path.abspath(ctx.args[0])
    done = store_backup.read(path)
    store_backup.check(ctx.paths, done.snapshot)
    if plans.wanted(ctx):
        return plans.show(ctx, [], before=store_backup.steps(path, done))
    question = _QUESTION.format(
        revision=done.revision,
        nodes=len(done.snapshot.nodes),
        instances=len(done.snapshot.instances),
    )
    if not ctx.opts.force and not prompts.confirm(ctx, question):
        return exitcodes.EXIT_FAILURE
    effects = (ctx.paths, process.SystemRunner(), clock.SystemClock())
    store_backup.restore(*effects, path, feedback=ctx.err)
    return exitcodes.EXIT_SUCCESS
