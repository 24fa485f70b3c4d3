"""``import``: create an instance from an export."""

from typing import Any, Final

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, submission
from ganeti.commands.instance import add, devices

#: Further parameters of the opcode whose option has the same name.
_SAME_NAMES: Final = ("identify_defaults", "src_node", "compress", "no_nics")


def run(ctx: CommandContext) -> int:
    """Create an instance from an export; it is not started."""
    opts = ctx.opts
    operation = jobs.op(
        "OP_INSTANCE_CREATE",
        mode="import",
        instance_name=ctx.args[0],
        disks=_disks(opts),
        nics=devices.new_nics(opts.nics, none=opts.no_nics) if opts.nics else [],
        src_path=opts.src_dir,
        start=False,
        **{name: getattr(opts, name) for name in _SAME_NAMES},
        **add.parameters(opts),
    )
    return submission.submit_or_run(ctx, operation).code


def _disks(opts: Any) -> list[dict[str, Any]]:
    """Return the disks; those of the export by default."""
    if not opts.disks and opts.sd_size is None:
        return []
    disks = devices.new_disks(
        opts.disks, size_mib=opts.sd_size, template=opts.disk_template
    )
    if any("adopt" in disk for disk in disks):
        raise devices.refusal(
            "import: the disks get the content of the export, so none can be adopted"
        )
    return disks
