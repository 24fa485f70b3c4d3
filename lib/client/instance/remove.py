"""``remove``: delete an instance and its disks."""

from ganeti.cli import jobs, prompts, submission
from ganeti.cli.context import CommandContext
from ganeti.client.instance import selection
from ganeti.constants import exitcodes


def run(ctx: CommandContext) -> int:
    """Remove an instance."""
    opts, name = ctx.opts, ctx.args[0]
    question = (
        f"This will remove the volumes of the instance {name} (including mirrors), thus"
        " removing all the data of the instance. Continue?"
    )
    if not opts.force:
        selection.check_known(ctx, name)
        if not prompts.confirm(ctx, question):
            return exitcodes.EXIT_FAILURE
    operation = jobs.op(
        "OP_INSTANCE_REMOVE",
        instance_name=name,
        ignore_failures=opts.ignore_failures,
        shutdown_timeout=opts.shutdown_timeout,
    )
    return submission.submit_or_run(ctx, operation).code
