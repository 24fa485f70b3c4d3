"""``migrate-store``: move the configuration and the jobs to etcd, or back to files."""

from ganeti.base.constants import exitcodes
from ganeti.commands.cli import local
from ganeti.commands.cli.app import CliError
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import plans


def run(ctx: CommandContext) -> int:
    """Move the store."""
    from ganeti.base import clock, process
    from ganeti.bootstrap.stores import store_moves

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
