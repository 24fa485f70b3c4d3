"""Private parameters from a file or standard input: others can read command lines.

``@FILE`` or ``@-`` replaces ``key=value,...``. The file has one ``key=value`` per line,
without any quoting; empty lines and lines that begin with ``#`` are ignored. Errors
have line numbers, never the content of a line.
"""

from collections.abc import Iterable
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.values import PrivateFile

_STDIN: Final = "-"


def resolve(ctx: CommandContext) -> None:
    """Replace the names of files by the parameters in these files.

    Raises:
        OpPrereqError: a file cannot be read, or a line is not ``key=value``.
    """
    for option in ctx.command.options:
        value = getattr(ctx.opts, option.dest, None)
        if isinstance(value, PrivateFile):
            setattr(ctx.opts, option.dest, _read(ctx, option.names[-1], value.path))


def _read(ctx: CommandContext, option: str, path: str) -> dict[str, Any]:
    if path == _STDIN:
        return _parse(ctx.effects.stdin, f"{option}: standard input")
    try:
        with open(path, encoding="utf-8") as stream:
            return _parse(stream, f"{option}: {path}")
    except (OSError, UnicodeDecodeError) as err:
        reason = getattr(err, "strerror", None) or "is not text"
        raise _refusal(f"{option}: cannot read {path}: {reason}") from err


def _parse(lines: Iterable[str], what: str) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r\n")
        if not text.strip() or text.startswith("#"):
            continue
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise _refusal(f"{what}, line {number}: wanted key=value")
        if key in parameters:
            raise _refusal(f"{what}, line {number}: key {key} is given twice")
        parameters[key] = value
    return parameters


def _refusal(text: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(text, ecodes.ECODE_INVAL)
