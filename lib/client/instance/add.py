"""``add``: create an instance."""

from typing import Any, Final

from ganeti import errors
from ganeti.cli import explain, jobs, submission
from ganeti.cli.context import CommandContext
from ganeti.client.instance import devices

#: Shown in place of the name that a reservation lacks.
_NAMELESS: Final = "(no name)"


def run(ctx: CommandContext) -> int:
    """Create an instance."""
    opts = ctx.opts
    if opts.forthcoming and opts.commit:
        raise devices.refusal("--forthcoming and --commit exclude each other")
    hypervisor, hvparams = opts.hypervisor or (None, {})
    if not isinstance(hvparams, dict):
        raise devices.refusal(f"hypervisor {hypervisor}: cannot be removed here")
    name = _name(ctx)
    operation = jobs.op(
        "OP_INSTANCE_CREATE",
        mode="create",
        instance_name=name,
        disks=_disks(opts),
        nics=_nics(opts),
        hypervisor=hypervisor,
        hvparams=hvparams,
        osparams_private=opts.osparams_private or None,
        osparams_secret=opts.osparams_secret or None,
        os_type=opts.os,
        group_name=opts.nodegroup,
        tags=opts.tags.split(",") if opts.tags else [],
        **nodes(opts.node),
        **_same_names(opts),
    )
    if opts.explain:
        return explain.run(ctx, operation, name or _NAMELESS)
    job = submission.submit_or_run(ctx, operation)
    if job.is_done and isinstance(job.result, str):
        ctx.out(job.result)
    return job.code


def _name(ctx: CommandContext) -> str:
    """Return the name; only a reservation may have none.

    Raises:
        GenericError: it is missing, with the documented text.
    """
    if ctx.args:
        return ctx.args[0]
    if not ctx.opts.forthcoming:
        raise errors.GenericError(
            "Error: Command add expects 1 argument(s)\n"
            "(only a reservation, --forthcoming, may have no name)"
        )
    return ""


def _disks(opts: Any) -> list[dict[str, Any]]:
    """Return the disks; a reservation may have none yet, a commit has them."""
    is_given = opts.disks or opts.sd_size is not None
    if (opts.forthcoming or opts.commit) and not is_given:
        return []
    return devices.new_disks(
        opts.disks, size_mib=opts.sd_size, template=opts.disk_template
    )


def _nics(opts: Any) -> list[dict[str, Any]]:
    """Return the NICs; a commit has those of the reservation."""
    if opts.commit and not opts.nics:
        return []
    return devices.new_nics(opts.nics, none=opts.no_nics)


def nodes(text: str | None) -> dict[str, str]:
    """Return the parameters of PRIMARY[:SECONDARY]."""
    primary, _, secondary = (text or "").partition(":")
    named = {"pnode": primary, "snode": secondary}
    return {key: name for key, name in named.items() if name}


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
        "expires",
        "owner",
        "reservation_priority",
        "request_key",
        "start",
        "force_variant",
        "no_install",
        "ignore_ipolicy",
        "instance_communication",
        "helper_startup_timeout",
        "helper_shutdown_timeout",
    )
    given = {name: getattr(opts, name) for name in names}
    return {**given, "expires": devices.expiry(opts.expires)}
