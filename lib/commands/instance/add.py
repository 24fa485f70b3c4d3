"""``add``, ``batch-create`` and ``reinstall``: instances with a new system."""

import json
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import exitcodes
from ganeti.base.errors import refusal
from ganeti.commands.cli import private_params, prompts
from ganeti.commands.cli.app import CliError
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import executor, jobs, operation, submission
from ganeti.commands.cli.waiting.executor import JobExecutor
from ganeti.commands.instance import devices, selection
from ganeti.commands.os.commands import usable_names

#: Shown in place of the name that a reservation lacks.
_NAMELESS: Final = "(no name)"


def run(ctx: CommandContext) -> int:
    """Create an instance."""
    opts = ctx.opts
    shared = parameters(opts)
    name = _name(ctx)
    creation = operation.fill(
        ctx,
        mode="create",
        instance_name=name,
        disks=_disks(opts),
        nics=_nics(opts),
        no_nics=None,
        **shared,
    )
    if opts.explain:
        from ganeti.commands.cli.output import explain

        return explain.run(ctx, creation, name or _NAMELESS)
    job = submission.submit_or_run(ctx, creation)
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
    """Return the parameters of a new instance that are no option's value.

    Args:
        opts: values of `ganeti.commands.cli.options.NEW_INSTANCE`.

    Raises:
        OpPrereqError: the hypervisor has a form that removes something.
    """
    hypervisor, hvparams = opts.hypervisor or (None, {})
    if not isinstance(hvparams, dict):
        raise refusal(f"hypervisor {hypervisor}: cannot be removed here")
    return {
        "hypervisor": hypervisor,
        "hvparams": hvparams,
        "beparams": opts.beparams,
        "osparams": opts.osparams,
        "osparams_private": private_params.private_parameters(opts),
        "tags": opts.tags.split(",") if opts.tags else [],
        **_nodes(opts.node),
    }


def _nodes(text: str | None) -> dict[str, str]:
    """Return the parameters of PRIMARY[:SECONDARY]."""
    primary, _, secondary = (text or "").partition(":")
    named = {"pnode": primary, "snode": secondary}
    return {key: name for key, name in named.items() if name}


_OP_ID: Final = "OP_INSTANCE_CREATE"


def _read(path: str) -> list[Any]:
    try:
        with open(path, encoding="utf-8") as stream:
            entries = json.load(stream)
    except OSError as err:
        raise refusal(f"cannot read {path}: {err.strerror}") from err
    except ValueError as err:
        raise refusal(f"{path}: not JSON: {err}") from err
    if not isinstance(entries, list):
        raise refusal(f"{path}: wanted a list of objects")
    return entries


def _creation(entry: Any, index: int) -> jobs.Op:
    from ganeti.model import opcodes

    if not isinstance(entry, dict):
        raise refusal(f"entry {index}: wanted an object, found {entry!r}")
    known = set(opcodes.InstanceCreate.__struct_fields__)
    unknown = sorted(set(entry) - known)
    if unknown:
        raise refusal(f"entry {index}: unknown parameters {', '.join(unknown)}")
    return {**entry, "OP_ID": _OP_ID}


def batch_create(ctx: CommandContext) -> int:
    """Create instances in one allocation."""
    entries = _read(ctx.args[0])
    request = operation.fill(
        ctx,
        instances=[_creation(entry, index) for index, entry in enumerate(entries)],
    )
    if ctx.opts.explain:
        from ganeti.commands.cli.output import explain

        return explain.run(ctx, request)
    job = submission.submit_or_run(ctx, request)
    if not job.is_done:
        return job.code
    outcomes = executor.wait_for_jobs(ctx, job.result)
    for name in job.result["failed"]:
        text = "the allocator found no nodes"
        ctx.err(f"Instance {name}: {text}")
        outcomes.append(
            executor.JobOutcome(name, success=False, result=text, job_id=None)
        )
    return executor.report(
        ctx,
        outcomes,
        good="All instances created successfully.",
        bad="There were {} errors during the creation.",
    )


def reinstall(ctx: CommandContext) -> int:
    """Reinstall instances."""
    opts = ctx.opts
    names = selection.expand(ctx, opts.multi_mode)
    if not names:
        raise refusal("the selection matches no instances")
    several = opts.multi_mode not in (None, "instances") or len(names) > 1
    os_name = _select_os(ctx) if opts.select_os else opts.os
    if not _agreed(ctx, names, several=several):
        return exitcodes.EXIT_FAILURE
    executor = JobExecutor(ctx)
    for name in names:
        executor.add(name, operation.fill(ctx, instance_name=name, os_type=os_name))
    return executor.finish_or_show(quiet=not several)


def _agreed(ctx: CommandContext, names: list[str], *, several: bool) -> bool:
    if ctx.opts.force_multi or (ctx.opts.force and not several):
        return True
    extra = (
        "Note: this will remove *all* data for the below instances! It will be"
        " unrecoverable.\n"
    )
    if several:
        return prompts.confirm_operation(
            ctx, names, kind="instances", operation="reinstall", extra=extra
        )
    return prompts.confirm(
        ctx,
        f"This will reinstall the instance '{names[0]}' (and delete all data on its"
        " first disk). Continue?",
    )


def _select_os(ctx: CommandContext) -> str:
    os_names = usable_names(ctx)
    if not os_names:
        raise refusal("no usable operating system found")
    ctx.out("Available OS templates:")
    for number, name in enumerate(os_names):
        ctx.out(f"{number:3d}: {name}")
    choices = [(str(number), name) for number, name in enumerate(os_names)]
    answer = prompts.ask(
        ctx,
        "Enter OS template number (or x to abort):",
        (*choices, ("x", "exit the program")),
    )
    if answer == "x":
        raise CliError("User aborted reinstall, exiting")
    return os_names[int(answer)]
