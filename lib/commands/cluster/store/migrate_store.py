"""``migrate-store``: move the configuration and the jobs to etcd, or back to files."""

from ganeti.cli import local, plans
from ganeti.cli.app import CliError
from ganeti.cli.context import CommandContext
from ganeti.constants import exitcodes


def run(ctx: CommandContext) -> int:
    """Move the store."""
    from ganeti import clock, process
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
