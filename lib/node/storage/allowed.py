"""Directories that may hold disk files: the administrator's list and hard limits.

Only root of the node writes the file with the list, and no node sends it to another.
Cluster rights alone therefore do not give access to other files of a node. A node that
becomes a member of a cluster without such a file gets one with built-in directories
only. Specified in storage-units, section 5.
"""

import os
from collections.abc import Iterable
from typing import Final

from ganeti import _buildconf
from ganeti.base import errors, pathutils
from ganeti.base.filesystem import beneath, files

#: The directories that a new list may contain.
BUILT_IN: Final = (_buildconf.FILE_STORAGE_DIR, _buildconf.SHARED_FILE_STORAGE_DIR)
#: First line of a list that `write_default_list` wrote; the package looks for it.
LIST_HEADER: Final = "# Written by Ganeti: directories that may hold disk files."
_LIST_MODE: Final = 0o644
#: Most bytes of a list.
_MAX_LIST: Final = 1024 * 1024
_DIRECTORY_MODE: Final = 0o750


def list_file(paths: pathutils.Paths) -> str:
    """Return the path of the file that lists allowed directories, one per line."""
    return f"{paths.conf_dir}/file-storage-paths"


def local_path(paths: pathutils.Paths, path: str) -> str:
    """Return the local path of a storage path.

    On a virtual node, plain paths are below the node's root; virtual paths and paths
    that are already below the root are accepted too.

    Raises:
        FileStoragePathError: the path is not absolute.
    """
    if path.startswith(pathutils.VIRTUAL_PREFIX):
        return paths.localize(path)
    if not path.startswith("/"):
        raise errors.FileStoragePathError(f"{path}: wanted an absolute path")
    path = os.path.normpath(path)
    if is_below(paths.root, path, exact_ok=True):
        return path
    return paths.at(path)


def is_below(root: str, path: str, *, exact_ok: bool = False) -> bool:
    """Return whether a normalised path is inside a directory."""
    # With the separator: /srv/disks-old is not below /srv/disks.
    return path.startswith(root.rstrip("/") + "/") or (exact_ok and path == root)


def load(paths: pathutils.Paths) -> list[str]:
    """Return the allowed directories on this node, sorted; empty without the file.

    Raises:
        FileStoragePathError: the file is not text in UTF-8; names the line.
    """
    path = list_file(paths)
    try:
        data = files.read_file(path, max_size=_MAX_LIST)
        text = data.decode()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as err:
        number = data.count(b"\n", 0, err.start) + 1
        raise errors.FileStoragePathError(
            f"{path}, line {number}: wanted UTF-8, found {data[err.start]:#x}"
        ) from err
    lines = (line.strip() for line in text.splitlines())
    wanted = (line for line in lines if line and not line.startswith("#"))
    return sorted({local_path(paths, line) for line in wanted})


def write_default_list(paths: pathutils.Paths, wanted: Iterable[str]) -> list[str]:
    """Write the list of this node, unless it has one.

    Args:
        paths: paths of this node.
        wanted: directories of the cluster; those that are not built in are left out.

    Returns:
        The listed directories, empty if nothing was written.

    Raises:
        OSError: the file cannot be written.
    """
    listed = [path for path in BUILT_IN if path in set(wanted)]
    if not listed or os.path.lexists(list_file(paths)):
        return []
    files.make_dir(paths.conf_dir, 0o755)
    text = "".join(f"{line}\n" for line in (LIST_HEADER, *listed))
    files.write_file(list_file(paths), text, mode=_LIST_MODE)
    return listed


def make_allowed_directory(paths: pathutils.Paths, directory: str) -> None:
    """Create a directory for disks; one that is not allowed here is left out.

    Raises:
        OSError: the directory cannot be created.
    """
    try:
        local = check(paths, directory, exact_ok=True)
    except errors.FileStoragePathError:
        return
    os.makedirs(local, mode=_DIRECTORY_MODE, exist_ok=True)


def wrong_paths(paths: pathutils.Paths) -> list[str]:
    """Return those listed directories that are forbidden, sorted."""
    return sorted(path for path in load(paths) if forbidden(paths, path))


def forbidden(paths: pathutils.Paths, path: str) -> bool:
    """Return whether a local path is, or is in, a system directory."""
    plain = path[len(paths.root) :] if paths.root else path
    return pathutils.system_directory_around(plain) is not None


def check(
    paths: pathutils.Paths,
    path: str,
    *,
    exact_ok: bool = False,
    allowed: Iterable[str] | None = None,
) -> str:
    """Return the local path of a directory for disks, to show or to examine it.

    What is in the directory is opened by `place`. A listed directory may be a symbolic
    link, and directories below it may not.

    Args:
        paths: paths of this node.
        path: the configured path.
        exact_ok: whether a listed directory itself is accepted.
        allowed: local directories that replace the node's list.

    Raises:
        FileStoragePathError: the path is in no allowed directory, or in a system one,
            or a symbolic link leads out of it.
    """
    named = place(paths, path, exact_ok=exact_ok, allowed=allowed)
    real = os.path.realpath(named.path)
    if not is_below(os.path.realpath(named.top), real, exact_ok=True):
        raise errors.FileStoragePathError(
            f"{path}: a symbolic link leads out of {named.top}, to {real}"
        )
    return named.path


def place(
    paths: pathutils.Paths,
    path: str,
    *,
    exact_ok: bool = False,
    allowed: Iterable[str] | None = None,
) -> beneath.Place:
    """Return the place of a directory or file for disks, which is not examined.

    See `check` for the arguments.

    Raises:
        FileStoragePathError: the path is in no allowed directory, or in a system one.
    """
    local = local_path(paths, path)
    if forbidden(paths, local):
        raise errors.FileStoragePathError(
            f"{path}: system directories may not hold disks"
        )
    for root in load(paths) if allowed is None else allowed:
        # The list is an administrator's text, so a line of it can name a system
        # directory.
        if is_below(root, local, exact_ok=exact_ok) and not forbidden(paths, root):
            return beneath.Place(root, local[len(root) :].strip("/"))
    raise errors.FileStoragePathError(
        f"{path}: not below a directory listed in {list_file(paths)}"
    )


def check_usable(paths: pathutils.Paths, directory: str) -> str | None:
    """Return the reason why a storage directory cannot be used, or None."""
    try:
        with place(paths, directory, exact_ok=True).directory() as fd:
            inside = f"/proc/self/fd/{fd}"
            if not os.access(inside, os.R_OK | os.W_OK | os.X_OK):
                return f"{directory}: not writable"
    except errors.FileStoragePathError as err:
        return str(err)
    except OSError:
        return f"{directory}: wanted a directory, found none"
    return None
