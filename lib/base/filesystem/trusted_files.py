"""Files and commands that nobody but root can replace: owners and modes of paths."""

import os
import stat
from collections.abc import Callable, Collection
from typing import Any, Final

from ganeti.base import errors

#: Most symbolic links in one path, as the kernel allows (path_resolution(7)).
_MAX_LINKS: Final = 40


class _Path:
    """Walks a path as the kernel does, and checks each directory that it enters."""

    def __init__(
        self, owners: Collection[int], *, sticky_is_safe: bool, is_program: bool
    ) -> None:
        self._owners = owners
        self._is_program = is_program
        self._sticky_is_safe = sticky_is_safe

    def problem(self, path: str) -> str | None:
        if not os.path.isabs(path):
            return f"{path}: wanted an absolute path"
        here, parts, links = "/", _parts(path), 0
        if problem := self._directory(here):
            return problem
        while parts:
            name = parts.pop(0)
            if name == "..":
                here = os.path.dirname(here)
                continue
            below = os.path.join(here, name)
            info = os.lstat(below)
            if stat.S_ISLNK(info.st_mode):
                links += 1
                if links > _MAX_LINKS:
                    return f"{path}: too many symbolic links"
                target = os.readlink(below)
                here = "/" if os.path.isabs(target) else here
                parts[:0] = _parts(target)
                continue
            problem = self._directory(below) if parts else self._file(below, info)
            if problem:
                return problem
            here = below
        return None

    def _file(self, path: str, info: os.stat_result) -> str | None:
        if not stat.S_ISREG(info.st_mode):
            return f"{path} is not a regular file"
        if self._is_program and not info.st_mode & stat.S_IXUSR:
            return f"{path} is not executable for its owner"
        return self._owned(path, info)

    def _directory(self, path: str) -> str | None:
        info = os.lstat(path)
        if not stat.S_ISDIR(info.st_mode):
            return f"{path} is not a directory"
        # Nobody can rename or remove the files of others in a sticky directory, such as
        # /tmp, unless it is his own.
        is_own = self._sticky_is_safe or info.st_uid in self._owners
        if is_own and info.st_mode & stat.S_ISVTX:
            return None
        return self._owned(path, info)

    def _owned(self, path: str, info: os.stat_result) -> str | None:
        if info.st_uid not in self._owners:
            return f"{path} belongs to user {info.st_uid}, wanted root"
        writers = stat.S_IWGRP | stat.S_IWOTH
        if self._sticky_is_safe and info.st_gid == os.getegid():
            writers = stat.S_IWOTH
        if info.st_mode & writers:
            mode = stat.S_IMODE(info.st_mode)
            return f"{path} can be written by others than its owner (mode {mode:04o})"
        return None


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def program_problem(path: str, *, is_virtual: bool) -> str | None:
    """Return why a program must not be run as root, None if it may be.

    The program and each directory on the way to it, also through symbolic links, must
    belong to root, and nobody else may write there. Then nobody else can replace it
    between this check and its start.

    Args:
        path: of the program.
        is_virtual: the node is one of a virtual cluster: the user of this process
            counts as root, and directories such as /tmp are allowed.
    """
    return _problem(path, is_virtual=is_virtual, is_program=True)


def file_problem(path: str, *, is_virtual: bool) -> str | None:
    """Return why the content of a file is not root's, None if it is.

    See `program_problem`.
    """
    return _problem(path, is_virtual=is_virtual, is_program=False)


def _problem(path: str, *, is_virtual: bool, is_program: bool) -> str | None:
    owners = {0, os.geteuid()} if is_virtual else {0}
    try:
        return _Path(owners, sticky_is_safe=is_virtual, is_program=is_program).problem(
            path
        )
    except FileNotFoundError:
        return f"{path} does not exist"
    except OSError as err:
        return f"{path}: {err.strerror}"
    except ValueError:
        return f"{path!r}: no path has a zero byte"


_MAX_MODE: Final = 0o755


def find_command(
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
