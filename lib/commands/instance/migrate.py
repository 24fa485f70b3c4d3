"""``migrate``: move running instances to another node."""

from ganeti.base.constants import exitcodes
from ganeti.commands.cli import prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.param_options import migration_mode
from ganeti.commands.cli.waiting import jobs
from ganeti.commands.instance import devices, selection


def run(ctx: CommandContext) -> int:
    """Migrate instances; if one of several does not exist, migrate none."""
    opts = ctx.opts
    if opts.iallocator and opts.dst_node:
        raise devices.refusal("--iallocator and --target-node exclude each other")
    mode = migration_mode(ctx)
    if not (opts.force or opts.explain):
        selection.known(ctx, ctx.args)
        if not prompts.confirm(ctx, _question(ctx.args, cleanup=opts.cleanup)):
            return exitcodes.EXIT_FAILURE
    operation = jobs.op(
        "OP_INSTANCE_MIGRATE",
        mode=mode,
        cleanup=opts.cleanup,
        iallocator=opts.iallocator,
        target_node=opts.dst_node,
        allow_failover=opts.allow_failover,
        allow_runtime_changes=opts.allow_runtime_chgs,
        ignore_ipolicy=opts.ignore_ipolicy,
        ignore_hvversions=opts.ignore_hvversions,
    )
    return selection.for_arguments(ctx, operation)


def _question(names: list[str], *, cleanup: bool) -> str:
    subject = f"Instance {names[0]}" if len(names) == 1 else ", ".join(names)
    if cleanup:
        return (
            f"{subject} will be recovered from a failed migration. Note that the"
            " migration procedure (including cleanup) may impact the instance if"
            " something goes wrong. Continue?"
        )
    return (
        f"{subject} will be migrated. Note that migration may impact the"
        " instance if anything goes wrong. Continue?"
    )
