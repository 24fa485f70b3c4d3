"""``migrate``: move a running instance to another node."""

from ganeti.cli import explain, jobs, prompts, submission
from ganeti.cli.context import CommandContext
from ganeti.cli.param_options import migration_mode
from ganeti.client.instance import devices, selection
from ganeti.constants import exitcodes


def run(ctx: CommandContext) -> int:
    """Migrate an instance."""
    opts, name = ctx.opts, ctx.args[0]
    if opts.iallocator and opts.dst_node:
        raise devices.refusal("--iallocator and --target-node exclude each other")
    mode = migration_mode(ctx)
    question = (
        f"Instance {name} will be recovered from a failed migration. Note that the"
        " migration procedure (including cleanup) may impact the instance if something"
        " goes wrong. Continue?"
        if opts.cleanup
        else f"Instance {name} will be migrated. Note that migration may impact the"
        " instance if anything goes wrong. Continue?"
    )
    if not (opts.force or opts.explain):
        selection.known(ctx, [name])
        if not prompts.confirm(ctx, question):
            return exitcodes.EXIT_FAILURE
    operation = jobs.op(
        "OP_INSTANCE_MIGRATE",
        instance_name=name,
        mode=mode,
        cleanup=opts.cleanup,
        iallocator=opts.iallocator,
        target_node=opts.dst_node,
        allow_failover=opts.allow_failover,
        allow_runtime_changes=opts.allow_runtime_chgs,
        ignore_ipolicy=opts.ignore_ipolicy,
        ignore_hvversions=opts.ignore_hvversions,
    )
    if opts.explain:
        return explain.run(ctx, operation, name)
    return submission.submit_or_run(ctx, operation).code
