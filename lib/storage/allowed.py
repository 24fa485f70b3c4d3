"""Which directories may hold disk files: the administrator's list and hard limits.

The list is a file that only root of the node writes and that never travels, so that
nobody with cluster rights alone can reach other files of a node. Specified in
storage-units, section 5.
"""

import os
from collections.abc import Iterable
from typing import Final

from ganeti import errors, pathutils

#: Never hold disks, whatever the list says; everything below them neither.
FORBIDDEN: Final = frozenset(
    {
        "/boot",
        "/dev",
        "/etc",
        "/home",
        "/proc",
        "/root",
        "/sys",
        *(
            f"{prefix}/{name}"
            for prefix in ("", "/usr", "/usr/local")
            for name in ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
        ),
    }
)


def list_file(paths: pathutils.Paths) -> str:
    """Return the file that lists allowed directories, one a line."""
    return f"{paths.conf_dir}/file-storage-paths"


def local_path(paths: pathutils.Paths, path: str) -> str:
    """Return the place on this node of a storage path.

    On a virtual node plain paths are put below its root; virtual ones and those
    already below the root are accepted too.

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
    """Tell whether a normalised path is inside a directory."""
    return path.startswith(root.rstrip("/") + "/") or (exact_ok and path == root)


def load(paths: pathutils.Paths) -> list[str]:
    """Return the allowed directories on this node, sorted; none without the file."""
    try:
        with open(list_file(paths), encoding="utf-8") as src:
            lines = [line.strip() for line in src]
    except FileNotFoundError:
        return []
    wanted = (line for line in lines if line and not line.startswith("#"))
    return sorted({local_path(paths, line) for line in wanted})


def wrong_paths(paths: pathutils.Paths) -> list[str]:
    """Return the listed directories that may not be on the list, sorted."""
    return sorted(path for path in load(paths) if forbidden(paths, path))


def forbidden(paths: pathutils.Paths, path: str) -> bool:
    """Tell whether a local path is, or is in, a system directory."""
    plain = path[len(paths.root) :] if paths.root else path
    return plain in {"", "/"} or any(
        is_below(root, plain, exact_ok=True) for root in FORBIDDEN
    )


def check(
    paths: pathutils.Paths,
    path: str,
    *,
    exact_ok: bool = False,
    allowed: Iterable[str] | None = None,
) -> str:
    """Return the place on this node of a directory or file for disks.

    Args:
        paths: this node.
        path: as configured.
        exact_ok: whether a listed directory itself is accepted.
        allowed: local directories to use in place of the node's list.

    Raises:
        FileStoragePathError: the path is in no allowed directory, or in a system one.
    """
    local = local_path(paths, path)
    if forbidden(paths, local):
        raise errors.FileStoragePathError(
            f"{path}: system directories may not hold disks"
        )
    for root in load(paths) if allowed is None else allowed:
        if is_below(root, local, exact_ok=exact_ok) and not forbidden(paths, root):
            return local
    raise errors.FileStoragePathError(
        f"{path}: not below a directory listed in {list_file(paths)}"
    )


def check_usable(paths: pathutils.Paths, directory: str) -> str | None:
    """Return why a configured storage directory cannot be used, None if it can."""
    try:
        local = check(paths, directory, exact_ok=True)
    except errors.FileStoragePathError as err:
        return str(err)
    if not os.path.isdir(local):
        return f"{directory}: wanted a directory, found none"
    if not os.access(local, os.R_OK | os.W_OK | os.X_OK):
        return f"{directory}: not writable"
    return None
