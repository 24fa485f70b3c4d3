"""``init``: create a cluster with this machine as its master."""

from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes, exitcodes
from ganeti.commands.cli import ipolicy, param_options
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import plans

#: Options whose value is stored in the field of the same name.
_SAME: Final = (
    "beparams",
    "candidate_pool_size",
    "file_storage_dir",
    "mac_prefix",
    "create_bridge",
    "master_netdev",
    "nicparams",
    "modify_etc_hosts",
    "modify_ssh_setup",
    "secondary_ip",
    "vg_name",
    "maintain_node_health",
    "drbd_helper",
    "default_iallocator",
    "default_iallocator_params",
    "prealloc_wipe_disks",
    "rapi_require_authentication",
    "ndparams",
    "shared_file_storage_dir",
    "use_external_mip_script",
    "gluster_storage_dir",
    "install_image",
    "zeroing_image",
    "enabled_user_shutdown",
    "ssh_key_bits",
    "ssh_key_type",
    "store",
)


def run(ctx: CommandContext) -> int:
    """Initialise a cluster."""
    from ganeti.base import clock, process
    from ganeti.bootstrap import options
    from ganeti.bootstrap.init import initialise

    request = options.InitOptions(cluster_name=ctx.args[0], **_fields(ctx))
    effects = (ctx.paths, process.SystemRunner(), clock.SystemClock())
    if plans.wanted(ctx):
        before = initialise.plan(*effects, request)
        return plans.show(ctx, [], before=before)
    initialise.init_cluster(*effects, request, feedback=ctx.err)
    return exitcodes.EXIT_SUCCESS


def _fields(ctx: CommandContext) -> dict[str, Any]:
    """Return the fields that the options set; all others have built-in defaults."""
    opts = ctx.opts
    fields = {name: getattr(opts, name) for name in _SAME}
    fields |= param_options.state_parameters(opts)
    fields |= {
        "hvparams": param_options.by_ident(opts.hvparams, "hypervisor"),
        "diskparams": param_options.by_ident(opts.diskparams, "disk template"),
        "ipolicy": ipolicy.from_options(ctx),
        "enabled_hypervisors": _words(opts.enabled_hypervisors),
        "enabled_disk_templates": _words(opts.enabled_disk_templates),
        "compression_tools": _words(opts.compression_tools) or None,
        "uid_pool": _uid_pool(opts.uid_pool),
        "master_netmask": _number("--master-netmask", opts.master_netmask),
        "primary_ip_version": _number("--primary-ip-version", opts.primary_ip_version),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _words(text: str | None) -> tuple[str, ...] | None:
    words = param_options.split_words(text)
    return None if words is None else tuple(words)


def _uid_pool(text: str | None) -> tuple[tuple[int, int], ...] | None:
    ranges = param_options.uid_ranges(text)
    return None if ranges is None else tuple((low, high) for low, high in ranges)


def _number(option: str, text: Any) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError as err:
        raise errors.OpPrereqError(
            f"{option}: wanted a number, found {text!r}", ecodes.ECODE_INVAL
        ) from err
