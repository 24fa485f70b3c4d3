"""Files written whole: atomically, with their mode from the first moment on."""

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Sequence


def write_file(
    path: str,
    data: str | bytes,
    *,
    mode: int = 0o644,
    owner: tuple[int, int] | None = None,
    keep_backup: bool = False,
    durable: bool = True,
) -> None:
    """Replace a file atomically; readers see the old or the new content.

    Args:
        path: the file; its directory must exist.
        data: the whole new content.
        mode: permissions, never wider at any moment.
        owner: user and group id; the caller's own if None.
        keep_backup: copy the old file aside first, see `backup`.
        durable: wait until the content is on the disk.

    Raises:
        OSError: the directory cannot be written.
    """
    if keep_backup:
        backup(path)
    raw = data.encode() if isinstance(data, str) else data
    temp = f"{path}.new-{secrets.token_hex(4)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temp, flags, 0o600)
    try:
        with open(fd, "wb") as stream:
            stream.write(raw)
            stream.flush()
            if owner is not None:
                os.fchown(fd, *owner)
            os.fchmod(fd, mode)
            if durable:
                os.fsync(fd)
        os.rename(temp, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temp)
        raise
    if durable:
        _sync_directory(os.path.dirname(path))


def _sync_directory(path: str) -> None:
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def backup(path: str) -> str | None:
    """Copy a file to ``<path>.backup-<unix time>.<random>``, with its mode.

    Returns:
        the copy, None when there is no such file.
    """
    if not os.path.exists(path):
        return None
    copy = f"{path}.backup-{time.time():.0f}.{secrets.token_hex(3)}"
    fd = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "wb") as target, open(path, "rb") as source:
        shutil.copyfileobj(source, target)
    shutil.copystat(path, copy)
    return copy


def remove_file(path: str) -> bool:
    """Remove a file; return false when it was not there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def read_text(path: str, default: str | None = None) -> str:
    """Return a text file's content.

    Args:
        path: the file.
        default: returned when there is no such file; without it OSError is raised.
    """
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except FileNotFoundError:
        if default is None:
            raise
        return default


def make_dirs(entries: Sequence[tuple[str, int]]) -> None:
    """Make directories with exactly these modes, parents with 0755."""
    for path, mode in entries:
        os.makedirs(path, mode=0o755, exist_ok=True)
        os.chmod(path, mode)
