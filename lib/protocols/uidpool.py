"""The user-id pool: a separate user for each guest process of a node.

The first functions parse and change the cluster's setting, the others lease ids on a
node. The names in CapWords are documented for use by other code. See the 2.1 design
document, section "User-id pool".

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
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Self, TypeVar

from ganeti.base import errors, process
from ganeti.base.constants import ecodes, misc
from ganeti.base.pathutils import Paths, from_environ

__all__ = [
    "ExecWithUnusedUid",
    "ExpandUidPool",
    "LockedUid",
    "ParseUidPool",
    "Pool",
    "ReleaseUid",
    "RequestUnusedUid",
    "add_ranges",
    "check",
    "check_overlaps",
    "format_pool",
    "remove_ranges",
]

#: Ranges that include both bounds; a single id has equal bounds.
Pool = list[tuple[int, int]]


def ParseUidPool(value: str, separator: str | None = None) -> Pool:
    """Return the sorted ranges of a text such as ``8000-8019,9100``.

    Args:
        value: the text; empty elements are skipped.
        separator: separator of ranges, by default a comma; ssconf has newlines.

    Raises:
        OpPrereqError: an element is neither an id nor a range, or is out of bounds.
    """
    elements = value.split("," if separator is None else separator)
    pool = sorted(_parse_range(text) for text in elements if text.strip())
    check(pool)
    return pool


def _parse_range(text: str) -> tuple[int, int]:
    bounds = text.strip().split("-")
    try:
        if len(bounds) == 1:
            return int(bounds[0]), int(bounds[0])
        lower, higher = bounds
        return int(lower), int(higher)
    except ValueError:
        raise errors.OpPrereqError(
            f"user-id pool: wanted ID or LOWER-HIGHER, found {text.strip()!r}",
            ecodes.ECODE_INVAL,
        ) from None


def check(pool: Iterable[Sequence[int]]) -> None:
    """Refuse ranges with swapped bounds or out of bounds.

    Raises:
        OpPrereqError: names the range.
    """
    for lower, higher in pool:
        if lower > higher:
            raise errors.OpPrereqError(
                f"user-id pool: lower bound {lower} above higher bound {higher}",
                ecodes.ECODE_INVAL,
            )
        if lower < misc.UIDPOOL_UID_MIN or higher > misc.UIDPOOL_UID_MAX:
            raise errors.OpPrereqError(
                f"user-id pool: {lower}-{higher} is not within"
                f" {misc.UIDPOOL_UID_MIN}-{misc.UIDPOOL_UID_MAX}",
                ecodes.ECODE_INVAL,
            )


def check_overlaps(
    pool: Sequence[tuple[int, int]], present: Iterable[Sequence[int]] = ()
) -> None:
    """Refuse sorted ranges with common uids, which are mistakes in most cases.

    Those that are in the cluster already stay: Ganeti permits them, and clusters that
    were taken over may have some.

    Raises:
        OpPrereqError: names both ranges.
    """
    known = {(low, high) for low, high in present}
    for number, (low, high) in enumerate(pool):
        for later in pool[number + 1 :]:
            if later[0] <= high and not {(low, high), later} <= known:
                raise errors.OpPrereqError(
                    f"uid pool: ranges {low}-{high} and {later[0]}-{later[1]} overlap",
                    ecodes.ECODE_INVAL,
                )


def format_pool(pool: Iterable[Sequence[int]], separator: str = ", ") -> str:
    """Return the text of a pool, which `ParseUidPool` reads again."""
    return separator.join(
        str(lower) if lower == higher else f"{lower}-{higher}" for lower, higher in pool
    )


def add_ranges(pool: Iterable[Sequence[int]], ranges: Iterable[Sequence[int]]) -> Pool:
    """Return a pool with further ranges; ranges that are equal are not added twice."""
    result = {(lower, higher) for pair in (pool, ranges) for lower, higher in pair}
    return sorted(result)


def remove_ranges(
    pool: Iterable[Sequence[int]], ranges: Iterable[Sequence[int]]
) -> Pool:
    """Return a pool without some ranges.

    Raises:
        OpPrereqError: the pool does not have exactly this range.
    """
    result = [(lower, higher) for lower, higher in pool]
    for lower, higher in ranges:
        if (lower, higher) not in result:
            raise errors.OpPrereqError(
                f"user-id pool: {format_pool([(lower, higher)])} is not in"
                f" {format_pool(result) or 'the empty pool'}",
                ecodes.ECODE_NOENT,
            )
        result.remove((lower, higher))
    return sorted(result)


def ExpandUidPool(uid_pool: Iterable[Sequence[int]]) -> set[int]:
    """Return all ids of a pool."""
    return {uid for lower, higher in uid_pool for uid in range(lower, higher + 1)}


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
