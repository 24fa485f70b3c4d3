"""``recreate-disks``: create lost disks again, without their data."""

from typing import Any

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import explain
from ganeti.commands.cli.waiting import jobs, submission
from ganeti.commands.instance import devices


def _disks(given: devices.Given) -> list[list[Any]]:
    disks = []
    for ident, parameters in given:
        index = devices.parse_index(ident, "disk")
        if not isinstance(parameters, dict):
            raise devices.refusal(f"disk {index}: wanted key=value parameters")
        disk = dict(parameters)
        if "size" in disk:
            disk["size"] = devices.parse_size(disk["size"], f"disk {index}: size")
        disks.append([index, disk])
    return disks


def run(ctx: CommandContext) -> int:
    """Recreate disks."""
    opts = ctx.opts
    if opts.node and opts.iallocator:
        raise devices.refusal("--node and --iallocator exclude each other")
    operation = jobs.op(
        "OP_INSTANCE_RECREATE_DISKS",
        instance_name=ctx.args[0],
        disks=_disks(opts.disks),
        nodes=[node for node in (opts.node or "").split(":") if node],
        iallocator=opts.iallocator,
    )
    if opts.explain:
        return explain.run(ctx, operation, ctx.args[0])
    return submission.submit_or_run(ctx, operation).code
