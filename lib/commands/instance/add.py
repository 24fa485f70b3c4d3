"""``add``: create an instance."""

from typing import Any, Final

from ganeti.base import errors
from ganeti.commands.cli import cloud_init
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import explain
from ganeti.commands.cli.waiting import jobs, submission
from ganeti.commands.instance import devices

#: Shown in place of the name that a reservation lacks.
_NAMELESS: Final = "(no name)"
#: Parameters of the opcode whose option has the same name: of each new instance, ...
_SHARED_NAMES: Final = (
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
    "ignore_ipolicy",
    "helper_startup_timeout",
    "helper_shutdown_timeout",
)
#: ... and of this command.
_SAME_NAMES: Final = (
    "forthcoming",
    "commit",
    "owner",
    "reservation_priority",
    "request_key",
    "start",
    "force_variant",
    "no_install",
    "instance_communication",
)


def run(ctx: CommandContext) -> int:
    """Create an instance."""
    opts = ctx.opts
    if opts.forthcoming and opts.commit:
        raise devices.refusal("--forthcoming and --commit exclude each other")
    shared = parameters(opts)
    name = _name(ctx)
    operation = jobs.op(
        "OP_INSTANCE_CREATE",
        mode="create",
        instance_name=name,
        disks=_disks(opts),
        nics=_nics(opts),
        os_type=opts.os,
        expires=devices.expiry(opts.expires),
        **{name: getattr(opts, name) for name in _SAME_NAMES},
        **shared,
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


def parameters(opts: Any) -> dict[str, Any]:
    """Return the parameters of the options that each new instance has.

    Args:
        opts: values of `ganeti.commands.cli.options.NEW_INSTANCE`, without disks and
            NICs, of ``IGNORE_IPOLICY`` and ``HELPER_TIMES``.

    Raises:
        OpPrereqError: the hypervisor has a form that removes something.
    """
    hypervisor, hvparams = opts.hypervisor or (None, {})
    if not isinstance(hvparams, dict):
        raise devices.refusal(f"hypervisor {hypervisor}: cannot be removed here")
    return {
        "hypervisor": hypervisor,
        "hvparams": hvparams,
        "osparams_private": cloud_init.private_parameters(opts),
        "osparams_secret": opts.osparams_secret or None,
        "group_name": opts.nodegroup,
        "tags": opts.tags.split(",") if opts.tags else [],
        **_nodes(opts.node),
        **{name: getattr(opts, name) for name in _SHARED_NAMES},
    }


def _nodes(text: str | None) -> dict[str, str]:
    """Return the parameters of PRIMARY[:SECONDARY]."""
    primary, _, secondary = (text or "").partition(":")
    named = {"pnode": primary, "snode": secondary}
    return {key: name for key, name in named.items() if name}
