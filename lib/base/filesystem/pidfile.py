"""Pid files: decimal pid and newline, locked as long as the process lives.

The lock, not the content, shows whether the daemon runs, so that a pid file left by a
crash does not prevent a start.
"""

import fcntl
import os
import re
from collections.abc import Callable
from typing import Final, Self

from ganeti.base import errors
from ganeti.base.filesystem import files

#: Bytes of a pid file that are read.
_MAX_PID: Final = 32
_PID_FORM: Final = re.compile(r"[1-9][0-9]{0,9}")


class PidFile:
    """The locked pid file of this process; a context manager that removes it."""

    def __init__(self, path: str, on_locked: Callable[[], None] = lambda: None) -> None:
        """Lock and write the file.

        Args:
            path: of the file.
            on_locked: called between both; nobody can read the pid before it returns.

        Raises:
            PidFileLockError: a live process holds the lock.
            OSError: the file cannot be written.
        """
        self.path = path
        self._fd = _open_locked(path)
        os.ftruncate(self._fd, 0)
        on_locked()
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def remove(self) -> None:
        """Remove the file, then release the lock; may be called twice.

        A daemon that has changed its user empties the file instead.
        """
        if self._fd < 0:
            return
        try:
            os.unlink(self.path)
        except PermissionError:
            os.ftruncate(self._fd, 0)
        os.close(self._fd)
        self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.remove()


def _open_locked(path: str) -> int:
    """Return a locked descriptor of the file that the path names currently."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as err:
            os.close(fd)
            raise errors.PidFileLockError(
                f"{path}: locked by process {read_pid(path)}, which is still running"
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
    """Return the pid in a file, None if it cannot be read or has no pid."""
    try:
        return pid_in(path)
    except OSError:
        return None


def pid_in(path: str) -> int | None:
    """Return the pid in a file's first line, None if it is missing or has no pid.

    The process that it names may have written more than that, and is not believed.

    Raises:
        OSError: the file cannot be read, or is a link, a pipe or a device.
    """
    try:
        text = files.text_of(path, _MAX_PID).partition("\n")[0].strip(" \t")
    except FileNotFoundError:
        return None
    # To the kernel, 0 and negative numbers are groups of processes, or all of them.
    return int(text) if _PID_FORM.fullmatch(text) else None


def live_pid(path: str, program: str) -> int | None:
    """Return the pid in a file if this process runs a program, None otherwise.

    The lock is not tried, since that could keep a daemon from starting. A pid that
    another program uses now does not count.

    Args:
        path: of the file.
        program: its name, as in ``/proc/PID/cmdline``.
    """
    pid = read_pid(path)
    if pid is None or pid <= 0:
        return None
    try:
        words = files.text_of(f"/proc/{pid}/cmdline", files.MAX_PROC)
    except OSError:
        return None
    return pid if program in words else None


def is_locked(path: str) -> bool:
    """Return whether a live process holds the file's lock."""
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
