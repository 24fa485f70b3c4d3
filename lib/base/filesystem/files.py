"""Files: atomic replacement, locks, checked directories.

All code that replaces a file of the cluster uses `write_file`, so that a reader sees
either the old or the new content, never a part of it.
"""

import contextlib
import errno
import fcntl
import glob
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from typing import Final

from ganeti.base import errors

#: Pause between attempts to get a lock with a time limit, in seconds.
_LOCK_RETRY_S = 0.02
#: Most bytes that `read_file` reads of a file unless its caller says otherwise, and
#: those of what the kernel says of a process.
MAX_READ: Final = 16 * 1024 * 1024
#: For files that have the whole configuration, or a row for each file of a node, and
#: that only root of this node writes.
WHOLE_STATE: Final = 1024 * 1024 * 1024
_PIECE: Final = 64 * 1024
MAX_PROC: Final = 4 * 1024 * 1024
#: Number of characters of a file's name that its temporary file's name repeats.
_NAME_SHARE = 100
#: End of the name of a file that is being written.
_UNFINISHED = ".new"
#: In the name of a backup, between the file's name and the time.
_BACKUP = ".backup-"


def read_file(path: str, *, max_size: int = MAX_READ, follow: bool = True) -> bytes:
    """Return the content of a regular file.

    Args:
        path: the file.
        max_size: most bytes that it may have.
        follow: whether it may be a symbolic link.

    Raises:
        OSError: it cannot be read, or is a pipe, a device or a refused link.
        GenericError: it is larger than ``max_size`` bytes.
    """
    with _opened(path, follow=follow) as fd:
        data = _bytes(fd, max_size + 1)
    if len(data) > max_size:
        raise errors.GenericError(f"{path}: larger than {max_size} bytes")
    return data


def read_start(path: str, size: int) -> bytes:
    """Return the beginning of a file that another program writes.

    Args:
        path: the file; not a symbolic link.
        size: most bytes that are read.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    with _opened(path, follow=False) as fd:
        return _bytes(fd, size)


def text_of(path: str, size: int) -> str:
    """Return `read_start` as text, in which wrong bytes are replaced."""
    return read_start(path, size).decode(errors="replace")


def read_end(path: str, size: int, *, start: int = 0) -> bytes:
    """Return the end of a file that another program writes, such as a log.

    Args:
        path: the file; not a symbolic link.
        size: most bytes that are read.
        start: bytes at the beginning that do not count.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    with _opened(path, follow=False) as fd:
        os.lseek(fd, max(start, os.fstat(fd).st_size - size), os.SEEK_SET)
        return _bytes(fd, size)


@contextlib.contextmanager
def _opened(path: str, *, follow: bool) -> Iterator[int]:
    """Open a regular file for reading; a pipe is not waited for."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    fd = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "wanted a regular file", path)
        yield fd
    finally:
        os.close(fd)


def _bytes(fd: int, limit: int) -> bytes:
    """Read to the end or to a limit; in pieces, as daemons lock what they allocate."""
    pieces = []
    while limit > 0 and (data := os.read(fd, min(limit, _PIECE))):
        pieces.append(data)
        limit -= len(data)
    return b"".join(pieces)


def write_file(
    path: str,
    data: bytes | str,
    *,
    mode: int = 0o600,
    uid: int = -1,
    gid: int = -1,
    times: tuple[float, float] | None = None,
    sync_name: bool = True,
) -> None:
    """Replace a file atomically and durably.

    A file that is a mount point, as in /etc of containers, cannot be replaced and is
    overwritten in place.

    Args:
        path: the file; a symbolic link is replaced, not followed.
        data: the content; text is written as UTF-8.
        mode: permission bits.
        uid: owner, -1 for this process's user.
        gid: group, -1 for this process's group.
        times: access and modification time, seconds since 1970.
        sync_name: false if the caller makes the new directory entry durable, with
            `sync_dir`; for many files in one directory.

    Raises:
        OSError: nothing was changed.
    """
    directory, name = os.path.split(path)
    fd, temporary = tempfile.mkstemp(
        prefix=_prefix(name), suffix=_UNFINISHED, dir=directory
    )
    try:
        with os.fdopen(fd, "wb") as stream:
            stream.write(data.encode() if isinstance(data, str) else data)
            stream.flush()
            if (uid, gid) != (-1, -1):
                os.fchown(fd, uid, gid)
            os.fchmod(fd, mode)
            if times is not None:
                os.utime(fd, times)
            os.fsync(fd)
        _put_in_place(temporary, path)
    except BaseException as err:
        if isinstance(err, OSError) and err.filename is None:
            # Errors of descriptors, such as those of a full disk, name no file.
            err.filename = path
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    if sync_name:
        sync_dir(directory or ".")


def _prefix(name: str) -> str:
    """Return how the name of a file that is being written begins."""
    # The longest names leave no space for the suffix.
    return f".{name[:_NAME_SHARE]}."


def remove_unfinished(path: str) -> None:
    """Remove what `write_file` left of a file when its process was killed."""
    directory, name = os.path.split(path)
    start = glob.escape(os.path.join(directory, _prefix(name)))
    for each in glob.glob(f"{start}*{_UNFINISHED}"):
        remove_file(each)


def _put_in_place(temporary: str, path: str) -> None:
    """Rename a file onto its target; copy it if the target is a mount point."""
    try:
        os.rename(temporary, path)
    except OSError as err:
        if err.errno != errno.EBUSY:
            raise
        with open(path, "wb") as stream:
            stream.write(read_file(temporary))
            stream.flush()
            os.fsync(stream.fileno())
        shutil.copystat(temporary, path)
        os.unlink(temporary)


def sync_file(path: str) -> None:
    """Have a file's content written to disk, and the entry in its directory.

    Raises:
        OSError: it cannot be.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    sync_dir(os.path.dirname(path))


def sync_dir(path: str) -> None:
    """Make changes of a directory's entries durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as err:
        # Some network file systems refuse to sync directories.
        if err.errno != errno.EINVAL:
            raise
    finally:
        os.close(fd)


def make_sparse(path: str, size: int) -> None:
    """Make a new file of a size in bytes, without data, that only its owner can use.

    Raises:
        OSError: it cannot be made, or exists.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        os.ftruncate(fd, size)
    finally:
        os.close(fd)


def remove_file(path: str) -> bool:
    """Remove a file; return false if the file did not exist."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def backup_file(path: str, directory: str) -> str:
    """Copy a file with its mode into a directory and return the copy's path."""
    moment = time.strftime("%Y-%m-%d_%H_%M_%S")
    name = f"{os.path.basename(path)}{_BACKUP}{moment}."
    os.makedirs(directory, mode=0o700, exist_ok=True)
    fd, copy = tempfile.mkstemp(prefix=name, dir=directory)
    with os.fdopen(fd, "wb") as stream:
        stream.write(read_file(path))
        os.fchmod(fd, stat.S_IMODE(os.stat(path).st_mode))
        stream.flush()
        os.fsync(fd)
    return copy


def remove_backups(path: str, directory: str) -> int:
    """Remove all copies of a file that `backup_file` made; return how many."""
    name = f"{os.path.basename(path)}{_BACKUP}"
    copies = glob.glob(f"{glob.escape(os.path.join(directory, name))}*")
    return sum(remove_file(copy) for copy in copies)


def make_dir(path: str, mode: int, *, uid: int = -1, gid: int = -1) -> None:
    """Create a directory unless it exists, then give it mode and owner.

    Raises:
        GenericError: the path exists and is not a directory.
        OSError: the directory cannot be created or changed.
    """
    try:
        os.makedirs(path, mode)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise errors.GenericError(
                f"{path}: wanted a directory, found something else"
            ) from None
    os.chmod(path, mode)
    if (uid, gid) != (-1, -1):
        os.chown(path, uid, gid)


def version(path: str) -> tuple[int, int, int]:
    """Return numbers that change when a file is written or replaced.

    Raises:
        OSError: it cannot be examined.
    """
    info = os.stat(path)
    return info.st_ino, info.st_mtime_ns, info.st_size


def fingerprint(path: str) -> str | None:
    """Return the hexadecimal SHA-1 of a file's content, None if it is not a file."""
    try:
        with open(path, "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                return None
            return hashlib.file_digest(stream, "sha1").hexdigest()
    except OSError:
        return None


@contextlib.contextmanager
def locked(
    path: str, *, timeout_s: float | None = None, shared: bool = False
) -> Iterator[int]:
    """Hold the lock of a lock file, which is created and stays; yield its descriptor.

    Its directory is made, too: the one of all lock files is gone after a reboot. Only
    the owner may enter it.

    Args:
        path: the lock file.
        timeout_s: 0 to try once, None to wait without limit.
        shared: take a shared lock, which several readers may hold.

    Raises:
        LockError: the lock was not free within the timeout.
    """
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _lock(fd, path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, timeout_s)
        yield fd
    finally:
        os.close(fd)


def _lock(fd: int, path: str, kind: int, timeout_s: float | None) -> None:
    if timeout_s is None:
        fcntl.flock(fd, kind)
        return
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise errors.LockError(
                    f"{path}: not locked within {timeout_s:g} seconds"
                ) from None
        else:
            return
        time.sleep(_LOCK_RETRY_S)
