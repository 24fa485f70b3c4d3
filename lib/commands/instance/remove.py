"""``remove``: delete instances and their disks."""

from ganeti.base.constants import exitcodes
from ganeti.commands.cli import prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, submission
from ganeti.commands.instance import selection


def run(ctx: CommandContext) -> int:
    """Remove instances; if one of several does not exist, remove none."""
    opts, names = ctx.opts, ctx.args
    if len(names) > 1 or not opts.force:
        names = selection.known(ctx, names)
    if not opts.force and not prompts.confirm(ctx, _question(ctx, names)):
        return exitcodes.EXIT_FAILURE
    operation = jobs.op(
        "OP_INSTANCE_REMOVE",
        ignore_failures=opts.ignore_failures,
        shutdown_timeout=opts.shutdown_timeout,
    )
    if len(ctx.args) > 1:
        return selection.for_names(ctx, names, lambda _: operation)
    named = {**operation, "instance_name": ctx.args[0]}
    return submission.submit_or_run(ctx, named).code


def _question(ctx: CommandContext, names: list[str]) -> str:
    if len(ctx.args) == 1:
        return (
            f"This will remove the volumes of the instance {ctx.args[0]} (including"
            " mirrors), thus removing all the data of the instance. Continue?"
        )
    return (
        f"This will remove the volumes of {len(names)} instances, {', '.join(names)}"
        " (including mirrors), thus removing all their data. Continue?"
    )
