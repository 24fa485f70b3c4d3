"""Pid files: decimal pid and newline, locked for as long as the process lives.

The lock and not the content says whether the daemon runs, so that a pid file left
behind by a crash stops nobody.
"""

import fcntl
import os
from typing import Self

from ganeti import errors


class PidFile:
    """The locked pid file of this process; a context manager that removes it."""

    def __init__(self, path: str) -> None:
        """Lock and write the file.

        Raises:
            PidFileLockError: a live process holds it.
            OSError: it cannot be written.
        """
        self.path = path
        self._fd = _open_locked(path)
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def remove(self) -> None:
        """Remove the file, then release the lock; harmless when done twice."""
        if self._fd < 0:
            return
        os.unlink(self.path)
        os.close(self._fd)
        self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.remove()


def _open_locked(path: str) -> int:
    """Return a locked descriptor of the file that the path names now."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as err:
            os.close(fd)
            raise errors.PidFileLockError(
                f"{path}: locked by process {read_pid(path)}, which still runs"
            ) from err
        try:
            current = os.stat(path).st_ino == os.fstat(fd).st_ino
        except FileNotFoundError:
            current = False
        # The previous owner may have removed the file between open and lock.
        if current:
            return fd
        os.close(fd)


def read_pid(path: str) -> int | None:
    """Return the pid that a file holds, None if there is none."""
    try:
        with open(path, encoding="ascii") as stream:
            return int(stream.read().strip())
    except (OSError, ValueError):
        return None


def is_locked(path: str) -> bool:
    """Tell whether a live process holds the file."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
