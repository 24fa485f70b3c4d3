"""From argv to the exit code of a program."""

import importlib
import os
import sys
import time
from collections.abc import Sequence
from typing import Final

from ganeti.base import errors
from ganeti.base.constants import exitcodes
from ganeti.base.text.control_chars import render
from ganeti.commands.cli import parser
from ganeti.commands.cli.context import (
    STDOUT,
    ClientEffects,
    CommandContext,
    real_effects,
)
from ganeti.commands.cli.model import Command, Program

_EXIT_USAGE: Final = 2


class CliError(Exception):
    """A refused or failed command: text for stderr (may be empty), exit code."""

    def __init__(self, text: str, code: int = exitcodes.EXIT_FAILURE) -> None:
        super().__init__(text)
        self.text = text
        self.code = code


def main(
    program: Program,
    argv: list[str] | None = None,
    *,
    effects: ClientEffects | None = None,
) -> int:
    """Run a program; return its exit code.

    Args:
        program: the table of its commands.
        argv: arguments after the program's name, by default those of this process.
        effects: the client's effects, by default those of this process.
    """
    words = sys.argv[1:] if argv is None else argv
    effects = real_effects() if effects is None else effects
    try:
        code = _run(program, words, effects)
        effects.stdout.flush()
    except BrokenPipeError:
        _silence(effects)
        return exitcodes.EXIT_FAILURE
    except OSError as err:
        from ganeti.commands.cli.output import error_text

        effects.stderr.write(f"{error_text.describe_system_error(err)}\n")
        _silence(effects)
        return exitcodes.EXIT_FAILURE
    except KeyboardInterrupt as err:
        effects.stderr.write(f"\nAborted. {_going_on(err.args)}\n")
        return exitcodes.EXIT_FAILURE
    return code


def _going_on(job_ids: Sequence[int]) -> str:
    """Return what an interrupted command leaves behind."""
    if not job_ids:
        # Perhaps the answer to a submission was still on its way.
        return (
            "Jobs that were already submitted may continue in the background; see"
            " 'gnt-job list'."
        )
    first, *more = sorted(job_ids)
    if more:
        return (
            f"Jobs {', '.join(map(str, (first, *more)))} go on in the background; see"
            f" 'gnt-job info {first}', or cancel one with 'gnt-job cancel {first}'."
        )
    return (
        f"Job {first} goes on in the background; follow it with"
        f" 'gnt-job watch {first}', or cancel it with 'gnt-job cancel {first}'."
    )


def _silence(effects: ClientEffects) -> None:
    """Prevent the interpreter's message about a closed stdout at exit."""
    if effects.stdout is sys.stdout:
        null = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(null, stream.fileno())


def _run(program: Program, words: list[str], effects: ClientEffects) -> int:
    first = words[0] if words else ""
    if foreign := [word for word in words if not _is_text(word)]:
        effects.stderr.write(
            f"Error: wanted arguments in UTF-8, found {foreign[0]!a}\n"
        )
        return exitcodes.EXIT_FAILURE
    if first == "--version":
        from ganeti.commands.cli.help import usage

        effects.stdout.write(f"{usage.version_line(program.name)}\n")
        return exitcodes.EXIT_SUCCESS
    command = program.find(first)
    if command is None:
        from ganeti.commands.cli.help import usage

        if first and not first.startswith("-"):
            effects.stderr.write(f"{render(usage.unknown_command(program, first))}\n")
            effects.stdout.write(f"{usage.command_list(program)}\n")
            return exitcodes.EXIT_FAILURE
        effects.stdout.write(f"{usage.command_list(program)}\n")
        asked = first in ("--help", "-h")
        return exitcodes.EXIT_SUCCESS if asked else exitcodes.EXIT_FAILURE
    rest = _defaults(program, command, effects) + words[1:]
    return _run_command(CommandContext(program, command, first, effects=effects), rest)


def _is_text(word: str) -> bool:
    """Return whether an argument has no bytes that the interpreter could not decode."""
    return not any("\udc80" <= char <= "\udcff" for char in word)


def _defaults(program: Program, command: Command, effects: ClientEffects) -> list[str]:
    if command.name != "list" or not program.list_defaults:
        return []
    text = effects.environ.get(program.list_defaults, "")
    if not text:
        return []
    import shlex

    return shlex.split(text)


def _run_command(ctx: CommandContext, words: list[str]) -> int:
    try:
        return _checked_run(ctx, words)
    except parser.UsageError as err:
        from ganeti.commands.cli.help import usage

        ctx.err(f"{usage.usage_block(ctx.program, ctx.command)}\n")
        ctx.err(f"{ctx.program.name}: error: {err}")
        _hint(ctx, usage.more_help(ctx.program, ctx.command))
        return _EXIT_USAGE
    except CliError as err:
        if err.text:
            _complain(ctx, err.text)
        return err.code
    except errors.GenericError as err:
        return _report(ctx, err)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        raise KeyboardInterrupt(*ctx.jobs) from None
    except OSError as err:
        return _report_system_error(ctx, err)
    except Exception as err:  # noqa: BLE001 users never see a traceback
        return _report_unexpected(ctx, err)
    finally:
        ctx.progress("")


def _checked_run(ctx: CommandContext, words: list[str]) -> int:
    ctx.opts, ctx.args, warnings = parser.parse(ctx.command, words)
    if ctx.opts.help:
        from ganeti.commands.cli.help import usage

        ctx.out(usage.command_help(ctx.program, ctx.command))
        return exitcodes.EXIT_SUCCESS
    for text in warnings:
        ctx.err(f"Warning: {text}")
    try:
        parser.check_count(ctx.command, ctx.args)
    except errors.GenericError as err:
        from ganeti.commands.cli.help import usage

        _complain(ctx, str(err))
        _hint(ctx, usage.more_help(ctx.program, ctx.command))
        return exitcodes.EXIT_FAILURE
    if any(option.kind == "keyprivateval" for option in ctx.command.options):
        from ganeti.commands.cli import private_params

        private_params.resolve(ctx)
    log(ctx, f"started by uid {os.getuid()}")
    parser.check_options(ctx.command, ctx.opts)
    module, _, function = ctx.command.run.partition(":")
    run = getattr(importlib.import_module(f"ganeti.{module}"), function)
    code: int | None = run(ctx)
    return exitcodes.EXIT_SUCCESS if code is None else code


def _report(ctx: CommandContext, err: errors.GenericError) -> int:
    from ganeti.commands.cli.output import error_text, hints

    if isinstance(err, errors.NoMasterError):
        text, code = error_text.describe_unreachable(err, ctx.paths)
    else:
        text, code = error_text.describe(err)
    _complain(ctx, text)
    hints.show(ctx, hints.find(text))
    return code


def _hint(ctx: CommandContext, text: str) -> None:
    from ganeti.commands.cli.output import hints

    hints.show(ctx, hints.Hint("", hints.YOU, text))


def _report_system_error(ctx: CommandContext, err: OSError) -> int:
    from ganeti.commands.cli.output import error_text

    _log_traceback(ctx, err)
    if err.filename == STDOUT:
        raise err
    _complain(ctx, error_text.describe_system_error(err))
    return exitcodes.EXIT_FAILURE


def _log_traceback(ctx: CommandContext, err: Exception) -> None:
    import traceback

    for line in "".join(traceback.format_exception(err)).splitlines():
        log(ctx, line, level="ERROR")


def _report_unexpected(ctx: CommandContext, err: Exception) -> int:
    from ganeti.commands.cli.output import error_text

    _log_traceback(ctx, err)
    text = error_text.describe_defect(err, after=ctx.last_method)
    _complain(ctx, f"{text}\n{error_text.where_logged(ctx.paths)}")
    return exitcodes.EXIT_FAILURE


def _complain(ctx: CommandContext, text: str) -> None:
    for line in text.splitlines():
        log(ctx, line, level="ERROR")
    from ganeti.commands.cli.output import colours

    paint = colours.Painter.of(ctx, ctx.effects.stderr)
    ctx.err(paint("error", text), is_styled=True)


def log(ctx: CommandContext, text: str, *, level: str = "INFO") -> None:
    """Add a line to the log of commands, and to stderr with ``-d``.

    Option values are not logged: they may be secret.
    """
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ctx.effects.now()))
    name = f"{ctx.program.name} {ctx.word}"
    line = f"{stamp}: '{name}' pid={os.getpid()} {level} {text}"
    if ctx.option("debug", 0):
        ctx.err(line)
    try:
        path = f"{ctx.paths.log_dir}/commands.log"
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except (OSError, errors.OpPrereqError):
        return  # not installed, or not permitted: the command works without the log
    try:
        os.write(descriptor, f"{line}\n".encode(errors="replace"))
    except OSError:
        return  # a full disk must not stop the command
    finally:
        os.close(descriptor)
