"""``add``: create an instance."""

from typing import Any

from ganeti.cli import explain, jobs, submission
from ganeti.cli.context import CommandContext
from ganeti.client.instance import devices


def run(ctx: CommandContext) -> int:
    """Create an instance."""
    opts = ctx.opts
    if opts.forthcoming and opts.commit:
        raise devices.refusal("--forthcoming and --commit exclude each other")
    hypervisor, hvparams = opts.hypervisor or (None, {})
    if not isinstance(hvparams, dict):
        raise devices.refusal(f"hypervisor {hypervisor}: cannot be removed here")
    operation = jobs.op(
        "OP_INSTANCE_CREATE",
        mode="create",
        instance_name=ctx.args[0],
        disks=devices.new_disks(
            opts.disks, size_mib=opts.sd_size, template=opts.disk_template
        ),
        nics=devices.new_nics(opts.nics, none=opts.no_nics),
        hypervisor=hypervisor,
        hvparams=hvparams,
        osparams_private=opts.osparams_private or None,
        osparams_secret=opts.osparams_secret or None,
        os_type=opts.os,
        group_name=opts.nodegroup,
        tags=opts.tags.split(",") if opts.tags else [],
        **_nodes(opts.node),
        **_same_names(opts),
    )
    if opts.explain:
        return explain.run(ctx, operation, ctx.args[0])
    return submission.submit_or_run(ctx, operation).code


def _nodes(text: str | None) -> dict[str, str]:
    primary, _, secondary = (text or "").partition(":")
    nodes = {"pnode": primary, "snode": secondary}
    return {key: name for key, name in nodes.items() if name}


def _same_names(opts: Any) -> dict[str, Any]:
    """Return the parameters whose option has the same name."""
    names = (
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
        "forthcoming",
        "commit",
        "start",
        "force_variant",
        "no_install",
        "ignore_ipolicy",
        "instance_communication",
        "helper_startup_timeout",
        "helper_shutdown_timeout",
    )
    return {name: getattr(opts, name) for name in names}
