"""``replace-disks``: rebuild mirrored disks, or move the mirror to another node."""

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import explain
from ganeti.commands.cli.waiting import jobs, submission
from ganeti.commands.instance import devices


def run(ctx: CommandContext) -> int:
    """Replace the disks of an instance."""
    opts = ctx.opts
    disks = [
        devices.parse_index(word, "disk")
        for word in (opts.disks or "").split(",")
        if word
    ]
    modes = {
        "replace_on_primary": opts.on_primary,
        "replace_on_secondary": opts.on_secondary,
        "replace_auto": opts.auto,
        "replace_new_secondary": opts.dst_node is not None
        or opts.iallocator is not None,
    }
    chosen = [mode for mode, given in modes.items() if given]
    if len(chosen) != 1 or (opts.dst_node and opts.iallocator):
        raise devices.refusal(
            "exactly one of --on-primary, --on-secondary, --auto, --new-secondary and"
            " --iallocator must be given"
        )
    if opts.auto and disks:
        raise devices.refusal("--disks and --auto exclude each other")
    operation = jobs.op(
        "OP_INSTANCE_REPLACE_DISKS",
        instance_name=ctx.args[0],
        disks=disks,
        mode=chosen[0],
        remote_node=opts.dst_node,
        iallocator=opts.iallocator,
        early_release=opts.early_release,
        ignore_ipolicy=opts.ignore_ipolicy,
    )
    if opts.explain:
        return explain.run(ctx, operation, ctx.args[0])
    return submission.submit_or_run(ctx, operation).code
