"""Directories of commands that a node's administrator allows others to run.

Only root can have put a command there: directory and command belong to root, and nobody
else may write to them. See doc/security.rst.
"""

import os
import stat
from collections.abc import Callable
from typing import Any, Final

from ganeti.base import errors

_MAX_MODE: Final = 0o755


def find(
    directory: str,
    name: str,
    *,
    is_name: Callable[[str], bool],
    is_virtual: bool,
) -> str:
    """Return the path of an allowed command.

    Args:
        directory: of the allowed commands.
        name: of the command, as somebody else gave it.
        is_name: returns whether a name is permitted.
        is_virtual: the user of a virtual node counts as root.

    Raises:
        GenericError: name, owner, mode or type of file are not permitted.
        OSError: directory or command does not exist.
    """
    if not name.strip() or not is_name(name):
        raise errors.GenericError(f"{name!r} is not a valid command name")
    program = f"{directory}/{name}"
    _check(directory, os.lstat(directory), stat.S_ISDIR, is_virtual)
    info = os.lstat(program)
    _check(program, info, stat.S_ISREG, is_virtual)
    if not info.st_mode & stat.S_IXUSR:
        raise errors.GenericError(f"{program}: not executable for its owner")
    return program


def _check(
    path: str, info: os.stat_result, is_kind: Callable[[Any], bool], is_virtual: bool
) -> None:
    owner = (os.geteuid(), os.getegid()) if is_virtual else (0, 0)
    if not is_kind(info.st_mode):
        raise errors.GenericError(f"{path}: wrong type of file")
    if (info.st_uid, info.st_gid) != owner:
        raise errors.GenericError(f"{path}: wanted owner and group {owner}")
    if stat.S_IMODE(info.st_mode) & ~_MAX_MODE:
        raise errors.GenericError(f"{path}: mode allows more than {_MAX_MODE:o}")
