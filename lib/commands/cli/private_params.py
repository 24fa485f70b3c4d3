"""Private parameters from a file or standard input: others can read command lines.

``@FILE`` or ``@-`` replaces ``key=value,...``. The file has one ``key=value`` per line,
without any quoting; empty lines and lines that begin with ``#`` are ignored. Errors
have line numbers, never the content of a line. ``--cloud-init`` names files of the
caller that become private OS parameters; they need no quoting either.
"""

import os
import stat
from collections.abc import Iterable
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants.parameters import cloud_init
from ganeti.base.errors import refusal
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
        raise refusal(f"{option}: cannot read {path}: {reason}") from err


def _parse(lines: Iterable[str], what: str) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r\n")
        if not text.strip() or text.startswith("#"):
            continue
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise refusal(f"{what}, line {number}: wanted key=value")
        if key in parameters:
            raise refusal(f"{what}, line {number}: key {key} is given twice")
        parameters[key] = value
    return parameters


#: Value of a parameter that removes it.
_REMOVED = "default"


def private_parameters(opts: Any, *, may_remove: bool = False) -> dict[str, Any] | None:
    """Return the private OS parameters of a request, None without any.

    Args:
        opts: options with ``osparams_private`` and ``cloud_init``.
        may_remove: ``NAME=`` without a file removes that file of the seed.

    Raises:
        OpPrereqError: an unknown file of a seed, or one that cannot be read, is too
            large or is not text; or a parameter that is given twice.
    """
    given = dict(opts.osparams_private or {})
    for name, path in opts.cloud_init.items():
        if name not in cloud_init.FILES:
            raise _seed_refusal(
                f"{name}: wanted one of {', '.join(cloud_init.FILES)} and a file, as in"
                " user-data=FILE"
            )
        parameter = f"{cloud_init.PREFIX}{name}"
        if parameter in given:
            raise _seed_refusal(
                f"{name}: is also given as private OS parameter {parameter}"
            )
        if may_remove and path == "":
            given[parameter] = _REMOVED
        else:
            given[parameter] = _read_seed(name, str(path or ""), cloud_init.FILES[name])
    return given or None


def _read_seed(name: str, path: str, limit: int) -> str:
    try:
        # Not blocked by a pipe without a writer.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as src:
            if not stat.S_ISREG(os.fstat(src.fileno()).st_mode):
                raise _seed_refusal(f"{name}: {path} is not a regular file")
            data = src.read(limit + 1)
    except OSError as err:
        raise _seed_refusal(f"{name}: cannot read {path!r}: {err.strerror}") from err
    if len(data) > limit:
        raise _seed_refusal(f"{name}: {path}: wanted at most {limit} bytes, found more")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _seed_refusal(f"{name}: {path} is not text in UTF-8") from None


def _seed_refusal(text: str) -> errors.OpPrereqError:
    return refusal(f"--cloud-init {text}")
