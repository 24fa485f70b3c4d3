"""Leases of user ids on one node.

In the lock directory, a file named by the number means "probably used"; its POSIX lock
means "being leased". An id is free only if no process runs under it. The open file
holds the lock, not the process, so that the lock also excludes other threads of the
same daemon, and other programs with POSIX locks.
"""

import errno
import fcntl
import os
import random
import struct
from collections.abc import Callable, Iterable
from typing import Any, Final, Self, TypeVar

from ganeti.base import errors, process
from ganeti.base.pathutils import Paths, from_environ

T = TypeVar("T")

_DIR_MODE: Final = 0o755
#: ``struct flock`` of a lock on a whole file: type, whence, start, length, pid.
_FLOCK: Final = "hhqqi0q"
_BUSY: Final = (errno.EAGAIN, errno.EACCES)


class LockedUid(int):
    """A user id that is reserved while this object holds its lock.

    It is the number itself: ``os.setuid(uid)`` and ``subprocess.run(..., user=uid)``
    take it.
    """

    _fd: int

    def __new__(cls, uid: int, fd: int) -> Self:
        """Make the id from its number and the open file that holds its lock."""
        locked = super().__new__(cls, uid)
        locked._fd = fd
        return locked

    def Unlock(self) -> None:
        """Release the lock; the id stays marked as used. May be called repeatedly."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def GetUid(self) -> int:
        """Return the plain number."""
        return int(self)

    def AsStr(self) -> str:
        """Return the number as text."""
        return str(self)

    def __str__(self) -> str:
        return str(int(self))

    def __repr__(self) -> str:
        return f"LockedUid({self})"


def lock_dir(paths: Paths | None = None) -> str:
    """Return the directory of the lock files."""
    paths_used = from_environ(os.environ) if paths is None else paths
    return f"{paths_used.run_dir}/uid-pool"


def RequestUnusedUid(
    all_uids: Iterable[int],
    *,
    paths: Paths | None = None,
    runner: process.Runner | None = None,
) -> LockedUid:
    """Lock and return an id that no process uses.

    Start the process, then call ``Unlock``; on failure call `ReleaseUid`.

    Args:
        all_uids: the whole pool.
        paths: paths of this node; by default those that the environment selects.
        runner: starts ``pgrep``.

    Raises:
        LockError: no id is free, or the lock directory cannot be used.
    """
    directory = lock_dir(paths)
    try:
        os.makedirs(directory, _DIR_MODE, exist_ok=True)
        names = os.listdir(directory)
    except OSError as err:
        raise errors.LockError(f"{directory}: {err.strerror}") from err
    taken = {int(name) for name in names if name.isascii() and name.isdigit()}
    for uid in _in_order(set(all_uids), taken):
        locked = _try(f"{directory}/{uid}", uid)
        if locked is None:
            continue
        try:
            in_use = _is_in_use(uid, runner or process.SystemRunner())
        except BaseException:
            locked.Unlock()
            raise
        if not in_use:
            return locked
        locked.Unlock()
    raise errors.LockError("user-id pool: no free user id is left")


def _in_order(uids: set[int], taken: set[int]) -> list[int]:
    """Return unmarked ids first, each group in random order."""
    choose = random.SystemRandom()
    fresh, marked = sorted(uids - taken), sorted(uids & taken)
    return choose.sample(fresh, len(fresh)) + choose.sample(marked, len(marked))


def _try(path: str, uid: int) -> LockedUid | None:
    """Lock the file of an id; None if another process or thread has the lock."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as err:
        raise errors.LockError(f"{path}: {err.strerror}") from err
    wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, wanted)
    except OSError as err:
        os.close(fd)
        if err.errno in _BUSY:
            return None
        raise errors.LockError(f"{path}: {err.strerror}") from err
    return LockedUid(uid, fd)


def _is_in_use(uid: int, runner: process.Runner) -> bool:
    result = runner.run(["pgrep", "-u", str(uid)])
    if result.code not in (0, 1):
        raise errors.LockError(
            f"user id {uid}: pgrep {result.reason}: {result.output.strip()}"
        )
    return result.code == 0


def ReleaseUid(uid: LockedUid | int, *, paths: Paths | None = None) -> None:
    """Release an id to the pool, without a check for processes that use it.

    Raises:
        LockError: the id was not marked as used.
    """
    if isinstance(uid, LockedUid):
        uid.Unlock()
    path = f"{lock_dir(paths)}/{int(uid)}"
    try:
        os.unlink(path)
    except OSError as err:
        raise errors.LockError(f"{path}: {err.strerror}") from err


def ExecWithUnusedUid(
    fn: Callable[..., T],
    all_uids: Iterable[int],
    *args: Any,
    paths: Paths | None = None,
    runner: process.Runner | None = None,
    **kwargs: Any,
) -> T:
    """Call a function with an unused id as ``uid``; release the id if the call fails.

    Returns:
        the function's result; the id stays marked as used.
    """
    uid = RequestUnusedUid(all_uids, paths=paths, runner=runner)
    try:
        result = fn(*args, uid=uid, **kwargs)
    except BaseException:
        ReleaseUid(uid, paths=paths)
        raise
    uid.Unlock()
    return result
