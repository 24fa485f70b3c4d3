"""Locking of a daemon into RAM, so that it continues when the disk fails."""

import ctypes
import logging
import os
import resource
from typing import Final

_log = logging.getLogger(__name__)

#: Flags of mlockall(2) on Linux.
_MCL_CURRENT: Final = 1
_MCL_FUTURE: Final = 2
#: Number of the capability IPC_LOCK.
_CAP_IPC_LOCK: Final = 14
_STATUS: Final = "/proc/self/status"


def _may_lock_anything() -> bool:
    """Return whether this process has the capability that lifts the limit."""
    try:
        with open(_STATUS, encoding="ascii", errors="replace") as src:
            rows = dict(line.split(":", 1) for line in src if ":" in line)
        return bool(int(rows["CapEff"], 16) >> _CAP_IPC_LOCK & 1)
    except (OSError, KeyError, ValueError):
        return False


def lock_memory() -> bool:
    """Lock all present and future memory of this process; return whether it worked.

    Failures are logged: a daemon that can be paged out is better than none. With a
    finite limit nothing is locked, since later allocations would fail; a process with
    the capability to lock memory needs no limit.
    """
    try:
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, unlimited)
    except (OSError, ValueError) as err:
        if not _may_lock_anything():
            _log.warning(
                "memory is not locked: the limit of locked memory is not unlimited: %s",
                err,
            )
            return False
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if library.mlockall(_MCL_CURRENT | _MCL_FUTURE) != 0:
            number = ctypes.get_errno()
            _log.warning("memory is not locked: %s", os.strerror(number))
            return False
    except (OSError, AttributeError) as err:
        _log.warning("memory is not locked: no mlockall: %s", err)
        return False
    _log.debug("memory is locked")
    return True
