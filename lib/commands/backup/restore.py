"""``import``: create an instance from an export."""

from typing import Any

from ganeti.base.errors import refusal
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import operation, submission
from ganeti.commands.instance import add, devices


def run(ctx: CommandContext) -> int:
    """Create an instance from an export; it is not started."""
    opts = ctx.opts
    creation = operation.fill(
        ctx,
        mode="import",
        disks=_disks(opts),
        nics=devices.new_nics(opts.nics, none=opts.no_nics) if opts.nics else [],
        start=False,
        **add.parameters(opts),
    )
    return submission.submit_or_run(ctx, creation).code


def _disks(opts: Any) -> list[dict[str, Any]]:
    """Return the disks; those of the export by default."""
    if not opts.disks and opts.sd_size is None:
        return []
    disks = devices.new_disks(
        opts.disks, size_mib=opts.sd_size, template=opts.disk_template
    )
    if any("adopt" in disk for disk in disks):
        raise refusal(
            "import: the disks get the content of the export, so none can be adopted"
        )
    return disks
