"""Commands that move, remove or rename instances."""

from ganeti.base.constants import exitcodes
from ganeti.commands.cli import prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.cli.param_options import migration_mode
from ganeti.commands.cli.waiting import executor, operation, submission


def failover(ctx: CommandContext) -> int:
    """Fail instances over; if one of several does not exist, fail over none."""
    opts = ctx.opts
    if not (opts.force or opts.explain):
        listing.full_names(ctx, "instance", ctx.args)
        question = (
            f"Failover will happen to image {', '.join(ctx.args)}. This requires a"
            " shutdown of the instance. Continue?"
        )
        if not prompts.confirm(ctx, question):
            return exitcodes.EXIT_FAILURE
    warning = (
        "To ignore the consistency of the disks may lose data. Are you sure that the"
        " primary node is down and the instance does not run there?"
    )
    # Scripts that force it cannot answer.
    asks = not opts.force or prompts.has_terminal(ctx)
    if opts.ignore_consistency and asks and not prompts.confirm(ctx, warning):
        return exitcodes.EXIT_FAILURE
    return operation.run(ctx)


def migrate(ctx: CommandContext) -> int:
    """Migrate instances; if one of several does not exist, migrate none."""
    opts = ctx.opts
    mode = migration_mode(ctx)
    if not (opts.force or opts.explain):
        listing.full_names(ctx, "instance", ctx.args)
        if not prompts.confirm(ctx, _question(ctx.args, cleanup=opts.cleanup)):
            return exitcodes.EXIT_FAILURE
    return operation.run(ctx, mode=mode)


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


def move(ctx: CommandContext) -> int:
    """Copy an instance to another node."""
    question = (
        f"Instance {ctx.args[0]} will be moved. This requires a shutdown of the"
        " instance. Continue?"
    )
    if not ctx.opts.force and not prompts.confirm(ctx, question):
        return exitcodes.EXIT_FAILURE
    return operation.run(ctx)


def remove(ctx: CommandContext) -> int:
    """Remove instances; if one of several does not exist, remove none."""
    opts, names = ctx.opts, ctx.args
    if len(names) > 1 or not opts.force:
        names = listing.full_names(ctx, "instance", names)
    if not opts.force and not prompts.confirm(ctx, _removal_question(ctx, names)):
        return exitcodes.EXIT_FAILURE
    known = names if len(ctx.args) > 1 else None
    return executor.for_named(ctx, "instance", operation.fill(ctx), known=known)


def _removal_question(ctx: CommandContext, names: list[str]) -> str:
    if len(ctx.args) == 1:
        return (
            f"This will remove the volumes of the instance {ctx.args[0]} (including"
            " mirrors), thus removing all the data of the instance. Continue?"
        )
    return (
        f"This will remove the volumes of {len(names)} instances, {', '.join(names)}"
        " (including mirrors), thus removing all their data. Continue?"
    )


def rename(ctx: CommandContext) -> int:
    """Rename an instance."""
    job = submission.submit_or_run(ctx, operation.fill(ctx))
    if job.result:
        ctx.out(f"Instance '{ctx.args[0]}' renamed to '{job.result}'")
    return job.code
