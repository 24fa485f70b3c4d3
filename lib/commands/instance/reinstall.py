"""``reinstall``: run the create scripts of the operating system again."""

from ganeti.base.constants import exitcodes
from ganeti.commands.cli import prompts
from ganeti.commands.cli.app import CliError
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs
from ganeti.commands.cli.waiting.executor import JobExecutor
from ganeti.commands.instance import selection
from ganeti.commands.instance.devices import refusal
from ganeti.commands.os.names import usable_names


def run(ctx: CommandContext) -> int:
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
        executor.add(
            name,
            jobs.op(
                "OP_INSTANCE_REINSTALL",
                instance_name=name,
                os_type=os_name,
                force_variant=opts.force_variant,
                osparams=opts.osparams or None,
                osparams_private=opts.osparams_private or None,
                osparams_secret=opts.osparams_secret or None,
            ),
        )
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
    os_names = usable_names(ctx, generic=True)
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
