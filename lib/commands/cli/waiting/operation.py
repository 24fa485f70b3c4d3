"""The opcode of a command: filled as its row says, submitted, and reported.

A command with a question, or with a result to print, has a module of its own, which
passes `run` or `fill` the parameters that are no option's value. Option rows are not
made from the opcodes: loading these takes longer than a whole command.
"""

from typing import Any, Final

from ganeti.base.errors import refusal
from ganeti.commands.cli import param_options
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.model import Option
from ganeti.commands.cli.waiting import jobs, submission

#: Attributes of options for the job or the output, which are no parameters.
OWN: Final = frozenset(
    (
        *("dry_run", "explain", "json", "plan", "print_jobid", "priority"),
        *("confirm", "force_multi", "multi_mode", "submit_only", "yes_do_it"),
        *("color", "no_headers", "output", "roman_integers", "separator", "units"),
    )
)


def field_of(option: Option) -> str | None:
    """Return the parameter that an option gives, None for none."""
    if option.field is None or option.dest in OWN:
        return None
    return option.field or option.dest or None


def fill(ctx: CommandContext, **parameters: Any) -> jobs.Op:
    """Return the opcode with the values of the command's arguments and options.

    An option that is not given leaves a list or mapping to the opcode's default.

    Args:
        ctx: the command.
        parameters: replace those of the row; None leaves one out.
    """
    command = ctx.command
    filled: dict[str, Any] = {}
    words = ctx.args
    for row in command.arguments:
        if row.maximum is None:
            filled |= dict.fromkeys(row.parameters, words)
            break
        filled |= zip(row.parameters, words, strict=False)
        words = words[row.maximum :]
    for option in command.options:
        name = field_of(option)
        if name is None or name in parameters:
            continue
        value = getattr(ctx.opts, option.dest)
        is_given = value or not isinstance(value, (dict, list))
        if not is_given and (option.repeat or option.default is not None):
            continue
        filled[name] = value if option.convert is None else option.convert(value)
    return jobs.op(command.opcodes[0], **{**filled, **parameters})


def run(ctx: CommandContext, **parameters: Any) -> int:
    """Fill, explain, plan, submit or run the opcode; return the exit code.

    Args:
        ctx: the command.
        parameters: see `fill`.

    Raises:
        OpPrereqError: no change is requested, or one of several objects does not exist.
    """
    command, operation = ctx.command, fill(ctx, **parameters)
    first = command.arguments[0] if command.arguments else None
    if first is not None and first.maximum is None and not first.fields:
        from ganeti.commands.cli.waiting import executor

        return executor.for_named(ctx, first.kind, operation)
    if command.changes:
        require_changes(ctx, operation)
    if ctx.option("explain"):
        from ganeti.commands.cli.output import explain

        return explain.run(ctx, operation, operation.get("instance_name"))
    if command.reports:
        from ganeti.commands.cli.waiting import executor

        good, bad = command.reports
        return executor.run_and_report(
            ctx,
            [operation],
            good=good.replace("{name}", ctx.args[0]),
            bad=bad.replace("{name}", ctx.args[0]),
        )
    job = submission.submit_or_run(ctx, operation)
    if command.changes and job.is_done:
        what = f"{command.changes} {ctx.args[0]}"
        param_options.report_changes(ctx, what, job.result)
    return job.code


def require_changes(ctx: CommandContext, operation: jobs.Op) -> None:
    """Refuse an opcode that only names its object, and perhaps sets flags.

    Raises:
        OpPrereqError: it has nothing to change.
    """
    named = {name for row in ctx.command.arguments for name in row.parameters}
    flags = {field_of(row) for row in ctx.command.options if row.kind == "flag"}
    if operation.keys() <= {"OP_ID", *named, *flags}:
        raise refusal("nothing to change: please give at least one parameter")
