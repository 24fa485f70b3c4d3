"""``modify``: change cluster parameters."""

from typing import Any, Final

from ganeti.base.constants import exitcodes
from ganeti.base.constants.protocols import export, mond
from ganeti.base.errors import refusal
from ganeti.commands.cli import ipolicy, param_options, values
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import executor, jobs, operation, submission

_MICROSECONDS: Final = 1_000_000
_COLLECTORS: Final = (*mond.DATA_COLLECTOR_NAMES, *mond.FURTHER_COLLECTOR_NAMES)


def run(ctx: CommandContext) -> int:
    """Change cluster parameters, or explain all parameters."""
    if ctx.opts.help_parameters:
        from ganeti.commands.cli.help import manual

        ctx.out(manual.all_kinds())
        return exitcodes.EXIT_SUCCESS
    request = _request(ctx)
    operation.require_changes(ctx, request)
    job = submission.submit_or_run(ctx, request)
    if not isinstance(job.result, dict):
        return job.code
    outcomes = executor.wait_for_jobs(ctx, job.result)
    if all(outcome.success for outcome in outcomes):
        return exitcodes.EXIT_SUCCESS
    return exitcodes.EXIT_FAILURE


def _request(ctx: CommandContext) -> jobs.Op:
    opts = ctx.opts
    return operation.fill(
        ctx,
        compression_tools=_compression_tools(opts.compression_tools),
        ipolicy=ipolicy.from_options(ctx) or None,
        master_netmask=_netmask(opts.master_netmask),
        enabled_data_collectors=_collectors(ctx),
        automation_limits=_limits(opts.automation_limits),
        data_collector_interval=_intervals(opts.data_collector_interval) or None,
    )


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
        raise refusal(
            f"master netmask: wanted a prefix length, found {text!r}"
        ) from err


def _limits(given: dict[str, Any]) -> dict[str, float | None] | None:
    if not given:
        return None
    from ganeti.commands.cluster import automation

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
        raise refusal("data collector interval: wanted collector=seconds") from err
