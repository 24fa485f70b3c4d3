"""``modify``: change cluster parameters."""

from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes, exitcodes
from ganeti.base.constants.protocols import export, mond
from ganeti.commands.cli import ipolicy, param_options, values
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import executor, jobs, submission

#: Options whose value is used for the parameter of the same name.
_SAME: Final = (
    "commit_policy",
    "confd_detect_replays",
    "confd_hmac",
    "candidate_pool_size",
    "max_running_jobs",
    "max_tracked_jobs",
    "install_image",
    "instance_communication_network",
    "mac_prefix",
    "master_netdev",
    "vg_name",
    "maintain_node_health",
    "node_death",
    "drbd_helper",
    "default_iallocator",
    "default_iallocator_params",
    "prealloc_wipe_disks",
    "rapi_require_authentication",
    "ndparams",
    "use_external_mip_script",
    "modify_etc_hosts",
    "enabled_user_shutdown",
    "file_storage_dir",
    "shared_file_storage_dir",
    "zeroing_image",
    "diagnose_data_collector_filename",
    "maint_round_delay",
    "maint_balance",
    "maint_balance_threshold",
    "maint_balance_load",
    "maint_balance_disk_moves",
    "maint_repairs",
)
#: Options whose empty value means "not given".
_UNLESS_EMPTY: Final = ("beparams", "data_collector_interval")
_MICROSECONDS: Final = 1_000_000
_COLLECTORS: Final = (*mond.DATA_COLLECTOR_NAMES, *mond.FURTHER_COLLECTOR_NAMES)


def run(ctx: CommandContext) -> int:
    """Change cluster parameters, or explain all parameters."""
    if ctx.opts.help_parameters:
        from ganeti.commands.cli.help import manual_parameters

        ctx.out(manual_parameters.all_kinds())
        return exitcodes.EXIT_SUCCESS
    changes = _changes(ctx)
    if not any(value is not None for value in changes.values()):
        raise errors.OpPrereqError(
            "nothing to change: please give at least one parameter",
            ecodes.ECODE_INVAL,
        )
    operation = jobs.op("OP_CLUSTER_SET_PARAMS", force=ctx.opts.force, **changes)
    job = submission.submit_or_run(ctx, operation)
    if not isinstance(job.result, dict):
        return job.code
    outcomes = executor.wait_for_jobs(ctx, job.result)
    if all(outcome.success for outcome in outcomes):
        return exitcodes.EXIT_SUCCESS
    return exitcodes.EXIT_FAILURE


def _changes(ctx: CommandContext) -> dict[str, Any]:
    opts = ctx.opts
    changes = {name: getattr(opts, name) for name in _SAME}
    changes |= {name: getattr(opts, name) or None for name in _UNLESS_EMPTY}
    changes["nicparams"] = param_options.nic_parameters(opts.nicparams) or None
    changes |= param_options.state_parameters(opts)
    changes |= {
        "hvparams": param_options.by_ident(opts.hvparams, "hypervisor") or None,
        "diskparams": param_options.by_ident(opts.diskparams, "disk template") or None,
        "enabled_hypervisors": param_options.split_words(opts.enabled_hypervisors),
        "enabled_disk_templates": param_options.split_words(
            opts.enabled_disk_templates
        ),
        "reserved_lvs": param_options.split_words(opts.reserved_lvs),
        "compression_tools": _compression_tools(opts.compression_tools),
        "uid_pool": param_options.uid_ranges(opts.uid_pool),
        "add_uids": param_options.uid_ranges(opts.add_uids),
        "remove_uids": param_options.uid_ranges(opts.remove_uids),
        "ipolicy": ipolicy.from_options(ctx) or None,
        "master_netmask": _netmask(opts.master_netmask),
        "enabled_data_collectors": _collectors(ctx),
        "automation_limits": _limits(opts.automation_limits),
    }
    if changes["data_collector_interval"]:
        changes["data_collector_interval"] = _intervals(
            changes["data_collector_interval"]
        )
    return changes


def _compression_tools(text: str | None) -> list[str] | None:
    if text == "":
        return list(export.IEC_DEFAULT_TOOLS)
    return param_options.split_words(text)


def _netmask(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(text)
    except ValueError as err:
        raise errors.OpPrereqError(
            f"master netmask: wanted a prefix length, found {text!r}",
            ecodes.ECODE_INVAL,
        ) from err


def _limits(given: dict[str, Any]) -> dict[str, float | None] | None:
    if not given:
        return None
    from ganeti.commands.cluster.automatons import automation

    return automation.parse_limits(given)


def _collectors(ctx: CommandContext) -> dict[str, bool] | None:
    given = ctx.opts.enabled_data_collectors
    for name in given:
        if name not in _COLLECTORS:
            ctx.err(f"{name}: no such data collector")
    settings = {
        name: str(value).lower().startswith("t")
        for name, value in given.items()
        if name in _COLLECTORS
    }
    return settings or None


def _intervals(given: dict[str, Any]) -> dict[str, int]:
    """Convert collector=seconds to microseconds."""
    try:
        return {
            name: round(values.finite(float(value) * _MICROSECONDS))
            for name, value in given.items()
        }
    except (ValueError, TypeError) as err:
        raise errors.OpPrereqError(
            "data collector interval: wanted collector=seconds", ecodes.ECODE_INVAL
        ) from err
