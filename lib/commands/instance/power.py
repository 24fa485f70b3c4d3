"""``startup``, ``shutdown`` and ``reboot``: one job per selected instance."""

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs
from ganeti.commands.instance import selection


def startup(ctx: CommandContext) -> int:
    """Start instances."""
    opts = ctx.opts
    operation = jobs.op(
        "OP_INSTANCE_STARTUP",
        force=opts.force,
        ignore_offline_nodes=opts.ignore_offline,
        no_remember=opts.no_remember,
        startup_paused=opts.startup_paused,
        hvparams=opts.hvparams or None,
        beparams=opts.beparams or None,
    )
    return selection.for_each(ctx, "startup", lambda _: operation)


def shutdown(ctx: CommandContext) -> int:
    """Stop instances."""
    opts = ctx.opts
    operation = jobs.op(
        "OP_INSTANCE_SHUTDOWN",
        force=opts.force,
        timeout=opts.timeout,
        ignore_offline_nodes=opts.ignore_offline,
        no_remember=opts.no_remember,
    )
    return selection.for_each(ctx, "shutdown", lambda _: operation)


def reboot(ctx: CommandContext) -> int:
    """Reboot instances."""
    opts = ctx.opts
    operation = jobs.op(
        "OP_INSTANCE_REBOOT",
        reboot_type=opts.reboot_type,
        ignore_secondaries=opts.ignore_secondaries,
        shutdown_timeout=opts.shutdown_timeout,
    )
    return selection.for_each(ctx, "reboot", lambda _: operation)
