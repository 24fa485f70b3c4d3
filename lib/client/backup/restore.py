"""``import``: create an instance from an export."""

from typing import Any, Final

from ganeti.cli import jobs, submission
from ganeti.cli.context import CommandContext
from ganeti.client.instance import add, devices

#: Parameters of the opcode whose option has the same name.
_SAME_NAMES: Final = (
    "beparams",
    "osparams",
    "disk_template",
    "file_storage_dir",
    "file_driver",
    "iallocator",
    "ip_check",
    "name_check",
    "conflicts_check",
    "wait_for_sync",
    "opportunistic_locking",
    "identify_defaults",
    "src_node",
    "compress",
    "ignore_ipolicy",
    "helper_startup_timeout",
    "helper_shutdown_timeout",
    "no_nics",
)


def run(ctx: CommandContext) -> int:
    """Create an instance from an export; it is not started."""
    opts = ctx.opts
    hypervisor, hvparams = opts.hypervisor or (None, {})
    if not isinstance(hvparams, dict):
        raise devices.refusal(f"hypervisor {hypervisor}: cannot be removed here")
    operation = jobs.op(
        "OP_INSTANCE_CREATE",
        mode="import",
        instance_name=ctx.args[0],
        disks=_disks(opts),
        nics=devices.new_nics(opts.nics, none=opts.no_nics) if opts.nics else [],
        hypervisor=hypervisor,
        hvparams=hvparams,
        osparams_private=opts.osparams_private or None,
        osparams_secret=opts.osparams_secret or None,
        group_name=opts.nodegroup,
        tags=opts.tags.split(",") if opts.tags else [],
        src_path=opts.src_dir,
        start=False,
        **add.nodes(opts.node),
        **{name: getattr(opts, name) for name in _SAME_NAMES},
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
