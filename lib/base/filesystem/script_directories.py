"""Directories of scripts and text files that administrators install on nodes.

What the scripts are for does not belong here; operating systems and providers of
external storage have such directories.
"""

import os
import stat
from collections.abc import Iterator
from typing import Final

from ganeti.base import errors
from ganeti.base.filesystem import files

#: Permission bits that give others than the owner the right to write.
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
#: As many as the kernel follows.
_MAX_LINKS: Final = 40


class DefectError(Exception):
    """A defect of a directory or of its files; the text names the file."""


def subdirectories(root: str) -> list[str]:
    """Return the names of visible directories, sorted; none if it cannot be read."""
    try:
        names = sorted(os.listdir(root))
    except OSError:
        return []
    return [
        name
        for name in names
        if not name.startswith(".") and os.path.isdir(f"{root}/{name}")
    ]


def lines(path: str, name: str, *, required: bool) -> list[str]:
    """Return the lines of a text file without comments and empty lines.

    Raises:
        DefectError: a required file is missing, or the file cannot be read as text.
    """
    file = f"{path}/{name}"
    if not required and not os.path.lexists(file):
        return []
    require_regular(file, name)
    try:
        text = files.read_file(file, max_size=files.MAX_READ).decode()
    except (OSError, errors.GenericError, UnicodeDecodeError) as err:
        raise DefectError(f"{name}: cannot be read: {err}") from err
    stripped = (line.strip() for line in text.splitlines())
    return [line for line in stripped if line and not line.startswith("#")]


def parameters(path: str, name: str) -> tuple[tuple[str, str], ...]:
    """Return name and text of each line of a required list of parameters.

    Raises:
        DefectError: the file is missing or cannot be read as text.
    """
    rows = (line.partition(" ") for line in lines(path, name, required=True))
    return tuple((parameter, text.strip()) for parameter, _, text in rows)


def script(path: str, name: str) -> str:
    """Return the path of a script.

    Raises:
        DefectError: it is missing, no regular file, or not executable.
    """
    file = f"{path}/{name}"
    mode = require_regular(file, f"script {name}")
    if not mode & stat.S_IXUSR:
        raise DefectError(f"script {name}: not executable")
    return file


def require_regular(file: str, what: str) -> int:
    """Return the mode of a regular file.

    Raises:
        DefectError: it is missing, or something else.
    """
    try:
        mode = os.stat(file).st_mode
    except OSError as err:
        raise DefectError(f"{what}: {err.strerror}") from err
    if not stat.S_ISREG(mode):
        raise DefectError(f"{what}: wanted a regular file")
    return mode


def require_owned(path: str, *, top: str, owner: int) -> None:
    """Refuse a file that another user than its owner could replace or change.

    It, every directory through which its path leads, and symbolic links on the way must
    belong to the owner or to root, and nobody else may write there. Directories in
    which everybody may create files, but not replace those of others, are accepted.

    Args:
        path: absolute path of the file or directory.
        top: directory whose parents do not matter, such as the root of a node.
        owner: user id.

    Raises:
        DefectError: another user could.
    """
    end = os.path.realpath(top or "/")
    for place in _way(path):
        if place == end or not end.startswith(f"{place.rstrip('/')}/"):
            _require_owner(place, owner)


def _way(path: str) -> Iterator[str]:
    """Yield all directories and links that lead to a file, and the file.

    The directory of a link counts as well as that of its target: whoever may write
    there can put another link into its place.

    Raises:
        DefectError: too many links.
    """
    place, links = "/", 0
    parts = path.split("/")[::-1]
    yield place
    while parts:
        part = parts.pop()
        if part in ("", "."):
            continue
        if part == "..":
            place = os.path.dirname(place)
            continue
        step = f"{place.rstrip('/')}/{part}"
        yield step
        try:
            target = os.readlink(step)
        except OSError:
            place = step
            continue
        links += 1
        if links > _MAX_LINKS:
            raise DefectError(f"{path}: too many symbolic links")
        parts += target.split("/")[::-1]
        if target.startswith("/"):
            place = "/"


def _require_owner(place: str, owner: int) -> None:
    try:
        info = os.lstat(place)
    except OSError as err:
        raise DefectError(f"{place}: {err.strerror}") from err
    if info.st_uid not in (0, owner):
        raise DefectError(f"{place}: wanted owner root, found user id {info.st_uid}")
    is_shared = stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX
    if stat.S_ISLNK(info.st_mode) or is_shared:
        return
    if info.st_mode & _OTHERS_WRITE:
        raise DefectError(
            f"{place}: others than its owner may write to it (mode"
            f" {stat.S_IMODE(info.st_mode):o})"
        )
